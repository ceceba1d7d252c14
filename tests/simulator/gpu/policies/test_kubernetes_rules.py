"""The rules of the default scheduler and of Kueue, on cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import of_arrays
from simulator.gpu.pods import PodNodes, Scoring
from simulator.gpu.policies.kubernetes import Kubernetes
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine
from simulator.gpu.rounds import simulate_rounds
from simulator.gpu.run import simulate
from traces.errors import InputError


def machine(
    *nodes: tuple[int, ...], labels: tuple[str, ...] = (), quotas: dict[str, float] | None = None
) -> GpuMachine:
    """Nodes of (GPUs, thousandths of CPUs, MiB), or of GPUs alone."""
    rows = np.array(nodes)
    return GpuMachine(rows[:, 0], ["T4"] * len(rows), "T4", rows[:, 1:], labels, quotas or {})


def pod(number: int, gpus: int = 1, cpus: int = 1000, mib: int = 100, **more: object) -> GpuJob:
    """A job of one pod; `cpus` and `mib` a GPU."""
    return GpuJob(number, 0.0, gpus, 100.0, pod_gpus=gpus, need=(cpus, mib), **more)  # type: ignore[arg-type]


def run(policy: Kubernetes, cluster: GpuMachine, *jobs: GpuJob) -> GpuResult:
    return simulate_rounds(list(jobs), cluster, policy)


def nodes_of(cluster: GpuMachine, *jobs: GpuJob, pack: bool = False, gpu_weight: float = 0.0) -> list[int]:
    """Place the pods in order; return the node of each."""
    held = PodNodes(cluster, Scoring(pack, gpu_weight))
    for job in jobs:
        assert held.place(job, 0.0)
    return [held.pods[job.number][0].node for job in jobs]


def test_least_allocated_and_balanced_allocation_by_hand() -> None:
    """Nodes of 10 CPUs and 1,000 MiB, and of 20 CPUs and 1,000 MiB; a pod of 5 CPUs and 500 MiB.

    Node 0: (50 + 50) // 2 = 50, balance 100: 150. Node 1: (75 + 50) // 2 = 62, uses 0.25 and 0.5, so their deviation is
    0.125 and the balance 87: 149. Without the balance node 1 would win.
    """
    cluster = machine((8, 10_000, 1000), (8, 20_000, 1000))
    job = pod(0, 1, 5000, 500)
    assert PodNodes(cluster, Scoring())._scores(job, np.array([0, 1])).tolist() == [150, 149]
    assert PodNodes(cluster, Scoring(pack=True))._scores(job, np.array([0, 1])).tolist() == [150, 124]


def test_pods_spread_by_cpus_and_memory_and_pack_on_request() -> None:
    cluster = machine((8, 96_000, 4000), (8, 96_000, 4000))
    assert nodes_of(cluster, pod(0), pod(1), pod(2)) == [0, 1, 0]
    assert nodes_of(cluster, pod(0), pod(1), pod(2), pack=True) == [0, 0, 0]
    # The second node has more CPUs and memory, the first more GPUs.
    uneven = machine((8, 10_000, 1000), (2, 12_000, 1200))
    assert nodes_of(uneven, pod(0, cpus=5000, mib=500)) == [1]
    assert nodes_of(uneven, pod(0, cpus=5000, mib=500), gpu_weight=9.0) == [0]


def test_a_pod_waits_for_cpus_and_for_memory() -> None:
    cluster = machine((8, 8000, 1000))
    for job in (pod(1, 1, 2000, 100), pod(1, 1, 100, 500)):
        result = run(Kubernetes(), cluster, pod(0, 1, 7000, 600), job)
        assert result.start_s.tolist() == [0.0, 100.0]


def test_parts_share_a_device_and_whole_gpus_do_not() -> None:
    """2 GPUs: 0.5 + 0.4 on the first, 0.6 and 0.4 on the second, and 0.2 fits none though 0.1 is free."""
    jobs = [pod(at, gpu_milli=milli) for at, milli in enumerate((500, 400, 600, 400, 200, 100))]
    result = run(Kubernetes(), machine((2, 96_000, 4000)), *jobs)
    assert result.start_s.tolist() == [0.0, 0.0, 0.0, 0.0, 100.0, 0.0]
    assert result.gpu_s.tolist() == pytest.approx([50.0, 40.0, 60.0, 40.0, 20.0, 10.0])
    jobs = [pod(at, gpu_milli=milli) for at, milli in enumerate((500, 400, 600))]
    result = run(Kubernetes(share=False), machine((2, 96_000, 4000)), *jobs)
    assert result.start_s.tolist() == [0.0, 0.0, 100.0] and result.gpu_s.tolist() == [100.0] * 3
    jobs = [pod(at, gpu_milli=milli) for at, milli in enumerate((500, 600, 300, 500))]  # 300 on the fuller device
    assert run(Kubernetes(), machine((2, 96_000, 4000)), *jobs).start_s.tolist() == [0.0] * 4
    whole = [pod(0, gpu_milli=500), pod(1, 2), pod(2, 1)]  # two whole GPUs wait for the part, one passes them
    assert run(Kubernetes(), machine((2, 96_000, 4000)), *whole).start_s.tolist() == [0.0, 100.0, 0.0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 10), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=14))
def test_no_device_is_over_full_and_ends_free_all(rows: list[tuple[int, int, int]]) -> None:
    """Pods of parts and of 2 GPUs, of three priorities, on two nodes of three GPUs."""
    jobs = [
        pod(at, 2 if tenths == 10 else 1, 1000 * cpus, gpu_milli=100 * tenths, priority=priority)
        for at, (tenths, cpus, priority) in enumerate(rows)
    ]
    policy = Kubernetes()
    result = run(policy, machine((3, 6000, 4000), (3, 9000, 4000)), *jobs)
    held = policy._nodes
    assert held is not None and (result.end_s > 0).all()
    assert held.devices.min() >= 0 and held.free.min() >= 0
    for number in list(held.pods):
        held.remove(number)
    assert (held.devices == 1000).all() and held.free.tolist() == [[6000, 4000], [9000, 4000]]


def test_affinity_to_the_gpu_models_that_a_pod_names() -> None:
    cluster = machine((2, 96_000, 4000), (2, 96_000, 4000), (8, 96_000, 4000), labels=("T4", "P100", "G2"))
    assert nodes_of(cluster, pod(0, accepts=("G2",)), pod(1, accepts=("P100", "T4")), pod(2)) == [2, 0, 1]
    busy = [pod(0, 2, accepts=("P100",)), pod(1, accepts=("P100",))]
    assert run(Kubernetes(), cluster, *busy).start_s.tolist() == [0.0, 100.0]  # though other nodes are free
    # No node is a V100, and no P100 node holds 4 GPUs: these run on any.
    assert nodes_of(cluster, pod(0, accepts=("V100",)), pod(1, 4, accepts=("P100",))) == [0, 2]


def test_priority_goes_first_and_displaces() -> None:
    """One node of 2 GPUs. Job 2 of high priority displaces the one of the lowest priority, job 1."""
    jobs = [pod(0, priority=1), pod(1, priority=0), pod(2, priority=2), pod(3, priority=0)]
    jobs[2].submit_s = jobs[3].submit_s = 10.0
    result = run(Kubernetes(), machine((2, 96_000, 4000)), *jobs)
    assert result.start_s.tolist() == [0.0, 0.0, 10.0, 110.0]  # job 1 goes on at 100 s
    assert result.preemptions.tolist() == [0, 1, 0, 0]
    assert result.end_s[1] > result.end_s[2]
    jobs = [pod(0, priority=1), pod(1, priority=0), pod(2, priority=2)]
    jobs[2].submit_s = 10.0
    calm = Kubernetes(preempt=False)
    assert run(calm, machine((2, 96_000, 4000)), *jobs).start_s.tolist() == [0.0, 0.0, 100.0]
    assert calm.stopped == 0


def test_the_node_of_the_least_victims() -> None:
    """Node 0 has a pod of priority 1, node 1 two of priority 0, node 2 one of priority 0: that one goes."""
    held = PodNodes(machine((2, 9000, 900), (2, 9000, 900), (2, 9000, 900)), Scoring())
    for number, (node, gpus, priority) in enumerate([(0, 2, 1), (1, 1, 0), (1, 1, 0), (2, 2, 0)]):
        held.put(pod(number, gpus, priority=priority), node, 0.0)
    before = held.devices.copy()
    assert [job.number for job in held.victims(pod(9, 2, priority=2))] == [3]
    assert [job.number for job in held.victims(pod(9, 1, priority=2))] == [2]  # job 1 is kept
    assert held.victims(pod(9, 2, priority=0)) == [] and held.victims(pod(9, 3, priority=2)) == []
    assert (held.devices == before).all()
    held = PodNodes(machine((2, 9000, 900), (2, 9000, 900)), Scoring())
    for node in (0, 1):
        held.put(pod(node, 2), node, 5.0 * node)
    assert [job.number for job in held.victims(pod(9, 2, priority=2))] == [1]  # the younger


def test_a_gang_displaces_whole_or_not_at_all() -> None:
    """Two nodes of 2 GPUs with a job of low priority each; a gang of three pods of 2 GPUs cannot fit: nothing stops."""
    cluster = machine((2, 96_000, 4000), (2, 96_000, 4000))
    held = [pod(0, 2), pod(1, 2), GpuJob(2, 10.0, 4, 50.0, pod_gpus=2, need=(1000, 100), priority=2)]
    result = run(Kubernetes(gang=True), cluster, *held)
    assert result.start_s.tolist() == [0.0, 0.0, 10.0] and result.preemptions.tolist() == [1, 1, 0]
    kept = [pod(0, 2), pod(1, 2, priority=2), GpuJob(2, 10.0, 4, 50.0, pod_gpus=2, need=(1000, 100), priority=2)]
    result = run(Kubernetes(gang=True), cluster, *kept)
    assert result.start_s.tolist() == [0.0, 0.0, 100.0] and not result.preemptions.any()


def test_the_queue_admits_within_quota_before_it_lends() -> None:
    """4 GPUs, 2 for each group. Group a asks for three at once and b for two: the third of a borrows, and waits."""
    cluster = machine((4, 96_000, 4000), quotas={"a": 2.0, "b": 2.0})
    jobs = [pod(at, group=group) for at, group in enumerate("aaabb")]
    policy = Kubernetes(queue=True)
    assert run(policy, cluster, *jobs).start_s.tolist() == [0.0, 0.0, 100.0, 0.0, 0.0] and policy.borrowed == 0
    # Without b's second job its quota is lent, and not taken back when b asks at 10 s.
    jobs = [pod(at, group=group) for at, group in enumerate("aaabb")]
    jobs[4].submit_s = 10.0
    policy = Kubernetes(queue=True)
    assert run(policy, cluster, *jobs).start_s.tolist() == [0.0, 0.0, 0.0, 0.0, 100.0] and policy.borrowed == 1
    # Without the queue, order of creation decides.
    jobs = [pod(at, group=group) for at, group in enumerate("aaabb")]
    assert run(Kubernetes(gang=True), cluster, *jobs).start_s.tolist() == [0.0, 0.0, 0.0, 0.0, 100.0]


def test_the_quota_of_the_cohort_is_the_limit() -> None:
    """Two groups with a quota of 1 GPU each run two jobs at once on 4 GPUs; part-GPUs count as their share."""
    cluster = machine((4, 96_000, 4000), quotas={"a": 1.0, "b": 1.0})
    jobs = [pod(at, group="a", gpu_milli=milli) for at, milli in enumerate((1000, 500, 500, 1000))]
    assert run(Kubernetes(queue=True), cluster, *jobs).start_s.tolist() == [0.0, 0.0, 0.0, 100.0]
    with pytest.raises(InputError, match=r"job 0 asks for 3 GPUs, but the quotas add up to 2: raise a quota"):
        run(Kubernetes(queue=True), cluster, pod(0, 3, group="a"))


def test_quotas_reach_the_queue_from_the_command() -> None:
    jobs = of_arrays(np.zeros(3), np.array([2, 2, 2]), np.full(3, 50.0), np.array([0, 0, 1]), ("a", "b"))
    replay = simulate(of_nodes(np.array([4])), jobs, "kubernetes", {"queue": 1.0}, {"a": 2, "b": 2})
    assert replay.result.start_s.tolist() == [0.0, 50.0, 0.0]
    guessed = simulate(of_nodes(np.array([4])), jobs, "kubernetes", {"queue": 1.0})
    assert guessed.said[0] == "kubernetes: 2 quotas are not declared: they follow the GPU time in the trace"
