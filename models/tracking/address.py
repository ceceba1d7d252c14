"""Where runs and registered models are stored: in the data folder, or on a server.

MLFLOW_TRACKING_URI names the server, else `tracking.uri` of deployment.toml. It is an MLflow server (http or https) or
a Postgres. Nothing here imports mlflow. A user and a password in an address are used and never shown.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from models.deployment import read_deployment
from traces.errors import InputError
from traces.store.folder import DataFolder

VARIABLE = "MLFLOW_TRACKING_URI"
LOCKS = "BATON_LOCKS"  # address of a Postgres that holds the locks across hosts
HTTP, POSTGRES = ("http", "https"), ("postgresql", "postgresql+psycopg2")
# Read once, because MLflow changes the first variable whenever its own tracking URI is set.
_GIVEN = {name: os.environ.get(name, "").strip() for name in (VARIABLE, LOCKS)}


@dataclass(frozen=True)
class Server:
    """A server. Only `name`, which declares it, and `label` may be shown: `uri` may hold a password."""

    name: str
    label: str
    uri: str = field(repr=False)

    @property
    def is_http(self) -> bool:
        """Whether it is an MLflow server, which also stores the artifacts."""
        return self.uri.startswith(HTTP)


def tracking_server(data: DataFolder) -> Server | None:
    """The server of runs and registered models; None if none is declared, or the data folder's own store.

    A user and a password of an http address become MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD. Raises
    InputError for an address of another kind.
    """
    name, given = _declared(data, VARIABLE)
    if not given or (given.startswith("sqlite") and given.endswith(str(data.mlflow.resolve() / "mlflow.db"))):
        return None
    own = ", or remove it: then the data folder keeps its own store"
    parts = _parts(name, given, (*HTTP, *POSTGRES), f"an http(s) or postgresql address{own}")
    if parts.scheme in POSTGRES:
        return Server(name, shown(given), _by_psycopg2(given))
    if parts.username is not None:
        os.environ["MLFLOW_TRACKING_USERNAME"] = unquote(parts.username)
        os.environ["MLFLOW_TRACKING_PASSWORD"] = unquote(parts.password or "")
    bare = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
    return Server(name, bare, bare)


def _declared(data: DataFolder, variable: str) -> tuple[str, str]:
    """What names the server, and its address: the variable, else the deployment; empty without either."""
    if given := _GIVEN[variable]:
        return variable, given
    deployment = read_deployment(data.root)
    if variable == LOCKS:
        return f"{deployment.path}: locks.postgres", deployment.locks
    return f"{deployment.path}: tracking.uri", deployment.tracking_uri


def tracking_label(data: DataFolder) -> str:
    """The server as it may be shown; empty for the data folder's own store."""
    server = tracking_server(data)
    return "" if server is None else server.label


def registry_key(data: DataFolder) -> tuple[str, ...]:
    """What digests need beside a version's number, which another registry may have given too; empty for the own one."""
    return tuple(filter(None, [tracking_label(data)]))


def lock_server(data: DataFolder) -> Server | None:
    """The Postgres for locks across hosts: the declared one, else a Postgres that stores the runs, else None."""
    name, given = _declared(data, LOCKS)
    if given:
        _parts(name, given, POSTGRES, "a postgresql address")
        return Server(name, shown(given), _by_psycopg2(given))
    server = tracking_server(data)
    return server if server is not None and not server.is_http else None


def shown(uri: str) -> str:
    """The address without user, password and options."""
    scheme, separator, rest = uri.partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2].split('?')[0]}" if separator else uri.rpartition("@")[2][:60]


def without_secrets(text: str, server: Server) -> str:
    """The text on one line, without the password of the server's address."""
    secrets = (urlsplit(server.uri).password, os.environ.get("MLFLOW_TRACKING_PASSWORD"))
    for secret in filter(None, (*secrets, *map(unquote, filter(None, secrets)))):
        text = text.replace(secret, "***")
    return " ".join(text.split())


def _parts(name: str, uri: str, schemes: tuple[str, ...], wanted: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
        is_known = parts.scheme in schemes and bool(parts.hostname or parts.scheme in POSTGRES)
        _ = parts.port
    except ValueError as error:
        raise InputError(f"{name}={shown(uri)} is not an address: {error}") from None
    if not is_known:
        raise InputError(f"{name}={shown(uri)} cannot be used: name {wanted}")
    return parts


def _by_psycopg2(uri: str) -> str:
    """The address with its driver, because SQLAlchemy 2.1 takes another one by default."""
    return f"{POSTGRES[1]}://{uri.partition('://')[2]}"
