"""Tasks for the tests of the engines. `python -m tests.live.tasks OPTIONS FOLDER SECONDS ...` runs some that sleep."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from models.deployment import EngineOptions
from models.engine.engines import engine_on
from models.engine.work import Task, Work


def slept(folder: Path, asked: tuple[int, float]) -> int:
    """Leave a mark for each run and the process id, sleep, at most until there is a file `go`, and return the place."""
    place, seconds = asked
    (folder / f"{place}.pid").write_text(str(os.getpid()))
    with (folder / f"{place}.runs").open("a") as runs:
        runs.write("x")
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (folder / "go").exists():
        time.sleep(0.05)
    return place


def held(_folder: Path, mib: int) -> int:
    """Hold that much memory for some seconds, in which Slurm measures it."""
    block = b"x" * (mib << 20)
    time.sleep(4)
    return len(block) >> 20


def filled(_folder: Path, mib: int) -> bytes:
    """Return so many MiB, which take their place in the scratch folder."""
    return bytes(mib << 20)


def size_of(path: Path, _argument: int) -> int:
    """Return the size of a file, which may be missing on this node."""
    return path.stat().st_size


def identity(_shared: object, value: int) -> int:
    """Return the argument: a task that costs nothing."""
    return value


def killed_below(_shared: object, least_bytes: int) -> int:
    """Return the memory that Ray reserves for this task, but die of signal 9 if it is less than that."""
    import ray

    memory = int(ray.get_runtime_context().get_assigned_resources()["memory"])
    if memory < least_bytes:
        os.kill(os.getpid(), signal.SIGKILL)
    return memory


def sleeps(folder: Path, *seconds: float) -> Work:
    """Tasks of so many seconds each."""
    from tests.live import tasks  # this file as a module that a worker can import

    return Work(tasks.slept, [Task(f"sleep {place}", (place, s), "sleep") for place, s in enumerate(seconds)], folder)


def main(options: str, folder: str, *seconds: str) -> None:
    """Run tasks on the engine with these options (JSON) and print their results."""
    engine = engine_on(EngineOptions(**json.loads(options)))
    print(json.dumps(sorted(engine(sleeps(Path(folder), *map(float, seconds)), 1))))


if __name__ == "__main__":
    main(*sys.argv[1:])
