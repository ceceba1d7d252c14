"""The connection to the shared lake: addresses, credentials from the environment, files, and errors as one line."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from traces.errors import BatonError, InputError, WorkError
from traces.lake.options import LakeOptions

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

WAIT_S = 5  # for a connection
REQUEST_S = 30  # for one request with its body; a file is sent and read in parts
RETRY_S = 20  # after which a request is not tried again
PART_BYTES = 8 << 20
MESSAGE_CHARACTERS = 300
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
_OTHER_LOGINS = (  # that clouds set in the environment of their machines
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_REASONS = (  # what S3 servers print, and what it means
    ("NoSuchBucket", "there is no such bucket"),
    ("InvalidAccessKeyId", "the server refuses these credentials (AWS_ACCESS_KEY_ID)"),
    ("SignatureDoesNotMatch", "the server refuses these credentials (AWS_SECRET_ACCESS_KEY)"),
    ("RequestTimeTooSkewed", "the clocks of this machine and of the server differ by minutes: set both by NTP"),
    ("AccessDenied", "these credentials may not do that"),
    ("403 Forbidden", "the server refuses these credentials"),
    ("error sending request", f"the server does not answer (we wait up to {REQUEST_S} s)"),
    ("operation timed out", f"the server does not answer (we wait up to {REQUEST_S} s)"),
)


@dataclass(frozen=True)
class SharedLake:
    """One shared lake. Making it asks no server; raises InputError without deltalake or credentials."""

    options: LakeOptions

    def __post_init__(self) -> None:
        if find_spec("deltalake") is None:
            raise InputError(
                f"{self.options.url}: deltalake is not installed; install the extra: pip install '.[lake]'"
            )
        given = [name for name in KEYS if os.environ.get(name)]
        if self.is_s3 and len(given) < len(KEYS) and not any(os.environ.get(name) for name in _OTHER_LOGINS):
            raise InputError(f"{self.options.url}: set {' and '.join(KEYS)} in the environment")
        if not self.is_s3 and not self.folder.is_dir():  # perhaps a file system that is not mounted
            raise InputError(f"{self.options.url}: there is no such folder; make it, or mount its file system")

    @property
    def is_s3(self) -> bool:
        """Return whether the lake is on S3; else it is a folder."""
        return self.options.url.startswith("s3:")

    @property
    def folder(self) -> Path:
        """The folder of a lake that is not on S3."""
        return Path(self.options.url.removeprefix("file://"))

    def uri(self, name: str) -> str:
        """Return the address of a table."""
        return f"{self.options.url}/{name}"

    @property
    def storage(self) -> dict[str, str]:
        """Options of deltalake's client, without credentials: it reads them from the environment."""
        if not self.is_s3:
            return {}
        given = {"aws_region": self.options.region}
        if self.options.endpoint:
            given["aws_endpoint"] = self.options.endpoint
            given["aws_allow_http"] = str(self.options.endpoint.startswith("http://")).lower()
        return {
            **given,
            "aws_conditional_put": "etag",
            "connect_timeout": f"{WAIT_S}s",
            "timeout": f"{REQUEST_S}s",
            "max_retries": "4",
            "retry_timeout": f"{RETRY_S}s",
        }

    @cached_property
    def files(self) -> FileSystem:
        """The files of the lake; paths are relative to its address."""
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import PyFileSystem

        return PyFileSystem(DeltaStorageHandler(self.options.url, options=self.storage))

    def send(self, source: Path, target: str) -> None:
        """Copy a local file into the lake."""
        from pyarrow.fs import LocalFileSystem, copy_files

        copy_files(
            str(source), target, source_filesystem=LocalFileSystem(), destination_filesystem=self.files,
            chunk_size=PART_BYTES, use_threads=False,
        )  # fmt: skip

    def fetch(self, source: str, target: Path) -> None:
        """Copy a file of the lake to a local path."""
        from pyarrow.fs import LocalFileSystem, copy_files

        copy_files(
            source, str(target), source_filesystem=self.files, destination_filesystem=LocalFileSystem(),
            chunk_size=PART_BYTES, use_threads=False,
        )  # fmt: skip

    @contextmanager
    def answers(self, kind: type[BatonError] = WorkError) -> Iterator[None]:
        """Convert errors of the lake's client to one line, without secrets. `kind` is the error before work begins."""
        from deltalake.exceptions import DeltaError

        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            raise kind(f"shared lake {self.options.url}: {self.reason(error)}") from None

    def reason(self, error: BaseException) -> str:
        """Return the reason of a client's error, on one line."""
        text = " ".join(str(error).split()) or type(error).__name__
        for printed, meaning in _REASONS:
            if printed in text:
                return meaning
        for name in (*KEYS, "AWS_SESSION_TOKEN"):
            if secret := os.environ.get(name):
                text = text.replace(secret, "***")
        return text[:MESSAGE_CHARACTERS]


def host() -> str:
    """Return the name of this machine, for paths that mean something here alone."""
    return socket.gethostname()
