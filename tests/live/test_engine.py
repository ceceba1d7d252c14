"""The engine on a real Slurm: the same bytes as here, lost tasks are done again, a new driver finds what is there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.check import TESTED
from models.deployment import EngineOptions
from models.engine import raw_files
from models.engine.checks import engine_checks
from models.engine.local import each_here
from models.engine.scratch import Scratch
from models.engine.slurm import each_on_slurm
from models.engine.work import Task, Work
from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.pairs.recorded import Predecessors, build_recorded_pairs
from models.provisioning.policies.forest import RandomForest
from models.provisioning.protocol import Policy
from models.provisioning.training.processes import fit_one
from models.queue_time.ground import submitted_jobs
from models.queue_time.registry import make_method
from models.queue_time.study import judge_jobs
from simulator.recorded.record import NONE
from tests.features.submission.logs import ORIGIN_S, generated_log
from tests.live import tasks
from tests.live.slurm import Cluster, Slurm, end_daemons
from tests.models.broken_policy import Broken
from tests.models.engine.test_raw_files import counts, raw, read, rows  # noqa: F401 - a fixture
from tests.models.pair_tables import random_pairs
from tests.models.provisioning.futures.generated import busy
from traces.cache.closure import ROOT
from traces.errors import InputError, WorkError
from traces.ingest import one_by_one
from traces.units import DAY_S

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
    monkeypatch.setattr("models.engine.slurm.ASK_S", 2.0)
    return Scratch(tmp_path / "scratch")


OPTIONS = EngineOptions(kind="slurm", partition="gpu", time="5m", memory="1G")


def fits(*asked: tuple[Policy, int]) -> Work:
    named = [Task(f"{policy.name}, seed {seed}", (policy, seed), policy.name) for policy, seed in asked]
    modules = {type(policy).__module__ for policy, _seed in asked}
    return Work(fit_one, named, random_pairs(0, 6), sorted(modules), is_exact=True)


def test_results_are_those_of_this_machine_and_a_new_driver_finds_them(scratch: Scratch) -> None:
    asked = fits(*((RandomForest(trees=2), seed) for seed in range(3)))
    here = {at: content_digest(artifact) for at, (artifact, _metrics, _s) in each_here(asked, 2)}
    there = {at: content_digest(artifact) for at, (artifact, _metrics, _s) in each_on_slurm(asked, OPTIONS, scratch)}
    assert there == here
    began = time.monotonic()
    again = {at: content_digest(artifact) for at, (artifact, _m, _s) in each_on_slurm(asked, OPTIONS, scratch)}
    assert again == here and time.monotonic() - began < 2  # nothing was submitted


def test_pairs_and_queue_times_are_those_of_this_machine(scratch: Scratch) -> None:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    (scratch.root / "cache").symlink_to(cache)  # what the workers need is compiled already

    def there(work: Work, _most: int) -> Iterator[tuple[int, Any]]:
        return each_on_slurm(work, OPTIONS, scratch)

    record, chosen = busy(), Predecessors(np.arange(200, 230), np.full(30, NONE))
    tables = [build_recorded_pairs(record, chosen, decision_s=7200, engine=engine) for engine in (each_here, there)]
    assert tables[0].digest == tables[1].digest and len(tables[0].decision_s) > 30
    from_s, until_s = ORIGIN_S + 20 * DAY_S, ORIGIN_S + 30 * DAY_S
    ground = submitted_jobs(generated_log(3, jobs=400, days=30), from_s)
    methods = [make_method(name) for name in ("limits", "trout-boosting")]
    judged = [judge_jobs(ground, "lab", from_s, until_s, from_s, methods, 0, engine) for engine in (each_here, there)]
    for name in ("limits", "trout-boosting"):
        quantiles_s = [one.forecasts[name].quantiles_s.tobytes() for one in judged]
        assert quantiles_s[0] == quantiles_s[1]


def test_raw_files_are_read_as_on_this_machine(
    scratch: Scratch,
    raw: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_one = read(raw, tmp_path / "here", one_by_one)
    monkeypatch.setattr(raw_files, "engine_of", lambda _root: lambda work, _most: each_on_slurm(work, OPTIONS, scratch))
    on_nodes = read(raw, tmp_path / "there", raw_files.files_on_engine(tmp_path / "there"))
    assert counts(on_nodes) == counts(by_one) and rows(tmp_path / "there") == rows(tmp_path / "here")
    assert len(scratch.answered()) == len(on_nodes)


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
    results = each_on_slurm(tasks.sleeps(tmp_path, 0.1, 4.0, 0.1, 0.1), OPTIONS, scratch)
    assert next(results) == (0, 0)
    slurm.wait(20, lambda: (tmp_path / "1.runs").exists(), "the second task")
    os.kill(int((tmp_path / "1.pid").read_text()), signal.SIGKILL)
    assert sorted(results) == [(1, 1), (2, 2), (3, 3)]
    runs = [len((tmp_path / f"{place}.runs").read_text()) for place in range(4)]
    assert runs == [1, 2, 1, 1]


def test_a_killed_slurmd_loses_no_result(slurm: Slurm, scratch: Scratch, tmp_path: Path) -> None:
    results = each_on_slurm(tasks.sleeps(tmp_path, 0.1, 8.0, 8.0), OPTIONS, scratch)
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
    results = each_on_slurm(tasks.sleeps(tmp_path, 0.1, 300.0), OPTIONS, scratch)
    assert next(results)[0] == 0
    results.close()  # type: ignore[attr-defined]
    slurm.wait(20, lambda: not slurm.run("squeue", "-h", "-t", "running,pending").strip(), "the jobs to be cancelled")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_ends(slurm: Slurm, scratch: Scratch, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C cancels its jobs. After kill -9 they go on, and the next driver waits for them."""
    options = json.dumps(asdict(replace(OPTIONS, scratch=str(scratch.root))))
    program = [sys.executable, "-m", "tests.live.tasks", options, str(tmp_path), "8"]
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


@pytest.fixture
def small_disk(scratch: Scratch, tmp_path: Path) -> Iterator[Path]:
    """A scratch folder on a disk of 3 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=700", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_is_named_and_what_is_finished_is_kept(small_disk: Path) -> None:
    scratch = Scratch(small_disk)
    scratch.remember_times("tests.live.tasks:filled", {"x": 1.0})  # one chunk
    work = Work(tasks.filled, [Task(f"{mib} MiB", mib, "x") for mib in (0, 1, 4)])
    results = each_on_slurm(work, OPTIONS, scratch)
    assert [(at, len(data)) for at, data in (next(results), next(results))] == [(0, 0), (1, 1 << 20)]
    with pytest.raises(WorkError, match=rf"^node .*: {small_disk}/answers/\w+: No space left on device$"):
        next(results)
    (small_disk / "ballast").write_bytes(bytes(small_disk.stat().st_size))
    with pytest.raises(WorkError, match=rf"^{small_disk}/.*: No space left on device"):
        list(each_on_slurm(Work(tasks.filled, [Task("5 MiB", 5, "x")], "x" * (4 << 20)), OPTIONS, scratch))
    subprocess.run(["mount", "-o", "remount,size=16m", small_disk], check=True)
    assert sorted(len(data) >> 20 for _at, data in each_on_slurm(work, OPTIONS, scratch)) == [0, 1, 4]


def restarted(slurm: Slurm, hidden: Path | None = None) -> None:
    """Start the nodes again; if a folder is named, they see an empty one in its place."""
    for node in ("n1", "n2"):
        end_daemons([slurm.pid(f"slurmd-{node}")])
        hide = f"mount -t tmpfs tmpfs {hidden}; " if hidden else ""
        script = ("sh", "-euc", f"{hide}exec slurmd -N {node}")
        slurm.daemon("unshare", "--mount", "--propagation=private", *script)
    slurm.wait(30, lambda: "idle" in slurm.run("sinfo", "-h", "-o", "%T"), "the nodes")


def test_a_node_without_the_scratch_folder_is_named(slurm: Slurm, scratch: Scratch, tmp_path: Path) -> None:
    restarted(slurm, hidden=tmp_path)
    try:
        with pytest.raises(WorkError, match=rf"sleep 0: lost twice on Slurm \(job \d+, FAILED.*{scratch.root}"):
            list(each_on_slurm(tasks.sleeps(tmp_path, 0.1), OPTIONS, scratch))
    finally:
        restarted(slurm)


def test_a_node_without_the_data_is_the_error_of_the_task(slurm: Slurm, scratch: Scratch, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/trace").write_text("x")
    restarted(slurm, hidden=tmp_path / "data")
    try:
        work = Work(tasks.size_of, [Task("size", 0, "x")], tmp_path / "data/trace")
        with pytest.raises(FileNotFoundError, match="data/trace"):
            list(each_on_slurm(work, OPTIONS, scratch))
    finally:
        restarted(slurm)


IN_LONG_FORM = pytest.mark.skipif(os.environ.get("BATON_LIVE") != "full", reason="a minute: make live")


@IN_LONG_FORM
def test_a_job_that_reaches_its_limit_runs_once_more(slurm: Slurm, scratch: Scratch, tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"sleep 0: lost twice on Slurm \(job \d+, TIMEOUT\)"):
        list(each_on_slurm(tasks.sleeps(tmp_path, 300.0), replace(OPTIONS, time="1m"), scratch))
    assert (tmp_path / "0.runs").read_text() == "xx"


def test_a_killed_controller_costs_at_most_one_more_run(slurm: Slurm, scratch: Scratch, tmp_path: Path) -> None:
    """Killed soon after a job begins, it forgets the job, and sacct calls the job RUNNING for ever.

    It gives the job's number to the next job. A node that knows the number is drained and does not launch that job,
    which is then held: here an operator resumes the node, and the engine submits the tasks once more.
    """
    options = json.dumps(asdict(replace(OPTIONS, scratch=str(scratch.root))))
    program = [sys.executable, "-m", "tests.live.tasks", options, str(tmp_path), "5", "5"]
    driver = subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        slurm.wait(20, (tmp_path / "1.runs").exists, "the second task")
        os.kill(slurm.pid("slurmctld"), signal.SIGKILL)
        slurm.daemon("slurmctld")
        resume = ("scontrol", "update", "NodeName=n1,n2", "State=RESUME")
        slurm.wait(120, lambda: driver.poll() is not None or bool(slurm.run(*resume)), "the driver", every=2)
        out, _err = driver.communicate()
    finally:
        driver.kill()
    assert json.loads(out) == [[0, 0], [1, 1]]
    assert all((tmp_path / f"{place}.runs").read_text() in ("x", "xx") for place in (0, 1))
    slurm.wait(20, lambda: not slurm.run("squeue", "-h").strip(), "the controller to see the jobs end")


@IN_LONG_FORM
@pytest.mark.parametrize("version", TESTED[1:])
def test_newer_versions_of_slurm(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bytes as here. Jobs run this machine's Python, in this machine's root."""
    pytest.importorskip("submitit")
    with Slurm.running(Cluster(nodes=1, settings=MEMORY), version=version) as slurm:
        for name, value in slurm.env.items():
            monkeypatch.setenv(name, value)
        python = slurm.folder / "python"
        python.write_text(f'#!/bin/sh\nexec /usr/sbin/chroot /mnt {sys.executable} "$@"\n')
        python.chmod(0o755)
        scratch = Scratch(tmp_path / "scratch")
        options = replace(OPTIONS, setup=("export PATH=/usr/bin:/bin",))
        asked = fits((RandomForest(trees=2), 0))
        ((_at, (here, *_)),) = each_here(asked, 1)
        monkeypatch.setattr(sys, "executable", str(python))  # of the jobs
        ((_at, (there, *_)),) = each_on_slurm(asked, options, scratch)
        assert content_digest(there) == content_digest(here)
