"""Where the shared lake is: the table `lake` of deployment.toml. Imports nothing heavy."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from traces.errors import InputError

KEEP_DAYS = range(1, 3651)
_KEEP = re.compile(r"([1-9]\d{0,3})d")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PATH = re.compile(r"(/[A-Za-z0-9_.=-]+)*")


@dataclass(frozen=True)
class LakeOptions:
    """The table `lake`; without a url there is no shared lake."""

    url: str = ""
    endpoint: str = ""
    region: str = "us-east-1"
    keep: str = "30d"

    @property
    def keep_days(self) -> int:
        """How long old versions and files that nothing lists stay, days."""
        match = _KEEP.fullmatch(self.keep)
        if match is None or int(match[1]) not in KEEP_DAYS:
            raise InputError(
                f"lake.keep {self.keep!r:.40}: write days as in '30d', {KEEP_DAYS[0]}d to {KEEP_DAYS[-1]:,}d"
            )
        return int(match[1])


def lake_options(table: dict[str, Any]) -> LakeOptions:
    """Check the table `lake`. Raises InputError with the key."""
    known = [one.name for one in fields(LakeOptions)]
    for name, value in table.items():
        if name not in known:
            raise InputError(f"unknown key lake.{name:.60}: known are {', '.join(known)}")
        if not isinstance(value, str) or not value.isprintable():
            raise InputError(f"lake.{name} is not text on one line")
    options = LakeOptions(**{name: value.rstrip("/") for name, value in table.items()})
    _check_url(options.url)
    if options.endpoint:
        _check_endpoint(options.endpoint)
    _ = options.keep_days
    return options


def _check_url(url: str) -> None:
    scheme, _, rest = url.partition("://")
    bucket, slash, path = rest.partition("/")
    if "@" in url:
        raise InputError("lake.url holds a login: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
    is_known = (scheme == "s3" and _BUCKET.fullmatch(bucket)) or (scheme == "file" and not bucket and path)
    if url and not (is_known and _PATH.fullmatch(slash + path) and ".." not in path):
        raise InputError(
            f"lake.url {url!r:.200}: write s3://BUCKET/PREFIX or file:///FOLDER, of letters, digits and . _ = -"
        )


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        is_known = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        is_known = False
    else:
        if "@" in parts.netloc:
            raise InputError("lake.endpoint holds a login: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead")
    if not is_known:
        raise InputError(f"lake.endpoint {endpoint!r:.200}: write http://HOST:PORT or https://HOST:PORT")
