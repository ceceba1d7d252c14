"""What MLflow keeps of a training: a parent, a child a fit with its real duration, figures, and no run left open."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import polars as pl
import pytest

from agent.artifact import Artifact
from models.provisioning.comparison.compare import compare
from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.protocol import TrainedPolicy
from models.provisioning.training.train import train
from models.tables import results_frame
from models.tracking import runs
from models.tracking import store as mlflow_store
from models.tracking.runs import NewRun
from models.tracking.training_runs import MlflowTracker, add_comparison, dataset, figures
from tests.conftest import REPOSITORY
from tests.models.pair_tables import FIRST_S, artifact, context, random_pairs
from traces.store.folder import DataFolder
from traces.units import DAY_S

WHERE = context(FIRST_S + 90 * DAY_S)
PAIRS = random_pairs(0, 6)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    """A data folder with one initialised store (making one takes seconds)."""
    folder = DataFolder(tmp_path_factory.mktemp("data"))
    mlflow_store.initialise(folder)
    return folder


def found(data: DataFolder, words: str) -> list[Any]:
    client = mlflow_store.client(data)
    return list(client.search_runs([mlflow_store.experiment_id(client)], words))


def record(data: DataFolder, metrics: dict[str, list[float]], mark: str) -> str:
    with MlflowTracker(data).training(WHERE, [mark], PAIRS) as run:
        return run.record(mark, {}, metrics, artifact(policy=mark), began_s=100.0, ended_s=160.5)


@pytest.fixture(scope="module")
def fits(data: DataFolder) -> list[TrainedPolicy]:
    return train(PAIRS, ["start-estimate", "forest"], context=WHERE, seeds=(0, 1), tracker=MlflowTracker(data))


def test_a_training_is_a_parent_and_each_fit_its_child(data: DataFolder, fits: list[TrainedPolicy]) -> None:
    runs_of = [mlflow_store.client(data).get_run(one.run_id) for one in fits]
    (parent_id,) = {run.data.tags["mlflow.parentRunId"] for run in runs_of}
    parent = mlflow_store.client(data).get_run(parent_id)
    assert parent.info.status == "FINISHED" and parent.info.run_name == "train toy until 2023-04-01"
    assert parent.data.params["policies"] == "start-estimate, forest" and parent.data.params["pairs"] == "12"
    assert (parent.data.params["cluster"], parent.data.params["trace_digest"]) == ("toy", WHERE.trace_digest)
    assert parent.data.tags["mlflow.source.git.commit"] == "test"
    assert [run.info.run_name for run in runs_of] == ["start-estimate seed 0", "forest seed 0", "forest seed 1"]
    for one, run in zip(fits, runs_of, strict=True):
        assert run.info.status == "FINISHED" and run.data.params["seed"] == str(one.seed)
        assert run.info.end_time - run.info.start_time == pytest.approx(1000 * one.wall_s, abs=2)
        assert parent.info.start_time <= run.info.start_time and run.info.end_time <= parent.info.end_time
        assert run.data.tags["trace_digest"] == WHERE.trace_digest and run.data.tags["code_version"] == "test"
        assert run.data.metrics["fit_wall_s"] == pytest.approx(one.wall_s)
        kept = Artifact.load(data.mlflow / "artifacts" / one.run_id / "artifacts" / "policy")
        assert content_digest(kept) == content_digest(one.artifact)
        (fitted_on,) = run.inputs.dataset_inputs
        assert fitted_on.dataset.digest.startswith("0" * 16) and fitted_on.tags[0].value == "fit"
        profile = json.loads(fitted_on.dataset.profile)
        assert profile["pairs"] == 12 and profile["pair_nodes"] == [1, 8]


def test_runs_carry_what_they_earned_and_the_parent_the_table(data: DataFolder, fits: list[TrainedPolicy]) -> None:
    select, report = random_pairs(1, 60), random_pairs(2, 60)
    compared = compare(report, fits, context=WHERE, select=select)
    measured_on = [dataset(WHERE, select, "select"), dataset(WHERE, report, "report")]
    gone = TrainedPolicy("forest", 2, fits[-1].artifact, "0" * 32, 0.0)
    untracked = TrainedPolicy("forest", 3, fits[-1].artifact, "", 0.0)
    results = results_frame([{**row, "cluster": "=toy"} for row in compared.results])
    result = [*fits, gone, untracked]
    assert add_comparison(data, compared, result, measured_on, results, {"curves.png": b"\x89PNG"}) == len(fits)

    by_cost = found(data, "metrics.report_cost_w1_h >= 0")
    assert {run.info.run_id for run in by_cost} == {one.run_id for one in fits}
    rows = {(row["policy"], row["pair_nodes"]): row for row in compared.results if row["load"] == "all"}
    for nodes in (1, 8):
        mean = (
            sum(
                run.data.metrics[f"report_interruption_h_{nodes}n"]
                for run in by_cost
                if run.data.tags["policy"] == "forest"
            )
            / 2
        )
        assert mean == pytest.approx(rows["forest", nodes]["interruption_h"])
    for run in by_cost:
        of = run.data.metrics
        for window in ("select", "report"):
            assert of[f"{window}_cost_w1_h"] == pytest.approx(
                of[f"{window}_interruption_h"] + of[f"{window}_overlap_h"]
            )
            assert of[f"{window}_cost_w1_h"] == pytest.approx(
                (of[f"{window}_cost_w1_h_1n"] + of[f"{window}_cost_w1_h_8n"]) / 2
            )
        assert run.data.tags["report_window"] == "2023-01-01T00:00 to 2023-01-10T20:00"
        assert [one.tags[0].value for one in run.inputs.dataset_inputs] == ["fit", "select", "report"]
    (parent_id,) = {run.data.tags["mlflow.parentRunId"] for run in by_cost}
    kept = data.mlflow / "artifacts" / parent_id / "artifacts"
    table = pl.read_csv(kept / "comparison.csv")
    assert len(table) == 2 * 8 and set(table["cluster"]) == {"'=toy"}  # no formula for a spreadsheet
    assert table["policy"][0] == "oracle" and table["cost_w1"].to_list() == sorted(table["cost_w1"][:8]) + sorted(
        table["cost_w1"][8:]
    )
    assert (table["cost_w1_low"] <= table["cost_w1"]).all() and (table["cost_w1"] <= table["cost_w1_high"]).all()
    assert (kept / "curves.png").read_bytes() == b"\x89PNG"


def test_figures_of_a_policy_that_was_not_compared_are_none() -> None:
    fit = TrainedPolicy("start-estimate", 0, artifact(), "", 0.0)
    compared = compare(PAIRS, [fit], context=WHERE)
    assert figures(compared, "start-estimate", 1) == {}
    assert not any(name.startswith("select") for name in figures(compared, "start-estimate", 0))


def test_a_long_metric_series_is_kept_in_order(data: DataFolder) -> None:
    series = [float(n) for n in range(1234)]
    run_id = record(data, {"loss": series, "nan": [float("nan")]}, "long")
    history = mlflow_store.client(data).get_metric_history(run_id, "loss")
    assert [point.value for point in sorted(history, key=lambda point: point.step)] == series


@pytest.mark.parametrize(("raised", "status"), [(OSError("no space left"), "FAILED"), (KeyboardInterrupt(), "KILLED")])
def test_a_run_that_breaks_says_how(
    data: DataFolder, monkeypatch: pytest.MonkeyPatch, raised: BaseException, status: str
) -> None:
    def broken(*_: object) -> None:
        raise raised

    monkeypatch.setattr(Artifact, "save", broken)
    with pytest.raises(type(raised)):
        record(data, {}, f"broken-{status}")
    (child,) = found(data, f"tags.policy = 'broken-{status}'")
    parent = mlflow_store.client(data).get_run(child.data.tags["mlflow.parentRunId"])
    assert (child.info.status, parent.info.status) == (status, status)


DIES = """
import os, pathlib, signal, sys
from models.tracking import runs
from models.tracking.runs import NewRun
from traces.store.folder import DataFolder
data = DataFolder(pathlib.Path(sys.argv[1]))
with runs.closed_run(data, NewRun("dies", start_s=1000.0)) as parent:
    with runs.closed_run(data, NewRun("done", start_s=1000.0, parent_id=parent), end_s=1060.0):
        pass
    os.kill(os.getpid(), signal.SIGKILL)
"""
SETTLES = """
import pathlib, sys
from models.tracking.store import settle
from traces.store.folder import DataFolder
settle(DataFolder(pathlib.Path(sys.argv[1])))
assert "mlflow" not in sys.modules
"""


def test_runs_of_a_killed_process_are_settled_at_the_next_start(data: DataFolder) -> None:
    """But never while a process is at work, for they may be its own."""
    done = subprocess.run([sys.executable, "-c", DIES, str(data.root)], cwd=REPOSITORY, check=False, timeout=120)
    assert done.returncode == -9
    with runs.closed_run(data, NewRun("alive")) as alive:
        mlflow_store.settle(data)
        assert {run.info.run_name for run in found(data, "attributes.status = 'RUNNING'")} == {"dies", "alive"}
    mlflow_store.settle(data)
    assert found(data, "attributes.status = 'RUNNING'") == []
    (dead,) = found(data, "attributes.run_name = 'dies'")
    assert (dead.info.status, dead.info.start_time, dead.info.end_time) == ("KILLED", 1_000_000, 1_060_000)
    assert mlflow_store.client(data).get_run(alive).info.status == "FINISHED"


def test_where_no_run_is_open_mlflow_is_not_imported_to_settle_it(data: DataFolder) -> None:
    subprocess.run([sys.executable, "-c", SETTLES, str(data.root)], cwd=REPOSITORY, check=True, timeout=120)


def test_links_go_to_where_the_ui_is(data: DataFolder, fits: list[TrainedPolicy]) -> None:
    parent = mlflow_store.client(data).get_run(fits[0].run_id).data.tags["mlflow.parentRunId"]
    where = f"http://127.0.0.1:5000/#/experiments/{mlflow_store.experiment_id(mlflow_store.client(data))}/runs"
    assert runs.training_url(data, ["gone", fits[0].run_id]) == f"{where}/{parent}?workflowType=machine_learning"
    assert runs.training_url(data, ["gone"]) is None
    assert runs.by_cost_url(data) == f"{where}?workflowType=machine_learning&viewStateShareKey=by-cost"
