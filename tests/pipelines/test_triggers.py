"""The sensor on data/raw/<cluster>/ and the weekly schedule."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from assets.resources import Baton
from pipelines import triggers
from tests.pipelines.conftest import dump

OLD_S = 1_600_000_000


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
    context = dg.build_sensor_context(instance=instance, cursor=cursor)
    result = triggers.raw_files(context, baton=Baton(data=str(data)))
    assert isinstance(result, dg.SensorResult)
    return result


def requests(result: dg.SensorResult) -> list[tuple[str | None, str | None]]:
    return [(request.partition_key, request.run_key) for request in result.run_requests or []]


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
        patch.setattr(triggers.hashlib, "file_digest", lambda *_: pytest.fail("an unchanged file was read"))
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
