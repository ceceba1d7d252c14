"""What links print about their restarts, read from the files that hold their output.

A job prints these lines anywhere in its output, with its own job id; the last of each kind counts:

    baton: job 1234 resumed after 312 s
    baton: job 1234 saved in 20.5 s

The first number is the time from the start of the job until its work went on.
"""

from __future__ import annotations

import math
import os
import re

from agent.files import open_regular
from agent.slurm.commands import Commands, SlurmError
from traces.units import DAY_S

TAIL_BYTES = 1 << 20  # of the end of a file, that are read
MOST_S = 10 * DAY_S  # longer times are ignored
STDOUT = re.compile(r"^ *StdOut=(.*)$", re.MULTILINE)
KINDS = {"resumed_s": "resumed after", "saved_s": "saved in"}


class JobOutputs:
    """Reads the output of jobs; Slurm is asked once a job where that goes."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._paths: dict[str, str] = {}

    def restart_times(self, job_id: str, *, is_alive: bool) -> dict[str, int]:
        """Return the times that a job printed, s, rounded up: by the names of KINDS, those that can be found.

        An ended job is read only if Slurm was asked about it while it was alive.
        """
        try:
            if is_alive and job_id not in self._paths:
                answer = self._commands.run("scontrol", "show", "job", job_id)  # squeue prints slurm-%j.out since 24.11
                self._paths[job_id] = STDOUT.findall(answer)[-1]
            return printed_times(_tail(self._paths[job_id]), job_id)
        except (SlurmError, OSError, ValueError, LookupError):  # ValueError: a path with NUL
            return {}


def printed_times(text: bytes, job_id: str) -> dict[str, int]:
    """Find the times in a job's output, as `JobOutputs.restart_times` returns them."""
    found = {}
    for name, words in KINDS.items():
        times = re.findall(rf"baton: job {job_id} {words} (\d{{1,7}}(?:\.\d{{1,6}})?) s\b".encode(), text)
        if times and float(times[-1]) <= MOST_S:
            found[name] = math.ceil(float(times[-1]))
    return found


def _tail(path: str) -> bytes:
    with open(path, "rb", opener=open_regular) as file:
        file.seek(max(os.fstat(file.fileno()).st_size - TAIL_BYTES, 0))
        return file.read(TAIL_BYTES)
