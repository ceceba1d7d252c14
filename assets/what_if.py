"""What would change if: replays of the trace on a changed cluster, beside the replay of the cluster as it is."""

import dagster as dg

from assets import warehouse
from assets.metadata import shown, table
from assets.resources import CLUSTERS, OWNERS, Baton
from models import experiment
from models.fingerprint import code_digest, digest
from models.tables import WHAT_IF
from traces import store

CODE = ("simulator", "models/what_if.py", "models/experiment.py", "models/bootstrap.py")


@dg.asset(
    deps=[warehouse.key("jobs")],
    group_name="simulation",
    partitions_def=CLUSTERS,
    kinds={"numba", "parquet"},
    owners=OWNERS,
    description="Mean wait under another scheduler, with more or fewer nodes, with tighter time limits.",
)
def simulation_what_if(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    from models.what_if import what_if

    data, cluster = baton.folder, context.partition_key
    if not experiment.has_limits(data, cluster):
        return shown(rows=0, why=f"no job of cluster {cluster!r} has a time limit to plan with: nothing was replayed")
    settings = baton.settings(cluster)
    now = digest(store.lake_digest(data, cluster), settings.nodes, code_digest(*CODE))
    reused = store.derived_fingerprint(data, WHAT_IF.name, cluster) == now
    if not reused:
        store.write_derived(data, WHAT_IF, cluster, what_if(data, settings), now)
    frame = store.read_derived(data, WHAT_IF.name, cluster)
    return shown(rows=len(frame), reused=reused, changes=table(frame))
