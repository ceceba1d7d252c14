"""Baton's causes of waits against the reasons that a real Slurm gave: what each reason allows, and how far they agree.

Slurm gives one reason of several that may hold, the first that the last pass met. Where it allows more than one cause
of ours, every one of them counts as agreement, so the figure says how often we contradict Slurm. The scenes of the
workload are the stricter truth: what their jobs were made to wait for.
"""

from __future__ import annotations

import gzip
import re
import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_flow

from features import queueing
from features.causes.waits import CAUSES
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

UNSEEN = ("None", "not seen")  # Slurm had not looked at the job yet, or we had not: no truth


@dataclass(frozen=True)
class Meaning:
    """Which causes a reason allows. pattern: of the reason's begin. why: in the words of Slurm's documentation
    (job_reason_codes) or of its source (22.05, src/slurmctld)."""

    pattern: str
    causes: tuple[str, ...]
    why: str


_MACHINE = ("cluster_full_s", "fragmented_s", "own_jobs_s", "nodes_down_s", "reservation_s")
MEANINGS = (
    Meaning("Dependency", ("dependency_s", "held_s"), "a dependency on another job has not been satisfied"),
    Meaning("BeginTime", ("held_s",), "the earliest start time has not been reached"),
    Meaning("JobHeld", ("held_s",), "held by its user or an administrator"),
    Meaning("JobArrayTaskLimit", ("array_limit_s",), "as many tasks run as the array's %N allows"),
    Meaning(
        "QOSMax|AssocMax|Max.*PerAccount",
        ("own_limit_s", "own_jobs_s"),
        "a limit of its user; what fills it are the user's own running jobs",
    ),
    Meaning("QOS|Assoc", ("own_limit_s",), "an aggregate limit of its QOS or association"),
    Meaning("Reservation", ("reservation_s", "held_s"), "the reservation that it asks for has not begun"),
    Meaning(
        "ReqNodeNotAvail, Reserved for maintenance", ("reservation_s",), "a node asked by name is in a maintenance"
    ),
    Meaning(
        "ReqNodeNotAvail",
        (*_MACHINE, "behind_s"),
        "a node asked by name is out, reserved, or set aside in this pass for a job of higher priority: of a node that "
        "another waiting job asked for first Slurm prints UnavailableNodes too",
    ),
    Meaning(
        "Nodes required for job are DOWN",
        ("nodes_down_s", "reservation_s", "behind_s"),
        "the partition has too few nodes that are neither out nor set aside for others",
    ),
    Meaning("Partition(Down|Inactive)", ("nodes_down_s", "unknown_s"), "its partition starts nothing"),
    Meaning("Partition", ("own_limit_s", "unknown_s"), "it asks for more than its partition allows"),
    Meaning("Licenses", ("unknown_s",), "its licences are in use, which sacct does not show"),
    Meaning(
        "Resources",
        _MACHINE,
        "what it asks for is not free, wherever it might be placed. No limit was in force: where nodes are busy too, "
        "select_nodes gives the limit as the reason",
    ),
    Meaning(
        "Priority",
        (*_MACHINE, "behind_s"),
        "a job of higher priority waits in the partition, so this pass did not ask whether this one would fit",
    ),
)  # fmt: skip
# Job name of a scene -> the cause for which its jobs were made to wait (and before it or after it, for others too)
SCENES = {
    "later": "held_s", "held": "held_s", "paused": "held_s", "chain": "dependency_s", "nightly": "dependency_s",
    "step": "own_jobs_s", "sweep": "array_limit_s", "fit": "own_limit_s", "eval": "own_limit_s",
    "fold": "own_limit_s", "render": "own_limit_s", "drained": "nodes_down_s", "pair": "nodes_down_s",
    "probe": "nodes_down_s", "lesson": "reservation_s", "serviced": "reservation_s", "four": "reservation_s",
    "wide": "cluster_full_s", "whole": "fragmented_s", "two": "fragmented_s", "patient": "behind_s",
    "solve": "unknown_s", "too long": "unknown_s",
}  # fmt: skip


def meaning(reason: str) -> Meaning:
    """Which causes a reason of squeue allows; ValueError for one that is not in MEANINGS."""
    found = next((one for one in MEANINGS if re.match(one.pattern, reason)), None)
    if found is None:
        raise ValueError(f"reason {reason!r} of squeue has no causes in MEANINGS")
    return found


def allowed(reason: str) -> tuple[str, ...]:
    """The causes that a reason allows; any, where Slurm has not looked."""
    return CAUSES if reason in UNSEEN else meaning(reason).causes


def ingested(folder: Path) -> pl.DataFrame:
    """queueing_delay of a recording's dump beside job_id, job_name, reason_in_sacct and the times in epoch s."""
    with tempfile.TemporaryDirectory(prefix="baton-reasons-") as place:
        data = DataFolder(Path(place))
        dump = Path(place) / "sacct.psv"
        dump.write_bytes(gzip.decompress((folder / "sacct.psv.gz").read_bytes()))
        nodes = (folder / "nodes.txt").read_text().splitlines()
        conf = str(folder / "slurm.conf")
        settings = ClusterSettings("live", nodes=len(nodes), gpus_per_node=4, slurm_conf=conf)
        ingest([dump], cluster=settings, data=data)
        warehouse.build(data)
        delays = queueing.compute(data, settings)["queueing_delay"]
        jobs = warehouse.read(data, "SELECT job_key, job_id, job_name, start_utc, reason AS reason_in_sacct FROM jobs")
    epochs = (pl.col(f"{name}_utc").dt.epoch("s").alias(name) for name in ("submit", "start"))
    delays = delays.with_columns(pl.col("job_key").cast(pl.String))
    return delays.join(jobs, on="job_key").drop_nulls("start_utc").with_columns(*epochs)


def seconds_by_reason(folder: Path, jobs: pl.DataFrame) -> dict[str, dict[str, int]]:
    """Seconds of each job's wait by the reason that Slurm gave: job_id -> reason -> s, in sum its wait.

    A reason holds from the first look that met it until that of the next, the first one from the submission and the
    last one until the start. A job that no look met waits for "not seen". Details behind a colon are left out.
    """
    rows = [line.split("|") for line in gzip.decompress((folder / "reasons.psv.gz").read_bytes()).decode().splitlines()]
    looks: dict[str, list[tuple[int, str]]] = {}
    for job, reason, first, *_ in rows:
        looks.setdefault(job, []).append((int(first), reason.partition(":")[0]))
    found: dict[str, dict[str, int]] = {}
    for job, submit, start in jobs.select("job_id", "submit", "start").iter_rows():
        seen = sorted(look for look in looks.get(job, [(submit, "not seen")]) if look[0] < start)
        seen = seen or [(submit, "not seen")]
        bounds = [submit, *(max(first, submit) for first, _ in seen[1:]), start]
        for (_, reason), (begin, end) in zip(seen, pairwise(bounds), strict=True):
            by_reason = found.setdefault(job, {})
            by_reason[reason] = by_reason.get(reason, 0) + end - begin
    return found


def compared(folder: Path) -> pl.DataFrame:
    """job_id, job_name, reason, cause, agrees, seconds: each second of each job's wait, once.

    Baton gives seconds by cause and no timeline, so of each job as many seconds as can agree are paired (a maximum
    flow from its reasons to its causes), and the others in the order of the columns.
    """
    jobs = ingested(folder)
    reasons = seconds_by_reason(folder, jobs)
    rows = []
    for job in jobs.iter_rows(named=True):
        by_cause = {name: int(job[name]) for name in CAUSES}
        for reason, cause, agrees, seconds in _paired(reasons[job["job_id"]], by_cause):
            rows.append((job["job_id"], job["job_name"], reason, cause, agrees, seconds))
    names = ("job_id", "job_name", "reason", "cause", "agrees", "seconds")
    return pl.DataFrame(rows, schema=names, orient="row")


def _paired(by_reason: dict[str, int], by_cause: dict[str, int]) -> list[tuple[str, str, bool, int]]:
    """(reason, cause, whether it is allowed, seconds) of one job."""
    left = {key: value for key, value in by_reason.items() if value}
    open_s = {key: value for key, value in by_cause.items() if value}
    first, last = 1 + len(left), 1 + len(left) + len(open_s)  # nodes: 0 the source, the reasons, the causes, the sink
    edges = np.zeros((last + 1, last + 1), np.int32)
    edges[0, 1:first], edges[first:last, last] = list(left.values()), list(open_s.values())
    for at, reason in enumerate(left, 1):
        fits = allowed(reason)
        edges[at, first:last] = [2**30 * (cause in fits) for cause in open_s]
    flow = maximum_flow(csr_matrix(edges), 0, last).flow.toarray()[1:first, first:last]
    pairs = []
    for agrees in (True, False):
        for (at, reason), (to, cause) in ((a, b) for a in enumerate(left) for b in enumerate(open_s)):
            seconds = int(flow[at, to]) if agrees else min(left[reason], open_s[cause])
            if seconds:
                left[reason] -= seconds
                open_s[cause] -= seconds
                pairs.append((reason, cause, agrees, seconds))
    return pairs


def agreement(pairs: pl.DataFrame) -> float:
    """Share of the seconds with a known reason whose cause that reason allows."""
    known = pairs.filter(~pl.col("reason").is_in(UNSEEN))
    return int(known.filter("agrees")["seconds"].sum()) / int(known["seconds"].sum())


def by_reason(pairs: pl.DataFrame) -> dict[str, float]:
    """`agreement` of each reason."""
    return {str(reason): agreement(rows) for (reason,), rows in pairs.group_by("reason") if reason not in UNSEEN}


def by_scene(pairs: pl.DataFrame) -> dict[str, float]:
    """Share of the seconds of each scene's jobs that Baton gives to the cause for which they were made to wait."""
    scenes = _with_scene(pairs).drop_nulls("scene")
    meant = (pl.col("cause") == pl.col("scene").replace_strict(SCENES)) * pl.col("seconds")
    shares = scenes.group_by("scene").agg(meant.sum() / pl.col("seconds").sum())
    return dict(shares.iter_rows())


def _with_scene(pairs: pl.DataFrame) -> pl.DataFrame:
    scene = pl.col("job_name").str.replace(r"\d+$", "")
    return pairs.with_columns(pl.when(scene.is_in(list(SCENES))).then(scene).alias("scene"))


def confusion(pairs: pl.DataFrame) -> str:
    """Both tables in seconds: reasons by causes with the share that agrees, scenes by causes with the share meant."""
    shares = {**by_reason(pairs), **{f"{name} ({SCENES[name]})": share for name, share in by_scene(pairs).items()}}
    scene = pl.col("scene") + " (" + pl.col("scene").replace_strict(SCENES) + ")"
    scenes = _with_scene(pairs).drop_nulls("scene").with_columns(scene.alias("scene"))
    lines = [f"agreement {agreement(pairs):.1%} of {pairs['seconds'].sum():,} s, {pairs['job_id'].n_unique()} jobs"]
    for of, key in ((pairs, "reason"), (scenes, "scene")):
        causes = [name for name in CAUSES if name in set(of["cause"])]
        lines.append(f"{key:<44.44}{'agrees':>8}" + "".join(f"{name.removesuffix('_s'):>13}" for name in causes))
        sums = of.group_by(key).agg(
            pl.col("seconds").filter(pl.col("cause") == name).sum().alias(name) for name in causes
        )
        for row in sums.sort(pl.sum_horizontal(causes), descending=True).iter_rows(named=True):
            share = f"{shares[row[key]]:.1%}" if row[key] in shares else "-"
            lines.append(f"{row[key]:<44.44}{share:>8}" + "".join(f"{row[name]:>13,}" for name in causes))
    return "\n".join(lines)


if __name__ == "__main__":  # python -m tests.live.reason_causes FOLDER: the tables of a recording
    import sys

    print(confusion(compared(Path(sys.argv[1]))))
