"""The snapshots of a window's pairs: taken once from the replay of the trace, and stored next to the pairs.

They are the state of Mirage's networks (`models.provisioning.mirage.snapshots`): the cluster every ten minutes, without
the pairs, from a day before the first decision to the last one.
"""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np

from models.provisioning.mirage.snapshots import CLUSTER_INPUTS, HISTORY, STEP_S, Snapshots, take_snapshots
from models.provisioning.protocol import PairTable
from models.provisioning.scenario import INJECTED, PLAIN, Scenario
from models.study.pair_tables import DAMAGED, pair_path
from models.study.windows import Window
from simulator.names import SCHEDULERS, SLURM
from simulator.workload import Workload
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import InputError
from traces.files import whole
from traces.files.locks import locked
from traces.store.folder import DataFolder

log = logging.getLogger(__name__)

MADE_BY = (__name__, "models.provisioning.mirage.snapshots", "simulator.flat.replay")


def check_world(scenario: Scenario, policy: str) -> None:
    """Raise InputError for a world of which no snapshots are taken."""
    if scenario.pairs != INJECTED:
        raise InputError(
            f"policy {policy!r} reads a day of snapshots of the replayed cluster, which --world {scenario.world} does "
            f"not replay: give --world {PLAIN}"
        )
    if scenario.scheduler == SLURM:
        raise InputError(
            f"policy {policy!r} reads a day of snapshots, which are not taken under --scheduler {SLURM}: give one of "
            f"{', '.join(SCHEDULERS)}"
        )


def days_digest() -> str:
    """Digest of the code that takes snapshots."""
    return code_digest(*MADE_BY)


def with_days(data: DataFolder, workload: Workload, scenario: Scenario, window: Window, table: PairTable) -> PairTable:
    """The window's pairs with their snapshots; a second process that needs the same ones waits for the first.

    Raises InputError if a decision lacks the snapshots of a whole day.
    """
    if not len(table):
        return table
    path = _path(data, scenario, window)
    if (kept := _kept(path)) is not None:
        return kept.added_to(table)
    with locked(data.root, f"snapshots of {scenario.cluster}"):
        if (kept := _kept(path)) is not None:
            return kept.added_to(table)
        if path.exists():
            log.warning("%s is damaged; taking these snapshots again", path)
        made = _taken(workload, scenario, table)
        with whole.whole_file(path) as part, part.open("wb") as file:
            np.savez_compressed(file, first_s=np.int64(made.first_s), rows=made.rows)
        return made.added_to(table)


def _taken(workload: Workload, scenario: Scenario, table: PairTable) -> Snapshots:
    """Snapshots of the replay of the workload without the pairs."""
    from simulator.flat.replay import replay

    jobs = workload
    made = replay(jobs, scheduler=scenario.scheduler, capacity=scenario.capacity)
    end_s = np.where(made.starts < 0, made.starts, made.starts + made.run_s)
    first_s = max(int(table.decision_s.min()) - HISTORY * STEP_S, int(jobs.submit_s.min()))
    last_s = int(table.decision_s.max())
    return take_snapshots(jobs.submit_s, made.starts, end_s, jobs.size, jobs.limit_s, first_s, last_s)


def _path(data: DataFolder, scenario: Scenario, window: Window) -> Path:
    """A path next to the pairs; its name holds the digests of the pairs and of the snapshots' code."""
    pairs = pair_path(data, scenario, window)
    return pairs.with_name(f"{pairs.stem}-snapshots-{digest(days_digest())[:12]}.npz")


def _kept(path: Path) -> Snapshots | None:
    """The snapshots in that file; None if it is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            first_s, rows = int(arrays["first_s"]), arrays["rows"]
    except DAMAGED:  # or not there
        return None
    return Snapshots(first_s, rows) if rows.ndim == 2 and rows.shape[1] == CLUSTER_INPUTS else None
