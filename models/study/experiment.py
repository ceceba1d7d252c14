"""What an experiment is: which cluster is replayed, which pairs are fitted, selected and reported on.

The command line and the Dagster assets both go through here, so that they mean the same thing by a window.
Training and scoring are in `models.study.fits`, which works on what this module hands out.
"""

from __future__ import annotations

import logging
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from features.trace import read_trace
from features.usage import nodes_shown, runs
from models.fingerprint import code_digest, digest
from models.protocol import PairTable
from models.study import extent
from simulator.workload import Workload, from_jobs
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.files import whole
from traces.files.locks import locked
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.store.raw_files import lake_digest

if TYPE_CHECKING:
    from simulator.recorded.judge import Month
    from simulator.recorded.record import Record
    from simulator.recorded.study import Study

Int64s = NDArray[np.int64]
log = logging.getLogger(__name__)

# What reading a file of pairs raises that is not what was written; of an entry that is encrypted, or packed in a way
# that Python does not know, zipfile says so by a RuntimeError.
DAMAGED = (OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)
HOUR_S, DAY_S = 3600, 86400
WARM_UP_S = 2 * DAY_S  # an emptier start understates waits (measured on the A100 trace)
COOL_DOWN_S = 5 * DAY_S  # later pairs would outlive the arrivals that they compete with
FIT_SHARE, SELECT_SHARE = 0.6, 0.2  # of the usable starts, where the cluster declares no windows
DECISION_S = 600
FIT_CAPACITIES = (1.0, 0.9)  # of the nodes, on which learners see the fit window: as it was, and busier
FIT_DECISION_S = 1800  # learners see every third decision: a third of the work, and neighbours are alike
MECHANISMS_EVERY = 8  # of the last month's jobs: enough to rank what each mechanism of calibration contributes
PAIR_CODE = (
    "traces", "simulator", "features",
    "models/pairs.py", "models/protocol.py", "models/study/experiment.py", "models/study/extent.py",
)  # fmt: skip
_RAN = "submit_utc IS NOT NULL AND start_utc IS NOT NULL AND run_s > 0"
_NODES = (
    """CASE WHEN allocated_nodes > 0 THEN allocated_nodes WHEN requested_nodes > 0 THEN requested_nodes ELSE 1 END"""
)
_WORKLOAD = ("job_key", "job_id_raw", "submit_utc", "start_utc", "run_s", "allocated_nodes", "requested_nodes")
_RECORD = (*_WORKLOAD, "end_utc", "user_name", "priority")


@dataclass(frozen=True)
class Window:
    """Starts P with from_s <= submission < until_s, epoch seconds."""

    from_s: int
    until_s: int
    decision_s: int = DECISION_S  # between the decisions of a pair

    def starts(self, every_s: int) -> Int64s:
        """Submissions of P, one every `every_s` from `from_s`; int64 epoch s."""
        return np.arange(self.from_s, self.until_s, every_s, dtype=np.int64)

    def __str__(self) -> str:
        return f"{text(self.from_s)} to {text(self.until_s)}"


@dataclass(frozen=True)
class Windows:
    """The three chronological parts: fit, select (settings, the champion rule), report (touched once)."""

    fit: Window
    select: Window
    report: Window


@dataclass(frozen=True)
class Scenario:
    """Everything that defines the simulated world and its pairs, apart from the window."""

    cluster: str
    capacity: int  # nodes
    pair_nodes: tuple[int, ...] = (1, 8)
    limit_s: int = 48 * HOUR_S
    scheduler: str = "mirage"
    world: str = "plain"
    every_s: int = extent.EVERY_S
    from_s: int | None = (
        None  # first submission that is replayed, epoch s; None: the whole trace (`models.study.extent`)
    )

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.pair_nodes))
        newest = "" if self.from_s is None else f", of a longer trace what was submitted from {text(self.from_s)}"
        return (
            f"{self.cluster}: {self.scheduler} on {self.capacity} nodes, world {self.world}, "
            f"{sizes}-node pairs of {self.limit_s / HOUR_S:g} h, a start every {self.every_s / HOUR_S:g} h{newest}"
        )


def fit_scenarios(scenario: Scenario, workload: Workload) -> list[Scenario]:
    """The clusters that learners see: as it is, and with fewer nodes, but as many as the widest job needs.

    A policy that saw only a calm month does not know what to do in a congested one; the same jobs on a tenth fewer
    nodes wait up to four times as long (docs/decisions/0010).
    """
    least = max(int(workload.size.max()), *scenario.pair_nodes)
    nodes = {max(int(scenario.capacity * share), least) for share in FIT_CAPACITIES}
    return [replace(scenario, capacity=capacity) for capacity in sorted(nodes, reverse=True)]


def why_no_plan(data: DataFolder, cluster: str) -> str | None:
    """Why nothing can be planned with the cluster's jobs, in one sentence; None where it can.

    Without time limits no job needs a successor, and without submissions nothing says who waited.
    """
    counts = warehouse.read(
        data,
        "SELECT count(*) AS jobs, count(submit_utc) AS submits, count(limit_s) AS limits, "
        "count(*) FILTER (submit_utc IS NOT NULL AND start_utc IS NOT NULL AND run_s > 0) AS ran "
        "FROM jobs WHERE cluster = ?",
        (cluster,),
    ).row(0, named=True)
    if not counts["jobs"]:
        return f"the trace of cluster {cluster!r} holds no job"
    if not counts["submits"]:
        return f"the log of cluster {cluster!r} does not say when jobs were submitted: waits are not known"
    if not counts["limits"]:
        return f"no job of cluster {cluster!r} has a time limit, so none needs a successor: nothing to provision"
    if not counts["ran"]:
        return f"none of the {counts['jobs']:,} jobs of cluster {cluster!r} ran and ended"
    return None


def why_not_replayed(data: DataFolder, settings: ClusterSettings) -> str | None:
    """Why the trace cannot be replayed on the cluster's nodes, in one sentence; None where it can."""
    if why := why_no_plan(data, settings.name):
        return why
    if settings.nodes is None:
        trace = read_trace(data, settings.name, by_node=True)
        return (
            f"how many nodes cluster {settings.name!r} has is not known (the log shows "
            f"{nodes_shown(trace, runs(trace, settings)):,}): give --nodes, or set nodes in clusters.toml"
        )
    try:
        capacity_of(data, settings)
    except InputError as error:
        return str(error)
    return None


def read_workload(data: DataFolder, cluster: str, from_s: int | None = None) -> tuple[Workload, pl.Series]:
    """The cluster's jobs that ran, and their keys; those submitted from `from_s` (epoch s) on where it is given.

    A job without a limit gets the longest limit of its partition, as Slurm gives it the partition's. Raises InputError
    where there are none.
    """
    frame, longest_s = _jobs(data, cluster, _WORKLOAD, from_s, _RAN)
    if frame.is_empty():
        first = warehouse.read(
            data, "SELECT * FROM jobs WHERE cluster = ? ORDER BY submit_utc, job_key LIMIT 1", (cluster,)
        )
        if first.is_empty():
            raise InputError(f"cluster {cluster!r} has no jobs in {data.warehouse}; ingest its raw files first")
        jobs = warehouse.read(data, "SELECT count(*) FROM jobs WHERE cluster = ?", (cluster,)).item()
        row = _origin(data, first.row(0, named=True))
        raise InputError(f"{row}: none of the {jobs} jobs of cluster {cluster!r} ran and ended")
    return from_jobs(frame, default_limit_s=longest_s)


def read_record(data: DataFolder, cluster: str, from_s: int | None = None) -> Record:
    """The cluster's jobs as calibration reads them, cancelled in the queue or not; otherwise as `read_workload`."""
    from simulator.recorded.record import from_jobs as record_of

    frame, longest_s = _jobs(data, cluster, _RECORD, from_s)
    return record_of(frame, default_limit_s=longest_s)


def _jobs(
    data: DataFolder, cluster: str, columns: Sequence[str], from_s: int | None, condition: str = "true"
) -> tuple[pl.DataFrame, int]:
    """Those columns and `limit_s` of the cluster's jobs, and the limit of those whose partition knows none, s."""
    longest_s = warehouse.read(data, "SELECT max(limit_s) FROM jobs WHERE cluster = ?", (cluster,)).item()
    since = "true" if from_s is None else f"submit_utc >= make_timestamp({int(from_s) * 1_000_000})"
    frame = warehouse.read(
        data,
        "WITH longest AS (SELECT partition, max(limit_s) AS most_s FROM jobs WHERE cluster = ? GROUP BY partition) "  # noqa: S608 - our own names
        f"SELECT {', '.join(columns)}, coalesce(limit_s, most_s) AS limit_s "
        "FROM jobs JOIN longest ON longest.partition IS NOT DISTINCT FROM jobs.partition "
        f"WHERE cluster = ? AND {condition} AND {since}",
        (cluster, cluster),
    )
    return frame, 48 * HOUR_S if longest_s is None else int(longest_s)


def calibration(data: DataFolder, settings: ClusterSettings) -> Study:
    """Every month of `calibrated`, calibrated on what came before it; no rows where there is none."""
    from simulator.recorded.study import study

    record, judged = calibrated(data, settings)
    every = extent.MECHANISMS_EVERY if judged and judged[-1].is_near else MECHANISMS_EVERY
    return study(record, settings.name, judged, mechanisms_every=every)


def calibrated(data: DataFolder, settings: ClusterSettings) -> tuple[Record, list[Month]]:
    """The record that calibration reads and the months that it judges; of a long one see `models.study.extent`."""
    from simulator.recorded.judge import months

    from_s = extent.first_calibrated_s(data, settings.name)
    record = read_record(data, settings.name, from_s)
    declared = declared_s(settings.fit_from)
    if from_s is None:
        return record, months(record, declared)
    judged = months(record, max(from_s, declared or 0))[-extent.MOST_MONTHS :]
    counts = [int(np.count_nonzero(month.of(record))) for month in judged]
    return record, [
        replace(month, every=-(-count // extent.MOST_JUDGED), is_near=True)
        for month, count in zip(judged, counts, strict=True)
    ]


def capacity_of(data: DataFolder, settings: ClusterSettings, override: int | None = None) -> int:
    """Nodes of the simulated cluster. Raises InputError where unknown, or smaller than the largest job that ran."""
    capacity = override or settings.nodes
    if capacity is None:
        raise InputError(f"cluster {settings.name!r} declares no nodes; set nodes in clusters.toml, or give --capacity")
    largest = warehouse.read(
        data,
        f"SELECT *, {_NODES} AS nodes FROM jobs WHERE cluster = ? AND {_RAN} AND {_NODES} > ? "  # noqa: S608 - ours
        "ORDER BY nodes DESC, submit_utc, job_id_raw, job_key LIMIT 1",
        (settings.name, capacity),
    )
    for job in largest.iter_rows(named=True):
        raise InputError(
            f"{_origin(data, job)}: job {job['job_id']!r} ran on {job['nodes']} nodes, but cluster "
            f"{settings.name!r} has {capacity}; correct nodes in clusters.toml, or give --nodes (--capacity)"
        )
    return capacity


def usable_starts(workload: Workload) -> Window:
    """The submissions of P that a trace supports: warm cluster before, known outcome after. Raises InputError."""
    first, last = int(workload.submit_s.min()) + WARM_UP_S, int(workload.submit_s.max()) - COOL_DOWN_S
    if last - first < DAY_S:
        raise InputError(
            f"the trace spans {(int(np.ptp(workload.submit_s))) / DAY_S:.1f} days of submissions; pairs need at "
            f"least {(WARM_UP_S + COOL_DOWN_S + DAY_S) / DAY_S:.0f}: give a longer trace"
        )
    # whole hours, so that a window reads well and the same trace cut a minute later gives the same grid
    return Window(-(-first // HOUR_S) * HOUR_S, last // HOUR_S * HOUR_S)


def windows(settings: ClusterSettings, usable: Window) -> Windows:
    """The declared windows where there are any, else 60/20/20 of the span of usable starts, on whole hours."""
    span_s = usable.until_s - usable.from_s
    fit_until = declared_s(settings.fit_until) or usable.from_s + int(span_s * FIT_SHARE) // HOUR_S * HOUR_S
    report_until = declared_s(settings.report_until) or usable.until_s
    default_select = fit_until + int(span_s * SELECT_SHARE) // HOUR_S * HOUR_S
    select_until = declared_s(settings.select_until) or default_select
    fit_from = max(declared_s(settings.fit_from) or usable.from_s, usable.from_s)
    if not fit_from < fit_until < select_until < report_until:
        raise InputError(
            f"windows of cluster {settings.name!r} are out of order: fit {text(fit_from)} to {text(fit_until)}, "
            f"select to {text(select_until)}, report to {text(report_until)}; correct them in clusters.toml"
        )
    fit = Window(fit_from, fit_until, FIT_DECISION_S)
    return Windows(fit, Window(fit_until, select_until), Window(select_until, report_until))


def pair_fingerprint(data: DataFolder, scenario: Scenario, window: Window) -> str:
    """Changes when the raw files, the scenario, the window or the code that makes pairs change."""
    return digest(lake_digest(data, scenario.cluster), asdict(scenario), asdict(window), code_digest(*PAIR_CODE))


def pair_path(data: DataFolder, scenario: Scenario, window: Window) -> Path:
    """Where the pairs of that window are kept; the name holds their fingerprint."""
    name = f"{text(window.from_s)}-{pair_fingerprint(data, scenario, window)[:16]}.npz".replace(":", "")
    return data.artifacts / "pairs" / scenario.cluster / name


def pair_table(data: DataFolder, workload: Workload, scenario: Scenario, window: Window) -> PairTable:
    """The pairs of every declared size that start in the window, built once and kept under artifacts/pairs.

    A second process that wants them waits for the first; what is damaged, or was left by a killed one, is built again.
    """
    path = pair_path(data, scenario, window)
    if (kept := _kept_pairs(path)) is not None:
        return kept
    with locked(data.root, f"pairs of {scenario.cluster}"):
        if (kept := _kept_pairs(path)) is not None:
            return kept
        if path.exists():
            log.warning("%s is damaged: these pairs are built again", path)
        whole.sweep(path.parent)
        return _build_pairs(workload, scenario, window, path)


def _kept_pairs(path: Path) -> PairTable | None:
    """What was kept; None where there is nothing, or nothing whole. A folder in its place is an OSError."""
    from models import pairs

    try:
        return pairs.load(path)
    except (IsADirectoryError, NotADirectoryError, PermissionError):
        raise
    except DAMAGED:  # or not there
        return None


def _build_pairs(workload: Workload, scenario: Scenario, window: Window, path: Path) -> PairTable:
    from models import pairs

    starts = window.starts(scenario.every_s)
    tables = [
        pairs.build_pairs(
            workload,
            capacity=scenario.capacity,
            scheduler=scenario.scheduler,
            submits_s=starts,
            pair_nodes=nodes,
            limit_s=scenario.limit_s,
            decision_s=window.decision_s,
        )
        for nodes in scenario.pair_nodes
    ]
    table = join(tables)
    pairs.save(table, path)
    return table


def replay(data: DataFolder, settings: ClusterSettings, scheduler: str) -> pl.DataFrame:
    """Rows of `simulated_starts`: every job that ran, started by `scheduler` on the cluster's declared nodes."""
    from simulator.flat.replay import simulate
    from simulator.tables import simulated_starts

    capacity = capacity_of(data, settings)
    workload, keys = read_workload(data, settings.name)
    starts = simulate(workload, scheduler=scheduler, capacity=capacity)
    return simulated_starts(workload, keys, starts, cluster=settings.name, scheduler=scheduler, capacity=capacity)


def distance_frame(starts: pl.DataFrame) -> pl.DataFrame:
    """How far the simulated waits of `simulated_starts` are from the recorded ones: figure, value."""
    from simulator.metrics import wait_distance

    both = starts.drop_nulls(["recorded_wait_s", "simulated_wait_s"])
    figures = wait_distance(both["simulated_wait_s"].to_numpy(), both["recorded_wait_s"].to_numpy())
    return pl.DataFrame(list(figures.items()), schema=("figure", "value"), orient="row")


def join(tables: Iterable[PairTable]) -> PairTable:
    """One table after the other."""
    parts = list(tables)
    first, *_ = parts
    counts = np.concatenate([np.diff(part.offset) for part in parts])
    together = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in first.__dataclass_fields__
        if name != "offset"
    }
    return PairTable(offset=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), **together)


def declared_s(moment: datetime | None) -> int | None:
    """Epoch seconds of a declared instant; a naive one is UTC."""
    return None if moment is None else int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def text(epoch_s: int) -> str:
    """The instant to the minute, UTC."""
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M")


def _origin(data: DataFolder, job: dict[str, object]) -> str:
    """file:line of a job's newest record."""
    files = warehouse.read(data, "SELECT path FROM trace_files WHERE sha256 = ?", (job["trace_sha256"],))
    return f"{files['path'][0] if len(files) else 'trace'}:{job['line']}"


def frame_of(windows_: Windows) -> pl.DataFrame:
    """The three windows as a table for a person."""
    parts = {"fit": windows_.fit, "select": windows_.select, "report": windows_.report}
    return pl.DataFrame(
        [
            {"window": name, "from_utc": text(part.from_s), "until_utc": text(part.until_s)}
            for name, part in parts.items()
        ]
    )
