"""The errors a person sees: one line that says what, the value, where, and what to do."""

from __future__ import annotations


class BatonError(Exception):
    """Base of every error that is shown without a traceback."""

    exit_code = 1


class InputError(BatonError):
    """Wrong usage or unreadable input."""

    exit_code = 2


class WorkError(BatonError):
    """The input was fine, the work failed."""

    exit_code = 1
