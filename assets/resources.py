"""What every asset is given: the data folder, and flags that override a cluster's declared settings.

No `from __future__ import annotations` here: Dagster reads these annotations while the program runs.
"""

from pathlib import Path

import dagster as dg

from traces import clusters
from traces.clusters import ClusterSettings
from traces.store import DataFolder

CLUSTERS = dg.DynamicPartitionsDefinition(name="clusters")
OWNERS = ["team:cluster-operations"]


class Baton(dg.ConfigurableResource[None]):
    """One data folder. The flags are those of `baton run`; left out, clusters.toml alone decides."""

    data: str
    raw: str | None = None
    timezone: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None

    @property
    def folder(self) -> DataFolder:
        return DataFolder(Path(self.data))

    def raw_folder(self, cluster: str) -> Path:
        """Where the cluster's raw logs lie: the flag's folder, else data/raw/<cluster>."""
        return Path(self.raw) if self.raw else self.folder.raw / cluster

    def settings(self, cluster: str) -> ClusterSettings:
        """The cluster's settings, flags first. Raises InputError for a cluster that nothing declares."""
        return clusters.resolve(
            self.folder,
            raw=self.raw_folder(cluster) if self.raw_folder(cluster).is_dir() else None,
            cluster=cluster,
            timezone=self.timezone,
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
        )
