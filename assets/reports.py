"""Reports: the warehouse with all derived tables, and one HTML file made from the warehouse alone.

Both are made twice: first without waiting for policies, so that a report exists even if training fails, and again with
the policies.
"""

from typing import Any

import dagster as dg
import polars as pl

from assets import features, warehouse
from assets.remarks import remarks
from assets.shared.metadata import materialization, table
from assets.shared.promises import computed_by
from assets.shared.resources import OWNERS, Baton
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.store import derived, refresh
from traces.store.stamps import read_stamp, write_stamp
from traces.store.warehouse import read

REPLAYS = ["simulation_replay", "simulation_what_if", "simulation_advice", "simulation_what_if_schedulers"]
POLICIES = [
    "simulation_calibration", "policy_comparison", "provisioning_policy", "champion_drift", "queue_time_model",
    "queue_time_drift",
]  # fmt: skip
REPORTING = "reports.build"
FIRST = {"dagster/priority": "10"}  # among the steps that are ready, a report runs before any training


@dg.asset(
    key=["warehouse", "derived_tables"],
    deps=[*REPLAYS, *(spec.key for made in features.ASSETS for spec in made.specs)],
    group_name="reports",
    kinds=warehouse.KINDS,
    owners=OWNERS,
    op_tags=FIRST,
    metadata=computed_by(warehouse.BUILT_BY),
    description="The warehouse, rebuilt with the analytics of every cluster in addition to the canonical tables.",
)
def derived_tables(baton: Baton) -> dg.MaterializeResult[None]:
    return _built(baton)


@dg.asset(
    key=["warehouse", "policy_tables"],
    deps=[derived_tables, *POLICIES],
    group_name="reports",
    kinds=warehouse.KINDS,
    owners=OWNERS,
    metadata=computed_by(warehouse.BUILT_BY),
    description="The warehouse, rebuilt with calibrated waits and the policies' results in addition to the analytics.",
)
def policy_tables(baton: Baton) -> dg.MaterializeResult[None]:
    return _built(baton)


def _built(baton: Baton) -> dg.MaterializeResult[None]:
    """Build the warehouse with everything derived that the lake holds."""
    rows, reused = refresh.refresh_warehouse(baton.folder)
    names = [name for name in rows if name in derived.tables(baton.folder)]
    counts = pl.DataFrame({"table": names, "rows": [rows[name] for name in names]})
    count = sum(rows[name] for name in names)
    made_from = refresh.fingerprint(baton.folder)
    return materialization(rows=count, reused=reused, version=made_from, tables=table(counts, rows=40))


@dg.asset(
    deps=[derived_tables],
    group_name="reports",
    kinds={"html", "matplotlib"},
    owners=OWNERS,
    op_tags=FIRST,
    metadata=computed_by(REPORTING),
    description="The report: one self-contained HTML file about every cluster in the warehouse.",
)
def report(baton: Baton) -> dg.MaterializeResult[None]:
    return _written(baton)


@dg.asset(
    deps=[report, policy_tables],
    group_name="reports",
    kinds={"html", "matplotlib"},
    owners=OWNERS,
    metadata=computed_by(REPORTING),
    description="The same report, rewritten with the policies and their comparison.",
)
def report_with_policies(baton: Baton) -> dg.MaterializeResult[None]:
    return _written(baton)


def _written(baton: Baton) -> dg.MaterializeResult[None]:
    """Write the report from the current warehouse."""
    from reports.build import build_report

    data, out = baton.folder, baton.folder.reports / "report.html"
    sizes = read(data, "SELECT cluster, count(*) AS files FROM trace_files GROUP BY cluster ORDER BY cluster")
    remarks_by_cluster = remarks(data, [baton.settings(name) for name in sizes["cluster"]])
    made_from = digest(refresh.fingerprint(data), code_digest(REPORTING), remarks_by_cluster)
    reused = out.is_file() and read_stamp(data, "report", refresh.ALL, made_from) is not None
    if not reused:
        build_report(data, out=out, remarks=remarks_by_cluster)
        write_stamp(data, "report", refresh.ALL, made_from, {})
    size: dict[str, Any] = {"dagster/size_bytes": dg.MetadataValue.int(out.stat().st_size)}
    return materialization(
        rows=len(sizes),
        reused=reused,
        version=made_from,
        path=dg.MetadataValue.path(out),
        clusters=table(sizes),
        **size,
    )
