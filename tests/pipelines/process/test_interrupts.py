"""SIGTERM and Ctrl-C end a command within a second: in kernels, compilers, databases and fits, children too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.pipelines.conftest import Baton
from traces.generate.logs import generate_slurm

MOST_S = 1.0
SAID = "\nbaton: interrupted; run again to resume\n"
BEGIN = """
import sys, threading, time
from pipelines.process.interrupts import orderly_end
def ready(after_s=0.5):
    timer = threading.Timer(after_s, lambda: print("ready", flush=True))
    timer.daemon = True
    timer.start()
"""
# A queue of 300,000 jobs on one processor: every pass of the conservative scheduler plans them all, for hours.
KERNEL = """
import numpy as np
from simulator.flat.replay import simulate
from simulator.workload import Workload
def jobs(n):
    ones = np.ones(n, np.int64)
    return Workload(np.arange(n), 0 * ones, ones, 100 * ones, 200 * ones, 0 * ones - 1)
with orderly_end():
    simulate(jobs(3), scheduler="conservative", capacity=1)
    ready()
    simulate(jobs(300_000), scheduler="conservative", capacity=1)
"""
IN_A_POOL = KERNEL.replace(
    "    ready()\n    simulate(",
    "    from concurrent.futures import ThreadPoolExecutor\n    ready()\n"
    "    with ThreadPoolExecutor(1) as pool:\n        pool.submit(simulate, ",
)
DATABASE = """
from traces.store.connections import in_memory
with orderly_end(), in_memory() as connection:
    ready()
    connection.execute("SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range * b.range % 7 = 1")
"""
# Nothing of it is in any cache: half a minute of type inference and LLVM.
COMPILER = """
import os
os.environ["XDG_CACHE_HOME"] = sys.argv[1]
from simulator.flat.replay import simulate
from simulator.workload import Workload
import numpy as np
with orderly_end():
    ready()
    ones = np.ones(3, np.int64)
    for name in ("conservative", "easy", "mirage", "fifo", "sjf"):
        simulate(Workload(ones, ones, ones, ones, ones, -ones), scheduler=name, capacity=1)
    time.sleep(60)
"""
FRAMES = """
import polars as pl
with orderly_end():
    frame = pl.DataFrame({"a": range(30_000)})
    ready()
    frame.join(frame, how="cross").join(frame, how="cross").select(pl.col("a").sort()).sum()
"""
POOL = """
with orderly_end():
    ready(float(sys.argv[1]))
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context
    from models.child import end_with_parent
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=end_with_parent) as pool:
        list(pool.map(sum, [range(10**14)] * 2))
"""
# Short sleeps: CPython looks for a signal before a sleep, and one that comes in the instant between does not end it.
CLEAN = """
with orderly_end():
    try:
        ready(0)
        for _ in range(600):
            time.sleep(0.1)
    finally:
        print("tidied up", flush=True)
"""
FIT = """
from models.provisioning.training.processes import fit_each
from models.provisioning.policies.forest import RandomForest
from tests.models.generated import queue_table
with orderly_end():
    ready(float(sys.argv[1]))
    fits = [(RandomForest(trees=1_000_000), seed) for seed in (0, 1)]
    list(fit_each(fits, queue_table(seed=2, starts=12)))
"""


def begin(program: str, *arguments: str) -> subprocess.Popen[str]:
    """The program, once it has said that it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", BEGIN + program, *arguments],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    late = threading.Timer(60, process.kill)  # a kernel that keeps the interpreter's lock lets no thread say it
    late.start()
    try:
        assert process.stdout.readline() == "ready\n"
    finally:
        late.cancel()
    return process


def end(process: subprocess.Popen[str], number: signal.Signals) -> tuple[float, str, str]:
    """Send the signal; seconds until it ended, and what it printed."""
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    return time.monotonic() - began, out, err


def children(process: int) -> list[int]:
    """Of that process; those that have ended and were not waited for left out."""
    listed = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(child) for child in listed if is_alive(int(child))]


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(true: Callable[[], object], most_s: float) -> bool:
    began = time.monotonic()
    while not true() and time.monotonic() - began < most_s:
        time.sleep(0.05)
    return bool(true())


@pytest.mark.timed
@pytest.mark.parametrize(
    "program",
    [KERNEL, IN_A_POOL, DATABASE, COMPILER, FRAMES],
    ids=["kernel", "pool", "database", "compiler", "frames"],
)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_library_that_does_not_come_back_is_not_waited_for(
    program: str, number: signal.Signals, code: int, tmp_path: Path
) -> None:
    process = begin(program, str(tmp_path))
    seconds, _, err = end(process, number)
    assert process.returncode == code and seconds < MOST_S
    assert SAID in err and err.count("interrupted") == 1
    assert "Traceback" not in err


@pytest.mark.timed
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_can_tidy_up_does(number: signal.Signals, code: int) -> None:
    process = begin(CLEAN)
    seconds, out, err = end(process, number)
    assert (process.returncode, out) == (code, "tidied up\n")
    assert "Traceback" not in err and err == SAID
    assert seconds < 3


def test_a_second_signal_ends_at_once() -> None:
    process = begin(KERNEL)
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert process.stderr.readline() == "\n" and "interrupted" in process.stderr.readline()
    seconds, *_ = end(process, signal.SIGINT)
    assert process.returncode == 130 and seconds < 3


@pytest.mark.timed
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a child goes on to the end of its work")
@pytest.mark.parametrize("program", [FIT, POOL], ids=["fits", "replays"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_children_end_with_the_command(program: str, number: signal.Signals, code: int) -> None:
    process = begin(program, "0")
    busy = min(
        2, len(os.sched_getaffinity(0))
    )  # past its imports, at work; one that keeps account of the others is not
    assert until(lambda: sum(_processor_s(child) > 2 for child in children(process.pid)) == busy, 90)
    fits = children(process.pid)
    seconds, *_ = end(process, number)
    assert process.returncode == code and seconds < MOST_S
    assert until(lambda: not any(map(is_alive, fits)), 2)


def _processor_s(process: int) -> float:
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
@pytest.mark.timed
def test_a_training_that_was_ended_goes_on(baton: Baton, tmp_path: Path) -> None:
    raw = generate_slurm(tmp_path, jobs=None, weeks=4, nodes=16, gpus_per_node=4, seed=3, steps=False, compress=False)
    data = tmp_path / "data"
    assert baton("ingest", raw, "--cluster", "lab", "--data", data).code == 0
    world = ("--cluster", "lab", "--capacity", "16", "--pair-nodes", "1", "--limit", "24h", "--until", "2026-06-12")
    train = ("train", *world, "--seeds", "1", "--data", str(data), "--policies")
    process = subprocess.Popen(
        [sys.executable, "-m", "pipelines.entry", *train, "reactive,dqn"],
        cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    kept = data / "artifacts" / "policies"
    assert until(lambda: any(kept.rglob("reactive/0/*")) and children(process.pid), 120), process.communicate()
    seconds, _, err = end(process, signal.SIGTERM)
    assert process.returncode == 143 and seconds < MOST_S and "Traceback" not in err, err
    (again,) = baton(*train, "reactive", "--json").json["policies"]
    assert again["reused"]
