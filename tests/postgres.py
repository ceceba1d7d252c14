"""A real Postgres for tests, on the loopback, with a password."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import skip_or_fail


@contextmanager
def running_postgres() -> Iterator[tuple[str, str]]:
    """Yield the address of a new Postgres with the role `baton`, and its password."""
    found = shutil.which("pg_ctl") or next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))), None)
    if found is None or find_spec("psycopg2") is None:
        skip_or_fail("remote", "Postgres, or the extra `remote`, is not installed")
    folder, password = Path("/tmp") / f"baton-pg-{secrets.token_hex(4)}", secrets.token_hex(8)
    folder.mkdir()
    user = "nobody" if os.getuid() == 0 else None  # Postgres refuses to run as root
    if user is not None:
        shutil.chown(folder, user)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    initdb = str(Path(found).resolve().with_name("initdb"))
    (folder / "password").write_text(password)
    shutil.chown(folder / "password", user or os.getuid())

    def pg(*command: str) -> None:
        subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, timeout=120)

    try:
        pg(initdb, "-D", f"{folder}/d", "-U", "baton", "-A", "scram-sha-256", "--pwfile", f"{folder}/password")
        options = f"-p {port} -k {folder} -h 127.0.0.1 -c fsync=off"
        pg(found, "-D", f"{folder}/d", "-o", options, "-w", "-l", f"{folder}/log", "start")
        yield f"postgresql://baton:{password}@127.0.0.1:{port}/postgres", password
        pg(found, "-D", f"{folder}/d", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
