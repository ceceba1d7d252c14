"""Errors shown to the user: one line that says what is wrong, the value, where, and what to do."""

from __future__ import annotations

import errno
import os


class BatonError(Exception):
    """Base class of errors that are shown without a traceback."""

    exit_code = 1


class InputError(BatonError):
    """Wrong usage or unreadable input."""

    exit_code = 2


class WorkError(BatonError):
    """Valid input, but the work failed."""

    exit_code = 1


# Errors of the given path itself. All other errors arise while it is read or written (no space, a bad disk).
_WRONG_PATH = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENXIO, errno.ENODEV),
    }
)


def of_system(error: OSError, where: object = None) -> BatonError:
    """Convert an OSError to one line: InputError where another path would help, else WorkError.

    The message names `where` if the error itself names no path.
    """
    path = error.filename if error.filename is not None else where
    named = "" if path is None else f"{os.fsdecode(path) if isinstance(path, bytes) else path}: "
    kind = InputError if error.errno in _WRONG_PATH else WorkError
    return kind(f"{named}{error.strerror or ' '.join(map(str, error.args))}")
