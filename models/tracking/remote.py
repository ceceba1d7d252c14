"""Check the server of runs and models before work begins, and hold locks that processes on other hosts respect.

MLflow cannot move an alias only if nobody else moved it meanwhile. Two hosts that release for one cluster therefore
take an advisory lock of Postgres, if one is declared (`models.tracking.address.lock_server`). Postgres frees it when
the connection of its holder ends. Without one, the lock of the data folder separates only the processes that share it.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from models.tracking import address
from models.tracking.address import Server
from models.tracking.clients import client_at, quiet
from traces.errors import InputError, WorkError
from traces.progress import say
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from sqlalchemy import Connection

WAIT_S = 10  # for the first answer of a server
POLL_S = 0.5
MESSAGE_CHARACTERS = 300
# The server notices within a minute that the host of a connection is gone, and frees its locks.
_KEEPALIVE = "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
_HOLDER = (
    "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid) WHERE locktype = 'advisory' AND granted "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND (classid::bigint << 32) | objid::bigint = :key"
)
_held: dict[tuple[str, str], tuple[Server, Connection]] = {}  # of this process, by data folder and purpose


def check_servers(data: DataFolder) -> None:
    """Raise InputError, within seconds, if a declared server does not answer or refuses the login.

    Does nothing, and imports nothing heavy, if no server is declared.
    """
    server, locks = address.tracking_server(data), address.lock_server(data)
    if locks is not None:
        _check_postgres(locks)
    if server is not None and server.is_http:
        _check_http(server)


@cache
def _check_postgres(server: Server) -> None:
    _connected(server).close()


@cache
def _check_http(server: Server) -> None:
    """Ask for one experiment, with neither MLflow's retries (minutes) nor its wait for a slow answer."""
    quiet()
    from mlflow.exceptions import MlflowException

    limits = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0", "MLFLOW_HTTP_REQUEST_TIMEOUT": str(WAIT_S)}
    before = {name: os.environ.get(name) for name in limits}
    os.environ.update(limits)
    try:
        client_at(server.uri).search_experiments(max_results=1)
    except (MlflowException, ValueError, KeyError) as error:
        why = address.without_secrets(str(error), server)
        if "401" in why or "403" in why or getattr(error, "error_code", "") in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            why = "the server refuses this login; set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
        raise InputError(f"{server.name}={server.label}: MLflow cannot be used: {why[:MESSAGE_CHARACTERS]}") from None
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _connected(server: Server) -> Connection:
    """Open a connection of its own. Raises InputError."""
    from sqlalchemy import NullPool, create_engine
    from sqlalchemy.exc import SQLAlchemyError

    name = f"baton {socket.gethostname()} process {os.getpid()}"
    options = {"connect_timeout": WAIT_S, "application_name": name, "options": _KEEPALIVE}
    try:
        engine = create_engine(server.uri, poolclass=NullPool, connect_args=options, isolation_level="AUTOCOMMIT")
        return engine.connect()
    except ModuleNotFoundError as error:
        raise InputError(
            f"{server.name}={server.label}: {error.name} is not installed; install the extra: pip install '.[remote]'"
        ) from None
    except (SQLAlchemyError, ValueError) as error:
        why = address.without_secrets(str(getattr(error, "orig", None) or error), server)
        raise InputError(f"{server.name}={server.label}: Postgres cannot be used: {why[:MESSAGE_CHARACTERS]}") from None


@contextmanager
def locked_across_hosts(data: DataFolder, purpose: str) -> Iterator[None]:
    """Hold the purpose's lock on every host that declares the same Postgres; nothing without one.

    Take the data folder's own lock of that purpose first; then this may be nested. Raises WorkError if the connection
    to Postgres ends.
    """
    server, key = address.lock_server(data), (str(data.root), purpose)
    if server is None or key in _held:
        yield
        return
    with _connected(server) as connection:
        _take(server, connection, purpose)
        _held[key] = server, connection
        try:
            yield
        finally:
            del _held[key]


def _take(server: Server, connection: Connection, purpose: str) -> None:
    key = int.from_bytes(hashlib.sha256(f"baton {purpose}".encode()).digest()[:8], signed=True)
    is_said = False
    while not _asked(server, connection, "SELECT pg_try_advisory_lock(:key)", key=key):
        if not is_said:
            holder = _asked(server, connection, _HOLDER, key=key) or "another process"
            say(f"waiting for the {purpose} on {server.label}: {holder} holds it")
            is_said = True
        time.sleep(POLL_S)


def _asked(server: Server, connection: Connection, statement: str, **values: int) -> Any:
    """The first value of the answer. Raises WorkError if the connection, and with it every lock, is lost."""
    from sqlalchemy import text
    from sqlalchemy.exc import SQLAlchemyError

    try:
        return connection.execute(text(statement), values).scalar()
    except SQLAlchemyError as error:
        why = address.without_secrets(str(getattr(error, "orig", None) or error), server)
        raise WorkError(f"the lock on {server.label} was lost: {why[:MESSAGE_CHARACTERS]}; run it again") from None


def clock_s(server: Server) -> float:
    """Return the time of a Postgres, s since 1970."""
    with _connected(server) as connection:
        return float(_asked(server, connection, "SELECT extract(epoch FROM clock_timestamp())"))


def check_locks() -> None:
    """Raise WorkError if a lock across hosts was lost. Call it before a write that only its holder may make."""
    for server, connection in _held.values():
        _asked(server, connection, "SELECT 1")
