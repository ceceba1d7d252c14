"""Resources of every asset: the data folder, and flags that override the declared settings of a cluster.

This module has no `from __future__ import annotations`, because Dagster reads its annotations at run time.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg

from traces import clusters
from traces.clusters import ClusterSettings
from traces.files.presence import at_work
from traces.store.folder import DataFolder

CLUSTERS = dg.DynamicPartitionsDefinition(name="clusters")
OWNERS = ["team:cluster-operations"]


class Baton(dg.ConfigurableResource[None]):
    """One data folder, with the flags of `baton analyze` and `run`. Without flags, clusters.toml alone decides."""

    data: str
    cluster: str | None = None  # that the flags apply to; None: any
    raw: list[str] | None = None  # files and folders; None: the cluster's folder under raw/
    format: str = "auto"
    fields: list[str] | None = None
    delimiter: str | None = None
    timezone: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    resource: str | None = None

    @property
    def folder(self) -> DataFolder:
        """The folder that holds the lake, the warehouse and everything derived."""
        return DataFolder(Path(self.data))

    @contextmanager
    def yield_for_execution(self, context: dg.InitResourceContext) -> Generator["Baton"]:  # type: ignore[override]
        """Mark the data folder as in use while a run has this resource.

        A sensor that has it does not mark the folder (`pipelines.runs.killed`).
        """
        if context.run is None:
            yield self
            return
        self.folder.dagster.mkdir(parents=True, exist_ok=True)
        with at_work(self.folder.dagster):
            yield self

    def raw_paths(self, cluster: str) -> list[Path]:
        """Return the raw logs of the cluster, files or folders: those given, else data/raw/<cluster>."""
        named = self.raw if self.cluster in (None, cluster) else []
        return [Path(path) for path in named or ()] or [self.folder.raw / cluster]

    def settings(self, cluster: str) -> ClusterSettings:
        """Return the settings of the cluster; flags take precedence. Raises InputError for an undeclared cluster."""
        if self.cluster not in (None, cluster):
            return clusters.resolve(self.folder, cluster=cluster)
        return clusters.resolve(
            self.folder,
            cluster=cluster,
            new=bool(self.raw) or self.raw_paths(cluster)[0].exists(),
            timezone=self.timezone,
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            cpus_per_node=self.cpus_per_node,
            resource=self.resource,
        )
