"""Features: who waits and why, where GPUs are wasted, what fails. All is computed in the package `features`."""

from collections.abc import Iterator
from types import ModuleType

import dagster as dg

from assets import warehouse
from assets.metadata import shown, table
from assets.resources import CLUSTERS, OWNERS, Baton
from features.catalog import FEATURES
from features.signatures import tails_digest
from models.fingerprint import code_digest, digest
from traces import store

CODE = ("traces", "features")
READ = ("jobs", "attempts", "placements", "nodes", "gpu_utilization", "cpu_utilization", "memory_utilization")


def analysis_assets(name: str, analysis: ModuleType) -> dg.AssetsDefinition:
    """One op an analysis, one asset a table that it makes."""

    @dg.multi_asset(
        name=name,
        partitions_def=CLUSTERS,
        specs=[
            dg.AssetSpec(
                declared.name,
                deps=[warehouse.key(name) for name in READ],
                group_name="features",
                kinds={"polars", "parquet"},
                owners=OWNERS,
                description=declared.meaning,
            )
            for declared in analysis.TABLES
        ],
    )
    def compute(context: dg.AssetExecutionContext, baton: Baton) -> Iterator[dg.MaterializeResult[None]]:
        data, cluster = baton.folder, context.partition_key
        settings = baton.settings(cluster)
        now = digest(store.lake_digest(data, cluster), settings, code_digest(*CODE), tails_digest(data, cluster))
        reused = all(store.derived_fingerprint(data, t.name, cluster) == now for t in analysis.TABLES)
        frames = {} if reused else analysis.compute(data, settings)
        for declared in analysis.TABLES:
            if not reused:
                store.write_derived(data, declared, cluster, frames[declared.name], now)
            frame = store.read_derived(data, declared.name, cluster)
            yield shown(key=dg.AssetKey(declared.name), rows=len(frame), reused=reused, first_rows=table(frame))

    return compute


ASSETS = [analysis_assets(name, analysis) for name, analysis in FEATURES.items()]
