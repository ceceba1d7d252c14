"""Who was before a waiting job: against a loop over all pairs of jobs, and by hand."""

from __future__ import annotations

from typing import Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from features.causes import precedence
from features.causes.precedence import NEVER, WIDTH

TYPES = {"job_key": pl.String, "partition": pl.Categorical, "user_name": pl.Categorical} | dict.fromkeys(
    ("from", "start", "left", *WIDTH), pl.Int64
)


@st.composite
def queues(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Rows of a queue; some jobs never started, and of some the log does not say when they left."""
    rows = []
    for i in range(draw(st.integers(0, 14))):
        begin = draw(st.integers(0, 12))
        start = draw(st.none() | st.integers(begin, begin + 12))
        left = draw(st.none() | st.integers(begin, begin + 12)) if start is None else start
        widths = {name: draw(st.integers(0, 2)) for name in WIDTH}
        partition, user = draw(st.sampled_from(("p", "q", None))), draw(st.sampled_from(("ann", "bob", "eve", None)))
        rows.append(
            {
                "job_key": str(i),
                "partition": partition,
                "user_name": user,
                "from": begin,
                "start": start,
                "left": left,
                **widths,
            }
        )
    return rows


def frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=TYPES)


def same_user(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one["user_name"] is not None and one["user_name"] == other["user_name"]


def as_wide(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[name] >= other[name] for name in WIDTH)


@settings(max_examples=150, deadline=None)
@given(queues())
def test_who_was_before_is_that_of_a_loop_over_pairs(rows: list[dict[str, Any]]) -> None:
    others, own = [NEVER] * len(rows), [NEVER] * len(rows)
    for i, me in enumerate(rows):
        for j, job in enumerate(rows):
            if i == j or job["partition"] != me["partition"]:
                continue
            is_ahead = (job["from"], j) < (me["from"], i) and job["left"] is not None
            started = me["start"] is not None and job["start"] is not None and me["from"] < job["start"] < me["start"]
            if same_user(job, me):
                own[i] = max(own[i], job["left"]) if is_ahead else own[i]
                continue
            others[i] = max(others[i], job["left"]) if is_ahead else others[i]
            others[i] = max(others[i], job["start"]) if started and as_wide(job, me) else others[i]
    got = precedence.behind_until(frame(rows))
    assert got["job_key"].to_list() == [row["job_key"] for row in rows]
    assert (got["others_until"].to_list(), got["own_until"].to_list()) == (others, own)


@settings(max_examples=150, deadline=None)
@given(queues(), st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 2)), max_size=4))
def test_overtaken_is_that_of_a_loop_over_pairs(rows: list[dict[str, Any]], spans: list[tuple[int, int, int]]) -> None:
    asked = [
        {"partition": partition, "user_name": user, "ask_nodes": nodes, "begin": begin, "until": begin + length}
        for begin, length, nodes in spans for partition in ("p", None) for user in ("ann", None)
    ]  # fmt: skip
    expected = [
        any(
            job["partition"] == one["partition"] and job["user_name"] != one["user_name"]
            and job["nodes"] >= one["ask_nodes"] and job["start"] is not None
            and job["from"] >= one["begin"] and job["start"] < one["until"]
            for job in rows
        )
        for one in asked
    ]  # fmt: skip
    types = {name: TYPES.get(name, pl.Int64) for name in ("partition", "user_name", "ask_nodes", "begin", "until")}
    got = precedence.overtaken(pl.DataFrame(asked, schema=types), frame(rows))
    assert got.tolist() == expected


def row(key: str, begin: int, start: int | None, user: str | None = "eve", **more: Any) -> dict[str, Any]:
    of = {"job_key": key, "partition": "p", "user_name": user, "from": begin, "start": start, "left": start}
    return {**of, **dict.fromkeys(WIDTH, 1), **more}


def before(*rows: dict[str, Any]) -> tuple[int, int]:
    """others_until and own_until of the job `me`."""
    got = precedence.behind_until(frame([*rows])).row(by_predicate=pl.col("job_key") == "me", named=True)
    return got["others_until"], got["own_until"]


ME = row("me", 10, 50, "ann")


def test_an_earlier_job_is_before_until_it_leaves_the_queue() -> None:
    assert before(row("other", 5, 30), ME) == (30, NEVER)
    assert before(row("other", 5, 80), ME) == (80, NEVER)
    assert before(row("own", 5, 30, "ann"), ME) == (NEVER, 30)
    assert before(row("gave up", 5, None, left=40), ME) == (40, NEVER)
    assert before(row("not known", 5, None), ME) == (NEVER, NEVER)
    assert before(row("other", 5, 30, partition="q"), ME) == (NEVER, NEVER)


def test_a_later_job_is_before_only_if_it_is_as_wide_and_starts_first() -> None:
    assert before(row("wide", 11, 40, nodes=2), ME) == (40, NEVER)
    assert before(row("narrow", 11, 40, gpus=0), ME) == (NEVER, NEVER)  # backfill takes nothing from it
    assert before(row("own", 11, 40, "ann"), ME) == (NEVER, NEVER)
    assert before(row("after", 11, 50), ME) == (NEVER, NEVER)


def test_of_a_log_without_users_every_other_job_is_anothers() -> None:
    assert before(row("other", 5, 30, None), row("me", 10, 50, None)) == (30, NEVER)


def test_of_two_at_the_same_second_the_earlier_row_is_first() -> None:
    assert before(row("other", 10, 90), ME) == (90, NEVER)
    assert before(ME, row("other", 10, 90)) == (NEVER, NEVER)
