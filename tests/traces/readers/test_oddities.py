"""Every oddity of `oddities.py`: what becomes of it is what the table says. All rows of a zone stand in one dump."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.traces.readers.oddities import FILES, HEADER, ODDITIES, OddFile, Oddity
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store.folder import DataFolder

NUMBERED = {10_000 + n: oddity for n, oddity in enumerate(ODDITIES)}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, Any]]:
    """The jobs of all oddities, by their number."""
    found: dict[int, dict[str, Any]] = {}
    for zone in sorted({oddity.timezone for oddity in ODDITIES}):
        folder = tmp_path_factory.mktemp("oddities")
        mine = {n: oddity for n, oddity in NUMBERED.items() if oddity.timezone == zone}
        text = "\n".join([HEADER, *(oddity.raw.replace("{id}", str(n)) for n, oddity in mine.items())]) + "\n"
        (folder / "dump.psv").write_text(text, encoding="utf-8", newline="")
        (result,) = ingest(
            [folder / "dump.psv"], cluster=ClusterSettings("lab", timezone=zone), data=DataFolder(folder)
        )
        assert result.rows == result.allocations + result.steps + result.duplicates + result.rejects
        assert result.rejects == sum(oddity.job is None for oddity in mine.values())
        jobs = pl.concat(pl.read_parquet(path) for path in folder.glob("lake/lab/*/jobs.parquet"))
        found |= {int(job["job_key"]): job for job in jobs.iter_rows(named=True)}
    return found


@pytest.mark.parametrize(("number", "oddity"), NUMBERED.items(), ids=[o.name for o in ODDITIES])
def test_what_becomes_of_it(read: dict[int, dict[str, Any]], number: int, oddity: Oddity) -> None:
    if oddity.job is None:
        assert number not in read
        return
    job = read[number]
    assert {name: job[name] for name in oddity.job} == oddity.job


@pytest.mark.parametrize("odd", FILES, ids=[odd.name for odd in FILES])
def test_what_becomes_of_an_odd_file(tmp_path: Path, odd: OddFile) -> None:
    (tmp_path / odd.file).write_bytes(odd.data)
    (result,) = ingest([tmp_path / odd.file], cluster=ClusterSettings("lab"), data=DataFolder(tmp_path))
    (path,) = tmp_path.glob("lake/lab/*/jobs.parquet")
    jobs = pl.read_parquet(path)
    assert dict(jobs["user_name"].value_counts().iter_rows()) == odd.users
    assert (result.rejects, result.rows) == (odd.rejects, odd.rejects + result.allocations)
    assert [{name: job[name] for name in odd.job} for job in jobs.iter_rows(named=True)] == [odd.job] * len(jobs)


def test_each_oddity_has_a_name_of_its_own_and_a_source() -> None:
    assert len({oddity.name for oddity in ODDITIES}) == len(ODDITIES)
    assert all(oddity.source and oddity.becomes for oddity in ODDITIES)
