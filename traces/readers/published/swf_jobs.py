"""Reader of the Standard Workload Format 2.2 for the lake; `traces.readers.published.swf` parses its text.

Times are seconds since the header's UnixStartTime, by default the start of 1970. Processors are CPUs; they are nodes
too if the header's MaxNodes equals its MaxProcs. The canonical tables have no columns for CPU time, used memory, the
preceding job and think time, so these are dropped.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from traces import schema
from traces.errors import InputError
from traces.readers.common import Parsed, RawFile, Reject, shown
from traces.readers.plausible import implausible
from traces.readers.published.job_csv import fill_jobs
from traces.readers.published.swf import COLUMNS, SwfBlock, blocks, first_word
from traces.readers.raw_text import UNREADABLE

STATES = {0: "FAILED", 1: "COMPLETED", 2: "UNKNOWN", 3: "COMPLETED", 4: "FAILED", 5: "CANCELLED", -1: "UNKNOWN"}
# SWF column -> canonical column whose bounds apply; a value below 0 means unknown.
BOUNDS = {
    "submit": "submit_s", "wait": "wait_s", "run": "run_s", "limit": "limit_s", "allocated": "allocated_cpus",
    "requested": "requested_cpus", "memory": "memory_kib",
}  # fmt: skip
PARTIAL = (2, 3, 4)  # one run of a job that was stopped and resumed; the job's own line has another status
_ZERO = datetime(1970, 1, 1)


class Swf:
    """The reader of SWF."""

    name = "swf"
    version = 4

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the file begins with a ';' comment or a line of 18 numbers."""
        lines = [line.strip() for line in head.decode("utf-8-sig", errors="replace").split("\n") if line.strip()]
        if not lines:
            return False
        return lines[0].startswith(";") or bool(re.fullmatch(r"(?:-?\d+(?:\.\d+)?\s+){17}-?\d+(?:\.\d+)?", lines[0]))

    def read(self, file: RawFile) -> Parsed:
        """Read all jobs. Raises InputError where the file holds none."""
        parsed = Parsed()
        header: dict[str, str] = {}
        try:
            with file.open() as stream:
                frames = [_valid(parsed, block) for block in blocks(stream, file.path, header)]
        except UNREADABLE as error:
            raise InputError(f"{file.path}: cannot be read: {error}: is the file whole?") from error
        if not parsed.records:
            raise InputError(f"{file.path}: holds no jobs: SWF has one line of {len(COLUMNS)} numbers per job")
        rows = pl.concat(frames)
        partial = rows["status"].is_in(PARTIAL)
        runs, of_runs = _runs(parsed, rows.filter(partial), set(rows.filter(~partial)["job"]), _start(header))
        nodes = "MaxNodes" in header and first_word(header, "MaxNodes") == first_word(header, "MaxProcs")
        fill_jobs(parsed, _jobs(pl.concat([rows.filter(~partial), of_runs]), _start(header), nodes))
        _put_runs(parsed, runs, len(of_runs))
        return parsed


def _start(header: dict[str, str]) -> int:
    text = first_word(header, "UnixStartTime")
    return int(text) if re.fullmatch(r"[0-9]{1,11}", text) and int(text) < schema.MOST["s"] else 0


def _valid(parsed: Parsed, block: SwfBlock) -> pl.DataFrame:
    """Return (line, raw, COLUMNS) of the lines with a known status and values within the canonical bounds.

    The other lines are rejected, each with its reason.
    """
    parsed.records += len(block.lines)
    numbers = block.numbers.with_columns(block.wrong)
    known = pl.col("status").is_in(list(STATES)) & (pl.col("job") >= 0)
    bounded = numbers.select(pl.col(name).clip(0).alias(bound) for name, bound in BOUNDS.items())
    why = numbers.select(
        pl.coalesce("wrong", pl.when(~known).then(pl.lit("invalid SWF status or job number")), implausible(bounded))
    )["wrong"]
    if why.null_count() == len(why):
        return pl.concat([block.lines, block.numbers], how="horizontal")
    wrong = why.is_not_null()
    for (line, raw), reason in zip(block.lines.filter(wrong).iter_rows(), why.filter(wrong), strict=True):
        parsed.rejects.append(Reject(line, f"{reason}: {shown(raw)}", raw))
    return pl.concat([block.lines, block.numbers], how="horizontal").filter(~wrong)


def _jobs(rows: pl.DataFrame, start: int, processors_are_nodes: bool) -> pl.DataFrame:
    """Return the table `jobs` from the jobs' own lines. A job cancelled without a run time never ran.

    If every job of a log has status 0 (failed), the status was not recorded.
    """
    states = STATES if (rows["status"] != 0).any() else {**STATES, 0: "UNKNOWN"}

    def known(name: str) -> pl.Expr:
        return pl.when(pl.col(name) >= 0).then(pl.col(name))

    def positive(name: str) -> pl.Expr:
        return pl.when(pl.col(name) > 0).then(pl.col(name))

    ran = (pl.col("run") >= 0) & ~((pl.col("status") == 5) & (pl.col("run") <= 0))
    submit, wait, run = known("submit") + start, known("wait"), pl.when(ran).then(pl.col("run"))
    # the wait of a job cancelled in the queue ends at its cancellation
    end = pl.when(ran).then(submit + wait + run).when(pl.col("status") == 5).then(submit + wait)
    processors = pl.coalesce(positive("requested"), positive("allocated"))
    memory = (positive("memory").cast(pl.Float64) * processors / 1024).clip(upper_bound=2.0**62)  # rejected later
    nodes = positive("allocated") if processors_are_nodes else pl.lit(None, dtype=pl.Int64)
    return rows.select(
        "line", "raw", pl.col("job").cast(pl.String).alias("job_id"), pl.col("job").alias("job_id_raw"),
        pl.col("status").replace_strict(states, return_dtype=pl.String).alias("state"),
        _utc(submit).alias("submit_utc"), _utc(pl.when(ran).then(submit + wait)).alias("start_utc"),
        _utc(end).alias("end_utc"), run.alias("run_s"), pl.lit(False).alias("is_time_ambiguous"),
        positive("requested").alias("requested_cpus"), positive("allocated").alias("allocated_cpus"),
        (positive("requested") if processors_are_nodes else nodes).alias("requested_nodes"),
        nodes.alias("allocated_nodes"), memory.round().cast(pl.Int64).alias("requested_mem_mib"),
        positive("limit").alias("limit_s"),
        *(known(name).cast(pl.String).alias(column) for column, name in NAMES.items()),
    )  # fmt: skip


# Column of the table `jobs` -> column of SWF, where SWF writes a number for the name.
NAMES = {"user_name": "user", "account": "group", "job_name": "executable", "qos": "queue", "partition": "partition"}


def _utc(seconds: pl.Expr) -> pl.Expr:
    return pl.from_epoch(seconds, time_unit="s").cast(pl.Datetime("us"))


def _runs(parsed: Parsed, parts: pl.DataFrame, own: set[int], start: int) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    """Return (runs of jobs that were stopped and resumed, a line for each such job without a line of its own).

    The wait of a later part counts from the end of the part before. Only the first part has a submission; without it
    the times of all parts are unknown. Parts whose times leave the allowed range are rejected.
    """
    runs: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for _job, group in parts.group_by("job", maintain_order=True):
        rows = group.to_dicts()
        at, ended = rows[0]["submit"], rows[0]["submit"]
        if start + at + sum(max(row["wait"], 0) + max(row["run"], 0) for row in rows) > schema.MOST["s"]:
            why = f"the parts of job {rows[0]['job']} together end after {schema.LAST_UTC} (UTC)"
            parsed.rejects += [Reject(row["line"], why, row["raw"]) for row in rows]
            continue
        for number, row in enumerate(rows):
            begun = ended + max(row["wait"], 0)
            submitted, ended = ended, begun + max(row["run"], 0)
            times = {f"{name}_utc": _ZERO + timedelta(seconds=start + t) if at >= 0 else None
                     for name, t in (("submit", submitted), ("start", begun), ("end", ended))}  # fmt: skip
            runs.append({
                "job_key": str(row["job"]), "attempt": number, **times, "run_s": max(row["run"], 0),
                "state": STATES[row["status"]], "cpus": row["allocated"] if row["allocated"] > 0 else None,
                "line": row["line"],
            })  # fmt: skip
        if rows[0]["job"] not in own:
            total = sum(max(row["run"], 0) for row in rows)
            lines.append({**rows[-1], "submit": at, "wait": rows[0]["wait"], "run": total})
    return runs, pl.DataFrame(lines, schema=parts.schema)


def _put_runs(parsed: Parsed, runs: list[dict[str, Any]], without_own: int) -> None:
    """Replace the single attempt of jobs that were stopped and resumed by their runs; each part is an allocation."""
    if not runs:
        return
    jobs, attempts = parsed.tables["jobs"], parsed.tables["attempts"]
    new = pl.DataFrame(runs, schema={name: attempts.schema[name] for name in runs[0]})
    counts = new.group_by("job_key").agg(pl.len().cast(pl.Int64).alias("attempts"), pl.col("end_utc").max())
    parsed.tables["jobs"] = jobs.update(counts, on="job_key").sort("line")
    kept = attempts.join(new, on="job_key", how="anti")
    parsed.tables["attempts"] = pl.concat([kept, new], how="diagonal").sort("line", "attempt")
    parsed.attempts = len(parsed.tables["attempts"])
    parsed.allocations += len(runs) - without_own
