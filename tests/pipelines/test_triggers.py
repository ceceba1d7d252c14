"""The sensors on data/raw/<cluster>/ and on drift, the weekly schedules, and the switch of all of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from assets.shared.resources import Baton
from models.queue_time.tables import QUEUE_TIME_DRIFT
from models.tables import CHAMPION_DRIFT, frame
from models.tracking import registered
from models.tracking.kinds import QUEUE_TIME
from pipelines import triggers
from tests.pipelines.conftest import dump
from tests.reports.started import queue_time_drift
from traces.errors import InputError
from traces.store import derived
from traces.store.folder import DataFolder

OLD_S = 1_600_000_000
MONDAY = datetime(2026, 6, 1)


@pytest.fixture
def instance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path_factory.mktemp("dagster"))) as made:
        yield made


def put(data: Path, cluster: str, name: str, jobs: int = 3) -> Path:
    """A raw file that has been lying there for long."""
    folder = data / "raw" / cluster
    folder.mkdir(parents=True, exist_ok=True)
    path = dump(folder / name, jobs)
    os.utime(path, (OLD_S, OLD_S))
    return path


def tick(data: Path, instance: dg.DagsterInstance, cursor: str | None = None) -> dg.SensorResult:
    resources = {"baton": Baton(data=str(data))}
    with dg.build_sensor_context(instance=instance, cursor=cursor, resources=resources) as context:
        result = triggers.raw_files(context)
    assert isinstance(result, dg.SensorResult)
    return result


def requests(result: dg.SensorResult) -> list[tuple[str | None, str | None]]:
    return [(request.partition_key, request.run_key) for request in result.run_requests or []]


@dg.job
def whole() -> None:
    """Stands for the whole pipeline: does well, or fails."""

    @dg.op(config_schema={"fails": dg.Field(bool, default_value=False)})
    def work(context):  # type: ignore[no-untyped-def]  # Dagster reads the annotation, and cannot while it is text
        if context.op_config["fails"]:
            raise OSError("no space left on device")

    work()


def launched(instance: dg.DagsterInstance, result: dg.SensorResult, *, fails: bool) -> str:
    """What the daemon does with the one run that is asked for; returns the run's id."""
    (request,) = result.run_requests or []
    key = str(request.run_key)
    seen = instance.get_runs(dg.RunsFilter(tags={"dagster/run_key": key}))
    assert not seen, "Dagster starts no second run for a key that it has seen"
    config = {"ops": {"work": {"config": {"fails": fails}}}}
    done = whole.execute_in_process(
        config, instance=instance, tags={**request.tags, "dagster/run_key": key}, raise_on_error=False
    )
    assert done.success is not fails
    return done.run_id


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the sensor's clock so many seconds ahead of the present."""

    def ahead(seconds: float) -> None:
        monkeypatch.setattr(triggers, "time", SimpleNamespace(time=lambda: time.time() + seconds))

    return ahead


def test_a_run_that_failed_is_tried_again_until_it_goes_well(
    tmp_path: Path, instance: dg.DagsterInstance, clock: Callable[[float], None], capfd: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "ls6", "a.psv")
    first = tick(tmp_path, instance)
    run_id = launched(instance, first, fails=True)
    capfd.readouterr()
    waiting = tick(tmp_path, instance, first.cursor)
    assert not waiting.run_requests and waiting.skip_reason and run_id in str(waiting.skip_reason.skip_message)
    assert "attempt 1 of 4" in str(waiting.cursor) and "the next is due at" in str(waiting.cursor)
    assert run_id in capfd.readouterr().err
    tick(tmp_path, instance, waiting.cursor)
    assert run_id not in capfd.readouterr().err, "said once, and not at every tick"

    clock(601)
    second = tick(tmp_path, instance, waiting.cursor)
    assert requests(second) != requests(first) and len(requests(second)) == 1
    assert (second.run_requests or [])[0].tags["baton/attempt"] == "2"
    launched(instance, second, fails=False)
    clock(10**7)
    assert requests(tick(tmp_path, instance, second.cursor)) == [], "what went well is not done again"
    put(tmp_path, "ls6", "b.psv", 4)
    launched(instance, tick(tmp_path, instance, second.cursor), fails=False)


def test_a_content_that_always_fails_is_given_up_and_its_last_run_named(
    tmp_path: Path, instance: dg.DagsterInstance, clock: Callable[[float], None]
) -> None:
    path = put(tmp_path, "ls6", "a.psv")
    run_ids = []
    for ahead, early in ((0, None), (601, 500), (3601, 3500), (6 * 3600 + 1, 6 * 3600 - 100)):
        if early is not None:
            clock(early)
            assert requests(tick(tmp_path, instance)) == []
        clock(ahead)
        run_ids.append(launched(instance, tick(tmp_path, instance), fails=True))
    clock(10**7)
    last = tick(tmp_path, instance)
    assert requests(last) == [] and last.skip_reason
    message = str(last.skip_reason.skip_message)
    assert f"attempt 4 of 4 (run {run_ids[-1]}) failed" in message and "until a file changes" in message
    dump(path, 5)
    os.utime(path, (OLD_S + 60, OLD_S + 60))
    launched(instance, tick(tmp_path, instance), fails=False)


def test_what_runs_or_was_cancelled_is_left_alone(
    tmp_path: Path, instance: dg.DagsterInstance, clock: Callable[[float], None]
) -> None:
    put(tmp_path, "ls6", "a.psv")
    first = tick(tmp_path, instance)
    ((_, key),) = requests(first)
    run = instance.create_run_for_job(whole, tags={"dagster/run_key": str(key)})
    clock(10**7)
    assert requests(tick(tmp_path, instance)) == []
    instance.report_run_canceled(run)
    cancelled = tick(tmp_path, instance)
    assert requests(cancelled) == [] and "was cancelled" in str(cancelled.cursor)


def test_the_cursor_of_an_older_version_is_understood(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    put(tmp_path, "ls6", "a.psv")
    first = tick(tmp_path, instance)
    files = json.loads(str(first.cursor))["files"]
    assert requests(tick(tmp_path, instance, json.dumps(files))) == requests(first)


def test_a_file_that_cannot_be_read_stops_no_other_cluster(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    bad, _ = put(tmp_path, "lab", "a.psv"), put(tmp_path, "ls6", "a.psv")
    (tmp_path / "raw" / "ls6" / "nowhere").symlink_to(tmp_path / "gone")
    real = Path.open

    def denied(path: Path, *arguments: Any, **named: Any) -> Any:
        if path == bad:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", denied)
    assert [partition for partition, _ in requests(tick(tmp_path, instance))] == ["ls6"]
    assert "Permission denied" in capfd.readouterr().err


def test_one_run_a_cluster_for_all_its_new_files(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    put(tmp_path, "ls6", "a.psv"), put(tmp_path, "ls6", "b.psv", 4), put(tmp_path, "lab", "c.psv")
    result = tick(tmp_path, instance)
    assert [partition for partition, _ in requests(result)] == ["lab", "ls6"]
    (added,) = result.dynamic_partitions_requests or []
    assert sorted(added.partition_keys) == ["lab", "ls6"]


def test_the_run_key_is_the_content(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    path = put(tmp_path, "ls6", "a.psv")
    first = requests(tick(tmp_path, instance))
    path.rename(path.with_name("renamed.psv"))
    assert requests(tick(tmp_path, instance)) == first
    put(tmp_path, "ls6", "b.psv", 4)
    assert requests(tick(tmp_path, instance)) != first


def test_a_changed_file_runs_again_and_an_unchanged_one_is_not_read(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = put(tmp_path, "ls6", "a.psv")
    first = tick(tmp_path, instance)
    with monkeypatch.context() as patch:
        patch.setattr("hashlib.file_digest", lambda *_: pytest.fail("an unchanged file was read"))
        assert requests(tick(tmp_path, instance, first.cursor)) == requests(first)
    dump(path, 5)
    os.utime(path, (OLD_S + 60, OLD_S + 60))
    assert requests(tick(tmp_path, instance, first.cursor)) != requests(first)


def test_a_file_that_has_disappeared_is_reported_once(
    tmp_path: Path, instance: dg.DagsterInstance, capfd: pytest.CaptureFixture[str]
) -> None:
    gone, kept = put(tmp_path, "ls6", "a.psv"), put(tmp_path, "ls6", "b.psv", 4)
    first = tick(tmp_path, instance)
    gone.unlink()
    capfd.readouterr()
    second = tick(tmp_path, instance, first.cursor)
    assert f"{gone} has disappeared" in capfd.readouterr().err and str(kept) in str(second.cursor)
    tick(tmp_path, instance, second.cursor)
    assert "has disappeared" not in capfd.readouterr().err


def test_files_still_being_written_hidden_ones_and_nothing(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    assert requests(tick(tmp_path, instance)) == []
    fresh = put(tmp_path, "ls6", "a.psv")
    os.utime(fresh)
    hidden = put(tmp_path, "ls6", ".partial.psv")
    assert hidden.exists()
    assert requests(tick(tmp_path, instance)) == []


def test_a_folder_that_names_no_cluster_is_left_alone(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    put(tmp_path, "derived", "a.psv"), put(tmp_path, "ls6", "a.psv")
    assert [partition for partition, _ in requests(tick(tmp_path, instance))] == ["ls6"]


def test_a_cluster_with_a_champion_is_not_trained_for_new_logs(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "ls6", "a.psv"), put(tmp_path, "lab", "c.psv")
    monkeypatch.setattr(registered, "champion_version", lambda _data, cluster: 3 if cluster == "ls6" else None)
    result = tick(tmp_path, instance)
    jobs = {request.partition_key: request.job_name for request in result.run_requests or []}
    assert jobs == {"lab": "whole_pipeline", "ls6": "intake"}


def drift_of(data: Path, cluster: str, *, beyond: bool, version: int = 3, week: datetime = MONDAY) -> None:
    """A week that is like the fit's, and one that is beyond the bound of one feature or of none."""
    row = {
        "cluster": cluster, "champion_version": version, "before_from_utc": datetime(2026, 1, 5), "weeks": 19,
        "before_until_utc": datetime(2026, 5, 18), "n_before": 900, "n": 50, "psi": 0.2, "bound": 0.3, "chance": 0.05,
    }  # fmt: skip
    rows = [
        {**row, "week_utc": week - timedelta(weeks=1), "feature": "wait_s", "is_beyond": True},
        {**row, "week_utc": week, "feature": "wait_s", "is_beyond": False},
        {**row, "week_utc": week, "feature": "nodes", "is_beyond": beyond},
    ]
    folder = DataFolder(data)
    folder.ensure_writable()
    derived.write(folder, CHAMPION_DRIFT, cluster, frame(CHAMPION_DRIFT, rows), "")


def drifted(data: Path, instance: dg.DagsterInstance) -> dg.SensorResult:
    with dg.build_sensor_context(instance=instance, resources={"baton": Baton(data=str(data))}) as context:
        result = triggers.drifted(context)
    assert isinstance(result, dg.SensorResult)
    return result


def test_a_drifted_champion_is_trained_again_once_a_cause(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    monkeypatch.setattr(registered, "champion_version", lambda *_: 3)
    instance.add_dynamic_partitions("clusters", ["calm", "lab", "unseen"])
    drift_of(tmp_path, "calm", beyond=False)
    drift_of(tmp_path, "lab", beyond=True)
    first = drifted(tmp_path, instance)
    ((cluster, key),) = requests(first)
    assert cluster == "lab" and key and key.startswith("lab-drift-")
    launched(instance, first, fails=True)
    waiting = drifted(tmp_path, instance)
    assert (
        requests(waiting) == []
        and "nodes asked for" in str(waiting.skip_reason)
        and "failed" in str(waiting.skip_reason)
    )
    clock(601)
    launched(instance, drifted(tmp_path, instance), fails=False)
    clock(10**7)
    assert requests(drifted(tmp_path, instance)) == []

    drift_of(tmp_path, "lab", beyond=True, week=MONDAY + timedelta(weeks=1))
    assert requests(drifted(tmp_path, instance)) not in ([], [(cluster, key)]), "another week is another cause"
    monkeypatch.setattr(registered, "champion_version", lambda *_: 4)
    assert requests(drifted(tmp_path, instance)) == [], "the table is about a champion that was replaced"
    drift_of(tmp_path, "lab", beyond=True, version=4)
    assert requests(drifted(tmp_path, instance)) not in ([], [(cluster, key)])


@pytest.mark.filterwarnings("error")
def test_a_cluster_without_a_champion_drifts_without_a_warning(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("clusters", ["lab"])
    drift_of(tmp_path, "lab", beyond=True)
    assert requests(drifted(tmp_path, instance)) == []


def test_a_queue_time_champion_that_does_worse_than_promised_is_trained_again_once_a_cause(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registered, "champion_version", lambda _data, _cluster, model: {QUEUE_TIME: 2}.get(model))
    instance.add_dynamic_partitions("clusters", ["calm", "lab", "unseen"])
    folder = DataFolder(tmp_path)
    folder.ensure_writable()
    derived.write(folder, QUEUE_TIME_DRIFT, "calm", queue_time_drift("calm", value=0.1), "")
    derived.write(folder, QUEUE_TIME_DRIFT, "lab", queue_time_drift("lab", value=0.2), "")
    drift_of(tmp_path, "lab", beyond=True)

    def asked() -> dg.SensorResult:
        with dg.build_sensor_context(instance=instance, resources={"baton": Baton(data=str(tmp_path))}) as context:
            result = triggers.queue_time_drifted(context)
        assert isinstance(result, dg.SensorResult)
        return result

    first = asked()
    ((cluster, key),) = requests(first)
    assert cluster == "lab" and key and key.startswith("lab-queue-time-drift-")
    assert triggers.queue_time_drifted.job_name == "queue_time"
    launched(instance, first, fails=False)
    assert requests(asked()) == []
    later = queue_time_drift("lab", value=0.2, week=datetime(2024, 3, 18))
    derived.write(folder, QUEUE_TIME_DRIFT, "lab", later, "")
    assert requests(asked()) not in ([], [(cluster, key)]), "another week is another cause"
    monkeypatch.setattr(registered, "champion_version", lambda *_: 3)
    assert requests(asked()) == [], "the table is about a champion that was replaced"


def test_a_table_that_cannot_be_read_stops_no_other_cluster(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registered, "champion_version", lambda *_: 3)
    instance.add_dynamic_partitions("clusters", ["bad", "lab"])
    drift_of(tmp_path, "bad", beyond=True)
    drift_of(tmp_path, "lab", beyond=True)
    (tmp_path / "lake" / "derived" / "champion_drift" / "bad.parquet").write_text("no table")
    assert [cluster for cluster, _ in requests(drifted(tmp_path, instance))] == ["lab"]
    assert "cluster bad" in capfd.readouterr().err


@pytest.mark.parametrize(("switch", "status"), [(None, "RUNNING"), ("on", "RUNNING"), ("off", "STOPPED")])
def test_the_switch_says_whether_triggers_are_on(switch: str | None, status: str) -> None:
    program = (
        "from pipelines.definitions import defs\n"
        "found = [*defs.sensors, *defs.schedules]\n"
        "print(*sorted(f'{one.name} {one.default_status.value}' for one in found), sep='\\n')"
    )
    environment = {name: value for name, value in os.environ.items() if name != triggers.SWITCH}
    environment |= {} if switch is None else {triggers.SWITCH: switch}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [
        f"{name} {status}"
        for name in ("drifted", "queue_time_drifted", "raw_files", "weekly_queue_time", "weekly_retraining")
    ]


def test_a_switch_that_says_neither_is_refused() -> None:
    with pytest.raises(InputError, match=r"^BATON_TRIGGERS=yes\\x1b is not allowed: use on or off$"):
        triggers.is_on("yes\x1b")


def test_the_schedule_retrains_every_known_cluster(instance: dg.DagsterInstance) -> None:
    instance.add_dynamic_partitions("clusters", ["ls6", "lab"])
    sunday = datetime(2026, 11, 22, 3, tzinfo=UTC)
    context = dg.build_schedule_context(instance=instance, scheduled_execution_time=sunday)
    found = triggers.weekly_retraining(context)
    assert isinstance(found, list)
    assert [(request.partition_key, request.run_key) for request in found] == [
        ("lab", "lab-2026-11-22"),
        ("ls6", "ls6-2026-11-22"),
    ]
    assert triggers.weekly_retraining.cron_schedule == "0 3 * * 0"
