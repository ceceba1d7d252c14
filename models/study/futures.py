"""The futures of a window's pairs: simulated once, stored next to the pairs, and read from there."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from models.engine.engines import engine_of
from models.provisioning.protocol import PairTable
from models.provisioning.scenario import CALIBRATED, INJECTED, RECORDED_WAIT, Scenario
from models.study.pair_tables import DAMAGED, pair_path, pair_table, predecessors_in
from models.study.windows import Window
from simulator.names import SCHEDULERS, SLURM
from simulator.workload import Workload
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import InputError
from traces.files import whole
from traces.files.locks import locked
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.provisioning.futures.injected import Owners

log = logging.getLogger(__name__)

MADE_BY = ("models.provisioning.futures.table", "models.provisioning.futures.injected")


def check_world(scenario: Scenario, policy: str) -> None:
    """Raise InputError for a world in which no futures are simulated."""
    if scenario.pairs == INJECTED and scenario.scheduler == SLURM:
        raise InputError(
            f"policy {policy!r} looks at simulated futures, which --scheduler {SLURM} does not have: give one of "
            f"{', '.join(SCHEDULERS)}, or --world {CALIBRATED} or {RECORDED_WAIT}"
        )


def futures_digest() -> str:
    """Digest of the code that simulates futures."""
    return code_digest(*MADE_BY)


def site_of(data: DataFolder, scenario: Scenario, until_s: int) -> dict[str, Any]:
    """The rules inferred from what was recorded before `until_s`, in the form of an artifact (`agent.futures.Site`)."""
    from models.study.inputs import read_record
    from simulator.recorded.calibration.judge import ALL
    from simulator.recorded.parameters import LEAST_FIT_S, infer_parameters

    record = read_record(data, scenario.cluster, scenario.from_s, until_s)
    if scenario.from_s is not None:
        record = record.take(record.submit_s >= until_s - LEAST_FIT_S)
    found = infer_parameters(record, until_s)
    return {
        "max_jobs": found.max_jobs if "job limit" in ALL else None,
        "max_nodes": found.max_nodes if "node limit" in ALL else None,
        "points_per_hour": found.points_per_hour,
        "siblings": "siblings" in ALL,
    }


def table_with_futures(data: DataFolder, workload: Workload, scenario: Scenario, window: Window) -> PairTable:
    """`pair_table` of that window with `PairTable.ahead`.

    In the recorded-wait world the futures are those of the calibrated one, because both have the same observations.
    """
    if scenario.world == RECORDED_WAIT:
        from models.provisioning.pairs.recorded_waits import with_recorded_waits

        table = _kept_or_made(data, workload, replace(scenario, world=CALIBRATED), window)
        return with_recorded_waits(table, *predecessors_in(data, scenario, window))
    return _kept_or_made(data, workload, scenario, window)


def _kept_or_made(data: DataFolder, workload: Workload, scenario: Scenario, window: Window) -> PairTable:
    """The pairs with their futures; a second process that needs the same ones waits for the first."""
    table = pair_table(data, workload, scenario, window)
    path = _path(data, scenario, window)
    if (kept := _kept(path, table)) is not None:
        return kept
    with locked(data.root, f"futures of {scenario.cluster}"):
        if (kept := _kept(path, table)) is not None:
            return kept
        if path.exists():
            log.warning("%s is damaged; simulating these futures again", path)
        from models.provisioning.futures.table import with_futures

        starts = _injected if scenario.pairs == INJECTED else _recorded
        made = with_futures(table, starts(data, table, workload, scenario, window))
        with whole.whole_file(path) as part, part.open("wb") as file:
            np.savez_compressed(file, ahead=made.ahead)
        return made


def _recorded(
    data: DataFolder, table: PairTable, workload: Workload, scenario: Scenario, window: Window
) -> NDArray[np.int64]:
    """Starts in futures of recorded pairs."""
    from models.provisioning.futures.table import starts_ahead
    from simulator.recorded.parameters import LEAST_FIT_S

    record, predecessors = predecessors_in(data, scenario, window)
    span_s = None if scenario.from_s is None else LEAST_FIT_S
    return starts_ahead(table, record, predecessors, fit_span_s=span_s, engine=engine_of(data.root))


def _injected(
    data: DataFolder, table: PairTable, workload: Workload, scenario: Scenario, window: Window
) -> NDArray[np.int64]:
    """Starts in futures of pairs injected into the workload."""
    from models.provisioning.futures.injected import injected_starts_ahead

    owners = owners_of(data, workload, scenario)
    return injected_starts_ahead(
        table, workload, owners, scheduler=scenario.scheduler, capacity=scenario.capacity, engine=engine_of(data.root)
    )


def owners_of(data: DataFolder, workload: Workload, scenario: Scenario) -> Owners:
    """User and name of the jobs of the scenario's workload, by the log."""
    from models.provisioning.futures.injected import Owners
    from models.study.inputs import read_record, read_workload

    every, keys = read_workload(data, scenario.cluster, scenario.from_s, scenario.known_until_s)
    keys = keys.filter(pl.Series(every.size <= workload.size.max(initial=0)))  # jobs too wide for it were left out
    record = read_record(data, scenario.cluster, scenario.from_s, scenario.known_until_s)
    row = {key: place for place, key in enumerate(record.job_key)}
    at = np.array([row.get(key, len(record)) for key in keys], np.int64)  # the last row is for jobs with odd times
    name = record.name if len(record.name) else np.zeros(len(record), np.int64)
    return Owners(np.append(record.user, record.users)[at], np.append(name, 0)[at])


def _path(data: DataFolder, scenario: Scenario, window: Window) -> Path:
    """A path next to the pairs; its name holds the digests of the pairs and of the futures' code."""
    pairs = pair_path(data, scenario, window)
    return pairs.with_name(f"{pairs.stem}-futures-{digest(futures_digest())[:12]}.npz")


def _kept(path: Path, table: PairTable) -> PairTable | None:
    """The table with the futures of that file; None if it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            ahead = arrays["ahead"]
    except DAMAGED:  # or not there
        return None
    return replace(table, ahead=ahead) if len(ahead) == len(table.decision_s) else None
