"""End a child process together with its parent, whatever the child is doing."""

from __future__ import annotations

import ctypes
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def end_with_parent() -> None:
    """Leave Ctrl-C to the parent, and end as soon as the parent ends. See prctl(2), which only Linux has.

    On other systems the process ends after its present work, when it finds the connection closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
