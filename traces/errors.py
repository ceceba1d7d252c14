"""The errors a person sees: one line that says what, the value, where, and what to do."""

from __future__ import annotations

import errno
import os


class BatonError(Exception):
    """Base of every error that is shown without a traceback."""

    exit_code = 1


class InputError(BatonError):
    """Wrong usage or unreadable input."""

    exit_code = 2


class WorkError(BatonError):
    """The input was fine, the work failed."""

    exit_code = 1


# What is wrong with a path that was given, as against what fails while it is read or written (no space, a bad disk).
_WRONG_PATH = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP),
        *(errno.EACCES, errno.EPERM, errno.EROFS, errno.ENXIO, errno.ENODEV),
    }
)


def of_system(error: OSError, where: object = None) -> BatonError:
    """What the system says of a path, in one line: InputError where another path would do, WorkError where not.

    `where` is named where the error itself names no path.
    """
    path = error.filename if error.filename is not None else where
    named = "" if path is None else f"{os.fsdecode(path) if isinstance(path, bytes) else path}: "
    kind = InputError if error.errno in _WRONG_PATH else WorkError
    return kind(f"{named}{error.strerror or ' '.join(map(str, error.args))}")
