"""What the report tells of clusters beside their tables: why there are no policies, what calibration leaves out."""

from __future__ import annotations

from collections.abc import Iterable

from models.study import extent
from models.study.support import why_no_policies, why_plain
from reports.source import Told
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder


def told(data: DataFolder, settings: Iterable[ClusterSettings]) -> dict[str, Told]:
    """What `reports.build` is told, by cluster."""
    clusters = list(settings)
    cuts = extent.calibration_cuts(data, [one.name for one in clusters])
    plain = why_plain(data, clusters)
    return {
        one.name: Told(why_no_policies(data, one.name, one), cuts.get(one.name), plain.get(one.name), one.select_until)
        for one in clusters
    }
