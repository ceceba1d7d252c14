"""The pair tables of a scenario and a window: built once, stored under `artifacts/pairs`, and read from there."""

from __future__ import annotations

import logging
import zipfile
import zlib
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from models.engine.engines import engine_of
from models.provisioning.protocol import NONE, PairTable, concatenate
from models.provisioning.scenario import CALIBRATED, RECORDED, RECORDED_WAIT, Scenario
from models.study import inputs
from models.study.slurm import pairs as slurm_pairs
from models.study.windows import Window
from simulator.names import SLURM
from simulator.workload import Workload
from traces import instants
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.files import whole
from traces.files.locks import locked
from traces.store import warehouse
from traces.store.folder import DataFolder

if TYPE_CHECKING:
    from models.provisioning.pairs.recorded import Predecessors
    from simulator.cluster import Build
    from simulator.recorded.record import RecordedTrace

log = logging.getLogger(__name__)

# Errors from reading a damaged file of pairs. For an entry that is encrypted, or compressed in a way unknown to Python,
# zipfile raises RuntimeError.
DAMAGED = (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
MADE_BY = (__name__,)


def pair_fingerprint(data: DataFolder, scenario: Scenario, window: Window) -> str:
    """Digest of the raw files, the cluster's Slurm files, the scenario, the window and the code of pairs."""
    made_from = warehouse.made_from(data, scenario.cluster), slurm_pairs.made_from(data, scenario)
    return digest(made_from, asdict(scenario), asdict(window), code_digest(*MADE_BY))


def pair_path(data: DataFolder, scenario: Scenario, window: Window) -> Path:
    """The file of the pairs of that window; its name holds their fingerprint."""
    fingerprint = pair_fingerprint(data, scenario, window)
    name = f"{instants.text(window.from_s)}-{fingerprint[:16]}.npz".replace(":", "")
    return data.artifacts / "pairs" / scenario.cluster / name


def pair_table(data: DataFolder, workload: Workload, scenario: Scenario, window: Window) -> PairTable:
    """The scenario's pairs whose predecessor was submitted in the window, built once and stored under artifacts/pairs.

    A second process that needs them waits for the first. A file that is damaged, or left by a killed process, is
    rebuilt.
    """
    path = pair_path(data, scenario, window)
    if (kept := _kept(path)) is not None:
        return kept
    with locked(data.root, f"pairs of {scenario.cluster}"):
        if (kept := _kept(path)) is not None:
            return kept
        if path.exists():
            log.warning("%s is damaged; building these pairs again", path)
        whole.sweep(path.parent)
        return _build(data, workload, scenario, window, path)


def pairs_left_out(data: DataFolder, workload: Workload, scenario: Scenario, window: Window) -> int:
    """Number of the window's pairs that the recorded-wait world leaves out: too few jobs were like their successor."""
    observed = pair_table(data, workload, replace(scenario, world=CALIBRATED), window)
    return len(observed) - len(pair_table(data, workload, scenario, window))


def _kept(path: Path) -> PairTable | None:
    """The table in that file; None if it is missing or damaged. Raises OSError for a folder in its place."""
    from models.provisioning.pairs import injected as pairs

    try:
        return pairs.load(path)
    except (IsADirectoryError, NotADirectoryError, PermissionError):
        raise
    except DAMAGED:  # or not there
        return None


def _build(data: DataFolder, workload: Workload, scenario: Scenario, window: Window, path: Path) -> PairTable:
    from models.provisioning.pairs import injected as pairs

    if scenario.world == RECORDED_WAIT:
        table = _recorded_waits(data, workload, scenario, window)
    else:
        recorded = scenario.pairs == RECORDED
        table = _recorded(data, scenario, window) if recorded else _injected(data, workload, scenario, window)
    pairs.save(table, path)
    return table


def _injected(data: DataFolder, workload: Workload, scenario: Scenario, window: Window) -> PairTable:
    """Inject pairs into the simulated cluster, one of each size at each start of the window."""
    from models.provisioning.pairs import injected as pairs

    starts = window.starts(scenario.every_s)
    return concatenate(
        pairs.build_pairs(
            injected_build(data, workload, scenario, window.from_s, nodes),
            submits_s=starts,
            pair_nodes=nodes,
            limit_s=scenario.limit_s,
            decision_s=window.decision_s,
            engine=engine_of(data.root),
        )
        for nodes in scenario.pair_nodes
    )


def injected_build(data: DataFolder, workload: Workload, scenario: Scenario, from_s: int, nodes: int) -> Build:
    """The builder of the simulated cluster for injected jobs of that many nodes, submitted from `from_s` on."""
    from simulator import cluster

    if scenario.scheduler != SLURM:
        return cluster.plain(workload, scheduler=scenario.scheduler, capacity=scenario.capacity)
    loaded = slurm_pairs.world(data, scenario, from_s, nodes)
    return partial(cluster.world(SLURM), loaded.world, loaded.submitter)


def _recorded(data: DataFolder, scenario: Scenario, window: Window) -> PairTable:
    """The jobs that the log shows cut by their limit, among those submitted in the window."""
    from models.provisioning.pairs.recorded import build_recorded_pairs
    from simulator.recorded.parameters import LEAST_FIT_S

    record, predecessors = predecessors_in(data, scenario, window)
    span_s = None if scenario.from_s is None else LEAST_FIT_S
    return build_recorded_pairs(
        record, predecessors, decision_s=window.decision_s, fit_span_s=span_s, engine=engine_of(data.root)
    )


def _recorded_waits(data: DataFolder, workload: Workload, scenario: Scenario, window: Window) -> PairTable:
    """The pairs of the calibrated world with drawn waits, without those that have too few neighbours."""
    from models.provisioning.pairs.recorded_waits import with_recorded_waits

    observed = pair_table(data, workload, replace(scenario, world=CALIBRATED), window)
    return with_recorded_waits(observed, *predecessors_in(data, scenario, window))


def predecessors_in(data: DataFolder, scenario: Scenario, window: Window) -> tuple[RecordedTrace, Predecessors]:
    """The record, and those of its jobs that were submitted in the window and cut by their limit.

    Only for a scenario of recorded pairs.
    """
    from models.provisioning.pairs.recorded import Predecessors

    record = inputs.read_record(data, scenario.cluster, scenario.from_s, scenario.known_until_s)
    cut = inputs.cut_by_limit(data, scenario.cluster, scenario.limit_s, scenario.known_until_s)
    cut = cut.filter((pl.col("submit_s") >= window.from_s) & (pl.col("submit_s") < window.until_s))
    rows = {key: row for row, key in enumerate(record.job_key)}
    known = [pair for pair in cut.select("job_key", "next_job_key").iter_rows() if pair[0] in rows]
    row = np.array([rows[key] for key, _ in known], np.int64)
    return record, Predecessors(row, np.array([rows.get(following, NONE) for _, following in known], np.int64))


def apart(record: RecordedTrace, predecessors: Predecessors, every_s: int) -> Predecessors:
    """Those of the predecessors that were submitted at least `every_s` after the one before."""
    kept: list[int] = []
    for place, submit_s in enumerate(record.submit_s[predecessors.row].tolist()):
        if not kept or submit_s >= record.submit_s[predecessors.row[kept[-1]]] + every_s:
            kept.append(place)
    return type(predecessors)(predecessors.row[kept], predecessors.next_row[kept])
