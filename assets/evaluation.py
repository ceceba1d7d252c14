"""Evaluation: the policies on the same pairs of the report window, settings picked on the select window."""

import dagster as dg

from assets.metadata import plot, shown, table
from assets.resources import CLUSTERS, OWNERS, Baton
from models import study
from models.fingerprint import write_stamp
from models.tables import POLICY_CURVES, POLICY_RESULTS, curves_frame, results_frame
from traces import store

COLUMNS = (
    "policy",
    "pair_nodes",
    "n",
    "interruption_h",
    "overlap_h",
    "zero_share",
    "cost_w1",
    "regret_h_w1",
    "reduction",
)


@dg.asset(
    deps=["trained_policies", "pair_tables"],
    group_name="evaluation",
    partitions_def=CLUSTERS,
    kinds={"numpy", "parquet"},
    owners=OWNERS,
    description="Interruption against overlap of every policy on the report window, with intervals and the oracle.",
)
def policy_comparison(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    settings = baton.settings(cluster)
    if why := study.why_no_policies(data, cluster, settings):
        return shown(rows=0, why=why)
    ours = study.of(data, settings)
    policies = study.every_policy()
    now = study.comparison_fingerprint(ours, policies)
    reused = store.derived_fingerprint(data, POLICY_RESULTS.name, cluster) == now
    if not reused:
        trained, _ = study.fit(ours, policies, ours.windows.fit)
        compared = study.compare_on(ours, trained, ours.windows.report, ours.windows.select)
        store.write_derived(data, POLICY_CURVES, cluster, curves_frame(compared.curves), now)
        write_stamp(data, study.COMPARISON, cluster, now, {"results": compared.results})
        store.write_derived(data, POLICY_RESULTS, cluster, results_frame(compared.results), now)
    results = store.read_derived(data, POLICY_RESULTS.name, cluster)
    curves = store.read_derived(data, POLICY_CURVES.name, cluster)
    widest = curves.filter((curves["window"] == "report") & (curves["pair_nodes"] == curves["pair_nodes"].max()))
    lines = {
        str(name): (part["overlap_h"].to_list(), part["interruption_h"].to_list())
        for (name,), part in widest.sort("overlap_h").group_by("policy", maintain_order=True)
    }
    return shown(
        rows=len(results),
        reused=reused,
        results=table(results.filter(results["load"] == "all").select(COLUMNS), rows=40),
        curves=plot(lines, x="overlap, h", y="interruption, h"),
    )
