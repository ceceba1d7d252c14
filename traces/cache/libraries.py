"""Versions of installed libraries, by import name."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import cache

from traces.cache.sources import user_cache
from traces.errors import BatonError
from traces.files.whole import write_text


@cache
def installed_version(library: str) -> str | None:
    """Return the version of the installed distribution that provides `import library`, or None."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(library)
    except PackageNotFoundError:  # the names differ: scikit-learn provides sklearn
        names = _distributions_of(library)
        return ", ".join(f"{name} {version(name)}" for name in names) or None


def _distributions_of(library: str) -> list[str]:
    """Return the distributions that provide the library. The search takes a third of a second, so it is cached."""
    from importlib.metadata import PackageNotFoundError, packages_distributions, version

    folder = user_cache("sources")
    path = None if folder is None else folder / "libraries.json"
    remembered: dict[str, list[str]] = {}
    with suppress(OSError, ValueError, TypeError, AttributeError, PackageNotFoundError):
        remembered = {} if path is None else dict(json.loads(path.read_text(encoding="utf-8")))
        if names := remembered.get(library):
            for name in names:
                version(name)  # raises if it is no longer installed
            return names
    names = sorted(packages_distributions().get(library, ()))
    if path is not None and names:
        with suppress(BatonError):  # without the cache the next process searches again
            write_text(path, json.dumps({**remembered, library: names}))
    return names
