"""A Dagster home of the user's own, with its own dagster.yaml, in place of the one in the data folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from models.deployment import read_deployment
from traces.errors import InputError
from traces.store.folder import DataFolder

VARIABLE, CONFIGURATION = "DAGSTER_HOME", "dagster.yaml"
READY = ".ready"  # file in a DAGSTER_HOME that Baton made: the Dagster release that made or migrated its databases
DATA_TAG = "baton/data"  # of runs of the command line in the user's instance: host and data folder


def declared_home(data: DataFolder) -> Path | None:
    """The folder that DAGSTER_HOME names, if it holds a dagster.yaml and Baton did not make it; else None.

    Without the variable, that of `dagster.home` in deployment.toml. Raises InputError if that holds no dagster.yaml.
    """
    given = os.environ.get(VARIABLE, "")
    if not given:
        deployment = read_deployment(data.root)
        given = deployment.dagster.home
        if given and not (Path(given).is_absolute() and (Path(given) / CONFIGURATION).is_file()):
            wanted = f"name a folder, from / on, that holds your {CONFIGURATION}"
            raise InputError(f"{deployment.path}: dagster.home={given:.200}: {wanted}")
    home = Path(given or data.dagster)
    is_ours = (home / READY).exists() or home.resolve() == data.dagster.resolve()
    return None if is_ours or not (home / CONFIGURATION).is_file() else home


def run_tags(data: DataFolder) -> dict[str, str]:
    """Tags of runs of the command line, by which only their own host calls them dead; none in Baton's own instance."""
    if declared_home(data) is None:
        return {}
    return {DATA_TAG: f"{socket.gethostname()}:{data.root.resolve()}"}
