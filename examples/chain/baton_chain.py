"""Make a training script one link of a chain that `baton-agent` keeps going. Copy this file beside your script.

    with Link() as link:                              # waits until the predecessor has released the checkpoint
        state = load(link.folder / "checkpoint")      # if it exists
        while state.step < STEPS:
            train_one_step(state)
            if link.should_save():
                with link.replacing("checkpoint") as part:
                    save(state, part)
            if link.must_end():
                link.ask_for_another()                # ends the script with status 85; status 0 ends the chain

Of several processes in one link, only the first enters `Link`, before a barrier, and broadcasts `must_end()`.
"""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NoReturn

MORE = 85  # exit status that asks baton-agent for another link (its option --more-status)


class Link:
    """One job of a chain, which owns the checkpoint inside `with`. It also runs without the agent and without Slurm.

    save_every_s: seconds between saves. margin_s: seconds before the limit at which the link must end: a step and a
    save. folder: what the links share; default $BATON_CHAIN_DIR, else the current folder.
    """

    def __init__(self, save_every_s: float = 600, margin_s: float = 120, folder: "Path | None" = None) -> None:
        self.folder = folder or Path(os.environ.get("BATON_CHAIN_DIR", "."))
        self.save_every_s, self.margin_s = save_every_s, margin_s
        self._saved_s, self._end_s, self._signals = time.time(), _end_s(), list[int]()
        for number in (signal.SIGUSR1, signal.SIGTERM):  # of `sbatch --signal=B:USR1@300`; of Slurm at the limit
            signal.signal(number, lambda number, frame: self._signals.append(number))

    def __enter__(self) -> "Link":
        """Wait for the lock, which the kernel releases when the predecessor ends. OSError: this folder has no locks."""
        self._lock = open(self.folder / "lock", "a")
        if not _has_lock(self._lock):
            print("waiting for the lock of the predecessor", flush=True)
        while not _has_lock(self._lock):
            time.sleep(1)
            if self.must_end():
                self.ask_for_another()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def time_left_s(self) -> float:
        """Return the seconds until Slurm ends this job; infinite where no limit is known."""
        return self._end_s - time.time()

    def must_end(self) -> bool:
        """Return whether to save and end: after a signal (USR1, TERM), or `margin_s` before the limit."""
        return bool(self._signals) or self.time_left_s() < self.margin_s

    def should_save(self) -> bool:
        """Return whether to save: the link must end, or `save_every_s` have passed since `replacing`."""
        return self.must_end() or time.time() - self._saved_s >= self.save_every_s

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """Yield a path to write to, then put that file in place: a kill leaves the old one or the new one, whole."""
        part = self.folder / f"{name}.part"
        yield part
        with open(part, "rb+") as written:
            os.fsync(written.fileno())
        part.replace(self.folder / name)
        self._saved_s = time.time()

    def ask_for_another(self) -> NoReturn:
        """End the script with the status that asks the agent for another link."""
        raise SystemExit(MORE)


def _has_lock(lock: "IO[str]") -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _end_s() -> float:
    """Return when Slurm ends this job, in seconds since 1970; infinite where that is not known."""
    job, end_s = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_JOB_END_TIME")  # the latter since Slurm 23.02
    if job is None or end_s is not None:
        return float(end_s or "inf")
    with suppress(OSError, subprocess.SubprocessError, ValueError):  # no squeue, or no number, such as UNLIMITED
        asked = ["squeue", "-h", "-j", job, "-o", "%L"]
        days, _, hms = subprocess.check_output(asked, text=True, timeout=60).strip().rpartition("-")
        return time.time() + 86400 * int(days or 0) + sum(int(n) * 60.0**i for i, n in enumerate(hms.split(":")[::-1]))
    return float("inf")
