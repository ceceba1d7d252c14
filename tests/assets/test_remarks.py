"""Remarks of the report: what a command-line option declared at the last analysis still holds."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from assets.remarks import remarks
from features.tables.utilization import RESOURCES
from models.study.support import Refusal, headline_study
from traces import ingest
from traces.clusters import ClusterSettings
from traces.store import derived, warehouse
from traces.store.folder import DataFolder
from traces.store.frames import conform

ROW = "{id}|u|p|COMPLETED|2026-03-01T00:00:00|2026-03-01T00:00:00|2026-03-01T02:00:00|60|1|a\n"
HEADER = "JobID|User|Partition|State|Submit|Start|End|TimelimitRaw|NNodes|NodeList\n"


def analysed(root: Path, known_by: str) -> DataFolder:
    """A cluster of two jobs without declared nodes, whose analysis found 80 of them, known in that way."""
    raw, data = root / "raw.psv", DataFolder(root / "data")
    raw.write_text(HEADER + "".join(ROW.format(id=number) for number in (1, 2)))
    ingest.ingest([raw], cluster=ClusterSettings("lab"), data=data)
    warehouse.build(data)
    size = {"cluster": "lab", "scope": "cluster", "resource": "GPU", "why": "declared", "is_declared": True}
    frame = conform(RESOURCES, pl.DataFrame([size | {"known_by": known_by, "nodes": 80}]))
    derived.read_or_compute(data, [RESOURCES], "lab", "of the test", lambda: [frame])
    return data


def test_the_nodes_that_the_last_analysis_was_given_are_not_unknown(tmp_path: Path) -> None:
    settings = ClusterSettings("lab")
    data = analysed(tmp_path, "declared")
    without = headline_study(data, settings)
    assert isinstance(without, Refusal) and "the number of nodes of cluster 'lab' is unknown" in without.why
    why = remarks(data, [settings])["lab"].no_policies
    assert why is not None and "unknown" not in why and "the trace spans" in why


def test_nodes_seen_in_the_log_are_no_declaration(tmp_path: Path) -> None:
    data = analysed(tmp_path, "seen in use")
    why = remarks(data, [ClusterSettings("lab")])["lab"].no_policies
    assert why is not None and "the number of nodes of cluster 'lab' is unknown" in why
