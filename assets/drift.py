"""Drift: whether the champion still fits the jobs of its cluster; if not, retraining is requested."""

from collections.abc import Iterator

import dagster as dg
import polars as pl

from assets import warehouse
from assets.shared.metadata import materialization, numbers, plot, table
from assets.shared.promises import computed_by
from assets.shared.resources import CLUSTERS, OWNERS, Baton
from models.release.champion import fetch_champions
from models.release.policies import drift
from models.tables import CHAMPION_DRIFT
from models.tracking import versions as tracking
from models.tracking.address import registry_key
from reports.drift import drift_sentence
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.store import derived
from traces.store import warehouse as canonical

KEY, CHECK = "champion_drift", "within_bounds"
COMPUTED_BY = drift.__name__
NOTHING_YET = "no champion, no whole week with known outcomes since its fit, or too few weeks in that fit"


@dg.asset(
    deps=[warehouse.key("jobs"), "provisioning_policy"],
    group_name="release",
    partitions_def=CLUSTERS,
    kinds={"polars", "parquet"},
    owners=OWNERS,
    check_specs=[
        dg.AssetCheckSpec(
            CHECK,
            asset=KEY,
            description="The newest week is like those that the champion was fitted on; otherwise retrain.",
        )
    ],
    metadata=computed_by(COMPUTED_BY),
    description="Weeks since the champion's fit, compared with those of the fit: waits, sizes, limits, load, users.",
)
def champion_drift(
    context: dg.AssetExecutionContext, baton: Baton
) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
    data, cluster = baton.folder, context.partition_key
    settings = baton.settings(cluster)
    fetch_champions(data, cluster)
    champion = tracking.champion(data, cluster)
    version = None if champion is None else champion.version
    made_from = digest(
        canonical.made_from(data, cluster), settings, version, code_digest(COMPUTED_BY), *registry_key(data)
    )
    (found,), reused = derived.read_or_compute(
        data, [CHAMPION_DRIFT], cluster, made_from, lambda: [drift.drift(data, settings)]
    )
    verdict, newest = drift_sentence(found) or NOTHING_YET, found.filter(pl.col("week_utc") == pl.col("week_utc").max())
    yield materialization(
        rows=len(found),
        reused=reused,
        version=made_from,
        verdict=verdict,
        **numbers(features_beyond=int(newest["is_beyond"].sum())),
        newest_week=table(newest.drop("cluster")),
        distances=plot(_lines(found), x="week, UTC", y="index over its bound"),
    )
    yield dg.AssetCheckResult(
        check_name=CHECK,
        passed=drift.cause(found) is None,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"verdict": verdict},
    )


def _lines(found: pl.DataFrame) -> dict[str, tuple[list[object], list[float]]]:
    """Return each feature's index divided by its bound, by week; a value above 1 is beyond the bound."""
    weeks = found.with_columns((pl.col("psi") / pl.col("bound")).alias("share")).sort("week_utc")
    return {
        str(name): (part["week_utc"].to_list(), part["share"].to_list())
        for (name,), part in weeks.group_by("feature", maintain_order=True)
    }
