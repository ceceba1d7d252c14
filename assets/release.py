"""Release: the best policy of the select window becomes a version of `provisioning-policy` if it passes the gate."""

from typing import Any

import dagster as dg
import polars as pl

from assets.metadata import numbers, shown, table
from assets.promises import computed_by
from assets.resources import CLUSTERS, OWNERS, Baton
from models import registry
from models.study import publish
from models.study.support import headline_study, why_no_policies
from models.tables import RELEASE_LOG
from traces.store import derived


@dg.asset(
    deps=["policy_comparison"],
    group_name="release",
    partitions_def=CLUSTERS,
    kinds={"mlflow"},
    owners=OWNERS,
    metadata=computed_by(*publish.RELEASED_BY, but=(registry.__name__,)),
    description="The registered model provisioning-policy: a new version, and champion only if not worse.",
)
def provisioning_policy(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    settings = baton.settings(cluster)
    if why := why_no_policies(data, cluster, settings):
        return shown(rows=0, why=why)
    log, reused = publish.publish(headline_study(data, settings))
    columns = ("released_utc", "registered_version", "policy", "passed", "reason")
    return shown(
        rows=len(log),
        reused=reused,
        version=derived.made_from(data, RELEASE_LOG.name, cluster),
        **_decision(log),
        decisions=table(log.reverse().select(columns), length=300),
    )


def _decision(log: pl.DataFrame) -> dict[str, Any]:
    """The newest decision: figures, the reason, and where the registry shows the version that is champion now."""
    from models.tracking.versions import version_url

    if log.is_empty():
        return {}
    newest = log.row(-1, named=True)
    version = newest["registered_version"]
    link = {} if version is None else {"mlflow": dg.MetadataValue.url(version_url(version))}
    return {
        "decision": newest["reason"],
        "passed": dg.MetadataValue.bool(newest["passed"]),
        **numbers(
            champion_version=version,
            cost_difference_low_h=newest["cost_difference_low_h"],
            cost_difference_high_h=newest["cost_difference_high_h"],
        ),
        **link,
    }
