"""Fit policies in separate processes, with arithmetic that is the same on every x86-64 machine.

What a network learns from a seed depends on the last bit of every sum, and numpy, torch and MKL each choose their
instructions by the machine. They read the settings that fix this choice once, when they are loaded. A fit therefore
runs in a fresh process that starts with those settings. Two machines then make the same artifact from the same pairs,
byte for byte (docs/decisions/0012). Each process uses one thread, and there are as many processes as processors.

`python -m models.provisioning.training.processes FD` is such a process. It reads the pair table from the connection FD,
then one (policy, seed) after the other, and answers each with the fit.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple, NoReturn

from agent.artifact import Artifact
from models.child import end_with_parent
from models.provisioning.protocol import PairTable, Policy
from traces.cache.closure import ROOT
from traces.errors import WorkError

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
# The instructions that every x86-64 processor has, for each library that would otherwise choose others.
SAME_EVERYWHERE = {
    "ATEN_CPU_CAPABILITY": "default",  # torch's own loops
    "MKL_CBWR": "COMPATIBLE",  # torch's products of matrices
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Nehalem",  # numpy's products of matrices
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",  # numpy's loops
}
CONTRARY = "NPY_ENABLE_CPU_FEATURES"  # numpy cannot be imported if NPY_DISABLE_CPU_FEATURES is set as well
MOST_PROCESSES = 8  # each loads torch and holds the pairs: half a gigabyte


class Made(NamedTuple):
    """One fit."""

    policy: str
    seed: int
    artifact: Artifact
    metrics: dict[str, list[float]]
    wall_s: float


def fit_each(fits: Sequence[tuple[Policy, int]], pairs: PairTable, processes: int | None = None) -> Iterator[Made]:
    """Make the fits (policy, seed). Yields each as soon as it is ready, so not in the order of `fits`.

    A policy's class must be importable, so it cannot come from a notebook: the other process makes it again. Raises
    what a policy's `fit` raised, and WorkError if a process ended early.
    """
    here = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    count = min(processes or here, len(fits), MOST_PROCESSES)
    waiting = iter(fits)
    working: dict[Connection[Any, Any], _Process] = {}
    try:
        for _ in range(count):
            process = _Process(pairs)
            working[process.connection] = process
            process.begin(next(waiting))
        for _ in fits:
            ready = wait(list(working))[0]
            process = working[ready]  # type: ignore[index]
            yield process.result()
            following = next(waiting, None)
            if following is None:
                working.pop(process.connection).end()
            else:
                process.begin(following)
    finally:
        for process in working.values():
            process.end()


def environment() -> dict[str, str]:
    """The variables of a fit's process: those of this process, and those that fix its arithmetic."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    fixed = SAME_EVERYWHERE if platform.machine() == "x86_64" else {}
    inherited = {name: value for name, value in os.environ.items() if name != CONTRARY}
    return {**inherited, **ONE_THREAD, **fixed, "PYTHONPATH": path}


class _Process:
    """A process that fits, and its latest request."""

    def __init__(self, pairs: PairTable) -> None:
        self.connection, other_end = Pipe()
        self.fit: tuple[Policy, int] | None = None
        with other_end:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "models.provisioning.training.processes",
                    str(other_end.fileno()),
                ],  # -P: do not import from the cwd
                env=environment(),
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # libraries print: standard output belongs to the result of the command
            )
        self._send(pairs)

    def begin(self, fit: tuple[Policy, int]) -> None:
        self.fit = fit
        self._send(fit)

    def result(self) -> Made:
        """Wait for the result."""
        assert self.fit is not None
        policy, seed = self.fit
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self._died()
        if isinstance(answer, Exception):
            raise answer
        return Made(policy.name, seed, *answer)

    def end(self) -> None:
        """End it at once, whatever it is doing."""
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def _send(self, what: Any) -> None:
        try:
            self.connection.send(what)
        except OSError:
            self._died()

    def _died(self) -> NoReturn:
        status = self.process.wait()
        how = f"signal {-status}: out of memory?" if status < 0 else f"exit status {status}"
        what = (
            "before its first fit" if self.fit is None else f"while it fitted {self.fit[0].name!r}, seed {self.fit[1]}"
        )
        raise WorkError(f"a process that fits policies ended early ({how}) {what}")


def _serve(descriptor: int) -> None:
    """Run the other side: make the requested fits until the connection closes."""
    end_with_parent()
    with Connection(descriptor) as connection:
        try:
            pairs = connection.recv()
            while True:
                policy, seed = connection.recv()
                began = time.perf_counter()
                try:
                    artifact, metrics = policy.fit(pairs, seed)
                    answer: object = (artifact, metrics, time.perf_counter() - began)
                except Exception as error:
                    answer = error
                connection.send(answer)
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
