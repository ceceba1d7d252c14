"""Facts for the report that tables do not hold: why there are no policies, what calibration leaves out."""

from __future__ import annotations

from collections.abc import Iterable

from models.study import extent
from models.study.support import Refusal, headline_study, why_plain
from reports.source import Remarks
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder


def remarks(data: DataFolder, settings: Iterable[ClusterSettings]) -> dict[str, Remarks]:
    """Return the remarks that `reports.build` takes, by cluster."""
    clusters = list(settings)
    cuts = extent.calibration_cuts(data, [one.name for one in clusters])
    plain = why_plain(data, clusters)
    found = {}
    for one in clusters:
        study = headline_study(data, one)
        no_policies = study.why if isinstance(study, Refusal) else None
        found[one.name] = Remarks(no_policies, cuts.get(one.name), plain.get(one.name), one.select_until)
    return found
