"""The waits of links at an instant of a record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agent.eyes import Eyes
from agent.sight import LinkStarts, SlurmRequest
from models.provisioning.pairs import recorded as recorded_pairs
from models.provisioning.service import moment
from models.provisioning.service.estimates import start_estimates_s
from models.provisioning.service.moment import live_waits, recorded_waits
from simulator.recorded.parameters import Parameters
from simulator.recorded.record import NEVER, RecordedTrace
from tests.agent.test_futures import INSTANTS, SITE, told_slurm
from tests.features.submission.logs import ORIGIN_S, generated_log
from tests.models.provisioning.futures.generated import busy
from traces.errors import WorkError
from traces.units import DAY_S, HOUR_S

LIMITS_S = (HOUR_S, 6 * HOUR_S)


def known_before(record: RecordedTrace, now_s: int) -> RecordedTrace:
    """What the record shows at an instant."""
    there = record.take(record.submit_s < now_s)
    start_s = np.where(there.start_s < now_s, there.start_s, NEVER)
    end_s = np.where(there.end_s < now_s, there.end_s, NEVER)
    return RecordedTrace(
        there.submit_s, start_s, end_s, there.size, there.limit_s, there.user, there.priority, there.job_key
    )


def test_waits_come_from_what_was_known() -> None:
    """The same from the whole record and from what a dump taken then holds; a wider link waits longer."""
    record, now_s = generated_log(7, jobs=500, days=30).record, ORIGIN_S + 25 * DAY_S
    whole = recorded_waits(record, now_s, 4, LIMITS_S, record.users, None)
    known = recorded_waits(known_before(record, now_s), now_s, 4, LIMITS_S, record.users, None)
    assert (whole.now_s, whole.futures, whole.unstarted) == (now_s, 16, 0)
    assert list(whole.by_limit_s) == list(LIMITS_S)
    for limit_s in LIMITS_S:
        assert whole.by_limit_s[limit_s].tolist() == known.by_limit_s[limit_s].tolist()
        assert len(whole.by_limit_s[limit_s]) == 17 and (whole.by_limit_s[limit_s] >= 0).all()
    wide = recorded_waits(record, now_s, 10, LIMITS_S, record.users, None)
    assert wide.by_limit_s[HOUR_S].mean() > whole.by_limit_s[HOUR_S].mean()


def test_a_future_that_ends_first_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    record, now_s = generated_log(7, jobs=500, days=30).record, ORIGIN_S + 25 * DAY_S
    monkeypatch.setattr(moment, "HORIZON_S", 60)
    found = recorded_waits(record, now_s, 10, LIMITS_S, record.users, None)
    assert found.unstarted == 2 * 16 and (found.by_limit_s[HOUR_S][:16] == 90).all(), "1.5 times a minute"


def full(limit_s: int, size: int = 10) -> RecordedTrace:
    """Thirty days of nine-node jobs one after the other, and one of `size` nodes that began an hour before the end."""
    start_s = ORIGIN_S + np.arange(30) * DAY_S
    start_s[-1] = ORIGIN_S + 29 * DAY_S + 23 * HOUR_S
    ones = np.ones(30, np.int64)
    end_s = np.append(start_s[:-1] + 20 * HOUR_S, NEVER)
    return RecordedTrace(
        start_s, start_s, end_s, np.append(10 * ones[1:], size), limit_s * ones, 0 * ones, 0 * ones,
        [str(n) for n in range(30)],
    )  # fmt: skip


def test_the_start_estimate_is_by_limits() -> None:
    """All nodes are held by a job that has run for 1 h of 6 h; with two nodes free a small link starts now."""
    now_s = ORIGIN_S + 30 * DAY_S
    asked = (now_s, 2, LIMITS_S, 1, None)
    assert start_estimates_s(full(6 * HOUR_S), *asked) == pytest.approx([5 * HOUR_S] * 2, abs=120)
    assert start_estimates_s(full(6 * HOUR_S, 8), *asked) == [0, 0]


@pytest.mark.parametrize("user", [0, 1, 2, 3, 4])
def test_a_slurm_and_its_log_show_the_same_waits(user: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four nodes, three jobs a user, first come first served; the last user is new."""
    rules = Parameters(0, 4, 3, None, 500.0, 1.0, 1.0, 0)
    monkeypatch.setattr(recorded_pairs, "infer_parameters", lambda record, until_s: rules)
    record = busy(seed=3)
    for now_s in INSTANTS[::3]:
        eyes = Eyes(told_slurm(record, now_s), SlurmRequest(3, HOUR_S, f"u{user}"), SITE)
        eyes.look(now_s)
        for nodes in (1, 3):
            live, log = live_waits(eyes, LIMITS_S, nodes), recorded_waits(record, now_s, nodes, LIMITS_S, user, None)
            assert (live.now_s, live.futures, live.why) == (now_s, 16, "")
            for limit_s in LIMITS_S:
                assert live.by_limit_s[limit_s].tolist() == log.by_limit_s[limit_s].tolist()
        assert max(log.by_limit_s[HOUR_S]) > HOUR_S, "it waits"


def test_a_slurm_without_accounting_shows_the_estimate_alone() -> None:
    record, now_s = busy(seed=3), INSTANTS[0]
    eyes = Eyes(told_slurm(record, now_s, broken=frozenset({"sacct"})), SlurmRequest(3, HOUR_S, "newcomer"), SITE)
    eyes.look(now_s)
    found = live_waits(eyes, LIMITS_S)
    assert found.futures == 0 and len(found.by_limit_s[HOUR_S]) == 2
    assert found.why == "no futures: sacct: refuses in this test"
    hidden = Eyes(told_slurm(record, now_s, private="newcomer"), SlurmRequest(3, HOUR_S, "newcomer"), SITE)
    hidden.look(now_s)
    with pytest.raises(WorkError, match="the wait cannot be estimated: other users' jobs are not shown"):
        live_waits(hidden, LIMITS_S)


def test_fewer_futures_than_wanted_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    record, now_s = busy(seed=3), INSTANTS[0]
    eyes = Eyes(told_slurm(record, now_s), SlurmRequest(3, HOUR_S, "newcomer"), SITE)
    eyes.look(now_s)
    starts = eyes.starts

    def some(*asked: Any) -> LinkStarts:
        found, limit_s = starts(*asked), asked[2]
        return found if limit_s == HOUR_S else replace(found, starts_s=found.starts_s[:5])

    monkeypatch.setattr(eyes, "starts", some)
    whole = live_waits(eyes, LIMITS_S[:1]).by_limit_s[HOUR_S].tolist()
    found = live_waits(eyes, LIMITS_S)
    assert (found.futures, found.why) == (5, "5 futures of 16 in 8 s for links of 6 h")
    assert [len(found.by_limit_s[limit_s]) for limit_s in LIMITS_S] == [6, 6], "limits are compared by future"
    assert found.by_limit_s[HOUR_S].tolist() == [*whole[:5], whole[-1]], "the last is the start estimate's"
