"""The work that an engine runs: one function, called once for each task, with the same arithmetic on every machine."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from traces.cache.closure import ROOT, present
from traces.cache.libraries import installed_version

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
ESTIMATE_S = 60.0  # of a kind of task that was never measured
SHORT_S = 10.0  # of work that is done in this process: others import for seconds before their first task


class Task(NamedTuple):
    """One call of the function of a work."""

    name: str  # in errors: "the fit of 'dqn', seed 3"
    argument: Any  # picklable
    kind: str  # tasks of one kind take about as long as each other


@dataclass(frozen=True)
class Work:
    """Independent tasks. `function(shared, argument)` must be importable; so must the classes of all arguments.

    `prepare(shared)` compiles what the tasks need. An engine calls it once for each type of processor.

    On this machine, tasks in compiled code run in threads (`is_compiled`). They must not write into what they share.
    """

    function: Callable[[Any, Any], Any]
    tasks: Sequence[Task]
    shared: Any = None  # the same for all tasks, picklable; sent once to each process
    modules: Collection[str] = ()  # modules that the function calls without importing them by name
    is_exact: bool = False  # whether the result depends on the last bit of sums: SAME_EVERYWHERE
    prepare: Callable[[Any], None] | None = None
    is_compiled: bool = False  # whether most of the time goes to compiled code, which lets other threads run
    about_s: float = math.inf  # rough time of all tasks on one processor; not for exact work

    @property
    def is_short(self) -> bool:
        """Whether other processes would cost more than they gain."""
        return self.about_s < SHORT_S

    @property
    def code(self) -> dict[str, str]:
        """The code of the tasks, as `code_parts`."""
        return code_parts({self.function.__module__, *self.modules})

    @property
    def settings(self) -> dict[str, str]:
        """The variables that fix the arithmetic of the tasks: one thread, and for exact work the instructions."""
        return ONE_THREAD | (SAME_EVERYWHERE if self.is_exact and platform.machine() == "x86_64" else {})


# Runs the work, with at most so many processes on this machine. Yields (position of the task, result), each as soon as
# it is ready, and raises what a task raised.
Engine = Callable[[Work, int], Iterator[tuple[int, Any]]]


def python_path() -> str:
    """Return the PYTHONPATH with which another process imports this Baton."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def environment(work: Work) -> dict[str, str]:
    """Return the variables of a process of this machine that runs the work: those of this process, and its settings."""
    inherited = {name: value for name, value in os.environ.items() if name != CONTRARY or not work.is_exact}
    return {**inherited, **work.settings, "PYTHONPATH": python_path()}


def code_parts(modules: Collection[str]) -> dict[str, str]:
    """Return a digest of each module that the modules depend on, and the version of Python and of each library.

    A module outside Baton's packages (a policy of your own) counts by its file alone.
    """
    closures = present()
    ours = sorted(set(modules) & set(closures.modules))
    parts = {name: sha256(closures.state(name)).hexdigest() for name in closures.closure(*ours)}
    for name in set(modules) - set(ours):
        if file := import_module(name).__file__:
            parts[name] = sha256(Path(file).read_bytes()).hexdigest()
    parts |= {name: installed_version(name) or "not installed" for name in closures.libraries(*ours)}
    return dict(sorted(parts.items())) | {"Python": platform.python_version()}
