"""End a command within a second of Ctrl-C (SIGINT) or SIGTERM, whatever it is doing.

Python runs a signal handler in the main thread, between two bytecode instructions. It cannot run while that thread is
in a compiled kernel, and Python still waits for thread pools. Therefore a separate thread reads the signal from a pipe,
to which the interpreter writes at once whatever the main thread does. This thread ends the process if the orderly way
(an exception that passes through every `finally`) takes longer than GRACE_S. We do not wait for the interpreter's own
shutdown, which takes seconds after Dagster or MLflow. Compiled kernels release the interpreter's lock
(`traces.compiled`), as do numba's compiler, DuckDB and polars, so the thread can run meanwhile. A hard end loses no
finished work: files of the data folder are written whole or not at all. Child processes end with this one
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
_CLICK_INTERRUPTED = 130  # typer's exit status for KeyboardInterrupt
is_ending = threading.Event()  # set once the command is interrupted; progress is no longer printed


@contextmanager
def orderly_end() -> Iterator[None]:
    """Raise KeyboardInterrupt in the body on SIGINT and SIGTERM, and exit with status 128 + signal number.

    A second signal ends the process at once, and so does the end of GRACE_S. Use it in the main thread of a program.
    """
    received: list[int] = []
    is_announced = threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    for number in _HEARD:  # Dagster replaces these handlers while it runs a job, but keeps the pipe
        signal.signal(number, signal.default_int_handler)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(reading, received, is_announced), name="signals", daemon=True).start()
    try:
        yield
    except BaseException as error:
        code = error.code if isinstance(error, SystemExit) else 1
        if isinstance(error, KeyboardInterrupt) or code == _CLICK_INTERRUPTED:
            is_announced.wait(GRACE_S)  # the other thread may not have run yet
        if received and code:
            with suppress(OSError):
                sys.stdout.flush()
            os._exit(128 + received[0])  # an orderly interpreter shutdown takes seconds
        raise


def _watch(reading: int, received: list[int], is_announced: threading.Event) -> None:
    """Wait for a signal, print a message, and end the process with the signal's exit status if nothing else does."""
    first = _next(reading)
    end_s = time.monotonic() + GRACE_S
    received.append(first)
    is_ending.set()
    with suppress(OSError):  # to the descriptor: the interrupted thread may hold the lock of `sys.stderr`
        os.write(2, b"\nbaton: interrupted; run again to resume\n")
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hide what libraries print when they are interrupted
    is_announced.set()
    _next(reading, end_s)
    os._exit(128 + first)


def _next(reading: int, end_s: float | None = None) -> int:
    """Return the next SIGINT or SIGTERM from the pipe, or 0 at `end_s`.

    The interpreter writes every signal with a Python handler to the pipe.
    """
    while True:
        left_s = None if end_s is None else max(0.0, end_s - time.monotonic())
        if not select.select([reading], [], [], left_s)[0]:
            return 0
        number = os.read(reading, 1)[0]
        if number in _HEARD:
            return number
