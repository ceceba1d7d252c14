"""Ingest: raw logs into the lake, one Parquet folder per raw file. `traces.ingest` reads the text.

A run reads all new files of a cluster at once (`trace_files`). Each file becomes a partition of `raw_file`, named by
its content, with figures on its quality.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import polars as pl

from assets.shared.lake import share
from assets.shared.metadata import materialization, numbers, table
from assets.shared.promises import computed_by
from assets.shared.resources import CLUSTERS, OWNERS, Baton
from traces import quality
from traces.errors import InputError
from traces.files.locks import locked
from traces.store import raw_files
from traces.store.folder import LAKE
from traces.store.frames import read_parquet
from traces.store.raw_files import lake_digest, lake_files
from traces.visible import storable

if TYPE_CHECKING:
    from traces.readers.staged import FileResult

RAW_FILES = dg.DynamicPartitionsDefinition(name="raw_files")
READING = "traces.ingest"
KEY_CHARACTERS = 16  # of the digest

raw_file = dg.AssetSpec(
    "raw_file",
    partitions_def=RAW_FILES,
    group_name="ingest",
    kinds={"python", "parquet"},
    owners=OWNERS,
    metadata=computed_by(READING),
    description="One raw log, identified by its content: counts of its records, and the quality of its rows.",
)


def file_key(cluster: str, sha256: str) -> str:
    """Return the partition key of a raw file, which changes with its content."""
    return f"{cluster}-{sha256[:KEY_CHARACTERS]}"


@dg.asset(
    key="trace_files",
    deps=[raw_file],
    group_name="ingest",
    partitions_def=CLUSTERS,
    kinds={"python", "parquet"},
    owners=OWNERS,
    metadata=computed_by(READING),
    description="Raw logs of one cluster (from data/raw/CLUSTER/, or as given), read into the lake, each file once.",
)
def ingested_files(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    cluster = context.partition_key
    paths = baton.raw_paths(cluster)
    results = _ingest(baton, cluster, paths) if baton.raw or paths[0].exists() else []  # else what `baton ingest` read
    share(baton.folder, cluster, results)
    if not results and not lake_files(baton.folder, cluster):
        raise InputError(f"no raw logs for cluster {cluster!r}: {paths[0]} does not exist; put them there")
    for skipped in (result for result in results if result.skipped_reason is not None):
        context.log.warning(f"{storable(skipped.path)}: skipped, {skipped.skipped_reason}")
    read = {result.sha256 for result in results if result.rows > result.duplicates}
    with locked(baton.folder.root, LAKE):  # so that no other ingest removes these files meanwhile
        raw_files.check(baton.folder.lake)
        files = lake_files(baton.folder, cluster)
        context.instance.add_dynamic_partitions(str(RAW_FILES.name), [file_key(cluster, f["sha256"]) for f in files])
        for described in files:
            context.log_event(_materialization(cluster, described, reused=described["sha256"] not in read))
    missing = disappeared(files, paths)
    for path in missing:
        context.log.warning(f"{path} no longer exists; its rows stay until a changed file replaces it or it is deleted")
    counts = [described["result"] for described in files]
    rows_of_files = [{**vars(result), "path": storable(result.path)} for result in results]
    frame = pl.DataFrame(rows_of_files, infer_schema_length=None)
    missing_files: dict[str, Any] = {}
    if missing:
        paths_of_missing = pl.DataFrame({"path": [storable(path) for path in missing]})
        missing_files["disappeared files"] = table(paths_of_missing, length=400)
    return materialization(
        rows=int(frame["rows"].sum()) if len(frame) else 0,
        reused=all(result.rows == result.duplicates for result in results),
        version=lake_digest(baton.folder, cluster),
        disappeared=len(missing),
        **numbers(
            rows_read=sum(result["rows"] for result in counts),
            rows_rejected=sum(result["rejects"] for result in counts),
            jobs=sum(result["jobs"] for result in counts),
        ),
        files=table(frame),
        **missing_files,
    )


def _ingest(baton: Baton, cluster: str, paths: list[Path]) -> "list[FileResult]":
    from models.engine.raw_files import files_on_engine
    from traces.ingest import ingest

    return ingest(
        paths,
        cluster=baton.settings(cluster),
        data=baton.folder,
        format=baton.format,
        fields=baton.fields,
        delimiter=baton.delimiter,
        each=files_on_engine(baton.folder.root),
    )


def disappeared(files: list[dict[str, Any]], paths: list[Path]) -> list[str]:
    """Return the files of the lake that came from one of the folders and are no longer there."""
    inside = tuple(str(path.resolve()) + "/" for path in paths)
    sources = [str(described.get("source") or "") for described in files]
    return sorted(source for source in sources if source.startswith(inside) and not Path(source).exists())


def _materialization(cluster: str, described: dict[str, Any], *, reused: bool) -> dg.AssetMaterialization:
    """Return the materialization of one file, with its counts and the quality of its rows."""
    result, folder = described["result"], described["folder"]
    metadata: dict[str, Any] = {
        "dagster/row_count": result["rows"],
        "reused": dg.MetadataValue.bool(reused),
        "path": storable(described["path"]),
        **numbers(rows_read=result["rows"], rows_rejected=result["rejects"], jobs=result["jobs"]),
        "counts": table(pl.DataFrame([{k: v for k, v in result.items() if isinstance(v, int)}])),
    }
    if (folder / "jobs.parquet").is_file():
        row = quality.of_jobs(read_parquet(folder / "jobs.parquet")).row(0, named=True)
        metadata |= {
            "clock_change_rows": row["ambiguous"],
            "end_before_start_rows": row["end_before_start"],
            "longest_gap_s": row["gap_s"] or 0.0,
            "longest_gap_from_utc": str(row["gap_from_utc"] or ""),
            "share_without_end": float(row["no_end_share"] or 0.0),
        }
    if (folder / "rejects.parquet").is_file():
        reasons = quality.reasons(read_parquet(folder / "rejects.parquet"))
        metadata["rejects"] = table(pl.DataFrame(reasons, schema=["reason", "n", "example"], orient="row"))
    return dg.AssetMaterialization("raw_file", partition=file_key(cluster, described["sha256"]), metadata=metadata)
