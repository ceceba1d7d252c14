"""The whole pipeline on four generated weeks: every asset materialized, and a second run that works nothing out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.shared.resources import Baton as Resource
from features.conventions import RULES
from models.provisioning import registry
from models.tracking import store as mlflow_store
from pipelines.definitions import build_defs
from traces.generate.logs import generate_philly, generate_slurm
from traces.store import warehouse
from traces.store.folder import DataFolder

pytestmark = pytest.mark.slow
POLICIES = ["reactive", "average-wait", "start-estimate"]


def materialize(
    data: DataFolder, cluster: str, raw: Path, warns: tuple[str, ...] = (), **flags: Any
) -> dict[str, dict[str, Any]]:
    """Metadata of every asset of one run, by key; every check must have passed, but those in `warns` warn."""
    resource = Resource(data=str(data.root), raw=[str(raw)], **flags)
    job = build_defs({"baton": resource}).resolve_job_def("whole_pipeline")
    with dg.DagsterInstance.ephemeral() as instance:
        instance.add_dynamic_partitions("clusters", [cluster])
        result = job.execute_in_process(instance=instance, partition_key=cluster)
        failed = [check for check in result.get_asset_check_evaluations() if not check.passed]
        assert [(check.check_name, check.severity) for check in failed] == [
            (name, dg.AssetCheckSeverity.WARN) for name in warns
        ]
        return {
            event.asset_key.to_user_string(): {
                name: getattr(value, "value", value) for name, value in event.materialization.metadata.items()
            }
            for event in result.get_asset_materialization_events()
            if event.asset_key is not None
        }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DataFolder, Path, dict[str, dict[str, Any]]]]:
    """One run on generated logs, with the three policies that need no learning."""
    folder = tmp_path_factory.mktemp("pipeline")
    generate_slurm(folder / "raw", jobs=None, weeks=4, nodes=16, gpus_per_node=4, seed=7, steps=False, compress=False)
    data = DataFolder(folder / "data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "every_policy", lambda: POLICIES)
        yield data, folder / "raw", materialize(data, "lab", folder / "raw", nodes=16, gpus_per_node=4, warns=GATE)


GATE = ("gate", "promise")  # some days of pairs show nothing, and few days promise nothing
Run = tuple[DataFolder, Path, dict[str, dict[str, Any]]]


def test_every_asset_was_made_with_a_row_count(run: Run) -> None:
    _, _, made = run
    assets = {key.to_user_string() for key in build_defs().resolve_asset_graph().get_all_asset_keys()}
    assert set(made) == assets - {"queue_time_model"}, "which has a job of its own, since it takes minutes"
    assert all("dagster/row_count" in metadata and not metadata["reused"] for metadata in made.values())


def test_every_asset_shows_a_table_or_a_plot(run: Run) -> None:
    for key, metadata in run[2].items():
        is_drawn = any(isinstance(value, str) and value.startswith("![") for value in metadata.values())
        assert is_drawn or any(isinstance(value, dg.TableMetadataValue) for value in metadata.values()), key


def test_what_matters_is_a_number_that_the_ui_draws(run: Run) -> None:
    made = run[2]
    for key, names in {
        "trace_files": ("rows_read", "rows_rejected", "jobs"),
        "queueing_delay": ("wait_mean_h", "wait_p50_h", "wait_p95_h"),
        "simulation_replay": ("simulated_wait_mean_h", "recorded_wait_p95_h", "spearman"),
        "simulation_what_if": ("as_it_is_mean_h", "as_it_is_p95_h"),
        "pair_tables": ("pairs_fit", "pairs_select", "pairs_report", "reactive_interruption_report_h"),
        "trained_policies": ("policies", "fit_s"),
        "policy_comparison": ("cost_w1_h", "interruption_h", "overlap_h", "reactive_cost_w1_h", "oracle_cost_w1_h"),
        "provisioning_policy": ("champion_version", "gate_pairs", "gate_blocks"),
        "report": ("dagster/size_bytes",),
    }.items():
        assert all(isinstance(made[key][name], int | float) for name in names), (key, made[key])
    compared = made["policy_comparison"]
    assert compared["best_on_select"] in {*POLICIES, *RULES}
    assert compared["cost_w1_h"] == pytest.approx(compared["interruption_h"] + compared["overlap_h"], rel=1e-4)
    assert compared["oracle_cost_w1_h"] <= min(compared["cost_w1_h"], compared["reactive_cost_w1_h"])


def test_links_lead_to_the_runs_that_were_made(run: Run) -> None:
    data, _, made = run
    link = made["trained_policies"]["mlflow"]
    assert link == made["policy_comparison"]["mlflow"]
    client = mlflow_store.client(data)
    parent = client.get_run(link.rsplit("/", 1)[1].split("?")[0])
    assert parent.info.run_name.startswith("train lab until ")
    assert {file.path for file in client.list_artifacts(parent.info.run_id)} == {"comparison.csv", "curves.png"}
    fits = client.search_runs([parent.info.experiment_id], "metrics.report_cost_w1_h >= 0")
    assert len(fits) == len(POLICIES) and all("report_cost_w1_h_8n" in fit.data.metrics for fit in fits)
    assert Path(made["report"]["path"]).is_file()


def test_the_warehouse_holds_what_was_derived(run: Run) -> None:
    data, _, made = run
    results = warehouse.read(
        data, "SELECT policy, pair_nodes, cost_w1, regret_h_w1, world_spearman FROM policy_results WHERE load = 'all'"
    )
    assert set(results["policy"]) == {*POLICIES, *RULES, "mirage-average", "oracle"}
    assert set(results["pair_nodes"]) == {1, 8} and results["world_spearman"].null_count() == 0
    assert results["regret_h_w1"].min() == 0
    decisions = warehouse.read(data, "SELECT policy, verdict, provisional FROM release_log")
    assert len(decisions) == 1 and decisions["policy"][0] in POLICIES
    assert decisions.row(0)[1:] == ("cannot tell", True), "some days of pairs show nothing, and there was no champion"
    waits = warehouse.read(data, "SELECT count(*) AS n FROM simulated_starts WHERE simulated_wait_s >= 0")
    assert waits["n"][0] == made["simulation_replay"]["dagster/row_count"] > 100


def test_the_report_is_there(run: Run) -> None:
    text = (run[0].reports / "report.html").read_text()
    assert "lab" in text and "start-estimate" in text


def test_a_second_run_works_nothing_out(run: Run) -> None:
    data, raw, _ = run
    before = {path: path.stat().st_mtime_ns for path in data.root.rglob("*") if path.is_file()}
    again = materialize(data, "lab", raw, nodes=16, gpus_per_node=4, warns=GATE)
    assert {key for key, metadata in again.items() if not metadata["reused"]} == set()
    after = {path: path.stat().st_mtime_ns for path in data.root.rglob("*") if path.is_file()}
    changed = {path.relative_to(data.root) for path in after if after[path] != before.get(path)}
    locks = {path for path in changed if path.parts[0] == ".locks" or path.name == ".at-work"}
    assert {path for path in changed - locks if path.parts[0] != "mlflow"} == set()


def test_a_cluster_without_time_limits_has_no_policies(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    generate_philly(raw, jobs=150, weeks=2, utilization_days=1, machines=12, seed=1, compress=False)
    data = DataFolder(tmp_path / "data")
    made = materialize(data, "philly", raw, warns=("nodes_gpus_in_use",))
    for key in (
        "simulation_replay",
        "simulation_calibration",
        "pair_tables",
        "trained_policies",
        "policy_comparison",
        "provisioning_policy",
    ):
        assert made[key]["dagster/row_count"] == 0 and "time limit" in made[key]["why"]
    assert made["utilization_measured"]["dagster/row_count"] > 0
    assert (data.reports / "report.html").is_file()
