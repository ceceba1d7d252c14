"""Mean waits against closed forms. Times are in hundredths so that rounding to integers does not matter."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simulator.replay import simulate
from simulator.workload import Int64s, Workload

MEAN_SERVICE = 10_000


def erlang_c_wait(servers: int, load: float) -> float:
    """Mean wait of M/M/c in service times (Erlang 1917); load is per server."""
    offered = servers * load
    full = offered**servers / math.factorial(servers) / (1 - load)
    delayed = full / (sum(offered**k / math.factorial(k) for k in range(servers)) + full)
    return delayed / (servers * (1 - load))


def mean_and_error(wait: Int64s, batches: int = 25) -> tuple[float, float]:
    """Mean and its standard error by batch means: neighbouring waits are far from independent."""
    means = np.array([batch.mean() for batch in np.array_split(wait, batches)])
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(batches))


def queue(service: Int64s, servers: int, load: float, rng: np.random.Generator) -> Workload:
    jobs = len(service)
    submit = np.cumsum(rng.exponential(MEAN_SERVICE / (servers * load), jobs)).astype(np.int64)
    ones = np.ones(jobs, np.int64)
    return Workload(np.arange(jobs), submit, ones, service, np.maximum(service, 1), -ones)


@pytest.mark.parametrize("scheduler", ["fifo", "easy"])
@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.8), (4, 0.8), (16, 0.9)])
def test_mean_wait_of_m_m_c(scheduler: str, servers: int, load: float) -> None:
    """Within four standard errors of the sample's own, which must be small enough to mean something."""
    rng = np.random.default_rng(7)
    service = rng.exponential(MEAN_SERVICE, 400_000).astype(np.int64)
    jobs = queue(service, servers, load, rng)
    wait = simulate(jobs, scheduler=scheduler, capacity=servers) - jobs.submit_s
    mean, error = mean_and_error(wait[20_000:] / MEAN_SERVICE)
    expected = erlang_c_wait(servers, load)
    assert error < 0.05 * expected
    assert abs(mean - expected) < 4 * error + 1e-3


def test_mean_wait_of_m_d_1() -> None:
    """Pollaczek-Khinchine with constant service: half the wait of M/M/1."""
    rng = np.random.default_rng(8)
    jobs = queue(np.full(400_000, MEAN_SERVICE), 1, 0.7, rng)
    wait = simulate(jobs, scheduler="fifo", capacity=1) - jobs.submit_s
    mean, error = mean_and_error(wait[20_000:] / MEAN_SERVICE)
    assert error < 0.05
    assert abs(mean - 0.7 / (2 * 0.3)) < 4 * error + 1e-3
