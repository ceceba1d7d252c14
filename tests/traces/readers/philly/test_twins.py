"""Philly's job log by column and entry by entry: the same rows, the same entries refused, whatever the log holds."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from typing import Any
from zoneinfo import ZoneInfo

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.traces.conftest import Lake
from traces.readers.common import Parsed
from traces.readers.philly import columns as philly_columns
from traces.readers.philly import reader as philly
from traces.readers.philly.columns import pieces, read_piece
from traces.readers.philly.entries import entries

Entry = dict[str, Any]  # a job of the log
ZONE = "America/Los_Angeles"
LAST_DAY = "9999-12-31 23:59:59"
TIMES = st.sampled_from(
    [
        None, "None", "", "2017-10-07 01:00:00", "2017-10-07 02:00:00", "2017-10-08 00:00:00", "2017-11-05 00:30:00",
        "2017-11-05 01:10:00", "2017-11-05 01:50:00", "2017-11-05 02:00:00", "2018-03-11 02:30:00", "2017-1-7 1:00:00",
        "soon", "2017-11-05T01:10:00", "0001-01-01 00:00:00", LAST_DAY, "0000-01-01 00:00:00",
    ]
)  # fmt: skip
PLAIN_GPUS = st.sampled_from(["gpu0", "gpu1", "gpu7", "gpu10", "gpu2"])
GPUS = st.lists(PLAIN_GPUS | st.sampled_from(["gpu", "cpu0", "gpu+1"]), max_size=4)
PLACES = st.fixed_dictionaries({"ip": st.sampled_from(["m1", "m2", "m3"]), "gpus": GPUS | st.none()})
ATTEMPTS = st.fixed_dictionaries(
    {"start_time": TIMES, "end_time": TIMES, "detail": st.lists(PLACES, max_size=3) | st.none()}
)
ENTRIES = st.fixed_dictionaries(
    {
        "status": st.sampled_from(["Pass", "Killed", "Failed"]) | st.sampled_from(["Dead", None]),
        "vc": st.sampled_from(["v", "", None]),
        "jobid": st.sampled_from(["a", "b", "c", "d", 'e"},{"vc"', ""]),
        "attempts": st.lists(ATTEMPTS, max_size=3) | st.none(),
        "submitted_time": TIMES,
        "user": st.sampled_from(["u", "", None]),
    },
)


def both(piece: bytes) -> tuple[dict[str, pl.DataFrame], dict[str, pl.DataFrame], list[Any], list[Any]]:
    by_column, by_entry = Parsed(), Parsed()
    found = read_piece(piece, ZONE)
    assert found is not None
    fast = philly.rows_of(by_column, found, ZoneInfo(ZONE))
    slow = philly.rows_of(by_entry, piece, ZoneInfo(ZONE))
    assert by_column.records == by_entry.records
    return fast, slow, by_column.rejects, by_entry.rejects


@settings(max_examples=80, deadline=None)
@given(st.lists(ENTRIES, max_size=6))
@example([])
@example([{"jobid": "a", "status": "Pass", "vc": "v", "user": "u", "attempts": [], "submitted_time": LAST_DAY}])
def test_the_same_rows_by_column_and_by_entry(log: list[dict[str, Any]]) -> None:
    fast, slow, refused, refused_slowly = both(json.dumps(log).encode())
    assert [(r.line, r.reason) for r in refused] == [(r.line, r.reason) for r in refused_slowly]
    for name, frame in slow.items():
        order = [column for column in ("line", "attempt", "node") if column in frame.columns]
        assert fast[name].select(frame.columns).sort(order).to_dicts() == frame.sort(order).to_dicts(), name


@settings(max_examples=40, deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=8), st.integers(50, 700), st.sampled_from([None, 1, 4]))
def test_pieces_hold_every_entry_once(log: list[dict[str, Any]], size: int, indent: int | None) -> None:
    text = json.dumps(log, indent=indent).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(philly_columns, "PIECE_BYTES", size)
        found = [entry for piece in pieces(io.BytesIO(text)) for entry, broken in entries(piece) if not broken]
    assert found == log


def test_plain_entries_do_not_go_the_slow_way() -> None:
    """Every defect that the README names is read by column; only what is left must be looked at alone."""
    plain: Entry = {
        "status": "Pass", "vc": "v", "jobid": "a", "submitted_time": "2017-10-07 01:00:00", "user": None,
        "attempts": [{"start_time": "None", "end_time": None, "detail": []}],
    }  # fmt: skip
    found = read_piece(json.dumps([plain, {**plain, "attempts": []}, {**plain, "attempts": None}]).encode(), ZONE)
    assert found is not None and (found.entries, found.slow_entries) == (3, [])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_whole_log_is_taken_apart_by_duckdb(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    """The slower source is for lists that DuckDB refuses; a refusal of every list would else be seen by nobody."""
    monkeypatch.setattr(philly, "_pieces", None)
    entry: Entry = {"status": "Pass", "vc": "v", "attempts": [], "submitted_time": "2017-10-07 01:00:00", "user": "u"}
    log = json.dumps([{**entry, "jobid": str(n)} for n in range(5)]).encode()
    (result,) = lake.ingest(lake.put("cluster_job_log", pack(log)), timezone=ZONE)
    assert (result.rows, result.jobs, result.rejects) == (5, 5, 0)


@pytest.mark.parametrize("odd", [{"user": {"a": 1}}, {"vc": ["x"]}])
def test_an_object_in_place_of_a_text_is_no_text(lake: Lake, odd: dict[str, Any]) -> None:
    entry: Entry = {"status": "Pass", "vc": "v", "attempts": [], "submitted_time": None, "user": "u", "jobid": "a"}
    lake.ingest(lake.put("cluster_job_log", json.dumps([entry, {**entry, "jobid": "b", **odd}])), timezone=ZONE)
    assert [(job["user_name"], job["partition"]) for job in lake.rows("jobs")] == [
        ("u", "v"), (None if "user" in odd else "u", None if "vc" in odd else "v"),
    ]  # fmt: skip


def test_half_a_surrogate_pair_in_a_broken_list_is_read(lake: Lake) -> None:
    entry: Entry = {"status": "Pass", "vc": "v", "attempts": [], "submitted_time": None, "jobid": "a"}
    entry["user"] = "\ud800x"
    (result,) = lake.ingest(lake.put("cluster_job_log", json.dumps([entry, {"jobid": []}])[:-2]), timezone=ZONE)
    assert ([job["user_name"] for job in lake.rows("jobs")], result.rejects) == (["?x"], 1)


def test_a_broken_entry_costs_itself_alone(lake: Lake) -> None:
    entry: Entry = {"status": "Pass", "vc": "v", "jobid": "a", "attempts": [], "submitted_time": "2017-10-07 01:00:00"}
    texts = [json.dumps({**entry, "jobid": str(n)}) for n in range(5)]
    texts[2] = texts[2].replace('"attempts": [', '"attempts": [[')
    (result,) = lake.ingest(lake.put("cluster_job_log", f"[{','.join(texts)}]"), timezone=ZONE)
    assert (result.rows, result.jobs, result.rejects) == (5, 4, 1)
    (reject,) = lake.rows("rejects")
    assert reject["line"] == 3 and "broken here" in reject["reason"]


def test_pieces_of_a_file_are_counted_through(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(philly_columns, "PIECE_BYTES", 400)
    entry: Entry = {"status": "Pass", "vc": "v", "attempts": [], "submitted_time": "2017-10-07 01:00:00", "user": "u"}
    log = [{**entry, "jobid": str(n % 30), "status": "Pass" if n != 17 else "Dead"} for n in range(40)]
    (result,) = lake.ingest(lake.put("cluster_job_log", json.dumps(log)), timezone=ZONE)
    assert (result.rows, result.jobs, result.duplicates, result.rejects) == (40, 30 - 1, 10, 1)
    assert lake.rows("rejects")[0]["line"] == 18
    assert [job["line"] for job in lake.rows("jobs") if job["job_key"] == "3"] == [34]
