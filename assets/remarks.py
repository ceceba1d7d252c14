"""Facts for the report that tables do not hold: why there are no policies, what calibration leaves out."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

import polars as pl

from features.resources.capacity import KNOWN_BY
from features.tables.utilization import RESOURCES
from models.study import extent
from models.study.support import Refusal, headline_study, why_plain
from reports.source import Remarks
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store import derived
from traces.store.folder import DataFolder


def remarks(data: DataFolder, settings: Iterable[ClusterSettings]) -> dict[str, Remarks]:
    """Return the remarks that `reports.build` takes, by cluster."""
    clusters = list(settings)
    cuts = extent.calibration_cuts(data, [one.name for one in clusters])
    plain = why_plain(data, clusters)
    found = {}
    for one in clusters:
        study = headline_study(data, _as_analysed(data, one))
        no_policies = study.why if isinstance(study, Refusal) else None
        found[one.name] = Remarks(no_policies, cuts.get(one.name), plain.get(one.name), one.select_until)
    return found


def _as_analysed(data: DataFolder, settings: ClusterSettings) -> ClusterSettings:
    """The settings with the number of nodes that the last analysis was given, if clusters.toml has none."""
    if settings.nodes is not None:
        return settings
    with suppress(InputError):  # not analysed yet
        size = derived.read(data, RESOURCES.name, settings.name).row(
            by_predicate=pl.col("scope") == "cluster", named=True
        )
        if size["known_by"] == KNOWN_BY["settings"]:
            return replace(settings, nodes=size["nodes"])
    return settings
