"""Reports: everything derived goes into the warehouse, and one HTML file is made from the warehouse alone."""

import dagster as dg
import polars as pl

from assets import features, warehouse
from assets.metadata import shown, table
from assets.resources import OWNERS, Baton
from models.fingerprint import code_digest, digest, read_stamp, write_stamp
from traces import store

DERIVED = [
    "simulation_replay",
    "simulation_calibration",
    "simulation_what_if",
    "policy_comparison",
    "provisioning_policy",
]


@dg.asset(
    key=["warehouse", "derived_tables"],
    deps=[*DERIVED, *(spec.key for made in features.ASSETS for spec in made.specs)],
    group_name="reports",
    kinds=warehouse.KINDS,
    owners=OWNERS,
    description="The warehouse once more, with the derived tables of every cluster beside the canonical ones.",
)
def derived_tables(baton: Baton) -> dg.MaterializeResult[None]:
    rows, reused = warehouse.build(baton.folder)
    names = [name for name in rows if name in store.derived_tables(baton.folder)]
    counts = pl.DataFrame({"table": names, "rows": [rows[name] for name in names]})
    return shown(rows=sum(rows[name] for name in names), reused=reused, tables=table(counts, rows=40))


@dg.asset(
    deps=[derived_tables],
    group_name="reports",
    kinds={"html", "matplotlib"},
    owners=OWNERS,
    description="The report: one self-contained HTML file about every cluster in the warehouse.",
)
def report(baton: Baton) -> dg.MaterializeResult[None]:
    from reports.build import build_report

    data, out = baton.folder, baton.folder.reports / "report.html"
    now = digest(warehouse.fingerprint(data), code_digest("reports"))
    reused = out.is_file() and read_stamp(data, "report", warehouse.ALL, now) is not None
    if not reused:
        build_report(data, out=out)
        write_stamp(data, "report", warehouse.ALL, now, {})
    sizes = store.read(data, "SELECT cluster, count(*) AS files FROM trace_files GROUP BY cluster ORDER BY cluster")
    return shown(rows=len(sizes), reused=reused, path=dg.MetadataValue.path(out), clusters=table(sizes))
