"""The engine on a real Ray of two nodes: the same bytes as here, lost tasks run once more, other code is refused."""

from __future__ import annotations

import json
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from models.deployment import EngineOptions
from models.engine import work as work_module
from models.engine.checks import engine_checks
from models.engine.local import each_here
from models.engine.ray import each_on_ray
from models.engine.scratch import Scratch
from models.engine.work import Task, Work
from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.policies.forest import RandomForest
from models.provisioning.training.processes import fit_one
from tests.live import tasks
from tests.models.broken_policy import Broken
from tests.models.pair_tables import random_pairs
from tests.ray_cluster import LOOPBACK, RayCluster, running_ray, wait_for
from traces.cache.closure import ROOT
from traces.errors import InputError, WorkError


@pytest.fixture(scope="module")
def ray() -> Iterator[RayCluster]:
    with running_ray() as cluster:
        yield cluster


@pytest.fixture
def options(ray: RayCluster, monkeypatch: pytest.MonkeyPatch) -> EngineOptions:
    for name, value in LOOPBACK.items():
        monkeypatch.setenv(name, value)
    return EngineOptions(kind="ray", address=ray.address, memory="500M")


def test_results_are_those_of_this_machine_and_a_new_run_finds_them(options: EngineOptions, tmp_path: Path) -> None:
    named = [Task(f"forest, seed {seed}", (RandomForest(trees=2), seed), "forest") for seed in range(3)]
    asked = Work(fit_one, named, random_pairs(0, 6), [RandomForest.__module__], is_exact=True)
    here = {at: content_digest(artifact) for at, (artifact, _m, _s) in each_here(asked, 2)}
    scratch = Scratch(tmp_path / "scratch")
    there = {at: content_digest(artifact) for at, (artifact, _m, _s) in each_on_ray(asked, options, scratch)}
    assert there == here
    nowhere = replace(options, address="127.0.0.1:1")
    again = {at: content_digest(artifact) for at, (artifact, _m, _s) in each_on_ray(asked, nowhere, scratch)}
    assert again == here  # nothing was submitted


def test_what_a_task_raises_is_raised(options: EngineOptions) -> None:
    fit = Work(fit_one, [Task("the fit", (Broken(), 3), "x")], random_pairs(0, 6), [Broken.__module__])
    with pytest.raises(ValueError, match=r"^no fit with seed 3"):
        list(each_on_ray(fit, options))


def test_a_killed_worker_costs_one_more_run_and_a_second_loss_is_named(
    ray: RayCluster, options: EngineOptions, tmp_path: Path
) -> None:
    work = Work(
        tasks.killed_below, [Task("needs 900M", 900 << 20, "x"), Task("needs 1200M", 1200 << 20, "x")], tmp_path
    )
    results = each_on_ray(work, replace(options, at_once=1))
    assert next(results) == (0, 1000 << 20)  # with twice the memory
    with pytest.raises(WorkError, match=r"^needs 1200M: lost twice on Ray \(.*worker died"):
        next(results)


def driver(options: EngineOptions, folder: Path, *seconds: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.live.tasks", json.dumps(asdict(options)), str(folder), *seconds]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def runs(folder: Path) -> list[int]:
    return [len(path.read_text()) for path in sorted(folder.glob("*.runs"))]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_ends_leaves_no_task(options: EngineOptions, tmp_path: Path, number: signal.Signals) -> None:
    """A new run has the results that were finished, and begins the others anew."""
    kept = replace(options, scratch=str(tmp_path / "scratch"), at_once=1)
    killed = driver(kept, tmp_path, "0", "600")
    wait_for((tmp_path / "1.pid").exists, "the second task", 90)
    killed.send_signal(number)
    try:
        killed.communicate(timeout=90)
    finally:
        killed.kill()  # a driver that stays would hold the processors of the following tests
    task = Path("/proc") / (tmp_path / "1.pid").read_text()
    wait_for(lambda: not task.exists(), "the end of the task", 20)
    if number == signal.SIGKILL:
        (tmp_path / "go").touch()
        out, _err = driver(kept, tmp_path, "0", "600").communicate(timeout=90)
        assert json.loads(out) == [[0, 0], [1, 1]] and runs(tmp_path) == [1, 2]


def test_a_worker_with_other_code_refuses(options: EngineOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    real = work_module.code_parts
    monkeypatch.setattr(work_module, "code_parts", lambda modules: real(modules) | {"numpy": "1.0"})
    with pytest.raises(WorkError, match=rf"^node {platform.node()} has other code than the driver: numpy \(1\.0; here"):
        list(each_on_ray(Work(tasks.identity, [Task("it", 1, "x")]), options))


def test_the_checks_pass_and_name_what_does_not(ray: RayCluster, options: EngineOptions) -> None:
    found = list(engine_checks(options))
    assert [(one.name, one.finding) for one in found if one.mend] == []
    assert found[-1].finding == f"ran on {platform.node()} with the same code"
    for wrong, line in (
        (replace(options, address="127.0.0.1:1"), "engine.address '127.0.0.1:1': "),
        (
            replace(options, memory="64G"),
            "no node of the Ray cluster has engine.cpus 1 and engine.memory 64G: they have",
        ),
    ):
        last = list(engine_checks(wrong))[-1]
        assert last.name == "cluster" and last.mend and last.finding.startswith(line), last
        with pytest.raises(InputError, match=re.escape(line)):
            list(each_on_ray(Work(tasks.identity, [Task("it", 1, "x")]), wrong))


def test_its_servers_listen_on_the_loopback_alone(ray: RayCluster) -> None:
    ours = ray.daemons()
    heard = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout.splitlines()
    addresses = [line.split()[3] for line in heard if any(f"pid={pid}," in line for pid in ours)]
    assert addresses and all("127.0.0.1" in address for address in addresses), addresses


def test_a_killed_node_costs_its_tasks_one_more_run(ray: RayCluster, options: EngineOptions, tmp_path: Path) -> None:
    """The last test, because the node does not come back."""
    running = driver(options, tmp_path, "600", "600")
    wait_for(lambda: runs(tmp_path) == [1, 1], "both tasks", 90)
    ray.kill_newest_node()
    assert running.stderr is not None
    assert re.fullmatch(r"Ray: sleep \d is lost \(.*\); trying again\n", running.stderr.readline())
    (tmp_path / "go").touch()
    out, _err = running.communicate(timeout=90)
    assert json.loads(out) == [[0, 0], [1, 1]] and sorted(runs(tmp_path)) == [1, 2]
