"""Answer five questions of an operator from the warehouse, with DuckDB and polars.

    .venv/bin/baton ingest data/sample/slurm --cluster sample
    .venv/bin/python examples/ask_warehouse.py [--data data] [--cluster sample]

Tables and columns: docs/columns.md. Times are UTC, durations whole seconds; null means that the log lacks the value.
"""

import argparse
from pathlib import Path

import duckdb
import polars as pl

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--data", type=Path, default=Path("data"))
options.add_argument("--cluster", default="sample")
given = options.parse_args()


def show(question, answer):
    """Print an answer. User names are untrusted: `repr` escapes control characters before they reach the terminal."""
    text = pl.selectors.string()
    print(f"\n{question}", answer.with_columns(text.map_elements(lambda name: repr(name)[1:-1], pl.String)), sep="\n")


pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_rows=24, float_precision=1)
# Open read-only and close again: the next `baton ingest` renames a new file over this one without disturbing readers.
with duckdb.connect(given.data / "warehouse.duckdb", read_only=True) as warehouse:
    # A value is a parameter, never pasted into the statement.
    jobs = warehouse.execute("SELECT * FROM jobs WHERE cluster = $1", [given.cluster]).pl()
    who_uses = warehouse.execute(
        """SELECT user_name, count(*) AS jobs, sum(gpu_time_s) / 3600 AS gpu_h,
                  100 * sum(gpu_time_s) / sum(sum(gpu_time_s)) OVER () AS share_percent
           FROM jobs WHERE cluster = $1 GROUP BY user_name ORDER BY gpu_h DESC NULLS LAST, user_name LIMIT 5""",
        [given.cluster],
    ).pl()
    how_it_ends = warehouse.execute(
        """SELECT state, count(*) AS jobs, sum(gpu_time_s) / 3600 AS gpu_h
           FROM jobs WHERE cluster = $1 GROUP BY state ORDER BY gpu_h DESC NULLS LAST, state""",
        [given.cluster],
    ).pl()
if jobs.is_empty():
    raise SystemExit(f"no jobs of cluster {given.cluster!r} in {given.data}; name another with --cluster")
show("1. Who uses the GPUs?", who_uses)
show("2. How do jobs end, and how much GPU time do they use?", how_it_ends)
started = jobs.filter(pl.col("wait_s").is_not_null())
wait_h = pl.col("wait_s") / 3600
waits = [wait_h.median().alias("median_h"), wait_h.quantile(0.95).alias("p95_h"), pl.len().alias("jobs")]
size = (2 ** pl.col("allocated_nodes").log(2).ceil()).cast(pl.Int64).alias("nodes_up_to")  # 1, 2, 4, 8, ...
show("3. How long do jobs wait, by their size?", started.group_by(size).agg(waits).sort("nodes_up_to"))
hour = pl.col("submit_utc").dt.hour().alias("hour_utc")
worst = started.group_by(hour).agg(waits).sort("p95_h", "hour_utc", descending=[True, False]).head(3)
show("4. At which hours of submission do jobs wait longest (95th percentile)?", worst)

ended = jobs.filter((pl.col("limit_s") > 0) & (pl.col("state") == "COMPLETED"))
used = (100 * pl.col("run_s") / pl.col("limit_s")).median().alias("used_percent")
asked = ended.group_by("partition").agg(used, pl.len().alias("jobs")).sort("partition")
show("5. How much of their requested time limit do completed jobs use (median)?", asked)
