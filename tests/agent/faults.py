"""Faults for an agent on a fake Slurm: a call to the operating system that fails, or an answer that is replaced.

The agent runs with its own `Commands` and `Eyes`. A program of Slurm is a pipe that holds the answer of the fake.
"""

from __future__ import annotations

import builtins
import copy
import errno
import fcntl
import io
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from agent import cli
from agent.chains.loop import AgentServices
from agent.chains.state import Busy, Folder
from agent.eyes import Eyes
from agent.slurm.commands import Commands, SlurmError
from agent.slurm_time import SlurmTime
from tests.agent.fake_slurm import CONFIG, START_S, CheckedSlurm, FakeJob
from tests.agent.lab import Lab
from traces.units import HOUR_S

CALLS = ("open", "write", "fsync", "rename", "flock", "exec", "read", "time", "stat")
ERRORS = (errno.EIO, errno.ENOSPC, errno.ESTALE, errno.EACCES, errno.EINTR, errno.ENOENT)


@dataclass
class WholeSlurm(CheckedSlurm):
    """A fake that answers everything that the agent asks, and remembers what it was an hour ago."""

    past: list[tuple[int, list[FakeJob]]] = field(default_factory=list)

    def advance(self, seconds: float) -> None:
        """Let time pass, and keep the jobs as they were before."""
        self.past.append((self.now_s, copy.deepcopy(self.jobs)))
        super().advance(seconds)

    def an_hour_ago(self) -> WholeSlurm:
        """The cluster as it was then; without jobs if it is younger."""
        then_s = self.now_s - HOUR_S
        jobs = next((jobs for at_s, jobs in reversed(self.past) if at_s <= then_s), [])
        return WholeSlurm(now_s=then_s, jobs=jobs)

    def call(self, argv: Sequence[str]) -> str:
        """What a command prints. Raises SlurmError."""
        if argv[0] == "sinfo":
            return "mixed|n[1-4]\n"
        if argv[0] == "sacctmgr" and "user" in argv:
            return "science|science|normal\n"
        if argv[0] == "sacctmgr":
            return "||normal||||||\n" if "association" in argv else "normal|||||||||\n"
        if argv[0] == "scontrol" and argv[-1] == "config":
            lines = "ClusterName = lab", "SLURM_VERSION = 22.05.8", "AccountingStorageEnforce = limits"
            return "\n".join((f"Configuration data as of {self.now_s}", *lines)) + "\n"
        if argv[0] == "scontrol":
            return CONFIG
        if argv[0] == "sacct" and "--allusers" in argv:
            return "".join(
                f"{job.id}|{job.user}|gpu|{job.state}|{job.submit_s}|{job.start_s or 'None'}|{job.end_s or 'Unknown'}|"
                f"02:00:00|{job.nodes}\n"
                for job in self.jobs
            )
        return super().call(argv)


def another_cluster() -> WholeSlurm:
    """A cluster whose jobs have the same ids and the same user, and other names, states and times."""
    other = WholeSlurm(now_s=START_S + 5000, limit_s=600)
    for number in range(6):
        other.submit(f"other-{number}")
    other.end(other.jobs[0], "COMPLETED")
    return other


def replaced(kind: str, slurm: WholeSlurm, argv: Sequence[str]) -> str:
    """The answer to a call in a worse form. What the call does is done: on the other cluster if that answers."""
    if kind == "another cluster":
        return another_cluster().call(argv)
    acts = argv[0] in ("sbatch", "scancel")
    if kind == "stale" and not acts:
        return slurm.an_hour_ago().call(argv)
    answer = slurm.call(argv)
    return {"empty": "", "silent": "", "stale": "", "truncated": answer[: max(len(answer) // 2, 1)], "cut": answer[:-1],
            "huge": re.sub(r"\d+", "9" * 31, answer)}[kind]  # fmt: skip


ANSWERS = ("empty", "truncated", "cut", "huge", "stale", "another cluster")


class Faults:
    """Counts the calls by kind, and lets one fail. kind: of CALLS with an errno, or "answer" with one of ANSWERS."""

    def __init__(self, kind: str = "", number: int = 0, how: int | str = 0) -> None:
        self.kind, self.number, self.how = kind, number, how
        self.count: Counter[str] = Counter()
        self.programs: list[str] = []  # by number of the answer

    def hits(self, kind: str) -> bool:
        """Count a call; whether it is the one that fails."""
        self.count[kind] += 1
        return (kind, self.count[kind]) == (self.kind, self.number)

    def worse(self, argv: Sequence[str], slurm: WholeSlurm) -> str:
        """In which worse form a program answers; "" for the answer as it is."""
        return str(self.how) if self.hits("answer") else ""

    def fail(self, kind: str) -> None:
        """Count a call, and raise if it is the one that fails."""
        if self.hits(kind):
            assert isinstance(self.how, int)
            raise OSError(self.how, os.strerror(self.how))

    def wrapped(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, counted."""

        def call(*arguments: Any, **options: Any) -> Any:
            self.fail(kind)
            return function(*arguments, **options)

        return call

    def opened(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`open`, of which the files count their reads and writes."""
        return lambda *arguments, **options: _File(self.wrapped("open", function)(*arguments, **options), self)

    @contextmanager
    def at_work(self, slurm: WholeSlurm) -> Iterator[None]:
        """The process with these faults, as long as the block lasts."""
        patched: list[tuple[Any, str, Any]] = [
            (os, "open", self.wrapped("open", os.open)), (builtins, "open", self.opened(builtins.open)),
            (io, "open", self.opened(io.open)), (os, "pwrite", self.wrapped("write", os.pwrite)),
            (os, "ftruncate", self.wrapped("write", os.ftruncate)),
            (os, "fsync", self.wrapped("fsync", lambda fd: None)), (os, "replace", self.wrapped("rename", os.replace)),
            (fcntl, "flock", self.wrapped("flock", fcntl.flock)),
            (os, "read", self.wrapped("read", os.read)), (os, "stat", self.wrapped("stat", os.stat)),
            (os, "fstat", self.wrapped("stat", os.fstat)),
            (subprocess, "Popen", lambda argv, **_: _Process(self, slurm, argv)),
        ]  # fmt: skip
        patches = [mock.patch.object(where, name, new) for where, name, new in patched]
        try:
            for patch in patches:
                patch.start()
            yield
        finally:
            for patch in reversed(patches):
                patch.stop()


class Outage(Faults):
    """From `from_h` hours on, these programs answer nothing for an hour: "empty", or "silent" and with status 1."""

    def __init__(self, how: str, programs: Sequence[str], from_h: float) -> None:
        super().__init__(how=how)
        self._answerless, self._from_s = programs, START_S + from_h * HOUR_S

    def worse(self, argv: Sequence[str], slurm: WholeSlurm) -> str:
        """As in `Faults`."""
        is_out = argv[0] in self._answerless and 0 <= slurm.now_s - self._from_s < HOUR_S
        return str(self.how) if is_out else ""


class _File:
    """An open file that counts reads and writes."""

    def __init__(self, file: Any, faults: Faults) -> None:
        self._file, self._faults = file, faults

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._file, name)
        return self._faults.wrapped(name, value) if name in ("read", "write") else value

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class _Process:
    """A program of Slurm that has answered: two pipes and an exit status."""

    def __init__(self, faults: Faults, slurm: WholeSlurm, argv: Sequence[str]) -> None:
        faults.fail("exec")
        worse = faults.worse(argv, slurm)
        faults.programs.append(argv[0])
        out, error = "", ""
        try:
            out = replaced(worse, slurm, argv) if worse else slurm.call(argv)
        except SlurmError as refusal:
            error = refusal.detail
        self.returncode = 1 if error or worse == "silent" else 0
        self.stdout, self.stderr = _pipe(out), _pipe(error)

    def poll(self) -> int:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        return self.returncode


def _pipe(text: str) -> io.FileIO:
    reader, writer = os.pipe()
    os.write(writer, text.encode())
    os.close(writer)
    return io.FileIO(reader)


def kept(folder: Path, faults: Faults, cycle_s: float = 600.0) -> tuple[Lab, list[str]]:
    """A chain of two links under these faults, completed by later agents; with what the agents said."""
    slurm = WholeSlurm()
    lab = Lab(folder, slurm, {"links": 2, "cycle_s": cycle_s, "retries": 2})
    if _keep(lab, slurm, faults) == "refused":
        assert not slurm.jobs, f"refused after its first submission: {lab.log}"
    for _ in range(3):
        if _keep(lab, slurm, Faults()) == "0":
            return lab, lab.log
    raise AssertionError(f"no later agent completes the chain: {lab.log[-20:]}")


def _keep(lab: Lab, slurm: WholeSlurm, faults: Faults) -> str:
    """Start an agent as `baton-agent run` does; return its exit status, or "refused" if it does not start."""

    def now_s() -> float:
        faults.fail("time")
        return float(slurm.now_s)

    with faults.at_work(slurm):
        commands = Commands({}, clock=now_s)
        try:
            world = AgentServices(
                commands, SlurmTime(commands, now_s, now_s), lab.pause, lab.log.append, partial(Eyes, commands), {},
                lambda: False,
            )  # fmt: skip
            return str(cli.keep(lab.chain, Folder(lab.folder.path), world))
        except (ValueError, Busy, OSError, SlurmError) as error:
            lab.log.append(f"refused: {error}")
            return "refused"
