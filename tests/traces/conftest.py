"""A data folder of its own for each test, and one call that ingests text and builds the warehouse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.readers.staged import FileResult
from traces.store import warehouse
from traces.store.folder import DataFolder


class Lake:
    """A data folder and the cluster that its files belong to."""

    def __init__(self, root: Path) -> None:
        self.data = DataFolder(root / "data")
        self.inbox = root / "inbox"
        self.inbox.mkdir()

    def put(self, name: str, content: str | bytes) -> Path:
        path = self.inbox / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    def ingest(
        self, *paths: Path, timezone: str = "UTC", gpus_per_node: int | None = None, **how: Any
    ) -> list[FileResult]:
        settings = ClusterSettings("lab", timezone=timezone, gpus_per_node=gpus_per_node)
        results = ingest(list(paths), cluster=settings, data=self.data, **how)
        for r in results:
            assert r.rows == r.allocations + r.steps + r.samples + r.duplicates + r.rejects, r
        warehouse.build(self.data)
        return results

    def table(self, name: str) -> pl.DataFrame:
        return warehouse.read(self.data, f"SELECT * FROM {name} ORDER BY ALL")

    def rows(self, name: str) -> list[dict[str, Any]]:
        return self.table(name).to_dicts()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


HEADER = (
    "JobID|JobIDRaw|JobName|User|Partition|State|ExitCode|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|NNodes|"
    "AllocCPUS|ReqMem|ReqTRES|AllocTRES|NodeList|Flags"
)


@pytest.fixture
def sacct_row() -> Callable[..., str]:
    """A line of a dump with HEADER: a plain job of one hour, and what the caller says otherwise."""

    def row(**other: str) -> str:
        tres = "billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=2"
        plain = {
            "JobID": "100", "JobIDRaw": other.get("JobID", "100"), "JobName": "train.sh", "User": "alice",
            "Partition": "gpu", "State": "COMPLETED", "ExitCode": "0:0", "Submit": "2024-05-01T10:00:00",
            "Eligible": "2024-05-01T10:00:00", "Start": "2024-05-01T10:30:00", "End": "2024-05-01T11:30:00",
            "ElapsedRaw": "3600", "TimelimitRaw": "120", "NNodes": "2", "AllocCPUS": "8", "ReqMem": "64G",
            "ReqTRES": tres, "AllocTRES": tres, "NodeList": "n[01-02]", "Flags": "SchedMain",
        }  # fmt: skip
        assert set(other) <= set(plain), other
        return "|".join({**plain, **other}[name] for name in HEADER.split("|"))

    return row
