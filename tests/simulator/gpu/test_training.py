"""Progress of jobs that say their work, the throughput model that they learn, and what the clock and Sia make of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from simulator.gpu.cluster import of_nodes
from simulator.gpu.jobs import of_arrays
from simulator.gpu.policies.sia import Sia
from simulator.gpu.profiles import performance
from simulator.gpu.profiles.performance import BatchLimits, StepModel, best_batch, fitted, gain
from simulator.gpu.profiles.profile import Profile
from simulator.gpu.profiles.table import read_profiles
from simulator.gpu.round_policy import NOBODY, GpuJob, GpuMachine, Placed, View, speed
from simulator.gpu.rounds import simulate_rounds
from simulator.gpu.training import Training
from traces.errors import InputError

TRUE = StepModel(0.05, 0.002, 0.3, 0.01, 0.04, 0.005, 1.5)
HEADING = "model,gpu_type,placement,local_batch,step_s,sync_s\n"
STEPS = """model,gpu_type,placement,local_batch,step_s,sync_s
m,T4,1,10,1.0,0
m,T4,1,20,1.5,0
m,T4,2,10,1.2,0.2
m,T4,2,20,1.7,0.2
m,T4,1-1,10,1.5,0.5
m,T4,1-1,20,2.0,0.5
m,A100,1,10,0.5,0
m,A100,1,20,0.75,0
"""
MODELS = "model,batch,most_batch,slowdown,restart_s\nm,10,80,2,40\n"
STATISTICS = """model,batch,epoch,progress,grad_sqr,grad_var
m,10,0,100,1,9
m,10,1,200,1,19
m,80,0,110,1,9
m,80,1,220,1,19
"""


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return read(tmp_path)


def read(folder: Path, statistics: str = STATISTICS) -> Profile:
    for name, text in {"steps": STEPS, "models": MODELS, "statistics": statistics}.items():
        (folder / f"{name}.csv").write_text(text)
    return read_profiles(folder)["m"]


def test_slope_of_the_loss_is_its_derivative() -> None:
    rng = np.random.default_rng(0)
    points = np.array([[1, 1, 32], [1, 2, 64], [1, 4, 128], [2, 8, 128], [2, 16, 200]], dtype=np.float64)
    compute = np.log(rng.uniform(0.1, 0.3, 5))
    for _ in range(5):
        at = np.concatenate([rng.uniform(0.05, 0.3, 6), rng.uniform(1.1, 3.0, 1)])
        found = approx_fprime(at, lambda x: performance._loss(x, points, compute, compute + 0.3)[0], 1e-7)
        np.testing.assert_allclose(performance._loss(at, points, compute, compute + 0.3)[1], found, atol=1e-4)


def test_a_fit_predicts_what_it_has_seen_and_is_hopeful_beyond() -> None:
    every = np.array([[n, g, b] for n, g in ((1, 1), (1, 2), (1, 4), (2, 8), (4, 16)) for b in (16, 64)], dtype=float)
    step, compute = TRUE.seconds(*every.T)
    seen = {(int(n), int(g), b): (s, s - c) for (n, g, b), s, c in zip(every, step, compute, strict=True)}
    np.testing.assert_allclose(fitted(seen).seconds(*every.T)[0], step, rtol=0.25)  # the search stops early
    one = {(1, 2, 16.0): seen[1, 2, 16.0]}
    assert fitted(one).seconds(*np.array([[1.0], [2.0], [16.0]]))[0] == pytest.approx(seen[1, 2, 16.0][0], rel=0.01)
    alone = fitted({key: times for key, times in seen.items() if key[1] == 1})
    assert alone.seconds(*np.array([[4.0], [16.0], [64.0]]))[0] < 0.5 * step[-1]  # nobody has measured a sync


@pytest.mark.parametrize("is_fixed", [False, True])
def test_the_best_batch_is_that_of_an_enumeration(is_fixed: bool) -> None:
    limits, gradient = BatchLimits(32.0, 1000.0, 8.0, 100.0), (1.0, 30.0)
    for nodes, gpus in ((1.0, 1.0), (1.0, 4.0), (2.0, 16.0)):
        found = best_batch(TRUE, gradient, np.array([nodes]), np.array([gpus]), limits, is_fixed)
        best = (0.0, 0, 0)
        for batch in [1000.0] if is_fixed else np.geomspace(max(32.0, 8.0 * gpus), 1000.0, 50):
            parts = max(int(np.ceil(batch / gpus / 100.0 - 1e-8)), 2 if gpus == 1.0 and batch > 32.0 + 1e-8 else 1)
            local = int(np.ceil(batch / gpus / parts - 1e-8))
            step, compute = (float(s[0]) for s in TRUE.seconds(*np.array([[nodes], [gpus], [local]])))
            progress = float(gain(gradient, np.array(gpus * local * parts / 32.0)))
            goodput = 32.0 * progress / (step + (parts - 1) * compute)
            if 8 <= local <= 100 and goodput > best[0]:
                best = (goodput, local, parts - 1)
        assert (found.goodput[0], found.local_batch[0], found.accumulation[0]) == pytest.approx(best)


def test_a_job_of_fixed_batch_ends_when_its_epochs_at_their_gains_are_done(profile: Profile) -> None:
    job = Training(profile, 150.0, 40.0)
    job.place(("T4",), (1, 1))
    assert (job.local_batch, job.accumulation) == (20, 0)
    gains = (9 + 1) / (9 / 4 + 1), (19 + 1) / (19 / 4 + 1)
    seconds = 2 * 2.0 * (100 / gains[0] + 50 / gains[1])  # slowdown 2, steps of 2 s
    assert job.run(seconds / 2) is None and job.run(seconds) == pytest.approx(seconds / 2)
    alone = Training(profile, 150.0, 40.0)
    alone.place(("T4",), (1,))
    assert (alone.local_batch, alone.accumulation) == (20, 1)
    assert alone.run(1e6) == pytest.approx(2 * 3.0 * (100 / gains[0] + 50 / gains[1]))
    whole = Training(profile, 150.0, 40.0, whole_seconds=True)
    whole.place(("T4",), (1, 1))
    assert whole.run(1e6) == round(4 * 100 / gains[0]) + round(4 * 50 / gains[1])


def test_a_job_that_chooses_its_batch_begins_with_its_own_and_ends_sooner(profile: Profile) -> None:
    chooses, fixed = Training(profile, 200.0), Training(profile, 200.0, 20.0)
    for job in (chooses, fixed):
        job.place(("T4",), (2,))
    assert chooses.local_batch == 10 and chooses.run(10.0) is None
    assert chooses.local_batch * (chooses.accumulation + 1) * 2 > 20
    chosen_s, fixed_s = chooses.run(1e6), fixed.run(1e6)
    assert chosen_s is not None and fixed_s is not None and chosen_s + 10.0 < fixed_s


def test_goodput_is_unknown_on_types_where_the_job_never_ran(profile: Profile) -> None:
    job, on = Training(profile, 200.0), (np.array([1.0]), np.array([1.0]))
    job.place(("T4",), (1,))
    assert job.expected("T4", *on) is None and job.most_replicas_seen("T4") == 0
    job.run(1.0)
    found = job.expected("T4", *on)
    assert found is not None and found[0] > 0.0 and job.most_replicas_seen("T4") == 1
    assert job.expected("A100", *on) is None
    assert job.alone("A100") == pytest.approx(2.0 * job.alone("T4"))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("m,10,2,300,1,1\nm,10,2,400,1,1", "epoch 3 is expected"),
        ("m,10,2,150,1,1", "progress '150': give a number above 200"),
        ("m,10,2,300,1,1", "2 epochs of one batch and 3 of another"),
        ("m,10,2,300,-1,1", "grad_sqr '-1'"),
        ("m,0,0,300,1,1", "batch '0'"),
        ("other,10,0,300,1,1", "'other' has no row in steps.csv"),
    ],
)
def test_wrong_statistics_are_refused(tmp_path: Path, row: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read(tmp_path, STATISTICS + row + "\n")


class Turns:
    """Gives job 0 the GPUs of one node after the other."""

    round_s = 60.0
    pause_s: float | None = None
    guests = NOBODY

    def __init__(self, nodes: list[Placed], first_start: bool, free_moves: bool) -> None:
        self.nodes, self.first_start, self.free_moves = nodes, first_start, free_moves

    def decide(self, view: View) -> dict[int, Placed]:
        return {0: self.nodes[min(int(view.now_s // 60), len(self.nodes) - 1)]}


@pytest.mark.parametrize(
    ("first_start", "free_moves", "restarts", "charges"), [(0, 0, 1, 1), (1, 0, 1, 2), (1, 1, 0, 1)]
)
def test_the_clock_charges_starts_and_moves(
    profile: Profile, first_start: int, free_moves: int, restarts: int, charges: int
) -> None:
    machine = GpuMachine(np.array([2, 2]), ["T4", "T4"], "T4")
    job = GpuJob(0, 0.0, 2, 1000.0, model=profile, work=100.0, batch=40.0, restart_s=50.0)
    policy = Turns([{0: 2}, {1: 2}], bool(first_start), bool(free_moves))
    result = simulate_rounds([job], machine, policy)
    assert result.end_s[0] == pytest.approx(2 * 1.7 * 100 / (10 / (9 / 4 + 1)) + 50.0 * charges)
    assert result.restarts[0] == restarts and result.lost_gpu_s[0] == pytest.approx(2 * 50.0 * charges)
    assert job.left_s == 0.0


class Watched(Sia):
    """Sia whose decisions are kept: (GPUs, most GPUs that the job had run on before)."""

    def __init__(self) -> None:
        super().__init__(60.0, project=True)
        self.kept: list[tuple[int, int]] = []

    def decide(self, view: View) -> dict[int, Placed]:
        wanted = super().decide(view)
        for job in view.jobs:
            assert job.training is not None
            seen = max(job.training.most_replicas_seen(kind) for kind in ("T4", "A100"))
            self.kept.append((sum(wanted.get(job.number, {}).values()), seen))
        return wanted


def test_sia_starts_on_one_gpu_and_at_most_doubles_what_it_has_seen(profile: Profile) -> None:
    machine = GpuMachine(np.array([4, 4, 4]), ["T4", "T4", "A100"], "T4")
    jobs = [GpuJob(n, 0.0, 4, 1000.0, model=profile, elastic=True, work=2000.0, most=4) for n in range(2)]
    policy = Watched()
    result = simulate_rounds(jobs, machine, policy)
    assert policy.kept[:2] == [(1, 0), (1, 0)]
    assert all(gpus <= max(1, 2 * seen) and gpus <= 4 for gpus, seen in policy.kept)
    assert max(gpus for gpus, _ in policy.kept) == 4 and (result.end_s > 0.0).all()


def test_sia_runs_a_job_that_expects_no_progress_anywhere(tmp_path: Path) -> None:
    """One GPU must split 15 samples in two passes, of fewer samples than anybody measured."""
    (tmp_path / "steps.csv").write_text(HEADING + "m,T4,1,10,1.0,0\n")
    (tmp_path / "models.csv").write_text("model,batch,most_batch\nm,15,15\n")
    (tmp_path / "statistics.csv").write_text("model,batch,epoch,progress,grad_sqr,grad_var\nm,15,0,100,1,9\n")
    job = GpuJob(0, 0.0, 1, 1000.0, model=read_profiles(tmp_path)["m"], elastic=True, work=100.0)
    result = simulate_rounds([job], GpuMachine(np.array([2]), ["T4"], "T4"), Sia(60.0))
    assert result.end_s[0] == pytest.approx(2.0 * 100 / (10 / (9 / (14 / 15) + 1)))


def test_sia_names_a_job_whose_least_gpus_fit_nowhere(profile: Profile) -> None:
    job = GpuJob(7, 0.0, 1, 1000.0, model=profile, elastic=True, work=100.0, least=9)
    with pytest.raises(InputError, match="job 7 asks for 9 GPUs, but no kind of node has more than 4"):
        simulate_rounds([job], GpuMachine(np.array([4, 2]), ["T4", "A100"], "T4"), Sia())


def test_the_speed_of_a_job_with_a_batch_is_measured_with_that_batch(profile: Profile) -> None:
    """20 samples a GPU on two GPUs of one node: 1.7 s; 40 on one: two steps of 20, the first without synchronisation.

    Two nodes take 2.0 s. The slowdown of 2 cancels out.
    """
    machine = GpuMachine(np.array([2, 2]), ["T4", "T4"], "T4")
    job = GpuJob(0, 0.0, 2, 100.0, model=profile, work=100.0, batch=40.0)
    job.training = Training(profile, 100.0, 40.0)
    assert speed(job, {0: 2}, machine) == 1.0
    assert speed(job, {0: 1, 1: 1}, machine) == pytest.approx(1.7 / 2.0)
    assert speed(job, {0: 1}, machine) == pytest.approx(1.7 / 3.0)
    assert job.training.steps_per_s(("T4",), (2,)) == pytest.approx(1.0 / 1.7 / 2.0)
    assert job.training.placement == ()  # the job itself did not move


PIPELINES = """model,gpu_type,placement,local_batch,step_s,sync_s,stages
g,A100,2,24,20.0,0.1,2
g,A100,4,24,20.2,0.3,2
g,A100,8,24,20.4,0.5,2
g,RTX,8,6,17.0,0.3,8
g,RTX,8-8,6,17.2,0.5,8
"""


def pipelines(folder: Path) -> Profile:
    (folder / "steps.csv").write_text(PIPELINES)
    (folder / "models.csv").write_text("model,batch,most_batch\ng,48,384\n")
    (folder / "statistics.csv").write_text(
        "model,batch,epoch,progress,grad_sqr,grad_var\ng,48,0,500,1,99\ng,384,0,500,1,99\n"
    )
    return read_profiles(folder)["g"]


class Shapes(Sia):
    """Sia whose places are kept: GPU type and number of GPUs."""

    def __init__(self) -> None:
        super().__init__(60.0)
        self.kept: list[tuple[str, int]] = []

    def decide(self, view: View) -> dict[int, Placed]:
        wanted = super().decide(view)
        self.kept += [(view.machine.types[min(placed)], sum(placed.values())) for placed in wanted.values()]
        return wanted


def test_sia_gives_a_job_with_stages_whole_replicas_of_types_where_it_was_measured(tmp_path: Path) -> None:
    machine = GpuMachine(np.array([4, 4, 8, 8]), ["T4", "A100", "RTX", "RTX"], "A100")
    jobs = [GpuJob(n, 0.0, 2, 1e4, model=pipelines(tmp_path), elastic=True, work=300.0) for n in range(3)]
    policy = Shapes()
    result = simulate_rounds(jobs, machine, policy)
    assert set(policy.kept) == {("A100", 2), ("A100", 4), ("RTX", 8), ("RTX", 16)}
    assert policy.kept[:3].count(("A100", 2)) == 2 and policy.kept[:3].count(("RTX", 8)) == 1
    assert (result.end_s > 0.0).all()


def test_replicas_of_several_types_are_compared_as_wholes(tmp_path: Path) -> None:
    job = Training(pipelines(tmp_path), 100.0)
    assert job.alone("A100") == pytest.approx(48 / 20.0) and job.alone("RTX") == pytest.approx(48 / 17.0)
    job.place(("RTX",), (8, 8))
    assert job.run(1.0) is None and job.most_replicas_seen("RTX") == 2 and job.most_replicas_seen("A100") == 0
    with pytest.raises(InputError, match="model g cannot run on 3 GPUs of type A100: its stages need multiples of 2"):
        job.place(("A100",), (3,))
    with pytest.raises(InputError, match="4 GPUs of type T4: its stages need types on which it was measured"):
        job.place(("T4",), (4,))


def test_sia_keeps_a_rigid_job_with_stages_off_types_that_split_its_replicas(tmp_path: Path) -> None:
    machine = GpuMachine(np.array([4, 8]), ["A100", "RTX"], "A100")
    jobs = [GpuJob(n, 0.0, 4, 1000.0, model=pipelines(tmp_path), work=10.0, batch=96.0) for n in range(2)]
    policy = Shapes()
    simulate_rounds(jobs, machine, policy)
    assert set(policy.kept) == {("A100", 4)}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("g,A100,6,24,20,0,3", "line 7: stages 3 on a type where the model has 2 in another row"),
        ("g,A100,3,24,20,0,2", "line 7: placement 3 holds no whole number of replicas of 2 GPUs"),
        ("g,A100,4,24,20,0,0", "line 7: stages '0': give a whole number of at least 1"),
        ("g,A100,4,24,20,0,1.5", "line 7: stages '1.5': give a whole number"),
    ],
)
def test_wrong_stages_are_refused(tmp_path: Path, row: str, reason: str) -> None:
    (tmp_path / "steps.csv").write_text(PIPELINES + row + "\n")
    with pytest.raises(InputError, match=reason):
        read_profiles(tmp_path)


def test_a_batch_counts_for_the_speed_of_a_job_without_work(profile: Profile) -> None:
    """10 samples a GPU: 1.2 s on two GPUs of one node, 1.5 s on two nodes; with the usual 20, 1.7 s and 2.0 s."""
    cluster = of_nodes(np.array([2, 2]), ("T4", "T4"), "T4")
    jobs = replace(
        of_arrays(np.zeros(2), np.array([2, 2]), np.full(2, 100.0)),
        profiles=(profile,),
        model=np.zeros(2, dtype=np.int64),
        batch=np.array([20.0, np.nan]),
    )
    own = jobs.at_their_batch(trains=False)
    machine = cluster.machine()
    asked, usual = own.objects()
    assert speed(asked, {0: 1, 1: 1}, machine) == pytest.approx(1.2 / 1.5)
    assert speed(usual, {0: 1, 1: 1}, machine) == pytest.approx(1.7 / 2.0)
    again = jobs.at_their_batch(trains=False)
    assert [one is other for one, other in zip(own.profiles, again.profiles, strict=True)] == [True, True]
    working = replace(jobs, work=np.array([100.0, np.nan]))
    assert working.at_their_batch(trains=True).model.tolist() == [0, 0]  # the training counts the batch
    assert working.at_their_batch(trains=False).model.tolist() == [1, 0]
