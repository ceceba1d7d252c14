"""The life of the product: logs arrive, policies are trained, other logs arrive, the champion drifts, it is retrained.

Sensors and schedule are asked as Dagster's daemon asks them, and what they request is run in this process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import polars as pl
import pytest

from assets.resources import Baton
from models import registry
from models.study import cluster, extent
from models.tracking import registered
from pipelines import triggers
from pipelines.definitions import build_defs
from traces.generate.logs import generate_slurm
from traces.store import derived, warehouse
from traces.store.folder import DataFolder

pytestmark = pytest.mark.slow
OLD_S = 1_600_000_000
WEEKS, NODES = 13, 8
NEWS = "2026-08-17"  # a Monday: from then on only guests submit


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


@pytest.fixture
def daemon(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[DataFolder, Daemon]]:
    """Pairs of one node and 12 h twice a day, and two policies that learn nothing: the road counts, no figures."""
    monkeypatch.setattr(registry, "every_policy", lambda: ["reactive", "average-wait"])
    monkeypatch.setattr(cluster, "PAIR_NODES", (1,))
    monkeypatch.setattr(cluster, "LIMIT_S", 12 * 3600)
    monkeypatch.setattr(extent, "EVERY_S", 12 * 3600)
    data = DataFolder(tmp_path / "data")
    data.ensure_writable()
    data.clusters_toml.write_text(f"[lab]\nnodes = {NODES}\ngpus_per_node = 4\n")
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as instance:
        yield data, Daemon(data, instance)


def dumps(folder: Path) -> tuple[str, str]:
    """What sacct printed of the jobs submitted before NEWS, and of those from then on, whose users are all new."""
    dump = generate_slurm(
        folder, jobs=None, weeks=WEEKS, nodes=NODES, gpus_per_node=4, seed=7, steps=False, compress=False
    )
    header, *lines = dump.read_text(encoding="utf-8").splitlines()
    names = header.split("|")
    rows = [fields for line in lines if len(fields := line.split("|")) == len(names)]  # a job's name may hold a pipe
    submit, user = names.index("Submit"), names.index("User")
    first = [row for row in rows if row[submit] < NEWS]
    then = [[*row[:user], f"guest{n % 3}", *row[user + 1 :]] for n, row in enumerate(rows) if row[submit] >= NEWS]
    first_text, then_text = ("\n".join([header, *map("|".join, part)]) + "\n" for part in (first, then))
    return first_text, then_text


def arrive(data: DataFolder, name: str, text: str) -> None:
    path = data.raw / "lab" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    os.utime(path, (OLD_S, OLD_S))


def fitted(data: DataFolder) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (data.artifacts / "policies").rglob("*") if path.is_file()}


def test_logs_arrive_the_champion_drifts_and_is_trained_again(
    daemon: tuple[DataFolder, Daemon], tmp_path: Path
) -> None:
    data, at_work = daemon
    first, then = dumps(tmp_path / "generated")
    report = data.reports / "report.html"

    arrive(data, "june-to-august.psv", first)
    (request,) = at_work.tick(triggers.raw_files)
    at_work.run(request, "whole_pipeline")
    champion = registered.champion_version(data, "lab")
    assert champion is not None, "a first champion, if only a provisional one"
    assert "retraining is asked for" not in report.read_text() and "provisional" in report.read_text()
    assert at_work.tick(triggers.raw_files) == [] == at_work.tick(triggers.drifted)

    arrive(data, "guests.psv", then)
    (request,) = at_work.tick(triggers.raw_files)
    fits = fitted(data)
    at_work.run(request, "intake")
    assert fitted(data) == fits and registered.champion_version(data, "lab") == champion, "nothing was trained"
    analysed = warehouse.read(data, "SELECT max(submit_utc) AS last FROM queueing_delay")
    assert analysed["last"][0] > datetime(2026, 8, 29)
    drift = derived.read(data, "champion_drift", "lab")
    assert drift["week_utc"].max() == datetime(2026, 8, 17) and set(drift["champion_version"]) == {champion}
    newest = drift.filter(pl.col("week_utc") == datetime(2026, 8, 17))
    assert "user_name" in newest.filter("is_beyond")["feature"].to_list()
    assert "who submits" in report.read_text() and "retraining is asked for" in report.read_text()

    (request,) = at_work.tick(triggers.drifted)
    at_work.run(request, "whole_pipeline")
    assert fitted(data) != fits
    decisions = derived.read(data, "release_log", "lab")
    assert len(decisions) == 2 and decisions["champion_version"].to_list() == [None, champion]
    assert decisions["reason"][1].split(":")[0] in report.read_text()
    assert at_work.tick(triggers.drifted) == [], "one training run a cause"

    sunday = dg.build_schedule_context(
        instance=at_work.instance, scheduled_execution_time=datetime(2026, 9, 6, 3, tzinfo=UTC)
    )
    weekly = triggers.weekly_retraining(sunday)
    assert isinstance(weekly, list) and [request.partition_key for request in weekly] == ["lab"]
