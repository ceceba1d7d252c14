"""Each raw file is a partition by its content, with its counts and quality; a file that disappears is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pytest

from assets.ingest import disappeared, file_key, ingested_files, raw_file
from assets.shared.resources import Baton
from tests.pipelines.conftest import dump
from traces import quality
from traces.store.folder import DataFolder
from traces.store.raw_files import lake_files

Metadata = dict[str, dict[str, Any]]


def materialize(data: Path, raw: Path) -> tuple[Metadata, dict[str, Any], list[str]]:
    """Metadata by partition of raw_file, that of trace_files, and the partitions there are."""
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("clusters", ["lab"])
        resources = {"baton": Baton(data=str(data), raw=[str(raw)])}
        result = dg.materialize([ingested_files, raw_file], instance=instance, partition_key="lab", resources=resources)
        found: Metadata = {}
        whole: dict[str, Any] = {}
        for event in result.get_asset_materialization_events():
            made = event.step_materialization_data.materialization
            metadata = {name: getattr(value, "value", value) for name, value in made.metadata.items()}
            if made.asset_key == raw_file.key:
                found[str(made.partition)] = metadata
            else:
                whole = metadata
        return found, whole, list(instance.get_dynamic_partitions("raw_files"))


def test_a_partition_a_file_by_its_content(tmp_path: Path) -> None:
    raw, data = tmp_path / "raw", tmp_path / "data"
    raw.mkdir()
    dump(raw / "a\udcff.psv", 3)  # a name that is no UTF-8
    dump(raw / "b.psv", 5).open("a").write("7|8|9\n")
    found, whole, partitions = materialize(data, raw)
    files = {Path(f["path"]).name: f for f in lake_files(DataFolder(data), "lab")}
    keys = {name: file_key("lab", described["sha256"]) for name, described in files.items()}
    assert found[keys["a\udcff.psv"]]["path"].endswith("/a\\xff.psv")
    assert set(found) == set(partitions) == set(keys.values())
    b = found[keys["b.psv"]]
    assert (b["dagster/row_count"], b["reused"], b["share_without_end"], b["clock_change_rows"]) == (6, False, 0.0, 0)
    assert b["longest_gap_s"] == 86_400 and b["longest_gap_from_utc"].startswith("2026-03-01")
    assert (b["rows_read"], b["rows_rejected"], b["jobs"]) == (6, 1, 5)
    (reason,) = b["rejects"].records
    assert "7" in str(reason.data) and "rejects" not in found[keys["a\udcff.psv"]]
    assert (whole["disappeared"], whole["rows_read"], whole["rows_rejected"], whole["jobs"]) == (0, 9, 1, 8)

    (raw / "a\udcff.psv").unlink()  # gone
    dump(raw / "b.psv", 4)  # changed: its older rows go
    found, whole, _ = materialize(data, raw)
    (lost,) = whole["disappeared files"].records
    assert whole["disappeared"] == 1 and str(lost.data["path"]).endswith("/a\\xff.psv")
    assert found[keys["a\udcff.psv"]]["reused"] and keys["b.psv"] not in found and len(found) == 2
    held = {Path(f["path"]).name: f["result"]["rows"] for f in lake_files(DataFolder(data), "lab")}
    assert held == {"a\udcff.psv": 3, "b.psv": 4}


def test_a_file_elsewhere_has_not_disappeared(tmp_path: Path) -> None:
    here = tmp_path / "raw"
    sources = (str(here / "gone"), str(tmp_path / "other"), None)
    files: list[dict[str, Any]] = [*({"source": source} for source in sources), {}]
    assert disappeared(files, [here]) == [str(here / "gone")]


def test_reasons_are_counted_without_their_values() -> None:
    rejects = pl.DataFrame(
        {"line": [3, 1, 2], "reason": ["state 'A' is none", "state 'B' is none", "7 fields"], "raw": ["x", "y", "z"]}
    )
    assert quality.reasons(rejects) == [("state … is none", 2, "y"), ("… fields", 1, "z")]
    assert quality.reasons(rejects.clear()) == []


def test_a_file_of_a_folder_that_no_reader_knows_is_said_to_be_skipped(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    dump(raw / "a.psv", 3)
    (raw / "notes.txt").write_text("Dear all,\n")
    found, _, _ = materialize(tmp_path / "data", raw)
    assert len(found) == 1
    assert "notes.txt: skipped, line 1: unknown format, the file begins with 'Dear all,'" in capfd.readouterr().err
