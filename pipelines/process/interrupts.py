"""How a command ends by Ctrl-C (SIGINT) or SIGTERM: within a second, whatever it is doing.

Python runs the handler of a signal in the main thread, between two instructions of its own: not while that thread is
in a compiled kernel, and a thread pool is waited for all the same. So a thread of its own hears of the signal by a
pipe, to which the interpreter writes at once whatever the main thread does, and ends the process where the orderly way
(an exception that passes through every `finally`) takes longer than GRACE_S. Compiled kernels release the interpreter's
lock (`traces.compiled`), as do numba's compiler, DuckDB and polars, so that this thread runs beside them. Ending hard
loses nothing that was finished: whatever the data folder holds is written whole or not at all. Processes that this one
started end with it (`models.child`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GRACE_S = 0.6
_HEARD = (signal.SIGINT, signal.SIGTERM)
_CLICK_INTERRUPTED = 130  # the exit status that typer makes of KeyboardInterrupt


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
            is_announced.wait(1)  # the other thread may have had no turn yet
        if received and code:
            sys.exit(128 + received[0])
        raise


def _watch(reading: int, received: list[int], is_announced: threading.Event) -> None:
    """Wait for a signal, say what follows, and end the process with its exit status if nothing else does."""
    first = _next(reading)
    received.append(first)
    with suppress(OSError):  # straight: the thread that was interrupted may hold the lock of `sys.stderr`
        os.write(2, b"\nbaton: interrupted; run again to resume\n")
    is_announced.set()
    timer = threading.Timer(GRACE_S, os._exit, (128 + first,))
    timer.daemon = True
    timer.start()
    os._exit(128 + _next(reading))


def _next(reading: int) -> int:
    """The next signal that is heeded; every signal with a handler in Python is written to the pipe."""
    while True:
        number = os.read(reading, 1)[0]
        if number in _HEARD:
            return number
