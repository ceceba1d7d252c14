"""The asset that holds a queue-time champion to its promise: what it keeps, and when its check warns."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from assets import queue_time
from assets.shared.resources import CLUSTERS, Baton
from models.queue_time.tables import QUEUE_TIME_DRIFT
from models.release.queue_time import drift
from models.tracking import versions
from models.tracking.versions import RegisteredVersion
from tests.reports.started import queue_time_drift
from traces.store import derived, warehouse
from traces.store.folder import DataFolder


@pytest.mark.parametrize(("value", "passed"), [(0.1, True), (0.2, False)])
def test_the_check_warns_where_the_newest_week_is_worse_than_promised(
    value: float, passed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = []

    def found(*_: object) -> object:
        computed.append(value)
        return queue_time_drift("lab", value=value)

    monkeypatch.setattr(drift, "drift", found)
    monkeypatch.setattr(warehouse, "made_from", lambda *_: "log")
    monkeypatch.setattr(versions, "champion", lambda *_: RegisteredVersion(2, "", {}))
    data = DataFolder(tmp_path)
    data.ensure_writable()
    data.clusters_toml.write_text("[lab]\nnodes = 4\n")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions(str(CLUSTERS.name), ["lab"])
        for _ in range(2):
            result = dg.materialize(
                [queue_time.queue_time_drift],
                instance=instance,
                partition_key="lab",
                resources={"baton": Baton(data=str(tmp_path))},
            )
            (check,) = result.get_asset_check_evaluations()
            assert result.success and check.passed == passed and check.severity == dg.AssetCheckSeverity.WARN
    assert computed == [value], "what is kept is not computed twice"
    assert derived.read(data, QUEUE_TIME_DRIFT.name, "lab").height == 2
