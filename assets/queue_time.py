"""Queue time: all methods scored on the report window, the released model, and its performance since release."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import numpy as np
import polars as pl

from agent.distribution import Distribution
from assets import warehouse
from assets.shared.metadata import materialization, numbers, plot, table
from assets.shared.promises import computed_by
from assets.shared.resources import CLUSTERS, OWNERS, Baton
from models.queue_time.tables import QUEUE_TIME_DRIFT
from models.release.champion import fetch_champions
from models.release.policies.drift import cause
from models.release.queue_time import drift, publish
from models.tracking import versions as tracking
from models.tracking.address import registry_key
from models.tracking.kinds import QUEUE_TIME
from reports.drift import queue_time_sentence
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import InputError
from traces.store import derived
from traces.store import warehouse as canonical

KEY = "queue_time_model"
COVERS = (0.93, 0.97)  # coverage of calibrated 95 % intervals
MOST_LOAD_S = 1.0  # limit on the wait of a person at a terminal
CHECKS = {
    "gate": "The newest candidate beats the champion, or the best naive method; otherwise that one stays.",
    "coverage": f"95 % intervals of the champion's method cover {COVERS[0]:.0%} to {COVERS[1]:.0%} of the later jobs.",
    "loads": f"The champion loads, passes its own checks and answers within {MOST_LOAD_S:g} s.",
}
Yielded = dg.MaterializeResult[None] | dg.AssetCheckResult


@dg.asset(
    deps=[warehouse.key("jobs")],
    group_name="queue_time",
    partitions_def=CLUSTERS,
    kinds={"lightgbm", "mlflow"},
    owners=OWNERS,
    check_specs=[dg.AssetCheckSpec(name, asset=KEY, description=words) for name, words in CHECKS.items()],
    metadata=computed_by(publish.RELEASED_BY),
    description="Predicted start times: all methods scored on the same later jobs, and the released model.",
)
def queue_time_model(context: dg.AssetExecutionContext, baton: Baton) -> Iterator[Yielded]:
    data, cluster = baton.folder, context.partition_key
    try:
        found = publish.publish(data, baton.settings(cluster))
    except InputError as error:  # about its jobs: none started, or none has a known submission
        found = str(error)
    if isinstance(found, str):
        yield materialization(rows=0, why=found)
        nothing = {"why": dg.MetadataValue.text(found)}
        yield from (dg.AssetCheckResult(check_name=name, passed=True, metadata=nothing) for name in CHECKS)
        return
    newest = found.releases.row(-1, named=True)
    weeks = found.scores.filter(method=newest["champion_method"])["weeks"].str.json_decode(WEEKS).explode()
    lines = weeks.struct.unnest()
    yield materialization(
        rows=len(found.predictions),
        reused=found.reused,
        version=digest(newest["decided_utc"].isoformat(), newest["registered_version"]),
        verdict=newest["verdict"],
        decision=newest["reason"],
        **numbers(champion_version=newest["registered_version"], jobs=int(found.scores["n"].max() or 0)),  # type: ignore[arg-type]
        scores=table(found.scores.sort("crps_h").select(SHOWN)),
        decisions=table(found.releases.reverse().select("decided_utc", "method", "verdict", "reason"), length=300),
        coverage=plot(
            {"covered": (list(range(1, len(lines) + 1)), lines["coverage_95"].to_list())}, x="week", y="95 % covers"
        ),
    )
    yield from checked(baton.folder.artifacts / "queue-time" / cluster / "champion", found)


WEEKS = pl.List(pl.Struct({"week_utc": pl.String, "n": pl.Int64, "coverage_95": pl.Float64, "crps_h": pl.Float64}))
SHOWN = (
    "method", "n", "crps_h", "crps_low_h", "crps_high_h", "difference_h", "difference_low_h", "difference_high_h",
    "balanced_accuracy", "coverage_95",
)  # fmt: skip


def checked(folder: Path, found: publish.Published) -> Iterator[dg.AssetCheckResult]:
    """Yield the checks of `CHECKS`, with their figures."""
    newest = found.releases.row(-1, named=True)
    ends = {f"crps_difference{end}_h": newest[f"crps_difference{end}_h"] for end in ("", "_low", "_high")}
    yield dg.AssetCheckResult(
        check_name="gate",
        passed=newest["verdict"] == "better",
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"verdict": newest["verdict"], "reason": newest["reason"], **numbers(**ends, jobs=newest["jobs"])},
    )
    (own,) = found.scores.filter(method=newest["champion_method"]).to_dicts()
    covers = {name: own[name] for name in ("coverage_50", "coverage_80", "coverage_95", "width_95_h")}
    yield dg.AssetCheckResult(
        check_name="coverage",
        passed=COVERS[0] <= own["coverage_95"] <= COVERS[1],
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"method": newest["champion_method"], **numbers(**covers, jobs=own["n"])},
    )
    yield _loads(folder)


def _loads(folder: Path) -> dg.AssetCheckResult:
    """Measure the load and answer time and the size of the champion's folder."""
    began = time.perf_counter()
    try:
        model = Distribution.load(folder)
        model.forecast(np.zeros((1, len(model.manifest["features"])), np.float32))
    except ValueError as error:
        why = {"why": dg.MetadataValue.text(str(error))}
        return dg.AssetCheckResult(check_name="loads", passed=not os.path.lexists(folder), metadata=why)
    seconds = time.perf_counter() - began
    size = sum(path.stat().st_size for path in folder.iterdir())
    return dg.AssetCheckResult(
        check_name="loads",
        passed=seconds <= MOST_LOAD_S,
        severity=dg.AssetCheckSeverity.WARN,
        metadata=numbers(load_and_answer_s=seconds, artifact_bytes=size),
    )


DRIFT_CHECK = "as_promised"
NOTHING_YET = "no champion, no whole week with known outcomes since its release, or too few weeks before it"


@dg.asset(
    deps=[warehouse.key("jobs"), KEY],
    group_name="queue_time",
    partitions_def=CLUSTERS,
    kinds={"polars", "parquet"},
    owners=OWNERS,
    check_specs=[
        dg.AssetCheckSpec(
            DRIFT_CHECK,
            asset=QUEUE_TIME_DRIFT.name,
            description="The champion is no worse in the newest week than in its evaluation; otherwise retrain.",
        )
    ],
    metadata=computed_by(drift.__name__),
    description="Each whole week since the queue-time champion's release: its scores, compared with the promised ones.",
)
def queue_time_drift(context: dg.AssetExecutionContext, baton: Baton) -> Iterator[Yielded]:
    data, cluster = baton.folder, context.partition_key
    settings = baton.settings(cluster)
    fetch_champions(data, cluster)
    champion = tracking.champion(data, cluster, QUEUE_TIME)
    version = None if champion is None else champion.version
    made_from = digest(
        canonical.made_from(data, cluster), settings, version, code_digest(drift.__name__), *registry_key(data)
    )
    (found,), reused = derived.read_or_compute(
        data, [QUEUE_TIME_DRIFT], cluster, made_from, lambda: [drift.drift(data, settings)]
    )
    verdict = queue_time_sentence(found) or NOTHING_YET
    yield materialization(
        rows=len(found),
        reused=reused,
        version=made_from,
        verdict=verdict,
        **numbers(scores_beyond=int(found.filter(pl.col("week_utc") == pl.col("week_utc").max())["is_beyond"].sum())),
        weeks=table(found.drop("cluster"), length=300),
    )
    yield dg.AssetCheckResult(
        check_name=DRIFT_CHECK,
        passed=cause(found) is None,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"verdict": verdict},
    )
