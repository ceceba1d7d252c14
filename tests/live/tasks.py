"""Tasks for the tests of the engine. `python -m tests.live.tasks SCRATCH FOLDER SECONDS` is a driver of one of them."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from models.deployment import EngineOptions
from models.engine.scratch import Scratch
from models.engine.slurm import each_on_slurm
from models.engine.work import Task, Work


def slept(folder: Path, asked: tuple[int, float]) -> int:
    """Leave a mark for each run and the process id, sleep on the first run, and return the place."""
    place, seconds = asked
    (folder / f"{place}.pid").write_text(str(os.getpid()))
    with (folder / f"{place}.runs").open("a") as runs:
        runs.write("x")
    time.sleep(seconds)
    return place


def held(_folder: Path, mib: int) -> int:
    """Hold that much memory for some seconds, in which Slurm measures it."""
    block = b"x" * (mib << 20)
    time.sleep(4)
    return len(block) >> 20


def identity(_shared: object, value: int) -> int:
    """Return the argument: a task that costs nothing."""
    return value


def main(scratch: str, folder: str, seconds: str) -> None:
    """Run one task on Slurm and print its result."""
    from tests.live import tasks  # this file as a module that a worker can import

    work = Work(tasks.slept, [Task("sleep", (0, float(seconds)), "sleep")], Path(folder))
    options = EngineOptions(kind="slurm", partition="gpu", time="5m", memory="1G")
    print(json.dumps(list(each_on_slurm(work, options, Scratch(Path(scratch))))))


if __name__ == "__main__":
    main(*sys.argv[1:])
