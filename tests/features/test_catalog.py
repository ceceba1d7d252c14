"""Every analytics module on whole traces: through the warehouse, on odd ones, and on the real A100 log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from features.catalog import FEATURES
from features.causes.waits import CAUSES
from features.trace import BYTES_OF_JOB
from tests.features.toy import CLUSTER, job, trace
from traces.clusters import ClusterSettings
from traces.errors import WorkError
from traces.generate.logs import generate_philly
from traces.ingest import ingest
from traces.schema import Table
from traces.store import derived, warehouse
from traces.store.folder import DataFolder
from traces.store.frames import conform, query

TABLES: list[Table] = [table for module in FEATURES.values() for table in module.TABLES]


def all_tables(data: DataFolder, settings: ClusterSettings) -> dict[str, pl.DataFrame]:
    found: dict[str, pl.DataFrame] = {}
    for module in FEATURES.values():
        found |= module.compute(data, settings)
    return found


def most(values: pl.Series) -> float:
    """The largest value; fails where there is none."""
    largest = values.max()
    assert isinstance(largest, int | float)
    return largest


def check(found: dict[str, pl.DataFrame]) -> None:
    """Declared tables, declared columns, no null where none is allowed, keys that identify."""
    assert set(found) == {table.name for table in TABLES}
    for table in TABLES:
        frame = found[table.name]
        assert tuple(frame.columns) == table.names
        conform(table, frame)
        assert not frame.select(table.key).is_duplicated().any(), table.name


@pytest.mark.parametrize("name", [name for name in FEATURES if name != "deployed"])  # which reads no job
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([], id="empty"),
        pytest.param([job("x", 0, 5, 65, None)], id="one job, no GPU, no node count"),
        pytest.param([job("x", 0, 0, 0, 1)], id="one job of zero length"),
        pytest.param([job(str(i), i, None, i + 9, 4, state="CANCELLED") for i in range(3)], id="all cancelled"),
        pytest.param([job("x", None, None, None, None, state="PENDING")], id="no time at all"),
        pytest.param([job("x", 0, 5, None, 1, state="RUNNING")], id="still running"),
        pytest.param(
            [
                job(str(i), w * 604_800, w * 604_800 + 9, w * 604_800 + 99, 2, partition="a")
                for i, w in enumerate((0, 1, 9))
            ],
            id="a gap of weeks",
        ),
        pytest.param(
            [job(str(i), 0, 60 * i, 600, 4, partition="ab"[i % 2]) for i in range(6)], id="a partition without a quota"
        ),
        pytest.param([job(str(i), 0, 60 * i, 600 + i, None) for i in range(6)], id="one day, no GPU column"),
    ],
)
def test_odd_traces_give_frames_with_the_right_columns(name: str, rows: list[dict[str, Any]]) -> None:
    module = FEATURES[name]
    for settings in (ClusterSettings(CLUSTER), ClusterSettings(CLUSTER, nodes=2, gpus_per_node=4, quotas={"a": 4})):
        found = module.from_trace(trace(rows), settings)
        assert list(found) == [table.name for table in module.TABLES]
        for table in module.TABLES:
            assert tuple(found[table.name].columns) == table.names
            conform(table, found[table.name])


@pytest.fixture(scope="module")
def philly(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A small generated Philly log with half a day of samples, in a warehouse."""
    folder = tmp_path_factory.mktemp("philly")
    generate_philly(folder / "raw", jobs=800, weeks=1, utilization_days=1, machines=6, seed=3, compress=False)
    data = DataFolder(folder / "data")
    ingest([folder / "raw"], cluster=ClusterSettings("philly", timezone="America/Los_Angeles"), data=data)
    warehouse.build(data)
    return data


def test_philly_from_raw_files_to_derived_tables(philly: DataFolder) -> None:
    settings = ClusterSettings("philly", timezone="America/Los_Angeles")
    found = all_tables(philly, settings)
    check(found)
    delays = found["queueing_delay"]
    assert delays["quota_source"].drop_nulls().unique().to_list() == ["inferred"]
    split = delays.drop_nulls("fair_share_delay_s").filter(pl.col("wait_s") >= 0)
    assert split.height > 500
    assert (split["fair_share_delay_s"] + split["fragmentation_delay_s"] == split["eligible_wait_s"]).all()
    waited = delays.filter(pl.col("wait_s") >= 0)
    assert (waited.select(pl.sum_horizontal(CAUSES)).to_series() == waited["wait_s"]).all()
    assert waited["cause_basis"].unique().to_list() == ["placements"] and waited["own_limit_s"].sum() == 0
    assert found["fragmentation"]["basis"].unique().to_list() == ["placements"]
    # No machine has more GPUs than the generator's largest, although the log lacks the ends of some jobs.
    assert most(found["fragmentation"]["largest_node_gpus"]) <= 8
    measured = found["utilization_measured"]
    assert measured.height and measured["attribution"].unique().to_list() == ["gpu"]
    # A GPU-minute goes to one attempt at most.
    samples = warehouse.read(philly, "SELECT count(*) AS n FROM gpu_utilization").item()
    assert 0 < measured["samples"].sum() <= samples
    for table in TABLES:
        derived.write(philly, table, "philly", found[table.name], "test")
    rows = warehouse.build(philly)
    assert {table.name: rows[table.name] for table in TABLES} == {name: frame.height for name, frame in found.items()}


@pytest.mark.slow
def test_the_a100_log(shared_traces: Path, tmp_path: Path) -> None:
    """Whole nodes, no groups, no GPU column: what the log does not hold is null and says so."""
    settings = ClusterSettings("ls6", timezone="America/Chicago", nodes=80, gpus_per_node=3)
    data = DataFolder(tmp_path)
    ingest([shared_traces / "tacc-lonestar6" / "ls6-a100.log"], cluster=settings, data=data)
    warehouse.build(data)
    found = all_tables(data, settings)
    check(found)
    delays = found["queueing_delay"]
    assert (
        delays["fair_share_delay_s"].null_count() == delays.height == warehouse.read(data, "SELECT * FROM jobs").height
    )
    assert delays["quota_source"].null_count() == delays.height
    waited = delays.drop_nulls("wait_s")
    assert (waited.select(pl.sum_horizontal(CAUSES)).to_series() == waited["wait_s"]).all()
    assert waited["cause_basis"].unique().to_list() == ["GPU counts"]
    # No user of this log runs more than eight jobs at once, and 22 reach exactly eight.
    assert delays["own_limit"].drop_nulls().unique().to_list() == ["8 running jobs per user (inferred)"]
    full = int(waited["cluster_full_s"].sum()) / int(waited["wait_s"].sum())
    assert 0.03 < full < 0.06  # of the declared 80 nodes; of the 76 ever in use at once it would be 17 %
    jobs = warehouse.read(data, "SELECT wait_s, start_utc, end_utc, allocated_nodes FROM jobs")
    whole = found["queueing_by"].filter(pl.col("dimension") == "all").row(0, named=True)
    assert whole["wait_mean_s"] == pytest.approx(jobs["wait_s"].drop_nulls().mean())
    held = query(
        "SELECT sum(epoch(end_utc - start_utc) * allocated_nodes * 3)::BIGINT AS s FROM jobs", {"jobs": jobs}
    ).item()
    allocated = found["utilization_allocated"].filter((pl.col("scope") == "cluster") & pl.col("is_binding"))
    assert allocated["unit"].unique().to_list() == ["GPU"] and allocated["allocated_s"].sum() == held
    totals = found["usage_by"].filter(pl.col("dimension").is_in(["all", "user_name", "month"]))
    assert totals.group_by("dimension").agg(pl.col("gpu_time_s").sum())["gpu_time_s"].unique().to_list() == [held]
    assert most(allocated["allocated_share"]) <= 1
    assert found["fragmentation"]["basis"].unique().to_list() == ["node counts"]
    assert most(found["fragmentation"]["busy_nodes"]) <= 80
    assert found["utilization_measured"].is_empty()
    assert found["placement_spread"]["excess_nodes"].max() == 0
    states = found["failures_by"].filter(pl.col("dimension") == "state")
    assert states["gpu_time_share"].sum() == pytest.approx(1) and states["jobs_share"].sum() == pytest.approx(1)


@pytest.mark.parametrize("name", [name for name in FEATURES if name != "deployed"])
def test_a_log_too_large_for_the_memory_is_refused_before_it_is_read(
    name: str, philly: DataFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = warehouse.read(philly, "SELECT count(*) FROM jobs").item()
    monkeypatch.setattr("features.trace.free_bytes", lambda: BYTES_OF_JOB * jobs - 1)
    with pytest.raises(WorkError, match=f"cluster 'philly' has {jobs} jobs, .* as a cluster of its own"):
        FEATURES[name].compute(philly, ClusterSettings("philly"))
