"""A real Slurm runs jobs of every kind; its own dump goes through ingest and says what was submitted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.live.slurm import Slurm
from tests.live.stream import submit_stream
from tests.live.workload import DUMP, FIELDS, HOSTILE_NAMES, UNASKED, Expected, json_forms, submit_all
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

pytestmark = pytest.mark.live

SACCT = (*DUMP[:3], "-S", "now-1day", "-E", "now")
FIXED = ",".join(f"{name}%{90 if 'TRES' in name else 40}" for name in FIELDS.split(","))
# Columns that differ with the form: exit codes (see the test), and those that name the file.
OF_THE_FORM = ("cluster", "job_key", "line", "trace_sha256", "exit_code", "exit_signal", "exit_code_form")


@pytest.fixture(scope="module")
def expected(slurm: Slurm) -> dict[str, Expected]:
    """What became of one job of each kind; with BATON_LIVE=full, of a stream of 400 more."""
    whole = submit_stream(slurm) if os.environ.get("BATON_LIVE") == "full" else {}
    return submit_all(slurm) | whole


def test_accounting_of_a_real_slurm_reads_back_as_submitted(
    slurm: Slurm, expected: dict[str, Expected], tmp_path: Path
) -> None:
    dump = tmp_path / "sacct.psv"
    dump.write_bytes(slurm.run(*DUMP).encode(errors="surrogateescape"))
    data = DataFolder(tmp_path / "data")

    (result,) = ingest([dump], cluster=ClusterSettings("live"), data=data)
    warehouse.build(data)

    assert result.rejects == 0
    assert result.rows == result.allocations + result.steps + result.samples + result.duplicates
    jobs = warehouse.read(data, "SELECT * FROM jobs")
    rows = {str(row["job_id_raw"]): row for row in jobs.iter_rows(named=True)}
    assert rows.keys() == expected.keys()
    attempts = warehouse.read(data, "SELECT * FROM attempts ORDER BY job_key, attempt")
    for job, kind in expected.items():
        row = rows[job]
        runs = attempts.filter(pl.col("job_key") == row["job_key"])
        assert (row["state"], row["attempts"]) == (kind.state, kind.attempts), row
        assert kind.first_state is None or runs["state"][0] == kind.first_state, runs
        if kind.submitted_s and kind.attempts == 1:  # Slurm resets the submission of a requeued job
            assert abs(row["submit_utc"].timestamp() - kind.submitted_s) < 15, row
        if kind.least_s:
            assert runs["run_s"][-1] >= kind.least_s, runs
            assert (runs["end_utc"][-1] - runs["start_utc"][-1]).total_seconds() == runs["run_s"][-1]
        if kind.attempts:
            assert row["allocated_gpus"] == kind.gpus
            assert row["wait_s"] >= 0 and row["submit_utc"] <= row["start_utc"], row
            if kind.attempts == 1:  # a requeue may overwrite when the run before it became eligible
                assert row["submit_utc"] <= row["eligible_utc"] <= row["start_utc"], row
        else:
            assert row["start_utc"] is None and row["wait_s"] is None
    assert set(HOSTILE_NAMES[:5]) <= set(jobs["job_name"])

    # GPU seconds, by Slurm's own count of each run. Before 26.05 the record after a resize begins with the job, and
    # counts the time before the resize again.
    by_slurm, resized = 0, dict.fromkeys(expected, ("", 0))
    fields = "JobIDRaw,State,Start,ElapsedRaw,AllocTRES"
    for line in slurm.run("sacct", "-a", "-D", "-X", "-n", "-P", f"--format={fields}", "-S", "now-1day").splitlines():
        job, state, start, elapsed, tres = line.split("|")
        counts = dict(item.split("=") for item in tres.split(",") if item)
        began, before_s = resized[job]
        by_slurm += (int(elapsed) - (before_s if began == start else 0)) * int(counts.get("gres/gpu", 0))
        resized[job] = (start, int(elapsed)) if state == "RESIZING" else ("", 0)
    assert attempts["gpu_time_s"].sum() == by_slurm


def test_every_form_of_sacct_says_the_same(
    slurm: Slurm, expected: dict[str, Expected], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Each form is a cluster of its own in one warehouse; what differs between forms is Slurm's own printing."""
    dumps = {"psv": DUMP, "all": (*SACCT, "-P", "--format=ALL"), "fixed": (*SACCT, f"--format={FIXED}")}
    dumps |= {form: (*SACCT, form) for form in json_forms(slurm, "sacct")}
    data = DataFolder(tmp_path / "data")
    for form, command in dumps.items():
        path = tmp_path / f"{form.strip('-')}.txt"
        path.write_bytes(slurm.run(*command).encode(errors="surrogateescape"))
        (result,) = ingest([path], cluster=ClusterSettings(form), data=data)
        assert result.rejects == 0, form
    warehouse.build(data)
    resized = [int(job) for job, kind in expected.items() if kind.first_state == "RESIZING"]
    is_resized = pl.col("job_id_raw").is_in(resized)  # ReqCPUS remains that of the submission, ReqTRES does not
    for table, order in (("jobs", "job_id_raw"), ("attempts", "replace(job_key, cluster, ''), attempt")):
        rows = warehouse.read(data, f"SELECT * FROM {table} ORDER BY cluster, {order}")
        if table == "jobs":
            rows = rows.with_columns(pl.when(~is_resized).then("requested_cpus").alias("requested_cpus"))
        whole = {form: rows.filter(pl.col("cluster") == form).drop(OF_THE_FORM, strict=False) for form in dumps}
        for name in set(UNASKED) & set(rows.columns):
            known = {form: one[name].to_list() for form, one in whole.items() if one[name].count()}
            assert {form: found for form, found in known.items() if found != known.get("all")} == {}, name
        by_form = {form: one.drop(UNASKED, strict=False) for form, one in whole.items()}
        if table == "jobs":  # a column of fixed width is filled with spaces
            assert by_form["fixed"]["job_name"].equals(by_form["psv"]["job_name"].str.strip_chars_end(" "))
            by_form["fixed"] = by_form["fixed"].with_columns(by_form["psv"]["job_name"])
        assert by_form["psv"].height >= len(expected)
        assert {form: found for form, one in by_form.items() if (found := differing(one, by_form["psv"]))} == {}, table
    failed = warehouse.read(data, "SELECT cluster, exit_code, exit_code_form FROM jobs WHERE job_name = 'exit 137'")
    codes = {form: (code, how) for form, code, how in failed.iter_rows()}
    text = (137, "whole") if slurm.version == "26.05" else (9, "128 may be missing")
    assert [codes.pop(form) for form in ("psv", "fixed", "all")] == [text] * 3
    assert {code for code, _ in codes.values()} == {None if slurm.version == "22.05" else 137}
    record_property("said", f"Slurm {slurm.version}: {len(expected)} jobs, {len(dumps)} forms of sacct agree")


def test_every_form_of_a_node_list_says_the_same(
    slurm: Slurm, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    lists = {
        "paragraphs": ("scontrol", "show", "node"),
        "lines": ("scontrol", "-o", "show", "node"),
        "fields": ("sinfo", "-N", "-o", "%N|%P|%c|%m|%G|%f|%t"),
        "widths": ("sinfo", "-N", "-O", "NodeList:20,Partition:20,CPUs:10,Memory:10,Gres:60,StateLong:20"),
        "long": ("sinfo", "-N", "-l"),
        **{f"sinfo {form}": ("sinfo", form) for form in json_forms(slurm, "sinfo")},
    }
    if slurm.version != "22.05":  # its scontrol prints no JSON
        forms = json_forms(slurm, "scontrol")
        lists |= {f"scontrol {form}": ("scontrol", form, "show", "nodes") for form in forms}
    expected = [(name, 8, 32_000, "gpu,urgent", 4, "a100") for name in slurm.cluster.names()]
    without_gpus = [(*node[:4], None, None) for node in expected]
    for number, (form, command) in enumerate(lists.items()):
        data, path = DataFolder(tmp_path / str(number)), tmp_path / f"{number}.txt"
        path.write_text(slurm.run(*command))
        (result,) = ingest([path], cluster=ClusterSettings("live"), data=data)
        assert result.rejects == 0, form
        (table,) = (tmp_path / str(number) / "lake/live").glob("*/nodes.parquet")
        partitions = pl.col("partitions").str.split(",").list.sort().list.join(",")
        nodes = pl.read_parquet(table).sort("node").select("node", "cpus", "memory_mib", partitions, "gpus", "gpu_type")
        assert nodes.rows() == (without_gpus if form == "long" else expected), form
    record_property("said", f"Slurm {slurm.version}: {len(lists)} forms of the node list agree")


def differing(rows: pl.DataFrame, others: pl.DataFrame) -> list[str]:
    """The columns that are not the same in both, or the numbers of rows."""
    if rows.height != others.height:
        return [f"{rows.height} rows, not {others.height}"]
    return [name for name in others.columns if not rows[name].equals(others[name])]
