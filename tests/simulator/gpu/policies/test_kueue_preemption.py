"""Kueue's preemption within a cohort, on cases worked by hand and as properties of random ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.gpu.policies.kubernetes import Kubernetes
from simulator.gpu.registry import check
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, View
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.twins import Between
from traces.errors import InputError

QUOTAS = {"a": 2.0, "b": 2.0, "c": 4.0}


def machine(*gpus: int, **quotas: float) -> GpuMachine:
    return GpuMachine(np.array(gpus), ["T4"] * len(gpus), "T4", quotas=quotas)


def job(number: int, group: str, gpus: int = 1, submit_s: float = 0.0, priority: int = 0, pod_gpus: int = 1) -> GpuJob:
    return GpuJob(number, submit_s, gpus, 100.0, group=group, priority=priority, pod_gpus=pod_gpus)


def run(policy: Kubernetes, cluster: GpuMachine, *jobs: GpuJob) -> GpuResult:
    return simulate_rounds(list(jobs), cluster, policy)


def lent() -> list[GpuJob]:
    """Of 4 GPUs, 2 for each queue: a uses 3, b uses 1 and asks for its second at 10 s."""
    return [*(job(at, "a", submit_s=float(at)) for at in range(3)), job(3, "b"), job(4, "b", submit_s=10.0)]


class Claims(Between):
    """Checks after every decision what reclaim promises, for pods of one GPU, which fit wherever one is free."""

    def __init__(self, policy: Kubernetes, reclaim: float) -> None:
        super().__init__(policy)
        self.reclaim, self.evictions = reclaim, 0

    def decide(self, view: View) -> dict[int, Placed]:
        before = {each.number for each in view.jobs if each.placed}
        placed = self.policy.decide(view)
        used, lost = dict.fromkeys(QUOTAS, 0), dict.fromkeys(QUOTAS, 0)
        for each in view.jobs:
            assert sum(placed.get(each.number, {}).values()) in (0, each.gpus), "gangs are whole"
            used[each.group] += each.gpus * (each.number in placed)
            if each.number in before and each.number not in placed:
                self.evictions += 1
                lost[each.group] = max(lost[each.group], each.gpus)
        top = max((each.priority for each in view.jobs if each.number in placed), default=-1)
        for each in view.jobs:
            is_within = used[each.group] + each.gpus <= QUOTAS[each.group]
            can_claim = self.reclaim == 2.0 or each.priority > top
            assert each.number in placed or not (is_within and can_claim), "a queue gets what it claims of its quota"
        for queue, gpus in lost.items():
            assert not gpus or used[queue] + gpus > QUOTAS[queue], "nobody goes from a queue that does not borrow"
        assert sum(used.values()) <= sum(QUOTAS.values())
        return placed


ROWS = st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.integers(0, 20), st.integers(0, 2))


@settings(max_examples=150, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=16), st.sampled_from([1.0, 2.0]))
def test_a_queue_gets_its_nominal_quota(rows: list[tuple[str, int, int, int]], reclaim: float) -> None:
    jobs = [
        job(at, group, gpus, 10.0 * tens, priority) for at, (group, gpus, tens, priority) in enumerate(sorted(rows))
    ]
    claims = Claims(Kubernetes(reclaim=reclaim), reclaim)
    result = simulate_rounds(jobs, machine(3, 5, **QUOTAS), claims)
    assert (result.end_s > 0.0).all() and result.preemptions.sum() == claims.evictions


@settings(max_examples=80, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=16))
def test_every_job_ends_with_both_kinds_of_preemption(rows: list[tuple[str, int, int, int]]) -> None:
    """Pods of 2 GPUs that fragment nodes, and both of Kueue's preemptions."""
    jobs = [
        job(at, group, gpus, float(tens), priority, pod_gpus=1 + (gpus % 2 == 0))
        for at, (group, gpus, tens, priority) in enumerate(sorted(rows))
    ]
    policy = Kubernetes(reclaim=2.0, within=1.0)
    assert (run(policy, machine(3, 5, **QUOTAS), *jobs).end_s > 0.0).all()
    nodes = policy._nodes
    assert nodes is not None and nodes.devices.min() >= 0
    for number in list(nodes.pods):
        nodes.remove(number)
    assert nodes.devices.sum() == 8000


def test_a_queue_takes_its_nominal_quota_back_from_the_latest_borrower() -> None:
    policy = Kubernetes(reclaim=2.0)
    result = run(policy, machine(4, a=2.0, b=2.0), *lent())
    assert result.start_s.tolist() == [0.0, 1.0, 2.0, 0.0, 10.0]
    assert result.preemptions.tolist() == [0, 0, 1, 0, 0] and policy.evicted == 1
    # Job 2 did 8 s of its 100 s, waits until 100 s, and pays 30 s for the restart.
    assert result.end_s[2] == 100.0 + 30.0 + 92.0
    assert "kubernetes: Kueue evicted 1 job for others" in policy.said()


def test_lower_priority_only_and_never() -> None:
    for reclaim, priority, start_s in ((0.0, 1, 100.0), (1.0, 0, 100.0), (1.0, 1, 10.0)):
        jobs = lent()
        jobs[4].priority = priority
        result = run(Kubernetes(queue=True, preempt=False, reclaim=reclaim), machine(4, a=2.0, b=2.0), *jobs)
        assert result.start_s[4] == start_s and result.preemptions.sum() == (start_s == 10.0)


def test_the_lowest_priority_goes_before_the_latest() -> None:
    jobs = lent()
    for at in (0, 2):
        jobs[at].priority = 1
    result = run(Kubernetes(reclaim=2.0), machine(4, a=2.0, b=2.0), *jobs)
    assert result.preemptions.tolist() == [0, 1, 0, 0, 0]


def test_a_job_that_need_not_go_is_kept() -> None:
    """Queue b claims 3 of its 4 GPUs. The job of 1 GPU is first to go, but without the gang of 3 the claim fits."""
    jobs = [job(0, "a", 3, priority=1), job(1, "a", 1), job(2, "b", 3, 10.0)]
    result = run(Kubernetes(reclaim=2.0), machine(4, a=0.0, b=4.0), *jobs)
    assert result.preemptions.tolist() == [1, 0, 0] and result.start_s.tolist() == [0.0, 0.0, 10.0]


def test_a_queue_loses_no_more_than_it_borrows() -> None:
    """Queue a borrows 1 GPU and c 1, of higher priority. Queue b claims 2: one job of a goes, then that of c."""
    jobs = [*(job(at, "a") for at in range(3)), job(3, "c", priority=1), job(4, "b", 2, 10.0)]
    policy = Kubernetes(reclaim=2.0)
    result = run(policy, machine(4, a=2.0, b=2.0, c=0.0), *jobs)
    assert result.preemptions.tolist() == [0, 0, 1, 1, 0] and result.start_s[4] == 10.0 and policy.evicted == 2


def test_what_an_eviction_frees_beyond_the_claim_is_used_at_once() -> None:
    """Queue b claims 1 GPU of the gang of 4 of a. A job of a that waited before the claim starts within its quota."""
    jobs = [job(0, "a", 4), job(1, "a", 1, 5.0), job(2, "b", 1, 10.0)]
    result = run(Kubernetes(reclaim=2.0), machine(4, a=2.0, b=2.0), *jobs)
    assert result.start_s.tolist() == [0.0, 10.0, 10.0]
    # The gang comes again only as a whole.
    assert result.end_s[0] == 110.0 + 30.0 + 90.0


def test_an_evicted_job_borrows_again_in_the_next_round() -> None:
    """Queue b claims 1 GPU, for which job 1 goes, and 1 more, for which the gang goes: 3 GPUs are free for job 1."""
    jobs = [job(0, "a", 4), job(1, "c", submit_s=1.0), job(2, "b", 1, 10.0), job(3, "b", 1, 10.0)]
    result = run(Kubernetes(reclaim=2.0), machine(5, a=2.0, b=3.0, c=0.0), *jobs)
    assert result.preemptions.tolist() == [1, 1, 0, 0]
    assert result.end_s[1] == 11.0 + 30.0 + 91.0


def test_a_job_that_would_borrow_evicts_nobody_of_another_queue() -> None:
    jobs = [job(0, "a", 4), job(1, "b", 3, 10.0)]
    result = run(Kubernetes(reclaim=2.0), machine(4, a=2.0, b=2.0), *jobs)
    assert result.start_s.tolist() == [0.0, 100.0]  # wider than the nominal quota of its queue
    jobs = [job(0, "a", 3), job(1, "b"), job(2, "b", 2, 10.0)]
    result = run(Kubernetes(reclaim=2.0), machine(4, a=2.0, b=2.0), *jobs)
    assert result.start_s.tolist() == [0.0, 0.0, 100.0]  # within it only without job 1


def test_within_its_queue_a_job_displaces_lower_priority_and_may_borrow() -> None:
    jobs = [job(0, "a"), job(1, "a", 2), job(2, "b"), job(3, "a", 2, 10.0, priority=1)]
    alike = [job(0, "a"), job(1, "a", 2), job(2, "b"), job(3, "a", 2, 10.0)]
    cluster = machine(4, a=2.0, b=2.0)
    result = run(Kubernetes(within=1.0), cluster, *jobs)
    assert result.start_s.tolist() == [0.0, 0.0, 0.0, 10.0] and result.preemptions.tolist() == [0, 1, 0, 0]
    assert run(Kubernetes(within=1.0), cluster, *alike).start_s[3] == 100.0
    wide = [job(0, "a", 2), job(1, "b", 1), job(2, "a", 3, 10.0, priority=1)]
    assert run(Kubernetes(within=1.0), cluster, *wide).start_s[2] == 100.0  # wider than the quota
    other = [job(0, "a"), job(1, "a", 2), job(2, "b"), job(3, "b", 1, 10.0, priority=1)]
    assert run(Kubernetes(within=1.0), cluster, *other).preemptions.tolist() == [0, 0, 1, 0]


def test_a_gang_goes_whole_and_none_stops_in_vain() -> None:
    """Nodes of 2 GPUs. A claim of one node stops the gang on both."""
    result = run(Kubernetes(reclaim=2.0), machine(2, 2, a=2.0, b=2.0), job(0, "a", 4), job(1, "b", 2, 10.0, pod_gpus=2))
    assert result.start_s.tolist() == [0.0, 10.0] and result.preemptions.tolist() == [1, 0]
    assert result.end_s[0] == 110.0 + 30.0 + 90.0
    # Queue c is within its quota and holds a GPU of each node, so no node can be whole: nobody of a stops.
    jobs = [job(0, "c", 2), job(1, "a", 2), job(2, "b", 2, 10.0, pod_gpus=2)]
    result = run(Kubernetes(reclaim=2.0), machine(2, 2, a=0.0, b=2.0, c=2.0), *jobs)
    assert result.preemptions.tolist() == [0, 0, 0] and result.start_s.tolist() == [0.0, 0.0, 100.0]


def test_priorities_stop_no_pods_outside_the_quotas() -> None:
    """2 GPUs and quotas of 4: the jobs of queue a borrow nothing, so the higher priority of queue b waits."""
    jobs = [job(0, "a"), job(1, "a"), job(2, "b", 1, 10.0, priority=1)]
    result = run(Kubernetes(reclaim=2.0), machine(2, a=2.0, b=2.0), *jobs)
    assert result.start_s.tolist() == [0.0, 0.0, 100.0]


@pytest.mark.parametrize("name", ["reclaim", "within"])
def test_other_values_are_refused(name: str) -> None:
    wrong = 3.0 if name == "reclaim" else 2.0
    with pytest.raises(InputError, match=rf"kubernetes: {name} of {wrong:g}: it must be 0"):
        check("kubernetes", {name: wrong})
    check("kubernetes", {name: 1.0})
