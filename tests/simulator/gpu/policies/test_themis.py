"""The rules of Themis, on cases small enough to know the answer."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.gpu.policies.themis import Themis
from simulator.gpu.profiles.scaling import goodput
from simulator.gpu.result import GpuResult
from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, View
from simulator.gpu.rounds import simulate_rounds
from tests.simulator.gpu.models import MODELS
from traces.errors import InputError

BERT, CIFAR, IMAGENET, YOLO = (MODELS[name] for name in ("bert", "resnet18-cifar10", "resnet50-imagenet", "yolov3"))


def nodes(*gpus: int, kinds: list[str] | None = None) -> GpuMachine:
    return GpuMachine(np.array(gpus), kinds or ["T4"] * len(gpus), "T4")


def run(policy: Themis, machine: GpuMachine, *jobs: GpuJob) -> GpuResult:
    return simulate_rounds(list(jobs), machine, policy)


def decided(machine: GpuMachine, *jobs: GpuJob, now_s: float = 0.0, **settings: float) -> dict[int, Placed]:
    for job in jobs:
        job.left_s = job.left_s or job.run_s
    policy = Themis(**{"filter_share": 0.0, **settings})  # type: ignore[arg-type]
    policy._chance = Chance(0.0)  # type: ignore[assignment]
    return policy.decide(View(now_s, machine, list(jobs)))


class Chance:
    """Stands in for the draws of a run: always the same."""

    def __init__(self, value: float) -> None:
        self.value = value

    def random(self) -> float:
        return self.value


def test_gpus_are_kept_for_the_lease_and_then_go_to_the_largest_rho() -> None:
    long, late = GpuJob(0, 0.0, 4, 100_000.0), GpuJob(1, 600.0, 4, 600.0)
    result = run(Themis(round_s=300.0, lease_s=1200.0), nodes(4), long, late)
    assert result.start_s[1] == 1200.0  # a short job's rho grows fast: it wins the first auction
    assert result.preemptions[0] >= 1


@pytest.mark.parametrize(("drawn", "winner"), [(0.0, 1), (0.60, 1), (0.68, 0), (0.99, 0)])
def test_a_winner_pays_with_the_chance_to_keep(drawn: float, winner: int) -> None:
    # The short job wins. Without its bid, the value of the long job would be 31200 / 20000 times as large. So the
    # winner keeps its gang with probability 0.641 = 20000 / 31200, and otherwise the job with the largest rho gets it.
    jobs = [GpuJob(0, 0.0, 4, 10_000.0, left_s=10_000.0), GpuJob(1, 10_000.0, 4, 60.0, left_s=60.0)]
    policy = Themis(filter_share=0.0)
    policy._chance = Chance(drawn)  # type: ignore[assignment]
    assert policy.decide(View(10_000.0, nodes(4), jobs)) == {winner: {0: 4}}


def test_the_job_that_slows_most_gets_the_whole_node() -> None:
    def kept(model: str) -> float:
        """Return the share of its speed that a gang of 4 keeps on 4 nodes."""
        return goodput(MODELS[model], "T4", 4, 4, 4) / goodput(MODELS[model], "T4", 4, 1, 4)

    assert kept("yolov3") < 0.7 < 0.8 < kept("resnet50-imagenet")
    machine = nodes(4, 1, 1, 1, 1)
    for first, second in ((YOLO, IMAGENET), (IMAGENET, YOLO)):
        wanted = decided(machine, GpuJob(0, 0.0, 4, 9000.0, model=first), GpuJob(1, 0.0, 4, 9000.0, model=second))
        whole = 0 if first is YOLO else 1
        assert wanted == {whole: {0: 4}, 1 - whole: {1: 1, 2: 1, 3: 1, 4: 1}}


def test_the_job_that_gains_most_from_a_type_gets_it() -> None:
    gain = {
        model: goodput(MODELS[model], "A100", 1, 1, 1) / goodput(MODELS[model], "T4", 1, 1, 1)
        for model in ("resnet18-cifar10", "yolov3")
    }
    assert gain["resnet18-cifar10"] > 1.5 * gain["yolov3"]
    machine = nodes(1, 1, kinds=["T4", "A100"])
    for first, second in ((CIFAR, YOLO), (YOLO, CIFAR)):
        wanted = decided(machine, GpuJob(0, 0.0, 1, 9000.0, model=first), GpuJob(1, 0.0, 1, 9000.0, model=second))
        assert wanted == ({0: {1: 1}, 1: {0: 1}} if first is CIFAR else {0: {0: 1}, 1: {1: 1}})


def test_remaining_gpus_go_to_the_fastest_place() -> None:
    # f = 0.5: the first app bids, the second takes what is left, the A100 and not the T4 that comes first.
    machine = nodes(4, 4, 4, kinds=["T4", "A100", "A100"])
    jobs = [GpuJob(0, 0.0, 4, 9000.0, model=CIFAR), GpuJob(1, 0.0, 4, 9000.0, model=CIFAR)]
    assert decided(machine, *jobs, filter_share=0.5) == {0: {1: 4}, 1: {2: 4}}


def test_a_winner_stays_where_it_is() -> None:
    held = GpuJob(0, 0.0, 2, 9000.0, model=BERT, placed={1: 2}, speed=1.0)
    assert decided(nodes(2, 2), held, now_s=1200.0) == {0: {1: 2}}
    spread = GpuJob(0, 0.0, 4, 9000.0, model=YOLO, placed={1: 2, 2: 2}, speed=0.7)
    assert decided(nodes(4, 2, 2), spread, now_s=1200.0) == {0: {0: 4}}


def test_an_app_gives_its_gpus_to_the_shortest_trials_and_ends_with_the_last() -> None:
    trials = [GpuJob(n, 0.0, 1, run_s, app=3) for n, run_s in enumerate([9000.0, 1000.0, 5000.0])]
    policy = Themis(round_s=300.0, lease_s=300.0)
    result = run(policy, nodes(1), *trials)
    assert result.end_s[1] < result.end_s[2] < result.end_s[0]
    assert set(policy._came_s) == {-4} and len(policy._whole[-4]) == 3  # one app, which the auction knows alone


def test_an_app_bids_for_some_of_its_trials() -> None:
    # Five trials of one app and one job, on 3 GPUs. The app is worth 1 / (its last end): its third GPU brings
    # less than the job's only one.
    trials = [GpuJob(n, 0.0, 1, 1000.0, app=0) for n in range(5)]
    wanted = decided(nodes(3), *trials, GpuJob(5, 0.0, 1, 1000.0))
    assert set(wanted) == {0, 1, 5}


def test_a_job_may_name_its_app_by_the_number_of_another_job() -> None:
    policy = Themis()
    policy.decide(
        View(0.0, nodes(4), [GpuJob(0, 0.0, 1, 60.0, left_s=60.0), GpuJob(1, 0.0, 1, 60.0, left_s=60.0, app=0)])
    )
    assert len(policy._came_s) == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"filter_share": 1.0}, "themis: filter_share of 1: it must be at least 0 and below 1"),
        ({"lease_s": -1.0}, "themis: lease_s of -1: it must be at least 0"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Themis(**settings)  # type: ignore[arg-type]
