"""Fast reader of Philly's job log, by whole columns, for entries that follow the documented format.

The list is cut between entries into pieces. Each piece is parsed against the schema, and all its jobs are computed at
once. `traces.readers.philly.entries` makes the same rows in plain Python for the other entries: those that may be
invalid, and those with a time in the repeated hour of a clock change.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import IO, Any
from zoneinfo import ZoneInfo

import numpy as np
import orjson
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from traces.arrays import Int64s
from traces.readers.philly.entries import BOUNDARY, STATUS
from traces.readers.raw_text import LONGEST_LINE

PIECE_BYTES = 1 << 24
_DETAIL = pl.List(pl.Struct({"ip": pl.String, "gpus": pl.List(pl.String)}))
SCHEMA: dict[str, Any] = {
    "status": pl.String, "vc": pl.String, "jobid": pl.String,
    "attempts": pl.List(pl.Struct({"start_time": pl.String, "end_time": pl.String, "detail": _DETAIL})),
    "submitted_time": pl.String, "user": pl.String,
}  # fmt: skip
DUCKDB = {  # the machines of an attempt stay JSON text: a few texts repeat often, and each is parsed once
    "status": "VARCHAR", "vc": "VARCHAR", "jobid": "VARCHAR",
    "attempts": "STRUCT(start_time VARCHAR, end_time VARCHAR, detail VARCHAR)[]",
    "submitted_time": "VARCHAR", "user": "VARCHAR",
}  # fmt: skip
_BOUNDARY = re.compile(BOUNDARY.pattern.encode())
_FIRST, _LAST = -86_400, 4_102_444_800  # 1969-12-31 and 2100, local: the slow path handles times beyond them
_NEVER = np.iinfo(np.int64).min  # a missing time
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Columns:
    """Rows of the tables jobs, attempts and placements, without those of `slow_entries` (number from 0, entry)."""

    entries: int
    jobs: pl.DataFrame
    attempts: pl.DataFrame
    placements: pl.DataFrame
    slow_entries: list[tuple[int, dict[str, Any]]]


def pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the list in pieces of about PIECE_BYTES, each a list of whole entries; the last may be cut off."""
    rest = stream.read(PIECE_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not rest.startswith(b"["):
        yield rest  # not a list: the remaining text is not read
        return
    rest = rest[1:]
    while True:
        block = stream.read(PIECE_BYTES)
        if not block:
            yield b"[" + rest
            return
        rest += block
        cut = _last_boundary(rest)
        if cut is not None:
            yield b"".join((b"[", memoryview(rest)[: cut.start() + 1], b"]"))
            rest = rest[cut.end() :]
        elif len(rest) > LONGEST_LINE:
            yield b"[" + rest  # rejected as one entry
            rest = b""


def _last_boundary(text: bytes) -> re.Match[bytes] | None:
    """Find the last place between two entries, in growing parts of the text's end."""
    window = 1 << 14
    while True:
        boundaries = deque(_BOUNDARY.finditer(text, max(0, len(text) - window)), maxlen=1)
        if boundaries or window >= len(text):
            return boundaries[0] if boundaries else None
        window *= 8


def read_piece(piece: bytes, zone: str) -> Columns | None:
    """Return the piece's rows, with `line` counted from 1 in the piece; None if it is not JSON of the schema."""
    try:
        return columns_of(pl.read_json(piece, schema=SCHEMA), zone)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None


def columns_of(entries: pl.DataFrame, zone: str) -> Columns:
    """Return the rows of entries in SCHEMA or DUCKDB. Arrays are over jobs (n), attempts (m) and their machines (k).

    Raises PolarsError or ValueError for details that are not JSON of the schema.
    Over 50 lines: three tables, column after column, from the same arrays.
    """
    n = len(entries)
    runs = entries["attempts"].list.len().fill_null(0).to_numpy().astype(np.int64)
    first = np.concatenate([[0], np.cumsum(runs)])  # index of each job's first attempt; shape (n + 1,)
    job = np.repeat(np.arange(n), runs)
    listed = entries["attempts"].filter(pl.Series(runs > 0))
    tries = listed.explode(empty_as_null=False).struct.unnest() if len(job) else _no_attempts()
    machines = _Machines(tries["detail"])
    submit, slow = _utc(entries["submitted_time"], zone)
    start, slow_start = _utc(tries["start_time"], zone)
    end, slow_end = _utc(tries["end_time"], zone)
    both = (start != _NEVER) & (end != _NEVER)
    status = entries["status"].replace_strict(STATUS, default=None, return_dtype=pl.String)
    slow |= (entries["jobid"].fill_null("").eq("") | status.is_null()).to_numpy()
    slow |= _any(machines.slow | slow_start | slow_end | (both & (end < start)), job, n)
    keep = ~slow[job]
    seconds = np.where(both, end - start, 0)
    last = first[1:] - 1
    has = runs > 0
    ends = np.where(has, _at(end, last), _NEVER)
    running = has & (_at(start, last) != _NEVER) & (ends == _NEVER)
    state = pl.select(pl.when(pl.Series(running)).then(pl.lit("RUNNING")).otherwise(status)).to_series()
    begun = _least(start, first)
    known = np.bincount(job, both, n) > 0
    waited = has & (_at(start, first[:-1]) != _NEVER) & (submit != _NEVER) & (begun >= submit)
    lines = pl.Series("line", np.arange(1, n + 1))
    jobs = pl.DataFrame({
        "line": lines, "job_key": entries["jobid"], "job_id": entries["jobid"], "user_name": _blank(entries["user"]),
        "partition": _blank(entries["vc"]), "state": state, "state_is_inferred": pl.repeat(False, n, eager=True),
        "submit_utc": _time(submit), "start_utc": _time(begun), "end_utc": _time(ends),
        "requested_nodes": _where(has, _at(machines.nodes, first[:-1])),
        "requested_gpus": _where(has, _at(machines.gpus, first[:-1])),
        "allocated_nodes": np.where(has, _at(machines.nodes, last), 0),
        "allocated_gpus": np.where(has, _at(machines.gpus, last), 0),
        "run_s": _where(known, _sum(seconds, first)), "wait_s": _where(waited, np.where(waited, begun - submit, 0)),
        "gpu_time_s": _where(known, _sum(seconds * machines.gpus, first)), "attempts": runs,
        "is_time_ambiguous": pl.repeat(False, n, eager=True),
    })  # fmt: skip
    number = np.arange(len(job)) - first[job]
    is_last = number == runs[job] - 1
    queued = np.where(number == 0, submit[job], np.roll(end, 1) if len(end) else end)
    attempts = pl.DataFrame({
        "line": job + 1, "job_key": entries["jobid"].gather(job), "attempt": number, "submit_utc": _time(queued),
        "start_utc": _time(start), "end_utc": _time(end), "run_s": _where(both, seconds),
        "state": pl.select(pl.when(pl.Series(is_last)).then(state.gather(job)).otherwise(pl.lit("FAILED"))).to_series(),
        "nodes": machines.nodes, "gpus": machines.gpus, "gpu_time_s": _where(both, seconds * machines.gpus),
    })  # fmt: skip
    owner = machines.attempt
    placements = pl.DataFrame({
        "line": job[owner] + 1, "job_key": attempts["job_key"].gather(owner), "attempt": number[owner],
        "node": machines.node, "gpus": machines.counts, "gpu_numbers": machines.numbers,
    })  # fmt: skip
    return Columns(
        n, jobs.filter(pl.Series(~slow)), attempts.filter(pl.Series(keep)), placements.filter(pl.Series(keep[owner])),
        list(zip(np.flatnonzero(slow).tolist(), _objects(entries.filter(pl.Series(slow))), strict=True)),
    )  # fmt: skip


def _objects(entries: pl.DataFrame) -> list[dict[str, Any]]:
    """Return the entries as in the log, with details parsed if they are JSON text."""
    objects = entries.to_dicts()
    for attempt in (attempt for entry in objects for attempt in entry["attempts"] or [] if attempt):
        if isinstance(attempt["detail"], str):
            attempt["detail"] = orjson.loads(attempt["detail"])
    return objects


class _Machines:
    """The details of m attempts: totals of each attempt, and a row for each machine. Equal JSON is read once."""

    def __init__(self, details: pl.Series) -> None:
        m = len(details)
        code = np.arange(m)  # index of each attempt's details among the d distinct ones
        if details.dtype == pl.String:
            distinct = details.unique()
            numbers = pl.int_range(len(distinct), eager=True)
            code = details.replace_strict(distinct, numbers, return_dtype=pl.Int64).to_numpy()
            details = distinct.str.json_decode(_DETAIL)
        lengths = details.list.len().fill_null(0).to_numpy().astype(np.int64)
        owner = np.repeat(np.arange(len(details)), lengths)
        listed = details.filter(pl.Series(lengths > 0))
        rows = listed.explode(empty_as_null=False).struct.unnest() if len(owner) else _no_machines()
        counts = rows["gpus"].list.len().fill_null(0).to_numpy().astype(np.int64)
        texts, odd = _numbers(rows["gpus"], counts)
        several = pl.DataFrame({"a": owner, "ip": rows["ip"]}).filter(pl.Series(lengths[owner] > 1))
        slow = _any(odd | rows["ip"].is_null().to_numpy(), owner, len(details))
        slow[several.filter(several.is_duplicated())["a"].to_numpy()] = True
        self.slow, self.nodes = slow[code], lengths[code]
        self.gpus = np.bincount(owner, counts, len(details)).astype(np.int64)[code]
        self.attempt = np.repeat(np.arange(m), self.nodes)
        before = np.cumsum(self.nodes) - self.nodes
        row = np.arange(len(self.attempt)) + ((np.cumsum(lengths) - lengths)[code] - before)[self.attempt]
        self.node, self.counts, self.numbers = rows["ip"].gather(row), pl.Series(counts[row]), texts.gather(row)


def _numbers(lists: pl.Series, counts: Int64s) -> tuple[pl.Series, Flags]:
    """Return (the ascending numbers of each list of GPUs, such as 0,1,5; whether it has names other than gpuN)."""
    if not counts.any():
        return pl.repeat("", len(lists), eager=True), np.zeros(len(lists), dtype=np.bool_)
    owner = np.repeat(np.arange(len(lists)), counts)
    names = lists.filter(pl.Series(counts > 0)).explode(empty_as_null=False)
    digits = names.str.strip_prefix("gpu")
    number = digits.cast(pl.UInt16, strict=False)
    plain = names.str.starts_with("gpu") & digits.str.contains(r"^\d{1,4}$")
    odd = (number.is_null() | ~plain).fill_null(True).to_numpy()
    values = number.fill_null(0).to_numpy()
    if np.any((np.diff(values.astype(np.int64)) < 0) & (owner[1:] == owner[:-1])):
        digits = digits.gather(np.lexsort((values, owner)))
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    regrouped = pa.ListArray.from_arrays(
        pl.Series(offsets).to_arrow(), digits.fill_null("").to_arrow().cast(pa.string())
    )
    return pl.Series(pl.from_arrow(regrouped)).list.join(","), _any(odd, owner, len(lists))


def _no_attempts() -> pl.DataFrame:
    return pl.DataFrame(schema=SCHEMA["attempts"].inner.to_schema())


def _no_machines() -> pl.DataFrame:
    return pl.DataFrame(schema={"ip": pl.String, "gpus": pl.List(pl.String)})


def _any(flags: Flags, groups: Int64s, n: int) -> Flags:
    """Return whether the flag is set anywhere in each of n groups."""
    is_set = np.zeros(n, dtype=np.bool_)
    is_set[groups[flags]] = True
    return is_set


def _at(values: Int64s, index: Int64s) -> Int64s:
    """Return values[index]; 0 if there are no values."""
    return values[np.clip(index, 0, len(values) - 1)] if len(values) else np.zeros(len(index), np.int64)


def _sum(values: Int64s, first: Int64s) -> Int64s:
    """Return the sum over each job's attempts."""
    total: Int64s = np.concatenate([[0], np.cumsum(values)])
    return total[first[1:]] - total[first[:-1]]


def _least(values: Int64s, first: Int64s) -> Int64s:
    """Return the earliest time of each job's attempts; _NEVER without one."""
    most = np.iinfo(np.int64).max
    padded = np.append(np.where(values == _NEVER, most, values), most)
    lowest = np.minimum.reduceat(padded, first[:-1]) if len(first) > 1 else padded[:0]
    least: Int64s = np.where((first[1:] > first[:-1]) & (lowest != most), lowest, _NEVER)
    return least


def _where(valid: Flags, values: Int64s) -> pl.Series:
    """Return the values, null where they are not valid."""
    return pl.Series(values).set(pl.Series(~valid), None)


def _time(seconds: Int64s) -> pl.Series:
    micros = np.where(seconds == _NEVER, 0, seconds) * 1_000_000
    return pl.Series(micros).cast(pl.Datetime("us")).set(pl.Series(seconds == _NEVER), None)


def _blank(values: pl.Series) -> pl.Series:
    return values.set(values == "", None)


def _utc(texts: pl.Series, zone: str) -> tuple[Int64s, Flags]:
    """Convert local times to (epoch seconds, whether the slow path must read it); null, 'None' and '' give _NEVER."""
    parsed = texts.str.to_datetime("%Y-%m-%d %H:%M:%S", time_unit="ms", strict=False).to_physical()
    slow = (texts.str.len_bytes() != 19).fill_null(False).to_numpy().copy()
    missing = parsed.is_null().to_numpy()
    if missing.any():
        without = texts.filter(parsed.is_null())
        slow[missing] = (without.is_not_null() & ~without.is_in(["None", ""])).fill_null(False).to_numpy()
    if missing.all():
        return np.full(len(texts), _NEVER), slow
    exact = parsed.fill_null(0).to_numpy() // 1_000
    local = np.clip(exact, _FIRST, _LAST - 1)
    slow |= local != exact
    known = local[~missing]
    changes, offsets, doubled = _offsets(zone, _year(known.min()), _year(known.max()))
    for since, until in doubled:
        slow |= ~missing & (local >= since) & (local < until)
    utc = local - offsets[np.searchsorted(changes, local, side="right")]
    return np.where(missing, _NEVER, utc), slow


def _year(seconds: np.int64) -> int:
    return datetime.fromtimestamp(int(seconds), UTC).year


@lru_cache(maxsize=64)
def _offsets(zone: str, since: int, until: int) -> tuple[Int64s, Int64s, list[tuple[int, int]]]:
    """Return (local seconds of offset changes; offsets before, between and after them; repeated hours) of some years.

    A time in the hour that a change skips is read with the offset before it.
    """
    tz = ZoneInfo(zone)

    def offset(at: int) -> int:
        delta = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=at)).astimezone(tz).utcoffset()
        return int(delta.total_seconds()) if delta else 0

    day = 86_400
    low = int((datetime(max(since, 2), 1, 1) - datetime(1970, 1, 1)).total_seconds()) - 2 * day
    high = int((datetime(min(until, 9998) + 1, 1, 1) - datetime(1970, 1, 1)).total_seconds()) + 2 * day
    changes: list[int] = []
    offsets = [offset(low)]
    doubled = []
    for end in range(low + day, high + day, day):
        after = offset(end)
        if after == offsets[-1]:
            continue
        begin, instant = end - day, end
        while instant - begin > 1:
            middle = (begin + instant) // 2
            begin, instant = (middle, instant) if offset(middle) == offsets[-1] else (begin, middle)
        changes.append(instant + max(offsets[-1], after))
        if after < offsets[-1]:
            doubled.append((instant + after, instant + offsets[-1]))
        offsets.append(after)
    return np.array(changes, dtype=np.int64), np.array(offsets, dtype=np.int64), doubled
