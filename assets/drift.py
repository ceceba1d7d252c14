"""Drift: whether the cluster's champion still fits what the cluster runs, and if not, that retraining is asked for."""

from collections.abc import Iterator

import dagster as dg
import polars as pl

from assets import warehouse
from assets.metadata import numbers, plot, shown, table
from assets.promises import computed_by
from assets.resources import CLUSTERS, OWNERS, Baton
from models.study import drift
from models.tables import CHAMPION_DRIFT
from models.tracking import versions as tracking
from reports.drift import sentence
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.store import derived
from traces.store import warehouse as canonical

KEY, CHECK = "champion_drift", "within_bounds"
COMPUTED_BY = drift.__name__
NOTHING_YET = "no champion, or no whole week since its fit with known outcomes, or too few weeks in that fit"


@dg.asset(
    deps=[warehouse.key("jobs"), "provisioning_policy"],
    group_name="release",
    partitions_def=CLUSTERS,
    kinds={"polars", "parquet"},
    owners=OWNERS,
    check_specs=[
        dg.AssetCheckSpec(
            CHECK, asset=KEY, description="The newest week is like those that the champion was fitted on; else retrain."
        )
    ],
    metadata=computed_by(COMPUTED_BY),
    description="Each whole week since the champion's fit against the fit's weeks: waits, sizes, limits, load, users.",
)
def champion_drift(
    context: dg.AssetExecutionContext, baton: Baton
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    data, cluster = baton.folder, context.partition_key
    settings = baton.settings(cluster)
    champion = tracking.champion(data, cluster)
    version = None if champion is None else champion.version
    made_from = digest(canonical.made_from(data, cluster), settings, version, code_digest(COMPUTED_BY))
    (found,), reused = derived.read_or_compute(
        data, [CHAMPION_DRIFT], cluster, made_from, lambda: [drift.drift(data, settings)]
    )
    said, newest = sentence(found), found.filter(pl.col("week_utc") == pl.col("week_utc").max())
    yield shown(
        rows=len(found),
        reused=reused,
        version=made_from,
        verdict=said or NOTHING_YET,
        **numbers(features_beyond=int(newest["is_beyond"].sum())),
        newest_week=table(newest.drop("cluster")),
        distances=plot(_lines(found), x="week, UTC", y="index over its bound"),
    )
    yield dg.AssetCheckResult(
        check_name=CHECK,
        passed=drift.cause(found) is None,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"verdict": said or NOTHING_YET},
    )


def _lines(found: pl.DataFrame) -> dict[str, tuple[list[object], list[float]]]:
    """Of each feature the index over its bound by week: above 1 is beyond."""
    weeks = found.with_columns((pl.col("psi") / pl.col("bound")).alias("share")).sort("week_utc")
    return {
        str(name): (part["week_utc"].to_list(), part["share"].to_list())
        for (name,), part in weeks.group_by("feature", maintain_order=True)
    }
