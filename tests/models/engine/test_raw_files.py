"""Raw files that are read by an engine, in any order: the lake is the same as when they are read one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from models.engine import raw_files
from models.engine.local import each_here
from models.engine.work import Work
from traces.clusters import ClusterSettings
from traces.errors import InputError, WorkError
from traces.generate.logs import generate_slurm
from traces.ingest import EachFile, ingest, one_by_one
from traces.readers.staged import FileResult
from traces.store.folder import DataFolder


@pytest.fixture(scope="module")
def raw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three dumps, a copy of the second, and a file that is no log."""
    folder = tmp_path_factory.mktemp("raw")
    dumps = [
        generate_slurm(
            folder, jobs=None, weeks=1, nodes=4, gpus_per_node=4, seed=seed, steps=False, compress=False
        )
        for seed in (1, 2, 3)
    ]  # fmt: skip
    (folder / "sacct-generated-2-again.psv").write_bytes(dumps[1].read_bytes())
    (folder / "notes.txt").write_text("no log\n")
    return folder


def read(path: Path, into: Path, each: EachFile) -> list[FileResult]:
    return ingest([path], cluster=ClusterSettings("lab", timezone="UTC"), data=DataFolder(into), each=each)


def rows(data: Path) -> dict[str, Any]:
    """The tables of every file, without when and how fast it was read."""
    return {
        f"{path.parent.name}/{path.name}": pl.read_parquet(path).drop("seconds", strict=False).to_dicts()
        for path in data.glob("lake/lab/*/*.parquet")
    }


def counts(results: list[FileResult]) -> list[dict[str, Any]]:
    return [asdict(replace(result, seconds=0.0)) for result in results]


def in_any_order(work: Work, _most: int) -> Iterator[tuple[int, Any]]:
    for at in random.Random(3).sample(range(len(work.tasks)), len(work.tasks)):
        yield at, work.function(work.shared, work.tasks[at].argument)


@pytest.mark.parametrize("name", ["processes", "in any order"])
def test_the_lake_is_the_same_whatever_reads_the_files(
    raw: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_one = read(raw, tmp_path / "one", one_by_one)
    assert [result.skipped_reason is None for result in by_one] == [False, True, True, True, True]
    original, copy = sorted(by_one[2:4], key=lambda result: result.duplicates)
    assert (original.duplicates, copy.duplicates) == (0, copy.rows) and copy.sha256 == original.sha256
    if name == "processes":
        monkeypatch.setattr(raw_files, "BYTE_S", 1.0)  # so that it is not short
    else:
        monkeypatch.setattr(raw_files, "engine_of", lambda _root: in_any_order)
    by_engine = read(raw, tmp_path / "other", raw_files.files_on_engine(tmp_path / "other"))
    assert counts(by_engine) == counts(by_one) and rows(tmp_path / "other") == rows(tmp_path / "one")
    assert len(rows(tmp_path / "other")) > 3
    later = [raw_files_in(tmp_path / folder) for folder in ("one", "other")]
    assert later[0] == later[1], "of two lists of nodes the later one counts"


def raw_files_in(data: Path) -> list[str]:
    """The digests of the files in the order in which they were given."""
    described = [json.loads(path.read_bytes()) for path in data.glob("lake/lab/*/file.json")]
    return [one["sha256"] for one in sorted(described, key=lambda one: one["ingested_s"])]


def test_a_compressed_file_is_expected_to_take_as_long_as_its_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected_s = []

    def each(work: Work, most: int) -> Iterator[tuple[int, Any]]:
        expected_s.append(work.about_s)
        yield from each_here(work, most)

    monkeypatch.setattr(raw_files, "engine_of", lambda _root: each)
    for name, compress in (("text", False), ("gz", True)):
        log = generate_slurm(
            tmp_path / name, jobs=None, weeks=1, nodes=4, gpus_per_node=4, seed=1, steps=False, compress=compress
        )
        read(log, tmp_path / "data" / name, raw_files.files_on_engine(tmp_path))
    assert 0.5 < expected_s[1] / expected_s[0] < 2


def test_a_lost_task_leaves_the_lake_as_it_was(raw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(work: Work, _most: int) -> Iterator[tuple[int, Any]]:
        yield 1, work.function(work.shared, work.tasks[1].argument)
        raise WorkError("lost twice")

    monkeypatch.setattr(raw_files, "engine_of", lambda _root: lost)
    with pytest.raises(WorkError, match="lost twice"):
        read(raw, tmp_path, raw_files.files_on_engine(tmp_path))
    assert not [*tmp_path.glob("lake/lab/*")]


def test_a_named_file_that_is_no_log_is_refused(raw: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"notes\.txt"):
        read(raw / "notes.txt", tmp_path, raw_files.files_on_engine(tmp_path))
