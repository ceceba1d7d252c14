"""Dumps of a real Slurm 24.11.5 and 26.05.5 (Debian): every form of a version says the same of every job.

Some 35 jobs of each kind: exit codes, signals, out of memory, a timeout, a requeue, a resize, an array, a heterogeneous
job, names and comments with delimiters, line breaks and forged records. Each form is named `slurm-VERSION...`:
`.psv.gz` is `sacct -a -D -P --format=...`, `-all` `--format=ALL`, `.json.gz` the newest data_parser, `-complex` the
same with `+complex`.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.live.workload import UNASKED
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store.folder import DataFolder

FIXTURES = Path(__file__).resolve().parents[3] / "fixtures" / "traces"
VERSIONS = ("24.11", "26.05")
ABOUT_CODES = ("exit_code", "exit_code_form")
NOT_PRINTED = [name for name in UNASKED if name != "failed_node"]  # that is a column of attempts
# Of job, code and how it is known by the text of 24.11; JSON and 26.05 print it whole.
CODES = {"exit9": 9, "exit137": 137, "exit128": 128, "exit255": 255, "child9": 137, "step9s": 137}


def tables_of(form: str, folder: Path) -> dict[str, pl.DataFrame]:
    """The tables of a dump."""
    ingest([FIXTURES / f"slurm-{form}.gz"], cluster=ClusterSettings("lab"), data=DataFolder(folder))
    tables = {path.stem: pl.read_parquet(path) for path in folder.glob("lake/lab/*/*.parquet")}
    return {**tables, "jobs": tables["jobs"].sort("job_key")}


def jobs_of(form: str, folder: Path) -> tuple[pl.DataFrame, int]:
    """The jobs of a dump, and the number of records that were rejected."""
    tables = tables_of(form, folder)
    return tables["jobs"].drop("trace_sha256", "line"), len(tables.get("rejects", ()))


@pytest.mark.parametrize("version", VERSIONS)
def test_json_says_what_the_text_says(version: str, tmp_path: Path) -> None:
    text, refused = jobs_of(f"{version}.psv", tmp_path / "text")
    assert (refused, len(text)) == (0, {"24.11": 36, "26.05": 34}[version])
    for form in (".json", "-complex.json"):
        jobs, refused = jobs_of(version + form, tmp_path / form)
        assert refused == 0
        assert jobs.drop(ABOUT_CODES, *NOT_PRINTED).equals(text.drop(ABOUT_CODES, *NOT_PRINTED))
        if version == "26.05":
            assert jobs.drop(NOT_PRINTED).equals(text.drop(NOT_PRINTED))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_column_at_once_says_what_the_text_says(version: str, tmp_path: Path) -> None:
    """Three jobs have names with over 20 delimiters, next to other columns of user text: they are rejected."""
    text, _ = jobs_of(f"{version}.psv", tmp_path / "text")
    jobs, refused = jobs_of(f"{version}-all.psv", tmp_path / "all")
    assert (refused, len(jobs)) == (3, len(text) - 3)
    differ = ("requested_cpus", *NOT_PRINTED)  # ReqCPUS is that of the last size
    assert jobs.drop(differ).equals(text.join(jobs, on="job_key", how="semi").drop(differ))
    form, _ = jobs_of(f"{version}.json", tmp_path / "json")
    differ = ("requested_cpus", *ABOUT_CODES, *(("sluid",) if version == "24.11" else ()))  # its JSON has no SLUID
    assert jobs.drop(differ).equals(form.join(jobs, on="job_key", how="semi").drop(differ))
    assert {"pipe|in|name", "pipe|and\nnl", "nl\nname", "|"} <= set(jobs["job_name"])


def test_a_forged_record_is_no_job(tmp_path: Path) -> None:
    for version in VERSIONS:
        jobs, _ = jobs_of(f"{version}.psv", tmp_path / version)
        assert not {"999", "evil"} & {*jobs["job_key"], *jobs["job_name"]}
        forged = [name.partition("|evil")[0] for name in jobs["job_name"] if "evil" in name]
        assert forged == ["x\n999|999", "x\n1|1", "x\n999|999"]
        assert jobs.row(by_predicate=pl.col("job_key") == "1", named=True)["job_name"] == "plain"


@pytest.mark.parametrize("form", ["24.11.psv", "24.11.json", "26.05.psv", "26.05.json"])
def test_exit_codes_mean_the_same_or_say_that_they_may_not(form: str, tmp_path: Path) -> None:
    jobs, _ = jobs_of(form, tmp_path)
    found = {job["job_name"]: (job["exit_code"], job["exit_code_form"]) for job in jobs.iter_rows(named=True)}
    for name, code in CODES.items():
        lacks = form == "24.11.psv"
        assert found[name] == ((code % 128, "128 may be missing") if lacks else (code, "whole")), name
    signals = dict(jobs.select("job_name", "exit_signal").iter_rows())
    assert (signals["self9"], signals["segv"], signals["oom"]) == (9, 11, 125)
