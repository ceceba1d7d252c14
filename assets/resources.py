"""What every asset is given: the data folder, and flags that override a cluster's declared settings.

No `from __future__ import annotations` here: Dagster reads these annotations while the program runs.
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
    """One data folder. The flags are those of `baton analyze` and `run`; left out, clusters.toml alone decides."""

    data: str
    cluster: str | None = None  # that the flags are for; none: any
    raw: list[str] | None = None  # files and folders; none: the cluster's folder under raw/
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
        """While a run has it, it is at work; a sensor that has it is not (`pipelines.runs.killed`)."""
        if context.run is None:
            yield self
            return
        self.folder.dagster.mkdir(parents=True, exist_ok=True)
        with at_work(self.folder.dagster):
            yield self

    def raw_paths(self, cluster: str) -> list[Path]:
        """The cluster's raw logs, files or folders: those named, else data/raw/<cluster>."""
        named = self.raw if self.cluster in (None, cluster) else []
        return [Path(path) for path in named or ()] or [self.folder.raw / cluster]

    def settings(self, cluster: str) -> ClusterSettings:
        """The cluster's settings, flags first. Raises InputError for a cluster that nothing declares."""
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
