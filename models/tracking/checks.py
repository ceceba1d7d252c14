"""Check the declared servers of runs, models and locks: each check has a finding, and a mend if it failed."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from models.deployment import DeploymentCheck
from models.tracking import address, remote
from models.tracking.address import Server
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.visible import visible

MOST_APART_S = 60  # between the clocks of two hosts, whose runs and decisions are put in order of time
MOST_CHARACTERS = 40  # of a server's version


def server_checks(data: DataFolder) -> Iterator[DeploymentCheck]:
    """Yield the checks of the servers. Stops at the first that cannot be used."""
    try:
        server, locks = address.tracking_server(data), address.lock_server(data)
        remote.check_servers(data)
    except InputError as error:
        yield DeploymentCheck("servers", str(error), "mend the address or the login, or start the server")
        return
    if server is None:
        yield DeploymentCheck("tracking", f"in the data folder, {data.mlflow}, MLflow {version('mlflow-skinny')}")
    elif server.is_http:
        yield from _http(server)
    else:
        yield DeploymentCheck("tracking", f"{server.label} answers, MLflow {version('mlflow-skinny')} here")
    if locks is None:
        yield DeploymentCheck("locks", "in the data folder; hosts with folders of their own need locks.postgres")
    else:
        yield DeploymentCheck("locks", f"{locks.label} answers")
        yield _clock(locks, remote.clock_s(locks) - time.time())


def _http(server: Server) -> Iterator[DeploymentCheck]:
    """The version and the clock of an MLflow server, from one answer."""
    user, password = (os.environ.get(f"MLFLOW_TRACKING_{name}", "") for name in ("USERNAME", "PASSWORD"))
    login = base64.b64encode(f"{user}:{password}".encode()).decode()
    asked = Request(f"{server.uri}/version", headers={"Authorization": f"Basic {login}"} if user else {})  # noqa: S310
    try:
        with urlopen(asked, timeout=remote.WAIT_S) as answer:  # noqa: S310 - http or https, as `address` checks
            there, headers = visible(answer.read(MOST_CHARACTERS).decode(errors="replace")), answer.headers
    except HTTPError as error:
        there, headers = "of an unknown version", error.headers
    except (URLError, OSError) as error:
        yield DeploymentCheck("tracking", f"{server.label}: {error}", "start the server")
        return
    yield DeploymentCheck("tracking", f"{server.label} answers, MLflow {there}; here {version('mlflow-skinny')}")
    if date := headers.get("Date"):
        yield _clock(server, parsedate_to_datetime(date).timestamp() - time.time())


def _clock(server: Server, apart_s: float) -> DeploymentCheck:
    if abs(apart_s) <= MOST_APART_S:
        return DeploymentCheck("clock", f"that of {server.label} is within {MOST_APART_S} s of this machine's")
    side = "ahead of" if apart_s > 0 else "behind"
    finding = f"that of {server.label} is {abs(apart_s):,.0f} s {side} this machine's"
    return DeploymentCheck("clock", finding, "set the clocks of both by NTP: decisions are put in order of time")
