"""The state of a chain on disk: one JSON file replaced as a whole, and the lock that says who keeps the chain.

Whatever happens between two instructions, the file is the old state or the new one. What is about to be submitted is
written there first, with a job name of its own, so that a killed agent finds the job again by that name.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

STATE_VERSION = 1
MOST_STATE_BYTES = 64 << 20
GOING = "going"
COMPLETING, MISSING = "COMPLETING", "MISSING"  # reasons: about to end; not in the queue, and its end not known yet
_ATTEMPT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")


@dataclass(frozen=True)
class LinkAttempt:
    """One submission of one link. Times are epoch seconds; None: not known or not yet.

    It is alive as long as `how` is empty: intended, then with a job id, then with a start.
    """

    link: int
    number: int  # of the link's attempts, from 1
    name: str  # of the job
    intended_s: int  # when it was about to be submitted
    after: str = ""  # the dependency that it was submitted with
    job_id: str = ""
    submit_s: int | None = None
    start_s: int | None = None
    end_s: int | None = None  # while it runs: the end by its limit
    reason: str = ""  # why it pends, as squeue says; of one that has started, why it cannot be told to run
    is_pending: bool = True
    withdrawn: str = ""  # why the agent cancels it
    how: str = ""  # Slurm's state at its end; REFUSED, ABSENT: it never became a job; LOST: no source knows its end
    exit_status: int | None = None
    has_more: bool = False  # it left the file that asks for another link
    looks: int = 0  # times that no source knew it, in a row

    @property
    def is_alive(self) -> bool:
        """Whether it is, or may become, a job that has not ended."""
        return not self.how

    @property
    def is_running(self) -> bool:
        """Whether it has started, does not wait again after a requeue, and has not ended nor is about to."""
        return self.is_alive and self.start_s is not None and not self.is_pending and not self.reason

    @property
    def never_was(self) -> bool:
        """Whether it counts for nothing: no job, or one that the agent took back."""
        return self.how in ("REFUSED", "ABSENT") or (bool(self.withdrawn) and self.how in ("CANCELLED", "LOST"))


@dataclass(frozen=True)
class ChainState:
    """A chain as it stands."""

    chain: str  # eight hexadecimal digits, part of every job name
    name: str
    script: str
    links: int
    attempts: tuple[LinkAttempt, ...] = ()
    status: str = GOING  # done, failed, cancelled
    why: str = ""
    decided: str = ""  # the last decision instant: attempt and number

    def job_name(self, link: int, number: int) -> str:
        """The name of the job of an attempt, found in squeue and sacct."""
        return f"{self.name}-{self.chain}-{link}.{number}"


def new_state(name: str, script: str, links: int) -> ChainState:
    """A chain of which nothing was submitted."""
    return ChainState(secrets.token_hex(4), name, script, links)


class Busy(Exception):
    """Another agent keeps the chain; the text says who."""


class Folder:
    """A chain's folder of state. `lock` first; only its holder writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_fd: int | None = None

    @property
    def file(self) -> Path:
        """Where the state lies."""
        return self.path / "state.json"

    @property
    def for_jobs(self) -> Path:
        """The folder that the links share: BATON_CHAIN_DIR."""
        return self.path / "chain"

    def make(self) -> None:
        """Make the folders, for their user alone. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for path in (self.path, self.for_jobs):
            path.mkdir(mode=0o700, exist_ok=True)

    def load(self) -> ChainState | None:
        """The state; None where there is none. Raises ValueError, one line, for a file that is no state."""
        try:
            with self.file.open("rb") as file:
                content = file.read(MOST_STATE_BYTES)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ValueError(f"{self.file}: {error.strerror}") from error
        try:
            return _state(json.loads(content))
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"{self.file}: no state of a chain: {' '.join(str(error).split())[:200]}") from error

    def save(self, state: ChainState) -> None:
        """Replace the state as a whole, on disk when this returns. Raises OSError, and then the old one holds."""
        text = json.dumps({"state_version": STATE_VERSION, **asdict(state)}, indent=1)
        replace_file(self.file, text + "\n")

    def lock(self, patience_s: float = 5.0, sleep: Callable[[float], None] = time.sleep) -> None:
        """Become the one agent of the chain, or raise Busy.

        The lock is held by the kernel and passed on to every sbatch, so a submission of a killed agent that is still
        under way keeps others out, at most until sbatch's own time-out.
        """
        fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        waited_s = 0.0
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if waited_s >= patience_s:
                    holder = self.holder()
                    os.close(fd)
                    raise Busy(_told(holder)) from None
                sleep(0.25)
                waited_s += 0.25
        self.lock_fd = fd
        me = {"pid": os.getpid(), "host": socket.gethostname(), "started": _start_ticks(os.getpid())}
        with contextlib.suppress(OSError):  # on a full disk the lock holds all the same, and says of nobody
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(me).encode(), 0)

    def unlock(self) -> None:
        """Give the lock back."""
        if self.lock_fd is not None:
            os.close(self.lock_fd)
            self.lock_fd = None

    def holder(self) -> dict[str, Any]:
        """What the lock file says of its last holder; {} where it says nothing."""
        try:
            said = json.loads((self.path / "lock").read_bytes()[:4096])
        except (OSError, ValueError):
            return {}
        return said if isinstance(said, dict) else {}

    def end_holder(self, patience_s: float = 60.0, sleep: Callable[[float], None] = time.sleep) -> None:
        """Ask the agent that holds the lock to end (SIGTERM), and lock. Raises Busy where it is none of this host."""
        with contextlib.suppress(Busy):
            return self.lock(0.0, sleep)
        holder = self.holder()
        pid = holder.get("pid")
        if holder.get("host") != socket.gethostname() or not isinstance(pid, int) or not _is_agent(pid, holder):
            raise Busy(f"{_told(holder)}; that is no agent of this host, so it is not ended")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return self.lock(patience_s, sleep)


def _told(holder: dict[str, Any]) -> str:
    if not holder:
        return "another agent keeps this chain"
    return f"another agent keeps this chain: process {holder.get('pid')} on {str(holder.get('host'))[:80]!r}"


def _start_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks since the machine did: with the pid, one process for good."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _is_agent(pid: int, holder: dict[str, Any]) -> bool:
    return pid > 1 and holder.get("started") is not None and _start_ticks(pid) == holder["started"]


def replace_file(path: Path, text: str) -> None:
    """Write the file beside itself, force it to disk, and rename it over.

    Raises OSError, which names the file; the old one then holds.
    """
    temporary = path.with_name(f".{path.name}.new")
    try:
        with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise OSError(error.errno, error.strerror, str(path)) from error
    with _opened(path.parent) as folder:
        os.fsync(folder)


@contextlib.contextmanager
def _opened(folder: Path) -> Iterator[int]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield fd
    finally:
        os.close(fd)


def _state(values: Any) -> ChainState:
    if not isinstance(values, dict) or values.pop("state_version", None) != STATE_VERSION:
        raise ValueError(f"state_version is not {STATE_VERSION}")
    attempts = tuple(LinkAttempt(**_typed(LinkAttempt, attempt)) for attempt in values.pop("attempts"))
    state = ChainState(**_typed(ChainState, values), attempts=attempts)
    if not re.fullmatch(r"[0-9a-f]{8}", state.chain) or not all(_ATTEMPT_NAME.fullmatch(a.name) for a in attempts):
        raise ValueError("a name in it is no name of a chain or job")
    return state


def _typed(kind: type[LinkAttempt] | type[ChainState], values: Any) -> dict[str, Any]:
    """The values, if each is of the type that the field says. Raises ValueError."""
    if not isinstance(values, dict):
        raise ValueError(f"an attempt is {values!r}")
    kinds: dict[str, tuple[type, ...]] = {
        "int": (int,), "str": (str,), "bool": (bool,), "int | None": (int, type(None)), "tuple[LinkAttempt, ...]": (),
    }  # fmt: skip
    declared = {field.name: kinds[str(field.type)] for field in fields(kind)}
    for name, value in values.items():
        if name not in declared or type(value) not in declared[name]:
            raise ValueError(f"{name} is {value!r}")
    return values
