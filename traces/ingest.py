"""Raw files into the lake: which reader reads a file, what became of its records, and writing the whole or nothing.

Each raw file becomes `lake/<cluster>/<start of its digest>/<table>.parquet`, written in a temporary folder that is
renamed, with a `file.json` beside them that says by which rules it was read. A file that is in by the same rules adds
nothing; the same file by other rules replaces its own folder and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from traces import schema, staging, store
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.formats import check_format
from traces.lake import FileTables
from traces.readers.common import Parsed, RawFile, Reader, rejects_frame
from traces.readers.registry import READERS, reader_for
from traces.store import DataFolder

DIGEST_CHARACTERS = 16  # of the digest that name a file's folder
HIDDEN = (".", "~")
STANDARD_INPUT = Path("-")


@dataclass(frozen=True)
class FileResult:
    """What became of one file; `rows` = allocations + steps + samples + duplicates + rejects.

    `slow` counts the lines that did not go through in bulk.
    `skipped_reason` is set, and all counts are 0, where a file of a folder is of no known format.
    """

    path: str
    format: str
    rows: int = 0
    allocations: int = 0
    steps: int = 0
    samples: int = 0
    duplicates: int = 0
    rejects: int = 0
    jobs: int = 0
    attempts: int = 0
    sha256: str = ""
    seconds: float = 0.0
    slow: int = 0
    skipped_reason: str | None = None


def ingest(
    paths: Sequence[Path],
    *,
    cluster: ClusterSettings,
    data: DataFolder,
    format: str = "auto",
    fields: Sequence[str] | None = None,
    delimiter: str | None = None,
) -> list[FileResult]:
    """Read files, the files of folders, or standard input (`-`) into the lake; a result for each, in order.

    Everything is read before anything is written. A file that was changed replaces its own older rows. Raises
    InputError for a path that cannot be read, a named file that is of no known format or of no use, a folder in which
    nothing is recognised, and a job larger than its cluster.
    """
    check_format(format)
    if not paths:
        raise InputError("no file named: give files or folders of raw logs")
    data.ensure_writable()
    staging.sweep(data.lake / cluster.name)
    results: list[FileResult] = []
    staged: list[_Staged] = []
    spooled = data.root / f".standard-input.{os.getpid()}"
    try:
        for path in paths:
            is_folder = path.is_dir()
            for file in _files_of(path) if is_folder else [path]:
                if is_folder and not file.is_file():
                    what = (
                        "a folder: name it to have it read" if file.is_dir() else "no regular file, or a link to none"
                    )
                    results.append(FileResult(str(file), "none", skipped_reason=what))
                    continue
                raw = RawFile(file, cluster, tuple(fields) if fields else None, unescaped(delimiter))
                if file == STANDARD_INPUT or file.is_fifo():
                    raw = replace(raw, path=_spooled(spooled, file), shown=str(file))
                result = _stage(raw, format, data, staged, named=not is_folder)
                results.append(result)
            if is_folder and not any(r.skipped_reason is None for r in results):
                what = "; ".join(f"{Path(r.path).name}: {r.skipped_reason}" for r in results[:3]) or "it is empty"
                raise InputError(f"{path}: no file in it is of a known format ({', '.join(READERS)}): {what}")
        _check_sizes(results, cluster, data, {stage.final: stage.temporary for stage in staged})
        for stage in staged:
            stage.commit()
        _forget_older(results, data.lake / cluster.name)
    finally:
        for stage in staged:
            stage.discard()
        spooled.unlink(missing_ok=True)
    return results


def _spooled(path: Path, source: Path) -> Path:
    """Standard input, or a pipe, as a file: its digest must be known before it is read, and it comes only once."""
    with (
        path.open("wb") as spool,
        nullcontext(sys.stdin.buffer) if source == STANDARD_INPUT else source.open("rb") as s,
    ):
        shutil.copyfileobj(s, spool, 1 << 20)
    return path


def unescaped(delimiter: str | None) -> str | None:
    r"""The delimiter with `\t` and `\x1f` as the characters that they stand for. Raises InputError for a blank one."""
    if delimiter is None:
        return None
    text = re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), delimiter).replace("\\t", "\t")
    if not text or "\n" in text or "\r" in text:
        raise InputError(f"--delimiter {delimiter!r}: give at least one character, and no line break")
    return text


def _check_sizes(
    results: Sequence[FileResult], cluster: ClusterSettings, data: DataFolder, staged: dict[Path, Path]
) -> None:
    """Raise InputError for a job that ran on more nodes than the cluster is declared to have had at any date."""
    if cluster.nodes is None:
        return
    declared = max(cluster.nodes, *(nodes for _, nodes in cluster.nodes_by_date), 0)
    for result in results:
        folder = data.lake / cluster.name / result.sha256[:DIGEST_CHARACTERS]
        jobs = staged.get(folder, folder) / "jobs.parquet"
        if not result.sha256 or not jobs.is_file():
            continue
        ran = pl.scan_parquet(jobs).filter((pl.col("run_s") > 0) & (pl.col("allocated_nodes") > declared))
        largest = ran.sort("allocated_nodes", "line", descending=[True, False]).head(1).collect()
        for job in largest.iter_rows(named=True):
            raise InputError(
                f"{result.path}:{job['line']}: job {job['job_id']!r} ran on {job['allocated_nodes']} nodes, but "
                f"cluster {cluster.name!r} has {declared}; correct nodes in clusters.toml, or give --nodes"
            )


def _forget_older(results: Sequence[FileResult], folder: Path) -> None:
    """Take out of the lake what these files held before they were changed: a file's rows are those it holds now."""
    digests = {str(Path(r.path).resolve()): r.sha256 for r in results if r.sha256 and Path(r.path).is_file()}
    staging.retire(folder, digests, {r.sha256 for r in results})


def _files_of(folder: Path) -> list[Path]:
    """What lies in the folder, not in folders in it, hidden files left out, in order of the names."""
    return sorted(p for p in folder.iterdir() if not p.name.startswith(HIDDEN) and p.name[-1] != "~")


@dataclass
class _Staged:
    """A temporary folder that becomes the file's folder in the lake."""

    temporary: Path
    final: Path

    def commit(self) -> None:
        """Take the place of the file's own older folder, in one step."""
        staging.publish(self.temporary, self.final)

    def discard(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)


def _stage(raw: RawFile, format: str, data: DataFolder, staged: list[_Staged], *, named: bool) -> FileResult:
    """Read one file into a temporary folder of the lake, or tell why not."""
    began = time.perf_counter()
    path = raw.shown or str(raw.path)
    try:
        reader = reader_for(raw, format)
    except InputError as error:
        if named:
            raise InputError(str(error).replace(str(raw.path), path)) from error
        return FileResult(path, "none", skipped_reason=_without_path(error, raw.path))
    digest, size = _digest(raw.path)
    rules = fingerprint(reader, raw)
    final = data.lake / raw.settings.name / digest[:DIGEST_CHARACTERS]
    known = _known(final, rules)
    if known is None and any(stage.final == final for stage in staged):
        known = _known(next(stage.temporary for stage in staged if stage.final == final), rules)
    if known is not None:
        n = int(known["result"]["rows"])
        return FileResult(path, reader.name, rows=n, duplicates=n, sha256=digest, seconds=time.perf_counter() - began)
    stage = _Staged(final.with_name(f".{final.name}.{os.getpid()}.{len(staged)}"), final)
    staged.append(stage)
    stage.discard()
    stage.temporary.mkdir(parents=True)
    tables = FileTables(stage.temporary, cluster=raw.settings.name, sha256=digest, path=path)
    try:
        with tables:
            parsed = reader.read(replace(raw, folder=stage.temporary, sha256=digest, tables=tables))
            if parsed.records == len(parsed.rejects) + parsed.rejected:
                first = f": line {parsed.rejects[0].line}: {parsed.rejects[0].reason}" if parsed.rejects else ""
                raise InputError(f"{raw.path}: not one record could be read as {reader.name}{first}")
            result = _result(path, reader, parsed, digest, time.perf_counter() - began)
            _write(tables, raw, reader, parsed, result, size)
    except InputError as error:
        stage.discard()
        staged.remove(stage)
        if named:
            raise InputError(str(error).replace(str(raw.path), path)) from error
        return FileResult(path, reader.name, skipped_reason=_without_path(error, raw.path))
    described = {"schema_version": schema.SCHEMA_VERSION, "fingerprint": rules, "sha256": digest, "path": path}
    described["source"] = raw.shown or str(raw.path.resolve())
    store.write_text(stage.temporary / "file.json", json.dumps({**described, "result": asdict(result)}, indent=1))
    return result


def _without_path(error: InputError, path: Path) -> str:
    return str(error).removeprefix(f"{path}: ").removeprefix(f"{path}:")


def _digest(path: Path) -> tuple[str, int]:
    """(sha256, bytes) of the file as stored."""
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return digest.hexdigest(), stream.tell()


def fingerprint(reader: Reader, raw: RawFile) -> str:
    """The rules that a file is read by: the reader, its version and every setting that changes its rows."""
    rules = {
        "schema": schema.SCHEMA_VERSION,
        "reader": reader.name,
        "version": reader.version,
        "timezone": raw.settings.timezone,
        "gpus_per_node": raw.settings.gpus_per_node,
        "fields": raw.fields,
        "delimiter": raw.delimiter,
    }
    return hashlib.sha256(json.dumps(rules, sort_keys=True).encode()).hexdigest()[:DIGEST_CHARACTERS]


def _known(folder: Path, rules: str) -> dict[str, Any] | None:
    """`file.json` of a folder written by the same rules."""
    try:
        described: dict[str, Any] = json.loads((folder / "file.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return described if described.get("fingerprint") == rules else None


def _result(path: str, reader: Reader, parsed: Parsed, digest: str, seconds: float) -> FileResult:
    rejects = len(parsed.rejects) + parsed.rejected
    counted = parsed.allocations + parsed.steps + parsed.samples + parsed.duplicates + rejects
    if counted != parsed.records:
        raise AssertionError(f"{path}: {parsed.records} records, but {counted} accounted for: {parsed}")
    return FileResult(
        path, reader.name, parsed.records, parsed.allocations, parsed.steps, parsed.samples, parsed.duplicates,
        rejects, parsed.jobs, parsed.attempts, digest, round(seconds, 4), parsed.slow,
    )  # fmt: skip


def _write(tables: FileTables, raw: RawFile, reader: Reader, parsed: Parsed, result: FileResult, size: int) -> None:
    """What the reader has not written yet, and the file's own row."""
    for name, frame in {**parsed.tables, "rejects": rejects_frame(parsed.rejects)}.items():
        tables.write(name, frame)
    counts = {k: v for k, v in asdict(result).items() if k in schema.TRACE_FILES.names}
    told = {
        **counts, "records": result.rows, "bytes": size, "timezone": raw.settings.timezone, "superseded": 0,
        "reader_version": reader.version,
    }  # fmt: skip
    tables.write("trace_files", pl.DataFrame([told]))
