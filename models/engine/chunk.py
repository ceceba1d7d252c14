"""Run a chunk of tasks on a worker. The answers are written to the scratch folder, each whole or not at all."""

from __future__ import annotations

import platform
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from models.engine.scratch import Answer, Scratch
from models.engine.work import code_parts
from traces.errors import WorkError
from traces.files.locks import locked
from traces.files.whole import write_text

SHOWN = 3  # differences of code in a message


class Chunk(NamedTuple):
    """Tasks that one job of the cluster runs one after the other."""

    folder: str  # the scratch folder
    function: str  # module:name
    prepare: str  # likewise, or empty
    modules: tuple[str, ...]  # as `Work.modules`
    code: str  # name of the code that must be here
    shared: str
    tasks: tuple[tuple[str, str], ...]  # key of the answer, argument


def run_chunk(chunk: Chunk) -> int:
    """Run the tasks that have no answer yet; returns their number.

    A task that raises has the exception as its answer. So has every task if this worker has other code than the driver.
    """
    # submitit would raise an error in the task shortly before the job's limit, or requeue the job. Slurm ends it.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    scratch, done = Scratch(Path(chunk.folder)), 0
    refusal = other_code(scratch.get(chunk.code), {chunk.function.partition(":")[0], *chunk.modules})
    if refusal is None:
        function, shared = imported(chunk.function), scratch.get(chunk.shared)
        if chunk.prepare:
            prepare_once(scratch.root, chunk.prepare, chunk.code, shared)
    for key, argument in chunk.tasks:
        if key not in scratch.answered():
            began = time.perf_counter()
            try:
                answer = Answer(error=refusal) if refusal else Answer(function(shared, scratch.get(argument)))
            except Exception as error:
                answer = Answer(error=error)
            answer = answer._replace(wall_s=time.perf_counter() - began)
            try:
                scratch.keep(key, answer)
            except WorkError as error:  # a full disk has room for the error, which is smaller
                scratch.keep(key, Answer(error=WorkError(f"node {platform.node()}: {error}")))
            done += 1
    return done


def prepare_once(folder: Path, prepare: str, code: str, shared: Any) -> None:
    """Compile for this type of processor, once for all workers that see the folder: the others wait for the first."""
    from llvmlite import binding

    name = f"{binding.get_host_cpu_name()}-{code[:12]}"
    mark = folder / "compiled" / name
    if not mark.exists():
        with suppress(WorkError), locked(folder, f"compilation {name}"):  # this file system may have no locks
            if not mark.exists():
                imported(prepare)(shared)
                write_text(mark, "")


def imported(text: str) -> Any:
    """Return what `module:name` names."""
    module, _colon, name = text.partition(":")
    return getattr(import_module(module), name)


def other_code(there: dict[str, str], modules: Collection[str]) -> WorkError | None:
    """Return the refusal of a worker whose code of these modules differs from the driver's (`there`), else None."""
    here = code_parts(modules)
    differing = sorted(name for name in there.keys() | here.keys() if there.get(name) != here.get(name))
    if not differing:
        return None
    shown = ", ".join(
        f"{name} ({_short(there.get(name))}; here {_short(here.get(name))})" for name in differing[:SHOWN]
    )
    more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    return WorkError(
        f"node {platform.node()} has other code than the driver: {shown}{more}; install the same Baton on all nodes"
    )


def _short(state: str | None) -> str:
    return "absent" if state is None else state[:12]
