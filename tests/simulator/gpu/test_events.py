"""The compiled clock of GPU schedulers: equal to its plain twin, and what every scheduler must keep."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.gpu.cluster import GpuCluster, of_nodes
from simulator.gpu.figures import FIGURES, figures, jct_s
from simulator.gpu.jobs import GpuJobs, of_arrays
from simulator.gpu.registry import SCHEDULERS, check, parameters, scheduler
from simulator.gpu.run import quota, simulate
from simulator.gpu.scheduler import EventScheduler, Setting
from tests.simulator.gpu.models import drawn_jobs
from tests.twins.gpu import clock as twin
from traces.errors import InputError, WorkError

REFUSED: list[tuple[dict[str, Setting], str]] = [
    ({"thresholds": ()}, "tiresias.thresholds of no number: it must have at least one number"),
    ({"thresholds": (3250.0, -1.0)}, "tiresias.thresholds of 3250,-1: its numbers must be above 0"),
    ({"thresholds": (7200.0, 3250.0)}, "tiresias.thresholds of 7200,3250: its numbers must increase"),
    ({"thresholds": (50.0, 50.0)}, "tiresias.thresholds of 50,50: its numbers must increase"),
    (
        {"threshold_1": 50.0},
        "tiresias.threshold_1 has another name: write thresholds, as in tiresias.thresholds=3250,7200",
    ),
    ({"promote": (1.0, 2.0)}, "tiresias.promote of 1,2: it must be one number"),
    ({"released": 0.5}, "tiresias.released of 0.5: it must be 0 or 1"),
    ({"first_start": 2.0}, "srtf.first_start of 2: it must be 0 or 1"),
    ({"restart_s": -1.0}, "yarn.restart_s of -1: it must be at least 0"),
    ({"restart_s": float("inf")}, "fifo.restart_s of inf: it must be finite"),
    ({"samples": (5.0, 0.0)}, "tiresias-gittins.samples of 5,0: its numbers must be above 0"),
]
EVENTS = [name for name in SCHEDULERS if isinstance(scheduler(name), EventScheduler)]


def instance(seed: int, jobs: int = 40) -> tuple[GpuCluster, GpuJobs]:
    """A small crowded cluster; several jobs come in the same second."""
    rng = np.random.default_rng(seed)
    cluster = of_nodes(rng.choice([2, 4, 8], size=rng.integers(1, 5)))
    submit = np.sort(rng.integers(0, 4000, jobs)).astype(float)
    gpus = np.minimum(rng.choice([1, 1, 2, 3, 4, 8], jobs), cluster.gpus)
    return cluster, of_arrays(submit, gpus, rng.integers(1, 6000, jobs).astype(float), rng.integers(0, 3, jobs))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, {}) for name in EVENTS),
        ("tetris", {"fairness": 0.7}),
        ("yarn", {"hold_s": 0.0}),
        ("yarn-fair", {"hold_s": 0.0, "reclaim_at": 0.0}),
        ("yarn", {"reclaim_at": 0.0, "restart_s": 7.5}),
        ("fifo", {"restart_s": 100.0, "first_start": 1.0}),
        ("sjf", {"pass": 0.0}),
        ("srtf", {"restart_s": 0.0}),
        ("tiresias", {"released": 1.0}),
        ("tiresias", {"released": 1.0, "promote": 0.5, "thresholds": (500.0,), "restart_s": 0.0}),
        ("tiresias", {"promote": 2.0, "thresholds": (500.0, 1000.0, 2000.0), "restart_s": 0.0}),
        ("tiresias-gittins", {"released": 1.0}),
        ("tiresias-gittins", {"released": 1.0, "samples": (60.0, 600.0, 600.0, 2000.0, 9000.0), "promote": 0.0}),
        ("tiresias-gittins", {"samples": (60.0, 600.0, 600.0, 2000.0, 9000.0), "first_start": 1.0}),
        ("tiresias-gittins", {"delta": 800.0, "promote": 0.5}),
    ],
)
def test_equal_to_the_plain_twin(name: str, message: dict[str, Setting]) -> None:
    stopped = 0
    for seed in range(12):
        cluster, jobs = instance(seed)
        declared = {jobs.groups[0]: cluster.gpus // 2, jobs.groups[1]: cluster.gpus // 4} if seed % 2 else {}
        result = simulate(cluster, jobs, name, message, declared).result
        share = quota(cluster, jobs, declared)[0].tolist()
        plain = twin.simulate(cluster, jobs, name, parameters(name) | message, share)
        stopped += sum(row[2] for row in plain)
        np.testing.assert_allclose(result.start_s, [row[0] for row in plain], atol=1e-3)
        np.testing.assert_allclose(result.end_s, [row[1] for row in plain], atol=1e-3)
        assert result.preemptions.tolist() == [row[2] for row in plain]
    assert (stopped > 0) == twin.POLICIES[name].preempts


@pytest.mark.parametrize("name", EVENTS)
def test_every_job_gets_its_work_and_nobody_more_gpus_than_there_are(name: str) -> None:
    for seed in range(6):
        cluster, jobs = instance(seed)
        result = simulate(cluster, jobs, name).result
        assert (result.start_s >= jobs.submit_s - np.floor(jobs.submit_s.min())).all()
        np.testing.assert_allclose(result.gpu_s - result.lost_gpu_s, jobs.run_s * jobs.gpus, atol=1e-3)
        np.testing.assert_allclose(result.ran_s * jobs.gpus, result.gpu_s, atol=1e-3)
        found = figures(cluster, jobs, result)
        assert set(found) == set(FIGURES)
        assert 0.0 < found["utilization"] <= 1.0
        assert found["fragmentation"] <= 1.0 - found["utilization"] + 1e-9
        if not twin.POLICIES[name].preempts:
            assert not result.preemptions.any()
            moments = np.concatenate([result.start_s, result.end_s])
            change = np.concatenate([jobs.gpus, -jobs.gpus])
            order = np.lexsort((change, moments))
            assert np.cumsum(change[order]).max() <= cluster.gpus
        assert (result.restarts <= result.preemptions).all()


@pytest.mark.parametrize("name", sorted(set(EVENTS) - {"single"}))  # whose jobs wait for their own node
def test_no_gpu_is_free_while_a_job_of_one_gpu_waits(name: str) -> None:
    cluster, jobs = instance(3)
    small = of_arrays(jobs.submit_s, np.ones(len(jobs), dtype=np.int64), jobs.run_s, jobs.group)
    assert simulate(cluster, small, name).result.stranded_gpu_s == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("name", EVENTS)
def test_a_lone_job_runs_at_once_and_rho_is_one(name: str) -> None:
    cluster, jobs = of_nodes(np.array([4, 4])), of_arrays(np.array([100.5]), np.array([6]), np.array([50.0]))
    result = simulate(cluster, jobs, name).result
    assert jct_s(jobs, result).tolist() == pytest.approx([50.0])
    assert figures(cluster, jobs, result)["worst_rho"] == pytest.approx(1.0)


def test_the_same_run_twice_is_the_same() -> None:
    cluster, jobs = instance(5)
    first, second = (simulate(cluster, jobs, "tiresias").result for _ in range(2))
    assert first.end_s.tobytes() == second.end_s.tobytes()


def test_all_running_jobs_are_replaced_at_one_instant() -> None:
    submit, run = np.array([0.0, 0.0, 0.0, 10.0, 10.0, 10.0]), np.array([1000.0, 1001.0, 1002.0, 5.0, 6.0, 7.0])
    jobs = of_arrays(submit, np.ones(6, dtype=np.int64), run)
    result = simulate(of_nodes(np.array([1, 1, 1])), jobs, "srtf", {"restart_s": 1.0}).result
    assert result.end_s.tolist() == [1006.0, 1008.0, 1010.0, 15.0, 16.0, 17.0]


def test_restarts_without_end_are_given_up() -> None:
    jobs = of_arrays(np.zeros(2), np.array([4, 4]), np.full(2, 1000.0))
    settings: dict[str, Setting] = {
        "thresholds": (100.0,),
        "promote": 0.5,
    }  # 25 s until a promoted job is demoted, 30 s to restart
    with pytest.raises(WorkError, match="tiresias: jobs are stopped and restarted without end; lower restart_s"):
        simulate(of_nodes(np.array([4])), jobs, "tiresias", settings)
    assert simulate(of_nodes(np.array([4])), jobs, "tiresias", {**settings, "restart_s": 10.0}).result.end_s.max() < 1e5


def test_a_virtual_cluster_below_its_quota_gets_its_gpus_back() -> None:
    submit, gpus, run = np.array([0.0, 0.0, 10.0]), np.array([2, 2, 2]), np.array([1000.0, 1000.0, 100.0])
    jobs = of_arrays(submit, gpus, run, np.array([0, 0, 1]), ("greedy", "late"))
    result = simulate(of_nodes(np.array([4])), jobs, "yarn", quotas={"greedy": 2, "late": 2}).result
    assert result.start_s.tolist() == [0.0, 0.0, 10.0]
    assert result.preemptions.tolist() == [0, 1, 0]
    assert result.end_s.tolist() == [1000.0, 1130.0, 110.0]  # 10 s done, 100 s stopped, 30 s of restart, 990 s left


def test_locality_is_held_out_for_and_then_relaxed() -> None:
    submit, gpus, run = np.array([0.0, 0.0, 1.0]), np.array([3, 3, 2]), np.full(3, 5000.0)
    jobs = of_arrays(submit, gpus, run)
    result = simulate(of_nodes(np.array([4, 4])), jobs, "yarn", {"hold_s": 60.0}).result
    assert result.start_s.tolist() == [0.0, 0.0, 61.0]


def test_faster_types_come_first_and_end_sooner() -> None:
    cluster = of_nodes(np.array([2, 2]), ("T4", "A100"), "T4")
    alike = of_arrays(np.zeros(2), np.array([2, 2]), np.array([1000.0, 1000.0]))
    jobs = drawn_jobs(alike, mix={"bert": 1.0}, elastic=0.0)
    result = simulate(cluster, jobs, "fifo").result
    assert result.end_s[0] < 500.0
    assert result.end_s[1] == pytest.approx(1000.0)
    assert result.gpu_s_by_type["A100"][0] == pytest.approx(2.0 * result.end_s[0])
    assert result.gpu_s_by_type["T4"].tolist() == [0.0, pytest.approx(2000.0)]


def test_a_gang_stays_in_one_rack_where_one_holds_it() -> None:
    from simulator.gpu.events.recorded_machine import unlimited
    from simulator.gpu.events.state import NODE, SLOT, build

    cluster = of_nodes(np.array([4, 4, 4, 4]), rack_nodes=2)
    jobs = of_arrays(np.array([0.0, 1.0]), np.array([1, 8]), np.array([10.0, 100.0]))
    found = scheduler("fifo")
    assert isinstance(found, EventScheduler)
    state = build(cluster, jobs, np.array(found.knobs({})))
    found.run(state, unlimited(len(jobs)))
    assert state.whole[SLOT, 1] >= 0
    assert sorted(state.places[NODE, state.whole[SLOT, 1], :2].tolist()) == [2, 3]


def test_what_cannot_be_is_refused_by_name() -> None:
    cluster, jobs = instance(0)
    with pytest.raises(InputError, match="unknown scheduler 'lottery': known are fifo, sjf"):
        simulate(cluster, jobs, "lottery")
    with pytest.raises(InputError, match=r"unknown parameter tiresias.speed: known are promote, local"):
        simulate(cluster, jobs, "tiresias", {"speed": 1.0})
    with pytest.raises(InputError, match=r"yarn.reclaim_at of 2: it must be from 0 to 1"):
        simulate(cluster, jobs, "yarn", {"reclaim_at": 2.0})
    for settings, why in REFUSED:
        with pytest.raises(InputError, match=why):
            check(why.split(".")[0], settings)
    wide = of_arrays(np.zeros(1), np.array([1000]), np.ones(1))
    with pytest.raises(InputError, match="1 job fits no configuration of the cluster; the first is number 0, of 1,000"):
        simulate(cluster, wide, "fifo")
    with pytest.raises(InputError, match="quota of unknown group 'nobody'"):
        quota(cluster, jobs, {"nobody": 1})
    with pytest.raises(InputError, match="the quotas add to"):
        quota(cluster, jobs, {"group 0": 10_000})
