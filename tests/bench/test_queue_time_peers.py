"""The queue-time peers of `bench`: each by its definition, and the program that scores them beside Baton's methods."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from bench.queue_time_peers import run
from bench.queue_time_peers.qbets import CONFIDENCE, LAST, places
from bench.queue_time_peers.registry import PEERS, make_method
from bench.results import BenchmarkRun
from models.queue_time.artifact import RELEASABLE
from models.queue_time.ground import submitted_jobs
from models.queue_time.protocol import (
    LEVELS,
    LONGEST_S,
    MEDIAN,
    FittedMethod,
    Forecast,
    KnownStarts,
    Rows,
)
from models.queue_time.registry import METHODS
from models.queue_time.study import judge_jobs
from tests.features.submission.logs import ORIGIN_S, generated_log
from tests.models.queue_time.grounds import generated_rows
from traces.errors import InputError
from traces.units import DAY_S


def parts() -> tuple[Rows, Rows]:
    """Rows to fit on, and later ones."""
    rows = generated_rows()
    return rows.take(slice(0, 500)), rows.take(slice(500, None))


@cache
def fitted(name: str) -> FittedMethod:
    return make_method(name).fit(parts()[0], 3)


@cache
def forecast_by(name: str) -> Forecast:
    return fitted(name).forecast(parts()[1])


@pytest.mark.parametrize("name", PEERS)
def test_a_forecast_is_a_distribution(name: str) -> None:
    forecast, rows = forecast_by(name), parts()[1]
    assert forecast.quantiles_s.shape == (len(rows), len(LEVELS)) and forecast.p_under_600s.shape == (len(rows),)
    assert np.isfinite(forecast.quantiles_s).all() and (np.diff(forecast.quantiles_s, axis=1) >= 0).all()
    assert (forecast.quantiles_s >= 0).all() and (forecast.quantiles_s <= LONGEST_S).all()
    assert ((forecast.p_under_600s >= 0) & (forecast.p_under_600s <= 1)).all()
    assert make_method(name).name == name


@pytest.mark.parametrize("name", PEERS)
def test_no_peer_sees_what_it_is_judged_on_or_a_later_start(name: str) -> None:
    rows = parts()[1]
    past, instant = rows.past, int(rows.submit_s[0])
    later = past.start_s >= instant
    altered = KnownStarts(past.start_s, past.wait_s * (1 + 5 * later), past.partition)
    hidden = replace(rows, wait_s=rows.wait_s[::-1] * 7, past=altered)
    again = fitted(name).forecast(hidden.take(np.arange(len(rows)) == 0))
    assert np.allclose(again.quantiles_s, forecast_by(name).quantiles_s[:1], rtol=1e-9)


@pytest.mark.parametrize("name", PEERS)
def test_one_seed_gives_one_forecast(name: str) -> None:
    again = make_method(name).fit(parts()[0], 3).forecast(parts()[1])
    assert (again.quantiles_s == forecast_by(name).quantiles_s).all()


@pytest.mark.parametrize("name", PEERS)
def test_every_job_alike_and_every_wait_short_can_be_fitted(name: str) -> None:
    rows = generated_rows(count=60, seed=1)
    past = replace(rows.past, wait_s=np.full(60, 5))
    same = replace(rows, observed=np.zeros_like(rows.observed), wait_s=np.full(60, 5), past=past)
    forecast = make_method(name).fit(same, 0).forecast(same)
    assert np.isfinite(forecast.quantiles_s).all()
    assert (forecast.p_under_600s > 0.9).all()


def test_the_bounds_are_those_of_the_binomial() -> None:
    rank = places(LAST)
    for level, place in zip(LEVELS, rank, strict=True):
        if level > 0.5 and place < LAST - 1:  # P(at most `place` of LAST waits lie below the quantile) >= CONFIDENCE
            assert binom.cdf(place, LAST, level) >= CONFIDENCE > binom.cdf(place - 1, LAST, level)
    assert rank[MEDIAN] == LAST // 2 and rank[-1] == binom.ppf(CONFIDENCE, LAST, LEVELS[-1])
    assert places(1).tolist() == [0] * len(LEVELS)


def test_a_peer_is_no_method_of_the_product() -> None:
    assert not set(PEERS) & set(METHODS) and not set(PEERS) & set(RELEASABLE)
    assert make_method("limits").name == "limits"
    with pytest.raises(InputError, match="unknown method 'best'; peers: qbets, hgb-bins, trout; methods: limits"):
        make_method("best")


def test_peers_and_methods_are_compared_on_the_same_jobs() -> None:
    from_s, until_s = ORIGIN_S + 20 * DAY_S, ORIGIN_S + 30 * DAY_S
    log = generated_log(3, jobs=400, days=30)
    methods = [make_method(name) for name in ("limits", "partition-mean", "qbets", "hgb-bins")]
    found = judge_jobs(submitted_jobs(log, from_s), "lab", from_s, until_s, from_s, methods, 0)
    record = BenchmarkRun(run.ABOUT)
    lines = run.rows(found, ["limits", "partition-mean"], record)
    assert len(lines) == 4 + 3 + 3, "a line a method, and one for each method and rival"
    figures = {(row.name, row.what): row for row in record.rows}
    assert {row.n for row in record.rows} == {len(found.rows)}
    crps = {name: figures[name, "CRPS"].value for name in found.forecasts}
    for name, rival in (("qbets", "limits"), ("hgb-bins", "partition-mean"), ("partition-mean", "limits")):
        less, ratio = figures[name, f"CRPS less {rival}'s"], figures[name, f"CRPS / {rival}'s"]
        assert less.value == pytest.approx(crps[name] - crps[rival], abs=2e-3)
        assert ratio.value == pytest.approx(crps[name] / crps[rival], rel=2e-3)
        for row in (less, ratio):
            assert row.interval is not None and row.interval[0] <= row.value <= row.interval[1]
