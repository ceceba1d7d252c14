"""The life of the product: logs arrive, policies are trained, other logs arrive, the champion drifts, it is retrained.

Sensors and schedule are asked as Dagster's daemon asks them, and what they request is run in this process. Meanwhile a
`baton-agent`, a process of its own, keeps a chain on a fake Slurm with what has been released; its log is read as well.
The two user interfaces show it all in the end.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from agent.chains.decide import ReleasedPolicy
from agent.chains.loop import STOPPED
from assets.shared.resources import Baton
from models.provisioning import registry
from models.study import cluster, extent
from models.tracking import registered, versions
from models.tracking.runs import ui
from models.tracking.store import store_uri
from pipelines import triggers
from pipelines.definitions import build_defs
from pipelines.runs.home import prepared_home
from tests.agent.fake_slurm import FakeSlurm
from tests.agent.programs import Running, programs
from tests.browser.conftest import headless, opened, served
from traces.generate.logs import generate_slurm
from traces.store import derived, warehouse
from traces.store.folder import DataFolder

pytestmark = pytest.mark.slow
OLD_S = 1_600_000_000
WEEKS, NODES = 18, 8
FIRST = datetime(2026, 6, 1)  # a Monday
LIKE = datetime(2026, 6, 21)  # a busy day; all days are this one, so that a better policy is better in every week
NEWS = "2026-09-21"  # a Monday, two weeks before the last: from then on only guests submit


class Daemon:
    """What Dagster's daemon does with a data folder, one tick at a time."""

    def __init__(self, data: DataFolder, instance: dg.DagsterInstance) -> None:
        self.instance, self.resources = instance, {"baton": Baton(data=str(data.root))}
        self.defs = build_defs(self.resources)

    def tick(self, sensor: dg.SensorDefinition) -> list[dg.RunRequest]:
        with dg.build_sensor_context(instance=self.instance, resources=self.resources) as context:
            result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        for added in result.dynamic_partitions_requests or []:
            self.instance.add_dynamic_partitions("clusters", list(added.partition_keys))
        return list(result.run_requests or [])

    def run(self, request: dg.RunRequest, job: str) -> None:
        assert request.job_name in (job, None) and request.partition_key == "lab"
        tags = {**request.tags, "dagster/run_key": str(request.run_key)}
        made = self.defs.resolve_job_def(job).execute_in_process(instance=self.instance, partition_key="lab", tags=tags)
        assert made.success


class Agent:
    """A `baton-agent` as it is installed, that keeps a chain with the champion of `lab`."""

    def __init__(self, data: DataFolder, folder: Path) -> None:
        self.slurm = FakeSlurm(nodes=NODES, limit_s=12 * 3600, now_s=int(time.time()))
        self._data, self._folder = data, folder
        (folder / "job.sh").write_text("#!/bin/sh\n#SBATCH --time=12:00:00\n#SBATCH --nodes=1\nsleep 43200\n")

    @contextmanager
    def at_work(self) -> Iterator[Running]:
        """The Slurm, as long as the agent runs; then it is told to stop."""
        command = [
            str(Path(sys.executable).with_name("baton-agent")), "run", str(self._folder / "job.sh"), "--links", "3",
            "--artifact", str(self._data.artifacts / "lab" / "champion"), "--state", str(self._folder / "state"),
            "--cycle", "10",
        ]  # fmt: skip
        with programs(self.slurm, self._folder / "bin") as running, (self._folder / "agent.log").open("wb") as log:
            path = f"{running.folder}:{os.environ['PATH']}"
            process = subprocess.Popen(command, env={**os.environ, "PATH": path}, stderr=log)
            try:
                yield running
                process.terminate()
                assert process.wait(30) == STOPPED, self.log
            finally:
                process.kill()

    @property
    def log(self) -> str:
        """What it has said."""
        return (self._folder / "agent.log").read_text()

    @property
    def journal(self) -> str:
        """Its decisions and their outcomes, a JSON object a line."""
        return (self._folder / "state" / "decisions.jsonl").read_text()

    def wait_for(self, words: str) -> None:
        """Until it has said this."""
        for _ in range(1800):
            if words in self.log:
                return
            time.sleep(0.1)
        pytest.fail(f"never said {words!r}: {self.log}")


@dataclass
class Life:
    """The data folder and its daemon; `is_lived` once the life has come to its end."""

    data: DataFolder
    at_work: Daemon
    policies: list[str]  # that are trained
    is_lived: bool = False


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Life]:
    """Pairs of one node and 12 h twice a day, and policies that learn nothing: the road counts, no figures."""
    data = DataFolder(tmp_path_factory.mktemp("life") / "data")
    data.ensure_writable()
    data.clusters_toml.write_text(f"[lab]\nnodes = {NODES}\ngpus_per_node = 4\n")
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.from_config(str(prepared_home(data))) as instance:
        policies = ["reactive"]
        patch.setattr(registry, "every_policy", lambda: list(policies))
        patch.setattr(cluster, "PAIR_NODES", (1,))
        patch.setattr(cluster, "LIMIT_S", 12 * 3600)
        patch.setattr(extent, "EVERY_S", 12 * 3600)
        yield Life(data, Daemon(data, instance), policies)


def dumps(folder: Path) -> tuple[str, str]:
    """What sacct printed of the jobs submitted before NEWS, and of those from then on, whose users are all new.

    Every day has the jobs of one generated day, so that blocks of seven days are alike and the gate can tell.
    """
    dump = generate_slurm(
        folder, jobs=None, weeks=10, nodes=NODES, gpus_per_node=4, seed=2, steps=False, compress=False
    )
    header, *lines = dump.read_text(encoding="utf-8").splitlines()
    names = header.split("|")
    rows = [fields for line in lines if len(fields := line.split("|")) == len(names)]  # a job's name may hold a pipe
    submit, user = names.index("Submit"), names.index("User")
    one = [row for row in rows if timedelta() <= datetime.fromisoformat(row[submit]) - LIKE < timedelta(days=1)]
    first, then = [header], [header]
    for day in range(7 * WEEKS):
        for row in (moved(names, like, day) for like in one):
            if row[submit] < NEWS:
                first.append("|".join(row))
            else:
                then.append("|".join([*row[:user], f"guest-{row[user]}", *row[user + 1 :]]))
    return "\n".join(first) + "\n", "\n".join(then) + "\n"


def moved(names: list[str], row: list[str], day: int) -> list[str]:
    """The job on that day, counted from FIRST, under a number of its own."""
    later = FIRST + timedelta(days=day) - LIKE
    found = dict(zip(names, row, strict=True))
    for name in ("Submit", "Eligible", "Start", "End"):
        if found.get(name, "")[:1].isdigit():
            found[name] = (datetime.fromisoformat(found[name]) + later).isoformat()
    for name in ("JobID", "JobIDRaw"):
        if name in found:
            number = re.match(r"\d+", found[name])
            assert number is not None
            found[name] = f"{int(number[0]) + day * 100_000}{found[name][number.end() :]}"
    return list(found.values())


def arrive(data: DataFolder, name: str, text: str) -> None:
    path = data.raw / "lab" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (OLD_S, OLD_S))


def fitted(data: DataFolder) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (data.artifacts / "policies").rglob("*") if path.is_file()}


def first_champion(life: Life, text: str) -> int:
    """Logs land for the first time: everything is made of them, and a policy released."""
    data, at_work = life.data, life.at_work
    arrive(data, "march-to-september.psv", text)
    (request,) = at_work.tick(triggers.raw_files)
    at_work.run(request, "whole_pipeline")
    champion = registered.champion_version(data, "lab")
    assert champion is not None, "a first champion, if only a provisional one"
    report = (data.reports / "report.html").read_text()
    assert "Retraining is requested" not in report and "provisional" in report
    assert at_work.tick(triggers.raw_files) == [] == at_work.tick(triggers.drifted)
    return champion


def drift_is_seen(life: Life, text: str, champion: int) -> None:
    """Other logs land: they are analysed, the champion is held against them, and nothing is trained."""
    data, at_work = life.data, life.at_work
    arrive(data, "guests.psv", text)
    (request,) = at_work.tick(triggers.raw_files)
    fits = fitted(data)
    at_work.run(request, "intake")
    assert fitted(data) == fits and registered.champion_version(data, "lab") == champion, "nothing was trained"
    analysed = warehouse.read(data, "SELECT max(submit_utc) AS last FROM queueing_delay")
    assert analysed["last"][0] > datetime(2026, 10, 3)
    drift = derived.read(data, "champion_drift", "lab")
    assert drift["week_utc"].max() == datetime(2026, 9, 21) and set(drift["champion_version"]) == {champion}
    newest = drift.filter(pl.col("week_utc") == datetime(2026, 9, 21))
    assert "user_name" in newest.filter("is_beyond")["feature"].to_list()
    report = (data.reports / "report.html").read_text()
    assert "who submits" in report and "Retraining is requested" in report


def trained_again(life: Life, champion: int) -> None:
    """Drift asks for training, which ends in a decision about the champion; nothing asks twice for one cause."""
    data, at_work = life.data, life.at_work
    fits = fitted(data)
    (request,) = at_work.tick(triggers.drifted)
    at_work.run(request, "whole_pipeline")
    assert fitted(data) != fits
    decisions = derived.read(data, "release_log", "lab")
    assert decisions["champion_version"].to_list() == [None, champion]
    assert (decisions["policy"][1], decisions["verdict"][1]) == ("start-estimate", "passed"), decisions["reason"][1]
    assert registered.champion_version(data, "lab") == decisions["registered_version"][1] != champion
    assert decisions["reason"][1].split(":")[0] in (data.reports / "report.html").read_text()
    assert at_work.tick(triggers.drifted) == [], "one training run a cause"


def test_logs_arrive_the_champion_drifts_is_trained_again_and_the_agent_takes_up_what_is_released(
    life: Life, tmp_path: Path
) -> None:
    data, at_work = life.data, life.at_work
    first, then = dumps(tmp_path / "generated")
    champion = first_champion(life, first)
    agent = Agent(data, tmp_path)
    with agent.at_work() as slurm:
        drift_is_seen(life, then, champion)
        life.policies.append("start-estimate")
        agent.wait_for("decision, link 1: ")
        trained_again(life, champion)
        with slurm.lock:  # the link asks for another one, which waits until the new version is there
            slurm.slurm.nodes = 0
            slurm.slurm.end(slurm.slurm.running()[0], "FAILED", 85)
        agent.wait_for("link 2 (job 101): submitted")
        slurm.slurm.nodes = NODES
        agent.wait_for("decision, link 2: ")
    found, released = agent.log, ReleasedPolicy(data.artifacts / "lab" / "champion")
    decided = [json.loads(line) for line in agent.journal.splitlines() if '"event": "decision"' in line]
    assert found.index("decision, link 1: ") < found.index("loaded a new version of the policy: ")
    assert found.index("loaded a new version of the policy: ") < found.index("decision, link 2: ")
    assert decided[0]["version"] != decided[-1]["version"] == released.version and {d["by"] for d in decided} == {
        "policy"
    }

    arrive(data, "decisions.jsonl", agent.journal)
    (request,) = at_work.tick(triggers.raw_files)
    at_work.run(request, "intake")
    report = (data.reports / "report.html").read_text()
    assert (
        "Deployed policy" in report and "baton-agent maintained 1 chain of 2 jobs" in report and "1 handover" in report
    )

    sunday = dg.build_schedule_context(
        instance=at_work.instance, scheduled_execution_time=datetime(2026, 10, 11, 3, tzinfo=UTC)
    )
    weekly = triggers.weekly_retraining(sunday)
    assert isinstance(weekly, list) and [request.partition_key for request in weekly] == ["lab"]
    life.is_lived = True


@pytest.mark.browser
def test_both_user_interfaces_show_the_life(life: Life, tmp_path: Path) -> None:
    """Pictures of the pages are in the test's own folder, or in BATON_SCREENSHOTS."""
    if not life.is_lived:
        pytest.skip("the life before it did not come to its end")
    data, pictures = life.data, os.environ.get("BATON_SCREENSHOTS", str(tmp_path))
    champion = registered.champion_version(data, "lab")
    dagster = served(
        ("dagster-webserver", "-h", "127.0.0.1", "-p", "{port}", "-m", "pipelines.definitions"),
        {"DAGSTER_HOME": str(data.dagster), "BATON_DATA": str(data.root)}, "/server_info",
    )  # fmt: skip
    mlflow = served(
        ("mlflow", "server", "--host", "127.0.0.1", "--port", "{port}", "--workers", "1", "--backend-store-uri",
         store_uri(data)),
        {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1"}, "/health",
    )  # fmt: skip
    with ExitStack() as open_, ThreadPoolExecutor(2) as pool:
        page = open_.enter_context(headless(tmp_path / "profile"))
        runs_at, models_at = pool.map(open_.enter_context, (dagster, mlflow))
        opened(page, f"{runs_at}/runs", "whole_pipeline", "intake", "Success", name="life-runs", folder=pictures)
        release = f"{runs_at}/assets/provisioning_policy"
        opened(page, release, "start-estimate", "release", name="life-release", folder=pictures)
        path = versions.version_url(data, "lab", champion or 0).removeprefix(ui(data))
        opened(page, models_at + path, "champion", "Trained on", name="life-champion", folder=pictures)
