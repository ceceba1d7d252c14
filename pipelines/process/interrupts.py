"""How a command ends by Ctrl-C (SIGINT) or SIGTERM: within a second, whatever it is doing.

Python runs the handler of a signal in the main thread, between two instructions of its own: not while that thread is
in a compiled kernel, and a thread pool is waited for all the same. So a thread of its own hears of the signal by a
pipe, to which the interpreter writes at once whatever the main thread does, and ends the process where the orderly way
(an exception that passes through every `finally`) takes longer than GRACE_S. The interpreter's own end, which takes
seconds after Dagster or MLflow, is not waited for. Compiled kernels release the interpreter's lock (`traces.compiled`),
as do numba's compiler, DuckDB and polars, so that this thread runs beside them. Ending hard loses nothing that was
finished: whatever the data folder holds is written whole or not at all. Processes that this one started end with it
(`models.child`).
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GRACE_S = 0.6
_HEARD = (signal.SIGINT, signal.SIGTERM)
_CLICK_INTERRUPTED = 130  # the exit status that typer makes of KeyboardInterrupt
is_ending = threading.Event()  # set once the command is interrupted; progress is no longer printed


@contextmanager
def orderly_end() -> Iterator[None]:
    """SIGINT and SIGTERM raise KeyboardInterrupt within, and the exit status is 128 and the signal's number.

    A second signal, or GRACE_S without an end, ends the process at once. For the main thread of a program.
    """
    received: list[int] = []
    is_announced = threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for number in _HEARD:  # Dagster puts other handlers in their place while it runs a job, but no other pipe
        signal.signal(number, signal.default_int_handler)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading, received, is_announced), name="signals", daemon=True).start()
    try:
        yield
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        if isinstance(error, KeyboardInterrupt) or code == _CLICK_INTERRUPTED:
            is_announced.wait(GRACE_S)  # the other thread may have had no turn yet
        if received and code:
            with suppress(OSError):
                sys.stdout.flush()
            os._exit(128 + received[0])  # the interpreter takes seconds to put away what libraries hold
        raise


def _watch(reading: int, received: list[int], is_announced: threading.Event) -> None:
    """Wait for a signal, say what follows, and end the process with its exit status if nothing else does."""
    first = _next(reading)
    end_s = time.monotonic() + GRACE_S
    received.append(first)
    is_ending.set()
    with suppress(OSError):  # straight: the thread that was interrupted may hold the lock of `sys.stderr`
        os.write(2, b"\nbaton: interrupted; run again to resume\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # how libraries take an interruption is of no interest
    is_announced.set()
    _next(reading, end_s)
    os._exit(128 + first)


def _next(reading: int, end_s: float | None = None) -> int:
    """The next signal that is heeded, or 0 at `end_s`; every signal with a handler in Python is written to the pipe."""
    while True:
        left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
        if not select.select([reading], [], [], left_s)[0]:
            return 0
        number = os.read(reading, 1)[0]
        if number in _HEARD:
            return number
