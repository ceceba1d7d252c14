"""DAGSTER_HOME inside the data folder, and the instance that lives there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import dagster as dg

from pipelines.runs import killed
from traces.files.locks import locked
from traces.store.folder import DataFolder

CONFIGURATION = Path(__file__).resolve().parents[2] / "dagster.yaml"


def prepared_home(data: DataFolder) -> Path:
    """data/dagster with dagster.yaml in it and its databases made, by one process: two at once break them.

    Runs of processes that were killed are failed.
    """
    data.ensure_writable()
    data.dagster.mkdir(exist_ok=True)
    target = data.dagster / CONFIGURATION.name
    with locked(data.root, "Dagster instance"):
        if not target.is_file() or target.read_bytes() != CONFIGURATION.read_bytes():
            shutil.copyfile(CONFIGURATION, target)
        _prepare(data)
    return data.dagster


def _prepare(data: DataFolder) -> None:
    with dg.DagsterInstance.from_config(str(data.dagster)) as instance:
        instance.get_dynamic_partitions("clusters")
        killed.settle(instance, data)


def instance_of(data: DataFolder) -> dg.DagsterInstance:
    """The instance of the data folder; DAGSTER_HOME means the same to everything that runs in this process."""
    home = prepared_home(data)
    os.environ["DAGSTER_HOME"] = str(home)
    return dg.DagsterInstance.from_config(str(home))
