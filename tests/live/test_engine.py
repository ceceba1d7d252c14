"""The engine on a real Slurm: the same bytes as here, lost tasks are done again, a new driver finds what is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from models.deployment import EngineOptions
from models.engine.checks import engine_checks
from models.engine.local import each_here
from models.engine.scratch import Scratch
from models.engine.slurm import each_on_slurm
from models.engine.work import Task, Work
from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.policies.forest import RandomForest
from models.provisioning.protocol import Policy
from models.provisioning.training.processes import fit_one
from tests.live import tasks
from tests.live.slurm import Cluster, Slurm
from tests.models.broken_policy import Broken
from tests.models.pair_tables import random_pairs
from traces.cache.closure import ROOT
from traces.errors import InputError, WorkError

pytestmark = pytest.mark.live

MEMORY = {
    "JobAcctGatherType": "jobacct_gather/linux", "JobAcctGatherFrequency": "task=1",
    "JobAcctGatherParams": "OverMemoryKill",
}  # fmt: skip


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Two nodes that end a job where it uses too much memory. On this machine's own Slurm alone: submitit reads it."""
    pytest.importorskip("submitit")
    with Slurm.running(Cluster(nodes=2, settings=MEMORY)) as cluster:
        yield cluster


@pytest.fixture
def scratch(slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    return Scratch(tmp_path / "scratch")


OPTIONS = EngineOptions(kind="slurm", partition="gpu", time="5m", memory="1G")


def fits(*asked: tuple[Policy, int]) -> Work:
    named = [Task(f"{policy.name}, seed {seed}", (policy, seed), policy.name) for policy, seed in asked]
    modules = {type(policy).__module__ for policy, _seed in asked}
    return Work(fit_one, named, random_pairs(0, 6), sorted(modules), is_exact=True)


def sleeps(folder: Path, *seconds: float) -> Work:
    return Work(tasks.slept, [Task(f"sleep {place}", (place, s), "sleep") for place, s in enumerate(seconds)], folder)


def test_results_are_those_of_this_machine_and_a_new_driver_finds_them(scratch: Scratch) -> None:
    asked = fits(*((RandomForest(trees=2), seed) for seed in range(3)))
    here = {at: content_digest(artifact) for at, (artifact, _metrics, _s) in each_here(asked, 2)}
    there = {at: content_digest(artifact) for at, (artifact, _metrics, _s) in each_on_slurm(asked, OPTIONS, scratch)}
    assert there == here
    began = time.monotonic()
    again = {at: content_digest(artifact) for at, (artifact, _m, _s) in each_on_slurm(asked, OPTIONS, scratch)}
    assert again == here and time.monotonic() - began < 2  # nothing was submitted


def test_what_a_task_raises_is_raised_and_a_lost_one_is_named(slurm: Slurm, scratch: Scratch) -> None:
    with pytest.raises(ValueError, match="no fit with seed 3"):
        list(each_on_slurm(fits((Broken(), 3)), OPTIONS, scratch))
    with pytest.raises(WorkError, match=r"reactive, seed 5: lost twice on Slurm \(job \d+, FAILED\)") as lost:
        list(each_on_slurm(fits((Broken(kills=True), 5)), OPTIONS, scratch))
    assert "of a library" in Path(str(lost.value).rpartition(" ")[2].replace(".err", ".out")).read_text()
    with pytest.raises(InputError, match=r"Slurm refuses the jobs of the engine: .*partition"):
        list(each_on_slurm(fits((Broken(), 1)), replace(OPTIONS, partition="nowhere"), scratch))
    assert not slurm.run("squeue", "-h").strip()


def test_a_killed_worker_costs_one_more_run_of_its_task_alone(slurm: Slurm, scratch: Scratch, tmp_path: Path) -> None:
    scratch.remember_times("tests.live.tasks:slept", {"sleep": 1.0})  # one chunk
    results = each_on_slurm(sleeps(tmp_path, 0.1, 4.0, 0.1, 0.1), OPTIONS, scratch)
    assert next(results) == (0, 0)
    slurm.wait(20, lambda: (tmp_path / "1.runs").exists(), "the second task")
    os.kill(int((tmp_path / "1.pid").read_text()), signal.SIGKILL)
    assert sorted(results) == [(1, 1), (2, 2), (3, 3)]
    runs = [len((tmp_path / f"{place}.runs").read_text()) for place in range(4)]
    assert runs == [1, 2, 1, 1]


def test_a_killed_slurmd_loses_no_result(slurm: Slurm, scratch: Scratch, tmp_path: Path) -> None:
    results = each_on_slurm(sleeps(tmp_path, 0.1, 8.0, 8.0), OPTIONS, scratch)
    assert next(results) == (0, 0)
    slurm.wait(20, lambda: all((tmp_path / f"{place}.runs").exists() for place in (1, 2)), "both tasks")
    os.kill(slurm.pid("slurmd-n1"), signal.SIGKILL)
    slurm.daemon("slurmd", "-N", "n1")
    assert sorted(results) == [(1, 1), (2, 2)]


def test_too_little_memory_is_doubled_once(scratch: Scratch, tmp_path: Path) -> None:
    small = replace(OPTIONS, memory="300M")
    assert list(each_on_slurm(Work(tasks.held, [Task("450", 450, "held")], tmp_path), small, scratch)) == [(0, 450)]
    with pytest.raises(WorkError, match=r"900: lost twice on Slurm \(job \d+, FAILED: out of memory\?\)"):
        list(each_on_slurm(Work(tasks.held, [Task("900", 900, "held")], tmp_path), small, scratch))


def test_who_stops_listening_cancels_the_jobs(slurm: Slurm, scratch: Scratch, tmp_path: Path) -> None:
    results = each_on_slurm(sleeps(tmp_path, 0.1, 300.0), OPTIONS, scratch)
    assert next(results)[0] == 0
    results.close()  # type: ignore[attr-defined]
    slurm.wait(20, lambda: not slurm.run("squeue", "-h", "-t", "running,pending").strip(), "the jobs to be cancelled")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_ends(slurm: Slurm, scratch: Scratch, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C cancels its jobs. After kill -9 they go on, and the next driver waits for them."""
    program = [sys.executable, "-m", "tests.live.tasks", str(scratch.root), str(tmp_path), "8"]
    driver = subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    slurm.wait(30, lambda: (tmp_path / "0.runs").exists(), "the task")
    driver.send_signal(number)
    driver.communicate(timeout=20)
    if number == signal.SIGINT:
        slurm.wait(20, lambda: not slurm.run("squeue", "-h", "-t", "running,pending").strip(), "the jobs to go")
        return
    done = subprocess.run(program, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=60)
    assert json.loads(done.stdout) == [[0, 0]] and (tmp_path / "0.runs").read_text() == "x"


def test_the_checks_pass_and_name_what_does_not(scratch: Scratch) -> None:
    found = list(engine_checks(replace(OPTIONS, scratch=str(scratch.root))))
    assert [(one.name, one.mend) for one in found if one.mend] == []
    assert [one.name for one in found][-1] == "a task on a node"
    wrong = list(engine_checks(replace(OPTIONS, scratch=str(scratch.root), partition="nowhere")))
    assert [one.name for one in wrong if one.mend] == ["partition"]
