"""The state of a chain on disk: a JSON file that is replaced as a whole, and the lock of the chain's agent.

Whenever a crash happens, the file holds the old state or the new one. A submission is recorded there before it is made,
with a unique job name. So an agent that was killed finds the job again by that name.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import signal
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from agent.files import open_regular, replace_file
from agent.model_folder import read_file

STATE_VERSION = 1
MOST_STATE_BYTES = 64 << 20
GOING = "going"
NOT_LAUNCHED = "no node launched it, and Slurm holds it where its user cannot release it"  # why one is withdrawn
OVER = "the chain is over"  # begins why one is withdrawn then
COMPLETING, MISSING = "COMPLETING", "MISSING"  # reasons: about to end; not in the queue, with its end still unknown

MOST_COUNT, MOST_TIME_S, MOST_TEXT = 1 << 31, 1 << 33, 10_000  # 2^33: the year 2242; what Slurm prints is within 2^32
# What a state file may hold, by field: the least and most of a number, or the form of a text. All others: any text.
BOUNDS: Mapping[str, tuple[int, int] | re.Pattern[str]] = {
    **dict.fromkeys(("intended_s", "submit_s", "start_s", "end_s", "signalled_s"), (0, MOST_TIME_S)),
    **dict.fromkeys(("link", "number", "links", "limit_s", "least_s", "nodes"), (1, MOST_COUNT)),
    "exit_status": (0, (1 << 16) - 1),
    **dict.fromkeys(("looks", "resumed_s", "saved_s"), (0, MOST_COUNT)),
    "chain": re.compile(r"[0-9a-f]{8}"),
    "name": re.compile(r"[A-Za-z0-9_.-]{1,80}"),
    "handed_to": re.compile(r"[A-Za-z0-9_.-]{0,80}"),
    "job_id": re.compile(r"[0-9]{0,18}"),
    "qos": re.compile(r"[A-Za-z0-9_.+-]{0,80}"),
    "after": re.compile(r"|(after|afterany):[0-9]{1,18}(\+[0-9]{1,9})?"),
    "how": re.compile(r"[A-Z_]{0,40}"),
    "status": re.compile(r"going|done|failed|cancelled"),
}


@dataclass(frozen=True)
class LinkAsk:
    """What a link asks for in place of what its script does; None and "": as the script."""

    limit_s: int | None = None
    least_s: int | None = None  # the least limit that it can live with (sbatch --time-min)
    nodes: int | None = None
    qos: str = ""


@dataclass(frozen=True)
class LinkAttempt:
    """One submission of one link. Times are epoch seconds; None: unknown or not yet.

    It is alive while `how` is empty: first intended, then with a job id, then with a start.
    """

    link: int
    number: int  # among the link's attempts, from 1
    name: str  # of the job
    intended_s: int  # when the submission was recorded, just before it was made
    after: str = ""  # its dependency at submission
    job_id: str = ""
    submit_s: int | None = None
    start_s: int | None = None
    end_s: int | None = None  # while it runs: the end by its time limit
    reason: str = ""  # squeue's reason for pending; after its start, why it is not known to be running
    is_pending: bool = True
    withdrawn: str = ""  # why the agent cancels it
    how: str = ""  # Slurm's state at its end; REFUSED, ABSENT: it never became a job; LOST: no source knows its end
    exit_status: int | None = None
    has_more: bool = False  # it left the file that requests another link
    looks: int = 0  # looks in a row in which no source knew it
    limit_s: int | None = None  # of `LinkAsk`; with least_s, the limit that Slurm shows
    least_s: int | None = None
    nodes: int | None = None
    qos: str = ""
    handed_to: str = ""  # name of the running attempt that took over from it, so that the agent ends it
    signalled_s: int | None = None  # when it was first asked to end for that
    resumed_s: int | None = None  # from its start until its work went on, s, as it printed (`agent.slurm.output`)
    saved_s: int | None = None  # that its last save took, s, as it printed

    @property
    def is_alive(self) -> bool:
        """Whether it is, or may become, a job that has not ended."""
        return not self.how

    @property
    def is_running(self) -> bool:
        """Whether it has started and is neither pending after a requeue, nor ended, nor about to end."""
        return self.is_alive and self.start_s is not None and not self.is_pending and not self.reason

    @property
    def never_was(self) -> bool:
        """Whether it does not count: it never became a job, or the agent withdrew it."""
        if self.how in ("REFUSED", "ABSENT"):
            return True
        counts = self.handed_to or self.withdrawn in ("", NOT_LAUNCHED)
        return not counts and self.how in ("CANCELLED", "LOST")

    @property
    def ran(self) -> bool:
        """Whether it is a run of the chain: it has started, and counts or was cancelled at the end of the chain."""
        counts = not self.never_was or self.withdrawn.startswith(OVER)
        return self.start_s is not None and counts and self.withdrawn != NOT_LAUNCHED

    @property
    def is_queued(self) -> bool:
        """Whether Slurm is known to have it in its queue, not started."""
        return self.is_alive and self.is_pending and bool(self.job_id) and self.reason != MISSING


@dataclass(frozen=True)
class ChainState:
    """The current state of a chain."""

    chain: str  # eight hexadecimal digits, part of every job name
    name: str
    script: str
    links: int
    attempts: tuple[LinkAttempt, ...] = ()
    status: str = GOING  # done, failed, cancelled
    why: str = ""
    decided: str = ""  # the last decision instant: attempt and number
    fixed_nodes: str = ""  # why links ask for the script's nodes alone, although it is said to be elastic

    def job_name(self, link: int, number: int) -> str:
        """Return the job name of an attempt, as squeue and sacct show it."""
        return f"{self.name}-{self.chain}-{link}.{number}"


def new_chain_state(name: str, script: str, links: int) -> ChainState:
    """Return the state of a chain without submissions."""
    return ChainState(secrets.token_hex(4), name, script, links)


class Busy(Exception):
    """Another agent keeps the chain; the text names it."""


class Folder:
    """The folder of a chain's state. Call `lock` first; only the lock's holder writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock_fd: int | None = None

    @property
    def file(self) -> Path:
        """The path of the state file."""
        return self.path / "state.json"

    @property
    def _lock_file(self) -> Path:
        return self.path / "lock"

    @property
    def for_jobs(self) -> Path:
        """The folder that the links share: BATON_CHAIN_DIR."""
        return self.path / "chain"

    @property
    def may_hold_chain(self) -> bool:
        """Whether there may be a state file; true if that cannot be found out now."""
        try:
            os.lstat(self.file)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def make(self) -> None:
        """Create the folders, accessible only to their user. Raises OSError."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for path in (self.path, self.for_jobs):
            path.mkdir(mode=0o700, exist_ok=True)

    def load(self) -> ChainState | None:
        """Read the state; None if there is none. Raises ValueError, one line, for an invalid file."""
        try:
            return _state(json.loads(read_file(self.file, MOST_STATE_BYTES)))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ValueError(f"{self.file}: {error.strerror}") from error
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ValueError(f"{self.file}: invalid state of a chain: {' '.join(str(error).split())[:200]}") from error

    def save(self, state: ChainState) -> None:
        """Replace the whole state; it is on disk when this returns. Raises OSError, and then the old state remains."""
        text = json.dumps({"state_version": STATE_VERSION, **asdict(state)}, indent=1)
        replace_file(self.file, text + "\n")

    def lock(self, patience_s: float = 5.0, sleep: Callable[[float], None] = time.sleep) -> None:
        """Become the only agent of the chain, or raise Busy.

        The kernel holds the lock, and every sbatch inherits it. So a pending submission of a killed agent keeps other
        agents out, at most until sbatch's own time-out.
        """
        waited_s = 0.0
        while True:
            fd = open_regular(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(fd, self._lock_file):  # else it was removed after we opened it: open the next one
                    break
            except BlockingIOError:
                pass
            except OSError as error:
                os.close(fd)
                raise OSError(error.errno, error.strerror, str(self._lock_file)) from error
            os.close(fd)
            if waited_s >= patience_s:
                raise Busy(_holder_text(self.holder()))
            sleep(0.25)
            waited_s += 0.25
        self.lock_fd = fd
        me = {"pid": os.getpid(), "host": socket.gethostname(), "started": _start_ticks(os.getpid())}
        with contextlib.suppress(OSError):  # on a full disk the lock still holds, but does not name its holder
            os.ftruncate(fd, 0)
            os.pwrite(fd, json.dumps(me).encode(), 0)

    def hold(self) -> bool:
        """Compare the lock with the file at its path. If that file was removed or replaced, lock the one there now.

        Return whether the lock is the old one. If it is not, another agent may have kept the chain in between, so load
        the state again. Raises Busy if another agent holds the lock, and OSError.
        """
        if self.lock_fd is not None and _is_at(self.lock_fd, self._lock_file):
            return True
        self.unlock()
        self.make()
        self.lock(0.0)
        return False

    def unlock(self) -> None:
        """Release the lock."""
        if self.lock_fd is not None:
            with contextlib.suppress(OSError):
                os.close(self.lock_fd)
            self.lock_fd = None

    def holder(self) -> dict[str, Any]:
        """Read the last holder from the lock file; {} if it names none."""
        try:
            content = json.loads(read_file(self._lock_file, 4096))
        except (OSError, ValueError, RecursionError):
            return {}
        return content if isinstance(content, dict) else {}

    def end_holder(self, patience_s: float = 60.0, sleep: Callable[[float], None] = time.sleep) -> None:
        """Stop the agent that holds the lock (SIGTERM), and lock. Raises Busy if it is not an agent on this host."""
        with contextlib.suppress(Busy):
            return self.lock(0.0, sleep)
        holder = self.holder()
        pid = holder.get("pid")
        if holder.get("host") != socket.gethostname() or not isinstance(pid, int) or not _is_agent(pid, holder):
            raise Busy(f"{_holder_text(holder)}; it is not an agent on this host, so it cannot be stopped from here")
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        return self.lock(patience_s, sleep)


def _is_at(fd: int, path: Path) -> bool:
    """Whether an open file is the one at the path. Raises OSError."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESTALE):
            return False
        raise


def _holder_text(holder: dict[str, Any]) -> str:
    if not holder:
        return "another agent keeps this chain"
    return f"another agent keeps this chain: process {holder.get('pid')} on {str(holder.get('host'))[:80]!r}"


def _start_ticks(pid: int) -> int | None:
    """Return the start of the process in clock ticks since boot; together with the pid it identifies the process."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None


def _is_agent(pid: int, holder: dict[str, Any]) -> bool:
    return pid > 1 and holder.get("started") is not None and _start_ticks(pid) == holder["started"]


def _state(values: Any) -> ChainState:
    if not isinstance(values, dict) or values.pop("state_version", None) != STATE_VERSION:
        raise ValueError(f"state_version is not {STATE_VERSION}")
    attempts = tuple(LinkAttempt(**_checked(LinkAttempt, attempt)) for attempt in values.pop("attempts"))
    if len({attempt.name for attempt in attempts}) < len(attempts):
        raise ValueError("two attempts have the same name")
    return ChainState(**_checked(ChainState, values), attempts=attempts)


def _checked(kind: type[LinkAttempt] | type[ChainState], values: Any) -> dict[str, Any]:
    """Return the values if each has the type of its field and is within its bounds. Raises ValueError."""
    if not isinstance(values, dict):
        raise ValueError(f"an attempt is {_cut(values)}, not an object")
    kinds: dict[str, tuple[type, ...]] = {
        "int": (int,), "str": (str,), "bool": (bool,), "int | None": (int, type(None)), "tuple[LinkAttempt, ...]": (),
    }  # fmt: skip
    declared = {field.name: kinds[str(field.type)] for field in fields(kind)}
    for name, value in values.items():
        if name not in declared or type(value) not in declared[name]:
            raise ValueError(f"{_cut(name)} is {_cut(value)}: unknown field or wrong type")
        if not _is_within(name, value):
            raise ValueError(f"{name} is {_cut(value)}, out of bounds")
    return values


def _is_within(name: str, value: object) -> bool:
    bounds = BOUNDS.get(name)
    if isinstance(value, str):
        return len(value) <= MOST_TEXT and (bounds is None or bool(bounds.fullmatch(value)))  # type: ignore[union-attr]
    return not isinstance(bounds, tuple) or value is None or bounds[0] <= value <= bounds[1]  # type: ignore[operator]


def _cut(value: object) -> str:
    return repr(value)[:80]
