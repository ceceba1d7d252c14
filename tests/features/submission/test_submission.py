"""The observation of one job: against plain Python, against `observe`, and blind to everything that came later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from features.observe import FEATURES as OF_PAIRS
from features.observe import observe
from features.submission.index import (
    AHEAD,
    AHEAD_AT,
    FEATURES,
    GROUPS,
    SHARED,
    TALLIED,
    SubmissionRequest,
    fill_submission,
)
from features.submission.log import CPUS, NODES, SubmissionLog, submissions_of, why_not_rebuilt
from features.submission.observed import observe_log
from features.submission.shape import shapes
from features.submission.tally import tallies
from simulator.recorded.parameters import infer_parameters
from simulator.recorded.record import NEVER, RecordedTrace, events
from tests.features.submission.logs import ORIGIN_S, generated_log
from tests.features.submission.tally_twin import plain_tallies
from tests.features.test_observe import snapshot
from traces.units import DAY_S

AT = {name: at for at, name in enumerate(FEATURES)}


def test_names_are_distinct_and_end_where_they_should() -> None:
    assert len(set(FEATURES)) == len(FEATURES)
    assert FEATURES[AHEAD_AT] == AHEAD[0]
    assert len(FEATURES) == AHEAD_AT + len(AHEAD) + len(GROUPS) * len(TALLIED)


def test_what_is_shared_with_pairs_is_the_same_number() -> None:
    seen = snapshot(pending_nodes=np.array([4, 1, 2]), pending_limit_s=np.array([3600, 7200, 3600]),
                    pending_submit_s=np.array([1_699_990_000] * 3))  # fmt: skip
    out = np.zeros(len(FEATURES), np.float32)
    fill_submission(out, seen, SubmissionRequest(64.0, 24.0, 2.0, 900.0, 1.0))
    pair = dict(zip(OF_PAIRS, observe(seen), strict=True))
    assert {name: float(out[AT[name]]) for name in SHARED} == {name: float(pair[name]) for name in SHARED}
    found = {name: float(out[AT[name]]) for name in ("size", "limit_h", "size_h", "cpus", "gpus", "priority")}
    assert found == {"size": 8, "limit_h": 48, "size_h": 384, "cpus": 64, "gpus": 24, "priority": 900}


def test_what_is_ahead_leaves_out_the_held_and_those_behind() -> None:
    seen = snapshot(
        pending_nodes=np.array([4, 1, 2, 3]),
        pending_limit_s=np.array([3600, 60 * 3600, 3600, 3600]),
        pending_submit_s=np.array([1_699_990_000] * 4),
    )
    seen = seen._replace(pending_held=np.array([0, 0, 1, 0]), pending_user=np.array([7, 8, 8, 8]), successor_place=3)
    out = np.zeros(len(FEATURES), np.float32)
    fill_submission(out, seen, SubmissionRequest(0.0, 0.0, 0.0, 0.0, 0.0))
    found = dict(zip(AHEAD, out[AHEAD_AT : AHEAD_AT + len(AHEAD)].tolist(), strict=True))
    assert found == {
        "ahead_jobs": 2, "ahead_size": 5, "ahead_size_h": 64, "ahead_others_jobs": 1, "ahead_fitting_jobs": 1,
        "behind_jobs": 1, "running_ending_1h_jobs": 1, "fits_now": 0,
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_tallies_are_those_of_plain_python(seed: int) -> None:
    log = generated_log(seed, jobs=120, days=4)
    wanted = np.random.default_rng(seed).random(len(log.record)) < 0.7
    found = tallies(log.record, events(log.record), log.group_codes, wanted)
    assert np.allclose(found, plain_tallies(log.record, log.group_codes, wanted), rtol=1e-5, atol=1e-5)


def futures(log: SubmissionLog, from_s: int, rng: np.random.Generator) -> SubmissionLog:
    """The same log up to an instant; what comes then is drawn anew: arrivals, starts, ends, cancellations."""
    record = log.record
    later, alive = record.submit_s >= from_s, record.end_s >= from_s
    anew = np.maximum(record.submit_s, from_s) + rng.integers(1, 5 * DAY_S, len(record))
    starts = np.where(alive & (record.start_s >= from_s), anew, record.start_s)
    ends = np.where(alive, np.maximum(starts, from_s) + rng.integers(1, 3 * DAY_S, len(record)), record.end_s)
    sizes, limits = record.size.copy(), record.limit_s.copy()
    sizes[later], limits[later] = rng.integers(1, 9, later.sum()), rng.integers(600, DAY_S, later.sum())
    users = np.where(later, rng.integers(0, 7, len(record)), record.user)
    changed = RecordedTrace(record.submit_s, starts, ends, sizes, limits, users, record.priority, record.job_key)
    return replace(log, record=changed)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_of_what_comes_later_reaches_an_observation(seed: int) -> None:
    log = generated_log(seed)
    record, from_s = log.record, ORIGIN_S + 8 * DAY_S
    rules = infer_parameters(record, ORIGIN_S + 6 * DAY_S)
    early = record.submit_s < from_s
    changed = futures(log, from_s, np.random.default_rng(seed))
    assert (changed.record.start_s != record.start_s).sum() > 50
    seen, again = observe_log(log, rules, early), observe_log(changed, rules, early)
    assert seen.shape == (early.sum(), len(FEATURES)) and np.isfinite(seen).all()
    differing = [FEATURES[column] for column in np.flatnonzero((seen != again).any(axis=0))]
    assert not differing


def test_a_job_does_not_see_its_own_start() -> None:
    log = generated_log(1)
    record, row = log.record, 200
    rules = infer_parameters(record, ORIGIN_S + 6 * DAY_S)
    wanted = np.arange(len(record)) == row
    start, end = record.start_s.copy(), record.end_s.copy()
    start[row], end[row] = record.submit_s[row] + 5 * DAY_S, record.submit_s[row] + 6 * DAY_S
    other = replace(log, record=replace(record, start_s=start, end_s=end))
    assert (observe_log(log, rules, wanted) == observe_log(other, rules, wanted)).all()


def test_jobs_of_one_second_see_those_before_them() -> None:
    log = generated_log(2)
    record = replace(log.record, submit_s=np.sort(log.record.submit_s // DAY_S * DAY_S))
    start = np.maximum(record.start_s, record.submit_s)
    end = np.maximum(record.end_s, np.where(start < NEVER, start + 1, record.submit_s))
    record = replace(record, start_s=start, end_s=end)
    seen = observe_log(replace(log, record=record), infer_parameters(record, ORIGIN_S), np.ones(len(record), bool))
    first = np.flatnonzero(record.submit_s == record.submit_s[150])
    pending = seen[first, AT["everybody_pending_jobs"]]
    assert (np.diff(pending) == 1).all()
    assert (np.diff(seen[first, AT["pending_jobs"]]) == 1).all()


def jobs_frame(**changes: object) -> pl.DataFrame:
    columns: dict[str, object] = {
        "job_key": ["1", "2"], "job_id": ["1", "2"], "job_id_raw": [1, 2], "array_job_id": [None, 1],
        "array_task_id": [None, 4], "submit_utc": [1_000_000, 3_000_000], "start_utc": [2_000_000, 9_000_000],
        "end_utc": [5_000_000, 20_000_000], "run_s": [3, 11], "allocated_nodes": [3, 3], "requested_nodes": [2, None],
        "requested_cpus": [8, None], "allocated_cpus": [None, 16], "requested_gpus": [4, None],
        "allocated_gpus": [None, None], "requested_mem_mib": [2048, None], "user_name": ["ann", None],
        "account": [None, "x"], "partition": ["p", "q"], "qos": [None, None], "priority": [7, None],
        "is_open": [False, False], "limit_s": [60, None],
    }  # fmt: skip
    frame = pl.DataFrame({**columns, **changes}, strict=False)
    times = [pl.col(name).cast(pl.Datetime("us")) for name in ("submit_utc", "start_utc", "end_utc")]
    return frame.with_columns(*times, pl.col("qos", "account", "user_name").cast(pl.String))


def test_a_log_holds_what_was_asked_for_in_the_order_of_the_record() -> None:
    log = submissions_of(jobs_frame(), default_limit_s=99)
    assert log.unit == NODES and log.record.size.tolist() == [2, 3] and log.record.limit_s.tolist() == [60, 99]
    assert log.asked.tolist() == [[8, 4, 2, 7, 0], [16, 0, 0, 0, 1]]
    assert log.names == {"user": ["ann", ""], "account": ["", "x"], "partition": ["p", "q"], "qos": ["", ""]}
    none = {"allocated_nodes": [None, None], "requested_nodes": [None, None]}
    by_cpus = submissions_of(
        jobs_frame(**none).with_columns(pl.col("allocated_nodes", "requested_nodes").cast(pl.Int64)),
        default_limit_s=99,
    )
    assert by_cpus.unit == CPUS and by_cpus.record.size.tolist() == [8, 16]


def test_shapes_part_sizes_and_limits_by_powers_of_two() -> None:
    size, limit = np.array([1, 2, 3, 4, 1]), np.array([900, 900, 900, 900, 1801])
    found = shapes(size, limit)
    assert found[2] == found[3] and len(set(found.tolist())) == 4


def test_a_log_of_jobs_that_all_waited_or_were_chosen_by_their_end_is_not_rebuilt() -> None:
    log = generated_log(0)
    assert why_not_rebuilt(log) is None
    waited = replace(log.record, start_s=log.record.start_s + 3600, end_s=log.record.end_s + 3600)
    assert "within a minute" in str(why_not_rebuilt(replace(log, record=waited)))
    ended = ORIGIN_S + 20 * DAY_S
    chosen = replace(log.record, end_s=np.where(log.record.ran, ended, log.record.end_s))
    assert "selected by end time" in str(why_not_rebuilt(replace(log, record=chosen)))
    nobody = replace(log.record, start_s=np.full(len(log.record), NEVER))
    assert why_not_rebuilt(replace(log, record=nobody)) == "none of its jobs ran"
