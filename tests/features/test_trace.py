"""Frames of a trace in little memory: numbers instead of keys, narrow columns, columns taken from a frame."""

from __future__ import annotations

import polars as pl
import pytest

from features.trace import Trace, moved, narrowed, numbered


def keys(*names: str, kind: type[pl.DataType] = pl.String) -> pl.DataFrame:
    return pl.DataFrame({"job_key": pl.Series(names, dtype=kind)})


@pytest.mark.parametrize("kind", [pl.String, pl.Categorical])
def test_numbers_of_jobs_are_in_the_order_of_their_keys(kind: type[pl.DataType]) -> None:
    trace = Trace(
        keys("9", "10", "9_1", kind=kind), keys("9", "9", "10", kind=kind), keys("9_1", kind=kind), pl.DataFrame()
    )
    found = numbered(trace)
    assert found.keys.to_list() == ["10", "9", "9_1"]
    numbers = [frame["job_key"].to_list() for frame in (found.jobs, found.attempts, found.placements)]
    assert numbers == [[1, 0, 2], [1, 1, 0], [2]]
    assert found.jobs.schema["job_key"] == pl.UInt32


def test_an_attempt_of_an_unknown_job_has_no_number() -> None:
    for jobs in (keys("2", "4"), keys()):
        found = numbered(Trace(jobs, keys("1", "3", "5"), keys(), pl.DataFrame()))
        assert found.attempts["job_key"].to_list() == [None] * 3


def test_narrowed_columns_hold_the_same_values() -> None:
    frame = pl.DataFrame(
        {"few": [-1, None, 127], "many": [0, 2**40, None], "time": [1, 2, 3], "share": [0.5, 1.0, None]},
        schema_overrides={"few": pl.Int64, "many": pl.Int64, "time": pl.Int64},
    )
    found = narrowed(frame, "time")
    assert found.schema == {"few": pl.Int8, "many": pl.Int64, "time": pl.Int64, "share": pl.Float64}
    assert found.cast({"few": pl.Int64}).equals(frame)


def test_moved_columns_leave_the_frame() -> None:
    frame = keys("1", "2")
    taken = moved(frame)
    assert taken["job_key"].to_list() == ["1", "2"]
    assert frame.columns == []
