"""Evaluation: the policies on the same pairs of the report window, with settings picked on the select window."""

from typing import Any

import dagster as dg
import polars as pl

from assets.policies import training_link
from assets.shared.metadata import materialization, numbers, picture, png, table
from assets.shared.promises import computed_by
from assets.shared.resources import CLUSTERS, OWNERS, Baton
from features.conventions import ORACLE, REACTIVE, is_offered, judged_sizes
from models.provisioning import registry
from models.study import comparisons, fits
from models.study.cluster import Study
from models.study.support import Refusal, headline_study
from models.study.world_error import world_error
from models.tables import POLICY_CURVES, POLICY_PROMISES, POLICY_RESULTS, curves_frame, promises_frame, results_frame
from traces.files.locks import locked
from traces.store import derived
from traces.store.stamps import write_stamp

COLUMNS = (
    "policy",
    "size",
    "n",
    "interruption_h",
    "overlap_h",
    "zero_share",
    "cost_w1",
    "regret_h_w1",
    "reduction",
    "best_rule",
    "cost_difference_h",
    "cost_difference_low_h",
    "cost_difference_high_h",
)


@dg.asset(
    deps=["trained_policies", "pair_tables"],
    group_name="evaluation",
    partitions_def=CLUSTERS,
    kinds={"numpy", "parquet"},
    owners=OWNERS,
    metadata=computed_by(*comparisons.COMPARED_BY, but=(registry.__name__,)),
    description="Interruption and overlap of every policy on the report window, with intervals and the oracle.",
)
def policy_comparison(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    study = headline_study(data, baton.settings(cluster))
    if isinstance(study, Refusal):
        return materialization(rows=0, why=study.why)
    policies = study.policies
    made_from = comparisons.comparison_fingerprint(study, policies)
    with locked(data.root, f"comparison of {cluster}"):  # the four results are written together
        reused = derived.made_from(data, POLICY_RESULTS.name, cluster) == made_from
        if not reused:
            _compare(study, policies, made_from)
    results = derived.read(data, POLICY_RESULTS.name, cluster)
    curves = derived.read(data, POLICY_CURVES.name, cluster)
    all_loads = results.filter(results["load"] == "all")
    return materialization(
        rows=len(results),
        reused=reused,
        version=made_from,
        **_figures(all_loads, curves),
        **_world(all_loads),
        **training_link(data, fits.run_ids(study, policies)),
        curves=picture(_drawn(curves), "interruption, h"),
        results=table(all_loads.select(COLUMNS), rows=40),
    )


def _compare(study: Study, policies: list[str], made_from: str) -> None:
    """Make and store the comparison, its results last: they show that the rest is stored."""
    data, cluster = study.data, study.scenario.cluster
    trained, _ = fits.fit(study, policies, study.windows.fit)
    compared = comparisons.compare_on(study, trained, study.windows.report, study.windows.select)
    curves = curves_frame(compared.curves)
    pictures = {"curves.png": _drawn(curves)}
    comparisons.remember_comparison(study, trained, compared, study.windows.report, study.windows.select, pictures)
    derived.write(data, POLICY_CURVES, cluster, curves, made_from)
    promised = comparisons.promise_rows(study, trained, study.windows.report, study.windows.select)
    derived.write(data, POLICY_PROMISES, cluster, promises_frame(cluster, study.scenario.world, promised), made_from)
    write_stamp(data, comparisons.COMPARISON, cluster, made_from, {"results": compared.results})
    error = world_error(study, study.windows.report)
    derived.write(data, POLICY_RESULTS, cluster, results_frame(compared.results, error), made_from)


def _figures(results: pl.DataFrame, curves: pl.DataFrame) -> dict[str, Any]:
    """Return the policy with the least cost on the select window, and its report-window figures with those of bounds.

    The bounds are reactive submission and the oracle. Figures are hours per pair: plain means over the sizes of
    injected pairs, or those of all recorded pairs.
    """
    figures = ("cost_w1", "interruption_h", "overlap_h")
    sizes = pl.col("size").is_in(judged_sizes(results["size"]))
    means = results.filter(sizes).group_by("policy").agg(pl.mean(*figures))
    means_of = {row["policy"]: row for row in means.iter_rows(named=True)}
    offered = [name for name in curves["policy"].unique() if name == REACTIVE or is_offered(name)]
    select = curves.filter((pl.col("window") == "select") & pl.col("policy").is_in(offered) & sizes)
    least = select.group_by("policy", "size", maintain_order=True).agg(pl.min("cost_w1"))
    ranked = least.group_by("policy", maintain_order=True).agg(pl.mean("cost_w1")).sort("cost_w1", maintain_order=True)
    measured: dict[str, float] = {
        f"{name}_cost_w1_h": means_of[name]["cost_w1"] for name in (REACTIVE, ORACLE) if name in means_of
    }
    if ranked.is_empty():
        return numbers(**measured)
    best = str(ranked["policy"][0])
    measured |= {"cost_w1_h": means_of[best]["cost_w1"], **{name: means_of[best][name] for name in figures[1:]}}
    return {"best_on_select": best, **numbers(**measured)}


def _world(results: pl.DataFrame) -> dict[str, Any]:
    """Return how far the world's waits are from the recorded ones in the same window."""
    if results.is_empty():
        return {}
    row = results.row(0, named=True)
    return numbers(**{name: row[name] for name in ("world_spearman", "world_error_over_mean") if row[name] is not None})


def _drawn(curves: pl.DataFrame) -> bytes:
    """Plot interruption against overlap of every policy on the report window, for all or else the widest pairs."""
    size = judged_sizes(curves["size"])[-1:]
    widest = curves.filter((pl.col("window") == "report") & pl.col("size").is_in(size))
    lines = {
        str(name): (part["overlap_h"].to_list(), part["interruption_h"].to_list())
        for (name,), part in widest.sort("overlap_h").group_by("policy", maintain_order=True)
    }
    return png(lines, x="overlap, h", y="interruption, h")
