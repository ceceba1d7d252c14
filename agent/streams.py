"""Standard streams whose reader has gone."""

from __future__ import annotations

import os
import sys

READER_GONE = 1  # exit status


def reader_gone() -> int:
    """What is left of standard output goes nowhere, as behind `| head`; returns the exit status.

    Without it Python flushes once more as it ends, and fails with a traceback (manual of `signal`, note on SIGPIPE).
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE
