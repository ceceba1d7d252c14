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
from typing import NoReturn

MORE = 85  # exit status that asks baton-agent for another link (its option --more-status)


class Link:
    """One job of a chain, which owns the checkpoint inside `with`. It also runs without the agent and without Slurm.

    save_every_s: seconds between saves. margin_s: seconds before the limit at which the link must end: a step and a
    save. folder: what the links share; default $BATON_CHAIN_DIR, else the current folder.
    """

    def __init__(self, save_every_s: float = 600, margin_s: float = 120, folder: "Path | None" = None) -> None:
        self.folder = folder or Path(os.environ.get("BATON_CHAIN_DIR", "."))
        self.save_every_s, self.margin_s, self._loads = save_every_s, margin_s, list[float]()
        self._saved_s, self._signals, self._job = time.time(), list[int](), os.environ.get("SLURM_JOB_ID")
        self._start_s, self._end_s = _job_times(self._job)
        for number in (signal.SIGUSR1, signal.SIGTERM):  # of `sbatch --signal=B:USR1@300`; of Slurm at the limit
            signal.signal(number, lambda number, frame: self._signals.append(number))

    def __enter__(self) -> "Link":
        """Wait for the lock, which the kernel releases when the predecessor ends. OSError: this folder has no locks."""
        self._lock, asked_s = open(self.folder / "lock", "a"), time.time()
        news = ["waiting for the lock of the predecessor"]
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._loads.append(self._start_s + time.time() - asked_s)  # waiting is no restart cost
                return self
            while news:
                print(news.pop(), flush=True)
            time.sleep(1)
            if self.must_end():
                self.ask_for_another()

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def time_left_s(self) -> float:
        """Return the seconds until Slurm ends this job; infinite where no limit is known."""
        return self._end_s - time.time()

    def must_end(self) -> bool:
        """Return whether to save and end: after a signal (USR1, TERM), or `margin_s` before the limit."""
        while self._loads:  # at the first call inside `with`, the work goes on
            os.write(1, f"baton: job {self._job} resumed after {time.time() - self._loads.pop():.1f} s\n".encode())
        return bool(self._signals) or self.time_left_s() < self.margin_s

    def should_save(self) -> bool:
        """Return whether to save: the link must end, or `save_every_s` have passed since `replacing`."""
        return self.must_end() or time.time() - self._saved_s >= self.save_every_s

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """Yield a path to write to, then put that file in place: a kill leaves the old one or the new one, whole."""
        part, began_s = self.folder / f"{name}.part", time.time()
        yield part
        with open(part, "rb+") as written:
            os.fsync(written.fileno())
        part.replace(self.folder / name)
        self._saved_s = time.time()
        os.write(1, f"baton: job {self._job} saved in {self._saved_s - began_s:.1f} s\n".encode())  # the agent reads it

    def ask_for_another(self) -> NoReturn:
        """End the script with the status that asks the agent for another link."""
        raise SystemExit(MORE)


def _job_times(job: "str | None") -> "tuple[float, float]":
    """Return when this job began and when Slurm ends it, in seconds since 1970: now and infinite if not known."""
    times = [os.environ.get(name, "") for name in ("SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME")]  # since Slurm 23.02
    with suppress(OSError, subprocess.SubprocessError, ValueError, IndexError):  # no squeue, or no number, such as N/A
        if job and not times[1]:
            asked = ["env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-j", job, "-o", "%S %e"]
            times = subprocess.check_output(asked, text=True, timeout=60).split()
        return float(times[0] or time.time()), float(times[1] or "inf")
    return time.time(), float("inf")
