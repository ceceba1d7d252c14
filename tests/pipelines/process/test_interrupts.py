"""SIGTERM and Ctrl-C end a command within ten seconds, in a compiled kernel and in the midst of a fit, children too."""

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

MOST_S = 10.0
BEGIN = """
import sys, threading, time
from pipelines.process.interrupts import orderly_end
def ready(after_s=0.5):
    told = threading.Timer(after_s, lambda: print("ready", flush=True))
    told.daemon = True
    told.start()
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
from models.training.processes import fit_each
from models.policies.forest import Forest
from tests.models.generated import queue_table
with orderly_end():
    ready(float(sys.argv[1]))
    list(fit_each([(Forest(trees=1_000_000), 0), (Forest(trees=1_000_000), 1)], queue_table(seed=2, starts=12)))
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


@pytest.mark.parametrize("program", [KERNEL, IN_A_POOL, DATABASE], ids=["kernel", "pool", "database"])
def test_a_library_that_does_not_come_back_is_not_waited_for(program: str) -> None:
    process = begin(program)
    seconds, _, err = end(process, signal.SIGTERM)
    assert process.returncode == 143 and seconds < MOST_S
    assert err.count("baton: SIGTERM: ending; what is finished is kept, and the same command goes on from there") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_what_can_tidy_up_does(number: signal.Signals, code: int) -> None:
    process = begin(CLEAN)
    seconds, out, err = end(process, number)
    assert (process.returncode, out) == (code, "tidied up\n")
    assert "Traceback" not in err and err.count(f"{number.name}: ending") == 1
    assert seconds < 3


def test_a_second_signal_ends_at_once() -> None:
    process = begin(KERNEL)
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert process.stderr.readline() == "\n" and "SIGINT" in process.stderr.readline()
    seconds, *_ = end(process, signal.SIGINT)
    assert process.returncode == 130 and seconds < 3


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a fit goes on to its end")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_processes_that_fit_end_with_the_command(number: signal.Signals, code: int) -> None:
    process = begin(FIT, "0")
    assert until(lambda: len(children(process.pid)) == min(2, len(os.sched_getaffinity(0))), 30)
    fits = children(process.pid)
    assert until(lambda: all(_processor_s(fit) > 2 for fit in fits), 60)  # past its imports, in the fit
    seconds, *_ = end(process, number)
    assert process.returncode == code and seconds < MOST_S
    assert until(lambda: not any(map(is_alive, fits)), 2)


def _processor_s(process: int) -> float:
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
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
