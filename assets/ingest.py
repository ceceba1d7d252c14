"""Ingest: raw logs into the lake, one Parquet folder a raw file. No reading of text here: that is `traces.ingest`."""

import dagster as dg
import polars as pl

from assets.metadata import shown, table
from assets.resources import CLUSTERS, OWNERS, Baton
from traces.errors import InputError


@dg.asset(
    key="trace_files",
    group_name="ingest",
    partitions_def=CLUSTERS,
    kinds={"python", "parquet"},
    owners=OWNERS,
    description="Raw logs of one cluster (data/raw/<cluster>/, or --raw DIR) read into the lake, each file once.",
)
def ingested_files(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    from traces.ingest import ingest

    cluster = context.partition_key
    folder = baton.raw_folder(cluster)
    if not folder.exists():
        raise InputError(f"no raw logs for cluster {cluster!r}: {folder} does not exist; put them there or give --raw")
    results = ingest([folder], cluster=baton.settings(cluster), data=baton.folder)
    frame = pl.DataFrame([vars(result) for result in results], infer_schema_length=None)
    return shown(
        rows=int(frame["rows"].sum()) if len(frame) else 0,
        reused=all(result.rows == result.duplicates for result in results),
        files=table(frame),
    )
