"""Mutated files of every format: read or refused in one line, no crash, nothing implausible, and the counts add up.

BATON_FUZZ_LINES=1000000 is the long form, all formats together; -s shows what became of the lines of each.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from tests.memory import Growth
from tests.traces.readers.fuzzing import Base, bases, damaged, mutated
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.ingest import ingest
from traces.readers.plausible import implausible
from traces.readers.staged import FileResult
from traces.store.folder import DataFolder

LINES = int(os.environ.get("BATON_FUZZ_LINES", "4000"))  # that are mutated, of all formats together
FILE_LINES = 100 if LINES < 100_000 else 5_000
SHARES = (0.02, 0.5)  # of a file's records that are mutated
DAMAGED = 0.2  # of the files


def check(base: Base, data: bytes, untouched: int, result: FileResult, folder: Path) -> None:
    """The counts add up to what is in the file, whole lines are not refused, and no row is implausible."""
    assert result.rows == result.allocations + result.steps + result.samples + result.duplicates + result.rejects
    assert result.rows > 0 and result.jobs <= result.allocations
    if base.by_line:
        lines = data.decode(errors="replace").replace("\r\n", "\n").split("\n")[1:]
        found = [line for line in lines if line.strip(" \t\r\x0b\x0c\x85\xa0\u3000")]
        given = sum(base.format != "swf" or line.strip()[:1] != ";" for line in found)
        assert abs(result.rows - given) <= 1, (result, given)  # a byte may be a blank of Unicode
        assert result.rejects <= given - untouched + 1
    elif base.between != b"\n":
        assert result.rows - result.rejects >= untouched - 2 * (data.count(base.between) + 1 - untouched), result
    for path in folder.glob("lake/lab/*/*.parquet"):
        wrong = implausible(pl.read_parquet(path)).drop_nulls()
        assert wrong.is_empty(), (path.name, wrong[0])


def become(base: Base, path: Path, data: bytes, untouched: int, *, whole: bool) -> tuple[str, int]:
    """(what became of the file, records that were refused)."""
    path.write_bytes(data)
    try:
        if base.reads:
            base.reads(path)
            return "read", 0
        folder = DataFolder(path.parent / "data")
        cluster = ClusterSettings("lab", timezone="America/Chicago")
        (result,) = ingest([path], cluster=cluster, data=folder, format=base.format)
    except InputError as error:
        found = str(error)
    else:
        found = ""
    assert "\n" not in found and len(found) < 4_000, found
    if found:
        return "refused", 0
    if whole:
        check(base, data, untouched, result, folder.root)
    return "read", result.rejects


@pytest.mark.parametrize("name", bases())
def test_mutated_files(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base, began = bases()[name], time.process_time()
    monkeypatch.setattr("traces.clusters.DECLARED", tmp_path / "none.toml")
    path = tmp_path / ("clusters.toml" if name == "clusters.toml" else "file")
    due, seed, found = LINES / len(bases()), 0, Counter[str]()
    kinds = Counter[str]()
    with Growth() as grown:
        while found["mutated"] < due:
            rng = random.Random(f"{name} {seed}")
            size = len(base.records) if base.reads else FILE_LINES
            share = SHARES[seed % 2] if not base.reads else 2 / size
            chosen = [(base.records[n] if base.reads else rng.choice(base.records), rng.random() < share)
                      for n in range(size)]  # fmt: skip
            data = base.file([mutated(rng, record, base) if change else record for record, change in chosen])
            kind = "mutated lines alone"
            if rng.random() < DAMAGED:
                kind, data = damaged(rng, data)
            untouched = sum(not change for _, change in chosen)
            fate, rejects = become(base, path, data, untouched, whole=kind == "mutated lines alone")
            shutil.rmtree(tmp_path / "data", ignore_errors=True)
            kinds[kind] += 1
            found.update({"mutated": size - untouched, "lines": size, "rejects": rejects, fate: 1})
            seed += 1
    print(
        f"\n{name}: {found['mutated']:,} of {found['lines']:,} lines mutated in {seed:,} files of {len(kinds)} kinds: "
        f"{found['read']:,} read, {found['refused']:,} refused, {found['rejects']:,} records refused; "
        f"{time.process_time() - began:.1f} s of processor time, grew by {grown.mib:,.0f} MiB"
    )
    assert grown.mib < 2 << 10
