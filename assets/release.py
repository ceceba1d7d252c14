"""Release: the best policy of the select window becomes a version of `provisioning-policy` if it passes the gate."""

import dagster as dg

from assets.metadata import shown, table
from assets.resources import CLUSTERS, OWNERS, Baton
from models import study


@dg.asset(
    deps=["policy_comparison"],
    group_name="release",
    partitions_def=CLUSTERS,
    kinds={"mlflow"},
    owners=OWNERS,
    description="The registered model provisioning-policy: a new version, and champion only if not worse.",
)
def provisioning_policy(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    settings = baton.settings(cluster)
    if why := study.why_no_policies(data, cluster, settings):
        return shown(rows=0, why=why)
    from models.publish import publish

    log, reused = publish(study.of(data, settings))
    columns = ("released_utc", "registered_version", "policy", "passed", "reason")
    return shown(rows=len(log), reused=reused, decisions=table(log.reverse().select(columns), length=300))
