"""Handling of standard output after its reader has gone."""

from __future__ import annotations

import os
import sys

READER_GONE = 1  # exit status


def reader_gone() -> int:
    """Discard the rest of standard output after its reader has gone, as with `| head`; return the exit status.

    Otherwise Python flushes once more at exit and fails with a traceback (manual of `signal`, note on SIGPIPE).
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return READER_GONE
