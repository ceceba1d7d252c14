"""Limit matrix products to one thread: those of a replay or a comparison are small, and threads that wait cost more.

Measured on two processors with other work running: a comparison of 28 fits took 45 s of processor time with the
library's own threads and 13 s with one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def one_thread(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap the function to use one thread for numpy's matrix products while it runs."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        with _libraries().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited


@cache
def _libraries() -> Any:
    """The linear algebra libraries of this process, cached because finding them takes longer than setting them."""
    import numpy  # noqa: F401 - loads its own library
    import scipy.linalg  # noqa: F401 - and so does this
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
