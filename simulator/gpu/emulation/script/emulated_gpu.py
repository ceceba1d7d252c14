"""A stand-in for the GPUs of a training script: time, memory, sharing and synchronisation of a profiled model.

As in GPEmu (Wang et al., PVLDB), a step sleeps for its measured time, and memory is counted, not allocated. Processes
share a GPU, and workers wait for each other as in an all-reduce. Nothing is computed.

The file needs Python 3.10 on a Unix and nothing else: copy it into a job, or let `baton emulate` put it on the path.

    from emulated_gpu import EmulatedGpu

    with EmulatedGpu.from_environment() as gpu:
        for batch in loader:
            gpu.transfer()
            gpu.step()

Not emulated: preprocessing on the GPU, pinned memory of the host, and memory that a script gives back to the GPU.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import socket
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, Any

VARIABLE = "BATON_EMULATION"
PATIENCE_S = 600.0  # seconds that a worker waits for the others, as NCCL does
_LATE_S = 1.0  # most seconds of late wake-ups that later sleeps make up for
_POLL_S = 0.001


class EmulatedOutOfMemory(MemoryError):
    """The emulated GPU has less memory than the script needs."""


class EmulatedGpu:
    """The emulated GPUs of one process; all of them work on the same step. Use it in one thread.

    `emulation` is what `baton emulate` writes (`simulator.gpu.emulation.describe`); batches are samples per GPU,
    memory is MiB of each GPU. `rank` of `workers` matters only if the emulation has a folder to meet in.
    """

    def __init__(self, emulation: Mapping[str, Any], rank: int = 0, workers: int = 1) -> None:
        self.model: str = emulation["model"]
        self.gpu_type: str = emulation["gpu_type"]
        self.gpus: int = emulation["gpus"]
        self.nodes: int = emulation["nodes"]
        self.local_batch: float = emulation["local_batch"]
        self.speed: float = emulation["speed"]
        self.memory_mib: float = math.inf if emulation["memory_mib"] is None else emulation["memory_mib"]
        self.steps = 0  # finished by this process
        self.allocated_mib = 0.0  # by `allocate`
        self.reserved_mib = 0.0  # most memory used so far: like PyTorch's allocator, the process keeps it
        self._steps: list[list[float]] = emulation["steps"]
        self._transfer: list[list[float]] = emulation["transfer"]
        self._memory: list[list[float]] = emulation["memory"]
        self._packed: dict[str, float] = emulation["packed"]
        self._late_s = 0.0
        self._sharers = _Sharers(Path(emulation["share"]), self.model) if emulation["share"] else None
        self._meeting = _Meeting(Path(emulation["meet"]), rank, workers) if emulation["meet"] else None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> EmulatedGpu:
        """Return the GPUs that `baton emulate` describes. Raises RuntimeError outside of it.

        Rank and number of workers are those of torchrun (RANK, WORLD_SIZE), else of Slurm's srun.
        """
        if VARIABLE not in environment:
            raise RuntimeError(f"{VARIABLE} is not set: start the script by `baton emulate ... -- COMMAND`")
        rank = environment.get("RANK", environment.get("SLURM_PROCID", "0"))
        workers = environment.get("WORLD_SIZE", environment.get("SLURM_NTASKS", "1"))
        return cls(json.loads(environment[VARIABLE]), int(rank), int(workers))

    def step_s(self, batch: float | None = None) -> tuple[float, float]:
        """Return the measured time of a step, s, and the part of it that synchronises gradients, s.

        Between measured batches it is linear, outside that of the nearest.
        """
        step_s, sync_s = _at(self._steps, self.local_batch if batch is None else batch)
        return step_s, sync_s

    def step(self, batch: float | None = None) -> None:
        """Compute and synchronise one step of `batch` samples per GPU (default: the profile's batch).

        Raises EmulatedOutOfMemory if the step does not fit, and TimeoutError if another worker does not come.
        """
        step_s, sync_s = self.step_s(batch)
        self._reserve(self.allocated_mib + self._model_mib(batch))
        with self._shared() as slowdown:
            self._sleep(slowdown * (step_s - sync_s))
        if self._meeting:
            self._meeting.wait(self.steps + 1)
        self._sleep(slowdown * sync_s)
        self.steps += 1

    def transfer(self, batch: float | None = None) -> None:
        """Copy one batch to the GPUs; this takes no time if the profile has no transfer time."""
        if self._transfer:
            self._sleep(_at(self._transfer, self.local_batch if batch is None else batch)[0])

    def allocate(self, mib: float) -> None:
        """Take memory in addition to the model's, MiB on each GPU. Raises EmulatedOutOfMemory, then takes none."""
        if not 0.0 <= mib < math.inf:
            raise ValueError(f"cannot allocate {mib!r} MiB: give a finite number of at least 0")
        self._reserve(self.allocated_mib + mib)
        self.allocated_mib += mib

    def free(self, mib: float) -> None:
        """Give back memory of `allocate`. Raises ValueError for more than was allocated."""
        if not 0.0 <= mib <= self.allocated_mib:
            raise ValueError(f"cannot free {mib!r} MiB: {self.allocated_mib:g} MiB are allocated")
        self.allocated_mib -= mib

    def close(self) -> None:
        """Leave the GPUs to the processes that share them. The end of the process does the same."""
        if self._sharers:
            self._sharers.leave()

    def __enter__(self) -> EmulatedGpu:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _model_mib(self, batch: float | None) -> float:
        """Return the peak of a step; 0 without a memory profile. Above the largest measured batch it grows on."""
        wanted = self.local_batch if batch is None else batch
        return _at(self._memory, wanted, grows=True)[0] if self._memory else 0.0

    def _reserve(self, mib: float) -> None:
        """Keep `mib` of memory for this process. Raises EmulatedOutOfMemory."""
        wanted = max(self.reserved_mib, mib)
        others = self._sharers.reserve(wanted, self.memory_mib) if self._sharers else 0.0
        if others + wanted > self.memory_mib:
            raise EmulatedOutOfMemory(
                f"emulated {self.gpu_type} out of memory: {self.model} needs {wanted:,.0f} MiB, and "
                f"{max(0.0, self.memory_mib - others):,.0f} of {self.memory_mib:,.0f} MiB are free"
            )
        self.reserved_mib = wanted

    @contextmanager
    def _shared(self) -> Iterator[float]:
        """Hold the GPUs for a step, and yield how many times longer it takes.

        With one other process whose model was measured packed with this one, both compute at once, slowed as measured.
        Otherwise the steps of the processes take turns, as in GPEmu.
        """
        others = self._sharers.others() if self._sharers else []
        if len(others) == 1 and others[0] in self._packed:
            yield self._packed[others[0]]
        elif self._sharers and others:
            with self._sharers.turn():
                yield 1.0
        else:
            yield 1.0

    def _sleep(self, seconds: float) -> None:
        """Sleep for profiled seconds. The operating system wakes late, which the next sleeps make up for."""
        due_s = time.monotonic() + seconds / self.speed - self._late_s
        while (left_s := due_s - time.monotonic()) > 0.0:
            time.sleep(left_s)
        self._late_s = min(_LATE_S, time.monotonic() - due_s)


class _Sharers:
    """The processes that share the GPUs, each with a locked file in a folder; the lock ends with the process."""

    def __init__(self, folder: Path, model: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._model = folder, model
        self._path = folder / f"{socket.gethostname()}-{os.getpid()}-{time.monotonic_ns()}.process"
        part = self._path.with_suffix(".part")
        self._file = part.open("w+", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        with self._locked("processes"):
            self._write(0.0)
            part.rename(self._path)

    def others(self) -> list[str]:
        """Return the models of the other processes."""
        with self._locked("processes"):
            return [other["model"] for other in self._found()]

    def reserve(self, mib: float, memory_mib: float) -> float:
        """Write this process's memory if it fits with the others'; return the others', MiB."""
        with self._locked("processes"):
            others: float = sum(other["mib"] for other in self._found())
            if others + mib <= memory_mib:
                self._write(mib)
        return others

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the GPUs. The holder of `next` gets `turn` first: no process has two turns while another waits."""
        with ExitStack() as waiting:
            waiting.enter_context(self._locked("next"))
            with self._locked("turn"):
                waiting.close()
                yield

    def leave(self) -> None:
        """Stop sharing."""
        with self._locked("processes"):
            self._path.unlink(missing_ok=True)
            self._file.close()

    @contextmanager
    def _locked(self, name: str) -> Iterator[None]:
        with (self._folder / f"{name}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, mib: float) -> None:
        self._file.seek(0)
        json.dump({"model": self._model, "mib": mib}, self._file)
        self._file.truncate()
        self._file.flush()

    def _found(self) -> list[dict[str, Any]]:
        """Read the files of the other processes, and remove those of processes that have ended."""
        found = []
        for path in self._folder.glob("*.process"):
            if path == self._path:
                continue
            with path.open(encoding="utf-8") as file:
                if _is_free(file):
                    path.unlink()
                else:
                    found.append(json.load(file))
        return found


class _Meeting:
    """Workers of one run, which write into a folder how many steps they have computed."""

    def __init__(self, folder: Path, rank: int, workers: int) -> None:
        if not 0 <= rank < workers:
            raise ValueError(f"rank {rank} of {workers} workers: ranks are 0 to {workers - 1}")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._rank, self._workers = folder, rank, workers
        try:
            self._path(rank).touch(exist_ok=False)
        except FileExistsError:
            raise RuntimeError(f"rank {rank} was in {folder} before: give each run a new folder") from None

    def wait(self, step: int) -> None:
        """Return when all workers have computed `step` steps. Raises TimeoutError after PATIENCE_S."""
        part = self._path(self._rank).with_suffix(".part")
        part.write_text(str(step), encoding="ascii")
        part.rename(self._path(self._rank))
        end_s = time.monotonic() + PATIENCE_S
        for rank in range(self._workers):
            while self._steps(rank) < step:
                if time.monotonic() > end_s:
                    raise TimeoutError(f"rank {rank} did not compute step {step} within {PATIENCE_S:g} s")
                time.sleep(_POLL_S)

    def _path(self, rank: int) -> Path:
        return self._folder / f"{rank}.steps"

    def _steps(self, rank: int) -> int:
        try:
            return int(self._path(rank).read_text(encoding="ascii") or 0)
        except FileNotFoundError:
            return 0


def _is_free(file: IO[str]) -> bool:
    """Whether no process holds the lock of that file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _at(rows: Sequence[Sequence[float]], batch: float, grows: bool = False) -> list[float]:
    """Return the values at a batch from rows of (batch, value ...) in ascending order, linear between them.

    Outside the rows it is the nearest; with `grows` the line through the last two rows goes on.
    """
    if not 0.0 < batch < math.inf:
        raise ValueError(f"batch {batch!r}: give a finite number of samples above 0")
    right = bisect_left([row[0] for row in rows], batch)
    if grows and right == len(rows) > 1:
        right -= 1
    if right in (0, len(rows)):
        return list(rows[min(right, len(rows) - 1)][1:])
    low, high = rows[right - 1], rows[right]
    share = (batch - low[0]) / (high[0] - low[0])
    return [a + share * (b - a) for a, b in zip(low[1:], high[1:], strict=True)]
