"""Record a training and its comparison in MLflow: a parent run for the training, a child run for each fit.

A child is open exactly while its fit is made. It holds parameters, training curves and the artifact. A comparison then
adds each child's figures on the select and the report window, and its own table and plot to the parent.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from agent.artifact import Artifact
from features.conventions import ALL_SIZES, judged_sizes, size_rank
from models.provisioning.comparison.compare import Comparison
from models.provisioning.protocol import PairTable, TrainedPolicy
from models.provisioning.scenario import Context
from models.tracking import runs
from models.tracking.runs import Dataset, NewRun
from models.tracking.store import errors_on_one_line, initialise
from traces import instants
from traces.cache.digests import digest
from traces.counted import counted
from traces.export.tables import write_csv
from traces.store.folder import DataFolder

COLUMNS = (
    *("size", "policy", "cost_w1", "cost_w1_low", "cost_w1_high", "interruption_h", "overlap_h", "zero_share"),
    *(
        "regret_h_w1",
        "reduction",
        "n",
        "blocks",
        "seeds",
        "knob",
        "setting",
        "from_utc",
        "to_utc",
        "cluster",
        "scenario",
    ),
)
FIGURES = ("cost_w1_h", "interruption_h", "overlap_h")


@dataclass(frozen=True)
class MlflowTracker:
    """Implements `models.provisioning.training.train.Tracker`."""

    data: DataFolder

    @contextmanager
    def training(self, context: Context, policies: Sequence[str], pairs: PairTable) -> Iterator[MlflowTrainingRun]:
        """The parent run, open while the policies are fitted."""
        initialise(self.data)
        fitted_on = dataset(context, pairs, "fit")
        tags = _tags(context)
        parent = NewRun(
            name=f"train {context.scenario.cluster} until {context.until_utc[:10]}",
            params={**context.as_dict(), "policies": ", ".join(policies), "pairs": len(pairs)},
            tags={**tags, "baton.kind": "training", "mlflow.note.content": _note(context, policies, pairs)},
            datasets=[fitted_on],
        )
        with errors_on_one_line(self.data), runs.closed_run(self.data, parent) as parent_id:
            yield MlflowTrainingRun(self.data, parent_id, tags, fitted_on)


@dataclass(frozen=True)
class MlflowTrainingRun:
    """Implements `models.provisioning.training.train.TrainingRun`: a child run for each fit."""

    data: DataFolder
    parent_id: str
    tags: Mapping[str, str]
    fitted_on: Dataset

    def record(
        self,
        name: str,
        params: dict[str, Any],
        metrics: dict[str, list[float]],
        artifact: Artifact,
        *,
        began_s: float,
        ended_s: float,
    ) -> str:
        """Record a closed child run, with the artifact's folder under `policy`; returns its id."""
        child = NewRun(
            name=name,
            params=params,
            metrics=metrics,
            tags={**self.tags, "baton.kind": "fit", "policy": str(artifact.manifest["policy"])},
            datasets=[self.fitted_on],
            start_s=began_s,
            parent_id=self.parent_id,
        )
        with (
            runs.closed_run(self.data, child, end_s=ended_s) as run_id,
            tempfile.TemporaryDirectory() as temporary,
        ):
            artifact.save(Path(temporary) / "policy")
            runs.add_files(self.data, run_id, Path(temporary))
        return run_id


def add_comparison(
    data: DataFolder,
    compared: Comparison,
    trained: Sequence[TrainedPolicy],
    measured_on: Sequence[Dataset],
    results: pl.DataFrame,
    pictures: Mapping[str, bytes],
) -> int:
    """Add each fit's figures to its run, and the table and the pictures (name to content) to the trainings.

    results: `policy_results`; `comparison.csv` is its readable form. Returns the number of updated fits. A run that the
    store no longer holds, or a policy that was never tracked, is left out.
    """
    initialise(data)
    with errors_on_one_line(data):
        windows = {
            f"{one.use}_window": f"{one.profile['from_utc']} to {one.profile['until_utc']}" for one in measured_on
        }
        logged = [
            one.run_id
            for one in trained
            if one.run_id
            and runs.add_to_run(
                data,
                one.run_id,
                metrics=figures(compared, one.name, one.seed),
                tags=windows,
                datasets=measured_on,
            )
        ]
        parents = {parent for run_id in logged if (parent := runs.parent_run(data, run_id)) is not None}
        for parent_id in parents:
            runs.add_to_run(data, parent_id, metrics={}, tags=windows, datasets=measured_on)
            with tempfile.TemporaryDirectory() as temporary:
                write_csv(Path(temporary) / "comparison.csv", [readable(results)])
                for name, content in pictures.items():
                    (Path(temporary) / name).write_bytes(content)
                runs.add_files(data, parent_id, Path(temporary))
        return len(logged)


def readable(results: pl.DataFrame) -> pl.DataFrame:
    """The comparison over all loads, a line per size and policy, least cost first, with the cost's 95 % interval."""
    ends = pl.col("ci95").str.json_path_match
    return (
        results.filter(pl.col("load") == "all")
        .with_columns(
            cost_w1_low=ends("$.cost_w1[0]").cast(pl.Float64), cost_w1_high=ends("$.cost_w1[1]").cast(pl.Float64)
        )
        .sort(pl.col("size").map_elements(size_rank, return_dtype=pl.Int64), "cost_w1", "policy")
        .select(COLUMNS)
    )


def figures(compared: Comparison, policy: str, seed: int) -> dict[str, list[float]]:
    """Metrics of one fit: cost (weight 1), interruption and overlap, hours a pair, on each measured window.

    `report_cost_w1_h_8n` is for pairs of 8 nodes at the policy's headline setting (`setting_8n`), `_2-4n` for those of
    2 to 4. `report_cost_w1_h` is the plain mean over the sizes of injected pairs, or that of all recorded pairs.
    """
    rows = [row for row in compared.by_seed if (row["policy"], row["seed"]) == (policy, seed)]
    metrics: dict[str, list[float]] = {}
    for window in dict.fromkeys(row["window"] for row in rows):
        part = [row for row in rows if row["window"] == window]
        sizes = judged_sizes(row["size"] for row in part)
        for name in FIGURES:
            metrics[f"{window}_{name}"] = [sum(row[name] for row in part if row["size"] in sizes) / len(sizes)]
            metrics |= {f"{window}_{name}_{row['size']}n": [row[name]] for row in part if row["size"] != ALL_SIZES}
        metrics |= {f"setting_{row['size']}n": [row["setting"]] for row in part}
    return metrics


def dataset(context: Context, pairs: PairTable, use: str) -> Dataset:
    """The pairs as an MLflow dataset. The digest begins with the trace's, and differs by scenario and window."""
    profile: dict[str, Any] = {
        "pairs": len(pairs),
        "decisions": len(pairs.decision_s),
        "pair_nodes": sorted({int(nodes) for nodes in pairs.pair_nodes}),
        "from_utc": instants.text(pairs.submit_s.min()),
        "until_utc": instants.text(pairs.submit_s.max()),
    }
    scenario = context.scenario
    source = {"trace_digest": context.trace_digest, "scenario": scenario.brief, "limit_s": scenario.limit_s}
    if use == "fit":
        source |= {"capacities": list(context.fit_capacities)}
    content = f"{context.trace_digest[:16]}-{digest(source, profile)[:12]}"
    return Dataset(f"{scenario.cluster}, pairs to {use} on", content, use, source, profile)


def _tags(context: Context) -> dict[str, str]:
    """The origin of a fit; MLflow's own tag of the commit fills the column Version."""
    return {
        "cluster": context.scenario.cluster,
        "trace_digest": context.trace_digest,
        "code_version": context.code_version,
        "mlflow.source.git.commit": context.code_version,
    }


def _note(context: Context, policies: Sequence[str], pairs: PairTable) -> str:
    """Describe the training in Markdown."""
    scenario = context.scenario
    return (
        f"{', '.join(f'`{name}`' for name in policies)}, fitted on {counted(len(pairs), 'pair')} of cluster "
        f"`{scenario.cluster}` whose outcome was known before {context.until_utc} UTC ({scenario.brief}; pairs of "
        f"{' and '.join(map(str, scenario.pair_nodes))} nodes and {scenario.limit_s / 3600:g} h). There is a run below "
        "for each policy and seed."
    )
