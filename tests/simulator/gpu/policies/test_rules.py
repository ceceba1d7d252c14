"""Each scheduler's own rule, on cases small enough to know the answer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from simulator.gpu.cluster import of_nodes
from simulator.gpu.figures import figures
from simulator.gpu.jobs import of_arrays
from simulator.gpu.policies.gandiva import Gandiva
from simulator.gpu.policies.guided import Guided
from simulator.gpu.policies.lyra import Lyra
from simulator.gpu.policies.sia import Sia
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.registry import check
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine, RoundPolicy, View
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.models import MODELS
from tests.simulator.gpu.workloads import ALIKE, generated
from traces.errors import InputError

BERT, CIFAR, IMAGENET = MODELS["bert"], MODELS["resnet18-cifar10"], MODELS["resnet50-imagenet"]


def nodes(*gpus: int, kinds: list[str] | None = None) -> GpuMachine:
    return GpuMachine(np.array(gpus), kinds or ["T4"] * len(gpus), "T4")


def run(policy: RoundPolicy, machine: GpuMachine, *jobs: GpuJob) -> GpuResult:
    return simulate_rounds(list(jobs), machine, policy)


def test_sia_puts_the_model_that_gains_most_on_the_fastest_type() -> None:
    machine = nodes(1, 1, kinds=["T4", "A100"])
    jobs = [GpuJob(0, 0.0, 1, 5000.0, model=CIFAR), GpuJob(1, 0.0, 1, 5000.0, model=BERT)]
    wanted = Sia().decide(View(0.0, machine, jobs))
    assert wanted == {0: {0: 1}, 1: {1: 1}}


def test_sia_grows_an_elastic_job_at_most_twofold_a_round() -> None:
    job = GpuJob(0, 0.0, 2, 50_000.0, model=CIFAR, elastic=True, left_s=50_000.0)
    policy, machine = Sia(), nodes(8, 8)
    first = policy.decide(View(0.0, machine, [job]))
    assert sum(first[0].values()) == 4
    job.placed = first[0]
    assert sum(policy.decide(View(360.0, machine, [job]))[0].values()) in (4, 8)
    rigid = GpuJob(1, 0.0, 2, 50_000.0, model=CIFAR)
    assert sum(Sia().decide(View(0.0, machine, [rigid]))[1].values()) == 2


def test_sia_says_how_often_its_solver_was_cut_short() -> None:
    policy, jobs = Sia(limit_s=0.0), generated(150, elastic=1.0)
    policy.decide(View(0.0, ALIKE, jobs))
    assert policy.timed_out == 1 and "in 1 rounds the solver timed out" in policy.said()[1]


def test_gandiva_slices_time() -> None:
    jobs = [GpuJob(0, 0.0, 1, 600.0), GpuJob(1, 0.0, 1, 600.0)]
    result = run(Gandiva(pause_s=0.0), nodes(1), *jobs)
    assert list(result.start_s) == [0.0, 60.0]
    assert list(result.end_s) == [1140.0, 1200.0] and list(result.preemptions) == [9, 9]


class Restless(Gandiva):
    """Gandiva that is asked at every tick."""

    settled = property(lambda self: False, lambda self, value: None)


def test_gandiva_is_not_asked_again_before_somebody_comes_or_ends() -> None:
    def jobs() -> list[GpuJob]:
        return [GpuJob(0, 0.0, 1, 6000.0), GpuJob(1, 0.0, 1, 3000.0), GpuJob(2, 4000.0, 2, 600.0)]

    result, restless = (run(policy(pause_s=0.0), nodes(2), *jobs()) for policy in (Gandiva, Restless))
    assert result.decisions < 50 < restless.decisions
    for figure in ("start_s", "end_s", "ran_s", "gpu_s", "lost_gpu_s", "restarts", "preemptions"):
        assert np.array_equal(getattr(result, figure), getattr(restless, figure)), figure


def pair(model: Profile) -> list[GpuJob]:
    return [GpuJob(n, 0.0, 1, 600.0, model=model) for n in (0, 1)]


@pytest.mark.parametrize("tries", [False, True])
def test_gandiva_packs_where_two_do_more_than_one(tries: bool) -> None:
    policy = Gandiva(pause_s=0.0, tries=tries)
    assert list(run(policy, nodes(1), *pair(CIFAR)).end_s) == [600.0, 600.0]
    assert (policy.packed_pairs, policy.failed_trials) == (10, 0)


def test_gandiva_unpacks_a_pair_that_did_too_little_in_its_trial() -> None:
    """Each job keeps 1 / 1.9 of its speed: 1.05 together. The trial of 60 s leaves 600 - 60 / 1.9 s to each.

    That is 9 slices and 28 s. The first job's last slice begins at 60 + 18 x 60 s, the second's 60 s later.
    """
    policy = Gandiva(pause_s=0.0)
    assert run(policy, nodes(1), *pair(IMAGENET)).end_s.max() == pytest.approx(1200.0 + 600.0 - 60.0 / 1.9 - 9 * 60.0)
    assert (policy.packed_pairs, policy.failed_trials) == (1, 1)
    assert policy.said()[1] == "gandiva: 1 pair of jobs progressed too little in a trial"
    for known in (Gandiva(pause_s=0.0, tries=False), Gandiva(pause_s=0.0, least_together=2.0)):
        assert run(known, nodes(1), *pair(IMAGENET)).end_s.max() == 1200.0 and known.packed_pairs == 0
    kept = Gandiva(pause_s=0.0, least_together=1.0)
    run(kept, nodes(1), *pair(IMAGENET))
    assert kept.packed_pairs > 10 and kept.failed_trials == 0


def test_gandiva_tries_the_next_pair_and_keeps_it() -> None:
    """Job 2 waits. With job 0 it does too little, with job 1 enough."""
    jobs = [GpuJob(n, 0.0, 1, 6000.0, model=model) for n, model in enumerate((IMAGENET, CIFAR, IMAGENET))]
    policy, found = Gandiva(slices=False, least_together=1.1), []
    for now_s in (0.0, 60.0, 120.0, 180.0):
        placed = policy.decide(View(now_s, nodes(2), jobs))
        found.append(dict(policy.guests))
        for job in jobs:
            job.placed = placed[job.number]
    assert found == [{2: 0}, {2: 1}, {2: 1}, {2: 1}] and policy.failed_trials == 1


def test_gandiva_grows_into_what_is_idle_and_shrinks_again() -> None:
    policy, machine = Gandiva(), nodes(4)
    elastic = GpuJob(0, 0.0, 2, 6000.0, model=CIFAR, elastic=True)
    assert policy.decide(View(0.0, machine, [elastic])) == {0: {0: 4}}
    elastic.placed = {0: 4}
    assert policy.decide(View(60.0, machine, [elastic])) == {0: {0: 4}}
    other = GpuJob(1, 60.0, 2, 600.0, model=CIFAR)
    assert policy.decide(View(120.0, machine, [elastic, other])) == {0: {0: 2}, 1: {0: 2}}


def test_gandiva_moves_a_gang_together() -> None:
    spread = GpuJob(0, 0.0, 4, 6000.0, model=BERT)
    spread.placed = {0: 2, 1: 2}
    assert Gandiva().decide(View(0.0, nodes(4, 4), [spread])) == {0: {0: 4}}


def test_lyra_without_loans_and_growth_is_shortest_job_first() -> None:
    jobs = [GpuJob(0, 0.0, 8, 1000.0), *(GpuJob(n, 10.0 * n, 8, 1000.0 - 100.0 * n) for n in (1, 2, 3))]
    result = run(Lyra(1.0, lambda now: 0, loans=False, grows=False), nodes(8), *jobs)
    assert list(np.argsort(result.start_s)) == [0, 3, 2, 1]


def test_lyra_borrows_and_gives_back() -> None:
    policy = Lyra(1.0, lambda now: 0 if now < 900.0 else 1, grows=False)
    jobs = [GpuJob(0, 0.0, 8, 1000.0), GpuJob(1, 0.0, 8, 2000.0)]
    result = run(policy, nodes(8), *jobs)
    assert list(result.start_s) == [0.0, 0.0] and list(result.preemptions) == [0, 1]
    assert policy.reclaimed_jobs == 1 and policy.loaned == []
    assert result.end_s[1] == 1200.0 + 30.0 + 1100.0  # it had 900 s; goes on at the tick after the other's end
    assert result.loaned_gpu_s == 8 * 900.0
    assert "an inference cluster of 1 node comes in addition to the 1 training node" in policy.said()[0]


def test_lyra_loans_come_in_addition_to_the_training_cluster() -> None:
    # Four jobs of a node each on two nodes: with two loaned nodes nobody waits.
    def jobs() -> list[GpuJob]:
        return [GpuJob(n, 0.0, 8, 1000.0) for n in range(4)]

    alone, lent = (
        run(Lyra(1.0, lambda now: 0, loans=loans, grows=False), nodes(8, 8), *jobs()) for loans in (False, True)
    )
    assert sorted(alone.end_s) == [1000.0, 1000.0, 2200.0, 2200.0] and alone.loaned_gpu_s == 0.0
    assert lent.end_s.tolist() == [1000.0] * 4 and lent.loaned_gpu_s == 16 * 1000.0


def test_utilization_counts_loaned_gpus_as_capacity() -> None:
    jobs = of_arrays(np.zeros(4), np.full(4, 8), np.full(4, 1000.0))
    cluster = of_nodes(np.array([8, 8]))
    result = run(Lyra(1.0, lambda now: 0, grows=False), cluster.machine(), *jobs.objects())
    assert figures(cluster, jobs, result)["utilization"] == pytest.approx(1.0)


def test_lyra_gives_what_is_left_to_who_gains_most() -> None:
    policy, inelastic = Lyra(1.0, lambda now: 0), Lyra(1.0, lambda now: 0, grows=False)
    policy.training_nodes = inelastic.training_nodes = 1
    machine = nodes(8, 4)
    # Four GPUs are left, on the borrowed server: of two that both gain from them, the longer one gains more.
    jobs = [
        GpuJob(0, 0.0, 4, 9000.0, model=IMAGENET, elastic=True, left_s=9000.0),
        GpuJob(1, 0.0, 4, 90_000.0, model=IMAGENET, elastic=True, left_s=90_000.0),
    ]
    wanted = policy.decide(View(0.0, machine, jobs))
    assert sum(wanted[0].values()) == 4 and wanted[1] == {0: 4, 1: 4}
    assert sum(inelastic.decide(View(0.0, machine, jobs))[1].values()) == 4


@pytest.mark.parametrize(("hold_s", "start_s"), [(0.0, 60.0), (300.0, 360.0), (3600.0, 900.0)])
def test_guided_holds_out_for_locality(hold_s: float, start_s: float) -> None:
    # 3 and 2 GPUs leave 1 and 2: a gang of 3 is spread at once, or waits for the first to end, or until it gives up.
    jobs = [GpuJob(0, 0.0, 3, 900.0), GpuJob(1, 0.0, 2, 1800.0), GpuJob(2, 60.0, 3, 600.0, model=BERT)]
    assert run(Guided(hold_s=hold_s), nodes(4, 4), *jobs).start_s[2] == start_s


def test_guided_keeps_servers_for_small_jobs() -> None:
    small, gang = GpuJob(0, 0.0, 1, 600.0), GpuJob(1, 0.0, 4, 600.0)
    machine = nodes(4, 4, 4)
    wanted = Guided(small_share=1 / 3).decide(View(0.0, machine, [small, gang]))
    assert wanted == {0: {0: 1}, 1: {1: 4}}
    assert Guided().decide(View(0.0, machine, [small, gang]))[0] == {0: 1}


def test_guided_moves_small_jobs_out_of_a_gangs_way() -> None:
    small = [GpuJob(n, 0.0, 1, 6000.0, placed={n: 1}) for n in (0, 1)]
    gang = GpuJob(2, 60.0, 4, 600.0, model=BERT)
    machine = nodes(4, 4)
    assert Guided().decide(View(60.0, machine, [*small, gang]))[2] == {0: 3, 1: 1}
    policy = Guided(defragment=True)
    wanted = policy.decide(View(60.0, machine, [*small, gang]))
    assert len(wanted[2]) == 1 and sum(wanted[2].values()) == 4 and policy.moves == 1
    assert {node for number in (0, 1) for node in wanted[number]} == {1 - next(iter(wanted[2]))}


def test_guided_isolates_gangs_and_small_jobs() -> None:
    machine = nodes(8, 8, 8)
    jobs = [GpuJob(0, 0.0, 4, 600.0), GpuJob(1, 0.0, 4, 600.0), GpuJob(2, 0.0, 1, 600.0), GpuJob(3, 0.0, 4, 600.0)]
    assert Guided().decide(View(0.0, machine, jobs)) == {0: {0: 4}, 1: {0: 4}, 2: {1: 1}, 3: {1: 4}}
    wanted = Guided(isolate=True).decide(View(0.0, machine, jobs))
    assert wanted == {0: {0: 4}, 1: {1: 4}, 2: {2: 1}, 3: {0: 4}}  # the last finds no empty node


def test_neighbours_of_several_gpus_slow_each_other() -> None:
    def ends(*gpus: int, **settings: float) -> list[float]:
        jobs = [GpuJob(n, 0.0, count, 600.0) for n, count in enumerate(gpus)]
        result = run(Guided(interference=0.25, **settings), nodes(8, 8), *jobs)  # type: ignore[arg-type]
        return [float(end_s) for end_s in result.end_s]

    assert ends(4, 4) == [800.0, 800.0] and ends(4, 4, isolate=True) == [600.0, 600.0]
    assert ends(4, 1) == [600.0, 600.0]
    # The first ends after 900 s of its neighbour's work; from the next round on the second runs alone.
    jobs = [GpuJob(0, 0.0, 4, 675.0), GpuJob(1, 0.0, 4, 1350.0)]
    assert run(Guided(interference=0.25), nodes(8), *jobs).end_s.tolist() == [900.0, 1575.0]


def test_guided_tries_a_gang_on_one_gpu() -> None:
    policy = Guided(prerun_s=300.0)
    gang = GpuJob(0, 0.0, 4, 3600.0, model=BERT)
    result = run(policy, nodes(4), gang)
    assert result.restarts[0] == 1 and result.lost_gpu_s[0] == 4 * BERT.restart_s
    assert "gangs that ran 300 s or less are assumed to fail" in policy.said()[0]
    short, long = GpuJob(0, 0.0, 8, 200.0), GpuJob(1, 0.0, 8, 2000.0)
    assert [job.gpus for job in policy.prepared([short, long])] == [1, 8]
    long.fails_s = 2000.0
    assert [job.gpus for job in policy.prepared([short, long])] == [8, 8]
    assert run(policy, nodes(4), GpuJob(0, 0.0, 4, 200.0, model=BERT)).gpu_s[0] == 200.0


def test_under_pressure_knowing_the_future_helps() -> None:
    first = simulate_rounds(generated(150, seed=2), ALIKE, Guided(round_s=300.0))
    shortest = simulate_rounds(generated(150, seed=2), ALIKE, Lyra(0.0, grows=False))
    submit_s = np.array([job.submit_s for job in generated(150, seed=2)])
    assert (shortest.end_s - submit_s).mean() < (first.end_s - submit_s).mean()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Lyra(-1.0), "lyra: inference_nodes of -1: it must be from 0 to 10"),
        (lambda: Lyra(1e9), "lyra: inference_nodes of 1e\\+09: it must be from 0 to 10"),
        (lambda: Gandiva(round_s=0.0), "gandiva: round_s of 0: it must be above 0"),
        (lambda: Gandiva(round_s=2.0), "gandiva: slices of 2.0 s: they must be above 2.0 s, the pause"),
        (lambda: Guided(interference=1.0), "guided: interference of 1: it must be at least 0 and below 1"),
        (lambda: Guided(small_share=2.0), "guided: small_share of 2: it must be at least 0 and below 1"),
        (lambda: Sia(most_times=0), "sia: most_times of 0: it must be at least 1"),
    ],
)
def test_settings_that_are_refused(make: Callable[[], RoundPolicy], message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_a_setting_is_refused_before_anything_is_replayed() -> None:
    with pytest.raises(InputError, match="sia: most_times of 0: it must be at least 1"):
        check("sia", {"most_times": 0.0})
    check("gandiva", {"slices": 0.0, "round_s": 120.0})


@pytest.mark.parametrize(
    ("name", "key", "value", "allowed"),
    [
        ("sia", "free_moves", 2.0, "0 or 1"),
        ("gandiva", "slices", 0.5, "0 or 1"),
        ("pollux", "generations", 1.5, "a whole number"),
        ("guided", "hold_s", float("inf"), "finite"),
    ],
)
def test_a_value_of_another_kind_is_refused(name: str, key: str, value: float, allowed: str) -> None:
    with pytest.raises(InputError, match=f"{name}.{key} of {value:g}: it must be {allowed}"):
        check(name, {key: value})


def test_sia_names_the_job_that_fits_no_configuration() -> None:
    machine = nodes(4, 4, 2, kinds=["T4", "T4", "A100"])
    with pytest.raises(InputError, match="sia: job 3 asks for 9 GPUs, but no kind of node has more than 8 in total"):
        run(Sia(), machine, GpuJob(3, 0.0, 9, 60.0, model=BERT))
