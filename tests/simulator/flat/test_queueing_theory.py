"""Mean waits against closed forms. Times are in hundredths so that rounding to integers does not matter."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.flat.replay import simulate
from simulator.metrics import schedule_summary
from simulator.workload import Workload
from tests.simulator.flat.cases import random_workload
from traces.arrays import Int64s

MEAN_SERVICE = 10_000


def erlang_c_wait(servers: int, load: float) -> float:
    """Mean wait of M/M/c in service times (Erlang 1917); load is per server."""
    offered = servers * load
    full = offered**servers / math.factorial(servers) / (1 - load)
    delayed = full / (sum(offered**k / math.factorial(k) for k in range(servers)) + full)
    return delayed / (servers * (1 - load))


def mean_and_error(wait: NDArray[np.float64], batches: int = 25) -> tuple[float, float]:
    """Mean and its standard error by batch means: neighbouring waits are far from independent."""
    means = np.array([batch.mean() for batch in np.array_split(wait, batches)])
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(batches))


def queue(service: Int64s, servers: int, load: float, rng: np.random.Generator) -> Workload:
    jobs = len(service)
    submit = np.cumsum(rng.exponential(MEAN_SERVICE / (servers * load), jobs)).astype(np.int64)
    ones = np.ones(jobs, np.int64)
    return Workload(np.arange(jobs), submit, ones, service, np.maximum(service, 1), -ones)


@pytest.mark.parametrize("scheduler", ["fifo", "easy", "conservative"])
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


SERVICES: dict[str, Callable[[np.random.Generator, int], NDArray[Any]]] = {
    "constant": lambda rng, jobs: np.full(jobs, MEAN_SERVICE),
    "uniform": lambda rng, jobs: rng.integers(0, 2 * MEAN_SERVICE, jobs),
    # one in ten is long: a squared coefficient of variation of about 3
    "mixed": lambda rng, jobs: rng.exponential(MEAN_SERVICE * np.where(rng.random(jobs) < 0.1, 4.6, 0.6)).astype(int),
}


@pytest.mark.parametrize("scheduler", ["fifo", "conservative"])
@pytest.mark.parametrize("name", SERVICES)
def test_mean_wait_of_m_g_1(scheduler: str, name: str) -> None:
    """Pollaczek-Khinchine: load * (1 + variance / mean^2) / (2 (1 - load)) service times."""
    rng = np.random.default_rng(8)
    service = SERVICES[name](rng, 400_000).astype(np.int64)
    jobs = queue(service, 1, 0.7, rng)
    wait = simulate(jobs, scheduler=scheduler, capacity=1) - jobs.submit_s
    mean, error = mean_and_error(wait[20_000:] / MEAN_SERVICE)
    load = 0.7 * service.mean() / MEAN_SERVICE
    moment = float((service.astype(np.float64) ** 2).mean()) / MEAN_SERVICE**2
    expected = 0.7 * moment / (2 * (1 - load))
    assert error < 0.05 * expected
    assert abs(mean - expected) < 4 * error + 1e-3


def test_waits_of_sjf_are_those_of_a_priority_queue() -> None:
    """Cobham 1954: with W_0 = residual work, short jobs wait W_0 / (1 - rho_short), long ones that over (1 - rho)."""
    rng = np.random.default_rng(11)
    short = rng.random(400_000) < 0.6
    service = np.where(short, MEAN_SERVICE // 2, MEAN_SERVICE * 7 // 4).astype(np.int64)  # 10,000 in the mean
    jobs = queue(service, 1, 0.7, rng)
    wait = simulate(jobs, scheduler="sjf", capacity=1, estimate="exact") - jobs.submit_s
    span = float(jobs.submit_s[-1])
    rho_short, rho = service[short].sum() / span, service.sum() / span
    residual = float((service.astype(np.float64) ** 2).sum()) / 2 / span
    expected = {True: residual / (1 - rho_short), False: residual / (1 - rho_short) / (1 - rho)}
    for is_short, of_class in expected.items():
        mean, error = mean_and_error(wait[short == is_short][10_000:] / MEAN_SERVICE)
        assert error < 0.05 * of_class / MEAN_SERVICE
        assert abs(mean - of_class / MEAN_SERVICE) < 4 * error + 1e-3
    assert wait.mean() < 0.9 * (simulate(jobs, scheduler="fifo", capacity=1) - jobs.submit_s).mean()


def test_kleinrocks_conservation_law() -> None:
    """sum of rho_k W_k over classes is rho W_0 / (1 - rho) for any order that keeps the server busy (Kleinrock 1965).

    Two classes of jobs that fill the cluster each alone (4 units and 3 of 4): `mirage` lets the wide ones pass. All
    times are whole ticks, so that it loses no time.
    """
    rng = np.random.default_rng(9)
    count, load = 200_000, 0.75
    wide = rng.random(count) < 0.5
    ticks = np.where(wide, rng.geometric(1 / 40, count), rng.geometric(1 / 10, count))
    gap = ticks.mean() / load
    submit = np.cumsum(rng.geometric(1 / gap, count)) * 60
    run = ticks.astype(np.int64) * 60
    jobs = Workload(np.arange(count), submit, np.where(wide, 4, 3), run, run, np.full(count, -1))
    wait = {name: simulate(jobs, scheduler=name, capacity=4) - submit for name in ("fifo", "easy", "mirage")}
    assert (wait["mirage"] != wait["fifo"]).mean() > 0.1  # another order, or this shows nothing
    assert wait["mirage"][wide].mean() < wait["fifo"][wide].mean()
    assert wait["mirage"][~wide].mean() > wait["fifo"][~wide].mean()
    # pathwise: the work in the system is the same at every instant, so is its integral, sum of run * wait + run^2 / 2
    assert len({int((run * each).sum()) for each in wait.values()}) == 1
    rates = {is_wide: (run * (wide == is_wide)).sum() / submit[-1] for is_wide in (True, False)}
    law = sum(rho * wait["mirage"][wide == is_wide].mean() for is_wide, rho in rates.items())
    rho = sum(rates.values())
    residual = count / submit[-1] * float((run.astype(np.float64) ** 2).mean()) / 2  # W_0
    assert law == pytest.approx(rho * residual / (1 - rho), rel=0.05)


def test_littles_law_and_the_work_done() -> None:
    """Mean queue = arrivals a second x mean wait, counted second by second; units in use add up to the work."""
    jobs = random_workload(seed=12, jobs=2000, capacity=32, load=0.9)
    starts = simulate(jobs, scheduler="easy", capacity=32)
    ends = starts + jobs.run_s
    figures = schedule_summary(jobs, starts, 32)
    first, span = int(jobs.submit_s[0]), int(figures["makespan_s"])
    change = np.zeros(span + 1, np.int64)
    np.add.at(change, jobs.submit_s - first, 1)
    np.add.at(change, starts - first, -1)
    assert change.cumsum()[:-1].mean() == pytest.approx(figures["mean_queue_jobs"])
    assert figures["mean_queue_jobs"] == pytest.approx(len(jobs) / span * figures["mean_wait_s"])
    used = np.zeros(span + 1, np.int64)
    np.add.at(used, starts - first, jobs.size)
    np.add.at(used, ends - first, -jobs.size)
    assert used.cumsum()[:-1].mean() / 32 == pytest.approx(figures["utilization"])
