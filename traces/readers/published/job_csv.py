"""Shared parts of the readers of published job logs: one line a job, at most one run for each job.

A reader of a CSV declares its header and `fields`, and converts them in `meaning`. This module splits lines, collects
rejects, converts times and makes the canonical tables, a column at a time. `fill_jobs` serves all readers of such logs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl

from traces.errors import InputError
from traces.readers.common import HEAD_BYTES, Parsed, RawFile, Reject, localized, shown
from traces.readers.csv_lines import BLANK, header_names, parse_text, split_lines
from traces.readers.plausible import implausible
from traces.readers.raw_text import UNREADABLE, numbered_lines
from traces.readers.sacct.times import settle_hour

TIMES = ("submit", "eligible", "start", "end")
_UTC = pl.Datetime("us")
# Columns that `fill_jobs` needs; null where the log does not record them.
_PLAIN: dict[str, Any] = {
    "job_id": pl.String, "state": pl.String, **{f"{name}_utc": _UTC for name in TIMES}, "requested_nodes": pl.Int64,
    "requested_cpus": pl.Int64, "requested_gpus": pl.Int64, "requested_mem_mib": pl.Int64, "run_s": pl.Int64,
    "gpu_time_s": pl.Int64, "gpu_part": pl.Float64,
}  # fmt: skip


@dataclass(frozen=True)
class CsvColumn:
    """One column of a published CSV: `source` is its name in the header; `name` its name in `jobs` or for `meaning`.

    A name that ends in `_local` (submit, eligible, start, end) becomes `_utc`, read in the cluster's zone.
    """

    name: str
    source: str
    value: Callable[[pl.Series], pl.Series] = parse_text
    required: bool = False


class JobCsv(ABC):
    """A CSV with a header and one line a job."""

    name: str
    version = 2
    header: tuple[str, ...]  # required columns, by which the format is recognised
    foreign: tuple[str, ...] = ()  # columns that only a similar format has
    fields: tuple[CsvColumn, ...]
    has_ids = True  # without ids the line identifies a job, and equal lines are different jobs

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the header holds the format's columns and none of a similar format's."""
        names = header_names(head.split(b"\n", 1)[0])
        return set(self.header) <= set(names) and not set(self.foreign) & set(names)

    @abstractmethod
    def meaning(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Convert `rows` (line, raw, the fields, UTC times) to columns of the table `jobs`.

        A row whose start is null never ran, unless it has a `run_s`. `wrong` may hold the reason to reject a row.
        """

    def read(self, file: RawFile) -> Parsed:
        """Read all jobs. Raises InputError where a column is missing or no line follows the header."""
        parsed = Parsed()
        frames = []
        try:
            with file.open() as stream:
                names = header_names(stream.readline(HEAD_BYTES))
                missing = [name for name in self.header if name not in names]
                if missing or len(set(names)) < len(names):
                    what = f"column {missing[0]} is missing" if missing else "a column is named twice"
                    raise InputError(f"{file.path}:1: {what}: format {self.name} has {', '.join(self.header)}")
                for lines in numbered_lines(stream, 2, file.path):
                    parsed.records += len(lines)
                    frames.append(self._rows(parsed, file, split_lines(parsed, lines, names)))
        except UNREADABLE as error:
            raise InputError(f"{file.path}: cannot be read: {error}: is the file whole?") from error
        if not parsed.records:
            raise InputError(f"{file.path}: no job under the header")
        fill_jobs(parsed, self.meaning(pl.concat(frames)), has_ids=self.has_ids)
        return parsed

    def _rows(self, parsed: Parsed, file: RawFile, rows: pl.DataFrame) -> pl.DataFrame:
        """Return (line, raw, fields, UTC times) of the rows in which every text has the required form."""
        columns = [rows["line"], rows["raw"]]
        wrong = pl.repeat(None, len(rows), dtype=pl.String, eager=True)
        for field in self.fields:
            if field.source not in rows.columns:
                columns.append(field.value(pl.repeat(None, len(rows), dtype=pl.String, eager=True)).alias(field.name))
                continue
            texts = rows[field.source]
            blank = texts.is_in(["", " "]) if field.value is parse_text else texts.str.strip_chars().is_in(BLANK)
            texts = texts.set(blank, None)
            value = field.value(texts)
            bad = value.is_null() if field.required else value.is_null() & ~blank
            if bad.any():
                why = [f"{field.source} {shown(v)} has the wrong form" if v else f"{field.source} is missing"
                        for v in texts.filter(bad)]  # fmt: skip
                new = pl.DataFrame({"at": bad.arg_true(), "why": why}, schema={"at": pl.UInt32, "why": pl.String})
                wrong = wrong.scatter(new["at"], new["why"]) if wrong.null_count() == len(wrong) else _first(wrong, new)
            columns.append(value.alias(field.name))
        frame = pl.DataFrame(columns)
        frame = frame.with_columns(pl.coalesce(wrong, implausible(frame)).alias("wrong"))
        return to_utc(refuse(parsed, frame), file.settings.timezone)


def _first(old: pl.Series, new: pl.DataFrame) -> pl.Series:
    """Return the reasons `old`, completed with `new` where there are none."""
    return old.scatter(new["at"], old.gather(new["at"]).zip_with(old.gather(new["at"]).is_not_null(), new["why"]))


def refuse(parsed: Parsed, rows: pl.DataFrame) -> pl.DataFrame:
    """Return the rows without a reason in `wrong`; add the others to the rejects."""
    for line, raw, why in rows.filter(pl.col("wrong").is_not_null()).select("line", "raw", "wrong").iter_rows():
        parsed.rejects.append(Reject(line, why, raw))
    return rows.filter(pl.col("wrong").is_null()).drop("wrong")


def to_utc(rows: pl.DataFrame, zone: str) -> pl.DataFrame:
    """Convert `<time>_local` to `<time>_utc`, and add `is_time_ambiguous`.

    The repeated hour of a clock change is settled from `elapsed_s` where the rows have it, else from the order of
    events and `limit_s`. A time that nothing settles is read as the earlier one and flagged.
    """
    recorded = [name for name in TIMES if f"{name}_local" in rows.columns]
    plain = rows.with_columns(pl.lit(False).alias("is_time_ambiguous"))
    if not recorded:
        return plain
    both = {name: localized(pl.col(f"{name}_local"), zone) for name in recorded}
    plain = plain.with_columns(
        **{f"{name}_utc": early for name, (early, _) in both.items()},
        **{f"{name}_utc_late": late for name, (_, late) in both.items()},
    ).drop([f"{name}_local" for name in recorded])
    doubled = pl.any_horizontal(pl.col(f"{name}_utc") != pl.col(f"{name}_utc_late") for name in recorded)
    unsettled = plain.with_row_index("at").filter(doubled.fill_null(False))
    settled = []
    absent = {"elapsed_s": None, "suspended_s": 0, "limit_s": None}
    for name in TIMES:
        absent |= {f"{name}_utc": None, f"{name}_utc_late": None}
    for row in unsettled.iter_rows(named=True):
        times, ambiguous = settle_hour({**absent, **row})
        named = {f"{name}_utc": time for name, time in zip(TIMES, times, strict=True) if name in recorded}
        settled.append({"at": row["at"], **named, "is_time_ambiguous": ambiguous})
    if settled:
        kinds: dict[str, Any] = {"at": pl.UInt32, **{f"{name}_utc": _UTC for name in recorded}}
        new = pl.DataFrame(settled, schema={**kinds, "is_time_ambiguous": pl.Boolean})
        plain = plain.with_row_index("at").update(new, on="at").drop("at")
    return plain.drop([f"{name}_utc_late" for name in recorded])


def fill_jobs(parsed: Parsed, rows: pl.DataFrame, *, has_ids: bool = True) -> None:
    """Fill `parsed` from rows (line, raw, columns of the table `jobs`): jobs, one attempt for each that ran, counts.

    Of several rows with one id, the one that ended last is kept (of ties the last row); the others are duplicates.
    """
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in _PLAIN.items() if name not in rows.columns]
    rows = rows.with_columns(missing)
    rows = refuse(parsed, rows.with_columns(pl.coalesce(_out_of_order(rows), implausible(rows)).alias("wrong")))
    if not has_ids:
        rows = rows.with_columns(job_id="line " + pl.col("line").cast(pl.String))
    else:
        total = len(rows)
        order = rows.sort("end_utc", "line", nulls_last=False, maintain_order=True)
        rows = order.unique("job_id", keep="last").sort("line")
        parsed.duplicates += total - len(rows)
    ran = pl.col("start_utc").is_not_null() | (pl.col("run_s") > 0).fill_null(False)
    rows = rows.with_columns(
        run_s=pl.when(ran).then(pl.coalesce("run_s", _span("start_utc", "end_utc"))),
        attempts=ran.cast(pl.Int64),
    )
    gpus = pl.col("allocated_gpus") if "allocated_gpus" in rows.columns else pl.col("requested_gpus")
    held = [
        pl.when(ran).then(pl.col(f"allocated_{what}") if f"allocated_{what}" in rows.columns
                          else pl.col(f"requested_{what}")).otherwise(0).alias(f"allocated_{what}")
        for what in ("nodes", "cpus", "gpus", "mem_mib")
    ]  # fmt: skip
    jobs = rows.with_columns(
        job_key=pl.col("job_id"),
        state_is_inferred=pl.col("state_is_inferred") if "state_is_inferred" in rows.columns else pl.lit(False),
        wait_s=_span("submit_utc", "start_utc"),
        eligible_wait_s=_span("eligible_utc", "start_utc"),
        gpu_time_s=pl.when(ran).then(pl.coalesce("gpu_time_s", gpus * pl.col("run_s"))),
    ).with_columns(held)
    jobs = refuse(parsed, jobs.with_columns(implausible(jobs)))
    attempts = jobs.filter(pl.col("attempts") == 1).select(
        "job_key", pl.lit(0, dtype=pl.Int64).alias("attempt"), "submit_utc", "start_utc", "end_utc", "run_s", "state",
        *(pl.col(f"allocated_{what}").alias(what) for what in ("nodes", "cpus", "gpus", "mem_mib")),
        "gpu_part", "gpu_time_s", "line",
    )  # fmt: skip
    parsed.rejects.sort(key=lambda reject: reject.line)
    parsed.allocations = parsed.jobs = len(jobs)
    parsed.attempts = len(attempts)
    parsed.tables = {"jobs": jobs.drop("raw", "gpu_part"), "attempts": attempts}


def _span(since: str, until: str) -> pl.Expr:
    return (pl.col(until) - pl.col(since)).dt.total_seconds()


def _out_of_order(rows: pl.DataFrame) -> pl.Series:
    """Return why a row's times contradict each other, or null. Rows with ambiguous times are not checked."""
    pairs = [("submit", "eligible"), ("submit", "start"), ("eligible", "start"), ("start", "end"), ("submit", "end")]
    reason = pl.lit(None, dtype=pl.String)
    for before, after in reversed(pairs):
        why = pl.format(
            f"{after} {{}} lies before {before} {{}} (UTC)", pl.col(f"{after}_utc"), pl.col(f"{before}_utc")
        )
        wrong = (pl.col(f"{after}_utc") < pl.col(f"{before}_utc")) & ~pl.col("is_time_ambiguous")
        reason = pl.when(wrong).then(why).otherwise(reason)
    first_wrong = pl.col("wrong") if "wrong" in rows.columns else pl.lit(None, dtype=pl.String)
    return rows.select(pl.coalesce(first_wrong, reason).alias("wrong"))["wrong"]
