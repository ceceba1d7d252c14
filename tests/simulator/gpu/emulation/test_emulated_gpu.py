"""Emulated GPUs take the profiled time and memory, are shared as measured, and wait for the slowest worker."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from simulator.gpu.emulation.script import emulated_gpu
from simulator.gpu.emulation.script.emulated_gpu import EmulatedGpu, EmulatedOutOfMemory

FOLDER = Path(emulated_gpu.__file__).parent
ALONE: dict[str, Any] = {
    "model": "bert", "gpu_type": "T4", "gpus": 1, "nodes": 1, "local_batch": 8.0, "speed": 1.0, "memory_mib": 1000.0,
    "steps": [[8.0, 0.1, 0.02], [16.0, 0.3, 0.04]], "memory": [[8.0, 300.0], [16.0, 500.0]],
    "transfer": [[8.0, 0.01], [16.0, 0.02]], "packed": {"ncf": 3.0}, "share": None, "meet": None,
}  # fmt: skip


class Clock:
    """A clock that passes only in `sleep`, which wakes 3 ms late."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds + 0.003

    def time_of(self, work: Callable[[], object]) -> float:
        started_s = self.now_s
        work()
        return self.now_s - started_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(emulated_gpu, "time", clock)
    return clock


def gpu(**changes: object) -> EmulatedGpu:
    return EmulatedGpu(ALONE | changes)


def test_late_wake_ups_do_not_add_up(clock: Clock) -> None:
    one = gpu(speed=10.0)

    def train() -> None:
        for _ in range(100):
            one.step()

    assert clock.time_of(train) == pytest.approx(100 * 0.01, abs=0.0031)
    assert one.steps == 100


def test_a_step_takes_at_least_its_time_on_the_real_clock() -> None:
    one = gpu(speed=10.0)
    started_s = time.monotonic()
    for _ in range(20):
        one.step()
    assert 0.2 <= time.monotonic() - started_s < 1.0


def test_between_measured_batches_times_are_linear_and_outside_those_of_the_nearest(clock: Clock) -> None:
    one = gpu()
    assert one.step_s() == one.step_s(8) == one.step_s(1) == (0.1, 0.02)
    assert one.step_s(12) == pytest.approx((0.2, 0.03))
    assert one.step_s(16) == one.step_s(99) == (0.3, 0.04)
    assert clock.time_of(lambda: one.transfer(12)) == pytest.approx(0.015, abs=0.0031)
    assert clock.time_of(lambda: gpu(transfer=[]).transfer()) == 0.0
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="give a finite number of samples above 0"):
            one.step(wrong)


def test_a_step_that_does_not_fit_raises_and_takes_no_time(clock: Clock) -> None:
    one = gpu()
    one.step(16)
    assert one.reserved_mib == 500.0
    with pytest.raises(EmulatedOutOfMemory, match=r"emulated T4 out of memory: bert needs 1,025 MiB, and 1,000 of"):
        one.step(37)  # 25 MiB a sample above the largest batch that was measured
    assert one.steps == 1 and clock.now_s == pytest.approx(0.3, abs=0.0031)
    one.step(36)
    assert one.reserved_mib == 1000.0


def test_allocations_count_beside_the_model() -> None:
    one = gpu(speed=1e6)
    one.allocate(700.0)
    one.step(8)
    with pytest.raises(EmulatedOutOfMemory, match="needs 1,200 MiB"):
        one.step(16)
    with pytest.raises(EmulatedOutOfMemory):
        one.allocate(300.5)
    assert (one.allocated_mib, one.reserved_mib) == (700.0, 1000.0)
    one.free(700.0)
    one.step(16)
    with pytest.raises(ValueError, match="0 MiB are allocated"):
        one.free(1.0)
    with pytest.raises(ValueError, match="cannot allocate nan MiB"):
        one.allocate(float("nan"))
    unlimited = gpu(memory_mib=None)
    unlimited.allocate(1e9)
    assert unlimited.reserved_mib == 1e9


def test_a_measured_pair_is_slowed_as_measured(clock: Clock, tmp_path: Path) -> None:
    share = str(tmp_path / "gpu0")
    one = gpu(share=share)
    with gpu(share=share, model="ncf"):
        assert clock.time_of(one.step) == pytest.approx(0.3, abs=0.0031)
    assert clock.time_of(one.step) == pytest.approx(0.1, abs=0.0031)


def test_steps_of_other_processes_take_turns(tmp_path: Path) -> None:
    order: list[int] = []
    users = [gpu(share=str(tmp_path), speed=10.0, model=f"model{number}") for number in range(2)]

    def train(number: int) -> None:
        for _ in range(10):
            users[number].step()
            order.append(number)

    started_s = time.monotonic()
    threads = [threading.Thread(target=train, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    computes_s = 20 * 0.008  # synchronisation is not computed
    assert time.monotonic() - started_s >= computes_s
    switches = sum(one != other for one, other in pairwise(order))
    assert switches >= 6, order  # of 19 where both always ask in time


def test_who_waits_has_the_next_turn(tmp_path: Path) -> None:
    one, waiting = (gpu(share=str(tmp_path), speed=1e3) for _ in range(2))
    assert one._sharers is not None
    thread = threading.Thread(target=waiting.step)
    with one._sharers.turn(), (tmp_path / "next.lock").open() as next_turn:
        thread.start()
        end_s = time.monotonic() + 30
        while emulated_gpu._is_free(next_turn):
            fcntl.flock(next_turn, fcntl.LOCK_UN)
            assert time.monotonic() < end_s, "the other one may take this turn again and again"
            time.sleep(0.001)
        assert waiting.steps == 0
    thread.join()
    assert waiting.steps == 1


def test_memory_of_all_processes_fits_or_not(tmp_path: Path) -> None:
    one, other = (gpu(share=str(tmp_path), speed=1e6) for _ in range(2))
    one.step(16)
    other.step(16)
    with pytest.raises(EmulatedOutOfMemory, match=r"bert needs 501 MiB, and 500 of 1,000 MiB are free"):
        other.allocate(501.0)
    one.close()
    other.allocate(501.0)


def test_a_killed_process_shares_no_longer(clock: Clock, tmp_path: Path) -> None:
    text = (
        "import json, sys, time; from emulated_gpu import EmulatedGpu; gpu = EmulatedGpu(json.loads(sys.argv[1]))\n"
        "gpu.allocate(900); print(len([name for name in sys.modules if name.split('.')[0] not in "
        "sys.stdlib_module_names | {'__main__', 'emulated_gpu'}]), flush=True); time.sleep(60)"
    )
    values = repr(ALONE | {"share": str(tmp_path), "model": "ncf"}).replace("'", '"').replace("None", "null")
    command = [sys.executable, "-S", "-c", text, values]
    with subprocess.Popen(command, cwd=FOLDER, stdout=subprocess.PIPE, text=True, env={}) as process:
        assert process.stdout is not None and process.stdout.readline() == "0\n"  # no module but the standard library
        one = gpu(share=str(tmp_path))
        with pytest.raises(EmulatedOutOfMemory):
            one.step()
        process.kill()
    one.step()
    assert len(list(tmp_path.glob("*.process"))) == 1


def test_workers_wait_for_the_slowest(tmp_path: Path) -> None:
    slow = ALONE | {"steps": [[8.0, 0.05, 0.0]], "meet": str(tmp_path)}
    workers = [EmulatedGpu(slow | ({} if rank == 1 else {"steps": [[8.0, 0.001, 0.0]]}), rank, 3) for rank in range(3)]
    took_s = [0.0] * 3

    def train(rank: int) -> None:
        started_s = time.monotonic()
        for _ in range(4):
            workers[rank].step()
        took_s[rank] = time.monotonic() - started_s

    threads = [threading.Thread(target=train, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert min(took_s) >= 0.15  # of 0.2 s, from the last thread's start on


def test_a_worker_that_does_not_come_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated_gpu, "PATIENCE_S", 0.05)
    values = ALONE | {"meet": str(tmp_path), "speed": 1e6}
    with pytest.raises(TimeoutError, match="rank 1 did not compute step 1 within"):
        EmulatedGpu(values, 0, 2).step()
    with pytest.raises(RuntimeError, match="give each run a new folder"):
        EmulatedGpu(values, 0, 2)
    with pytest.raises(ValueError, match="rank 2 of 2 workers: ranks are 0 to 1"):
        EmulatedGpu(values, 2, 2)


def test_the_environment_says_what_is_emulated(tmp_path: Path) -> None:
    text = repr(ALONE | {"meet": str(tmp_path)}).replace("'", '"').replace("None", "null")
    slurm = {"BATON_EMULATION": text, "SLURM_PROCID": "3", "SLURM_NTASKS": "4"}
    assert EmulatedGpu.from_environment(slurm).model == "bert"
    EmulatedGpu.from_environment(slurm | {"RANK": "0", "WORLD_SIZE": "2"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.steps", "3.steps"]
    with pytest.raises(RuntimeError, match="start the script by `baton emulate"):
        EmulatedGpu.from_environment({})
