"""Section `read`: which raw files were read, how their records were counted, and which were rejected."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

import polars as pl

from reports import format as fmt
from reports.layout import Section, TableView, columns
from reports.source import Source
from traces import quality
from traces.counted import counted
from traces.lake.pull import read_version

MOST_REASONS, EXAMPLE_CHARACTERS = 20, 240
_HIDDEN = "(hidden: this report is anonymised)"
_VALUE = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`|\d+")
_FROM_VALUE_ON = re.compile(r"['\"`:(\d].*", re.DOTALL)


def intake(source: Source) -> Section:
    """Return the files with their counts, rejects by reason with an example, clock-change rows and superseded jobs."""
    section = Section("read", "What was read and rejected")
    files = source.files
    if files.is_empty():
        section.missing.append("No raw file of this cluster is in the warehouse.")
        return section
    records, rejects = int(files["records"].sum()), int(files["rejects"].sum())
    section.sentences.append(
        f"{counted(files.height, 'raw file')} with {counted(records, 'record')} gave "
        f"{counted(source.jobs.height, 'job')}; "
        f"{counted(int(files['duplicates'].sum()), 'duplicate')} and {counted(rejects, 'refused record')} "
        f"({fmt.percent(rejects / max(records, 1))}) were left out."
    )
    section.sentences.extend(_conservation(files))
    section.sentences.extend(_version(source))
    superseded, ambiguous = int(files["superseded"].sum()), int(source.jobs["is_time_ambiguous"].sum())
    section.sentences.append(
        f"{counted(superseded, 'job')} appeared in several files; the newest record of each is used. "
        f"{counted(ambiguous, 'job')} had an ambiguous local time in the hour of a clock change "
        f"(zone {fmt.text(source.timezone)})."
    )
    section.tables.append(_files_table(source, files))
    if not source.jobs.is_empty():
        section.tables.append(_quality_table(source, files))
    rejected = source.rows("rejects")
    if rejected.is_empty():
        if rejects:
            section.missing.append("The refused records are not in the warehouse.")
    else:
        section.tables.append(_rejects_table(source, rejected))
    return section


def _conservation(files: pl.DataFrame) -> list[str]:
    """Say whether the counts of each file add up to its records."""
    parts = pl.sum_horizontal("allocations", "steps", "samples", "duplicates", "rejects")
    wrong = files.filter(parts != pl.col("records")).height
    if wrong:
        return [f"In {counted(wrong, 'file')} the counts do not add up: records were lost or counted twice."]
    return ["In every file: records = allocations + steps + samples + duplicates + rejects."]


def _version(source: Source) -> list[str]:
    """Name the version of the shared lake that the files are from, if there is one."""
    found = read_version(source.data, source.cluster)
    if found is None:
        return []
    where = "" if source.names.are_hidden else f" {fmt.text(found[0])}"
    return [f"The files are those of version {found[1]:,} of the shared lake{where}."]


def _files_table(source: Source, files: pl.DataFrame) -> TableView:
    def shown(row: dict[str, Any]) -> dict[str, Any]:
        path = PurePath(row["path"])
        # a path may contain a user's name
        name = f"file-{row['sha256'][:10]}" if source.names.are_hidden else path.name
        return {**row, "file": name, "sha256": row["sha256"][:12]}

    rows = [shown(row) for row in files.sort("path").to_dicts()]
    return TableView(
        "trace_files",
        "Raw files",
        f"One row per raw file. {source.caption(files.height, 'files')}",
        columns(
            "file|file", "format|read as", "bytes|size|bytes", "records|records|count", "allocations|allocations|count",
            "steps|steps|count", "samples|samples|count", "duplicates|duplicates|count", "rejects|rejects|count",
            "jobs|jobs|count", "superseded|superseded|count", "sha256|sha256|code",
        ),
        rows,
    )  # fmt: skip


def _quality_table(source: Source, files: pl.DataFrame) -> TableView:
    """Return, for each file, ambiguous local times, jobs without an end and the longest gap in submissions."""
    rows = []
    for row in quality.of_jobs(source.jobs).to_dicts():
        path = files.filter(pl.col("sha256") == row["trace_sha256"])["path"]
        name = (
            f"file-{row['trace_sha256'][:10]}" if source.names.are_hidden or path.is_empty() else PurePath(path[0]).name
        )
        rows.append({**row, "file": name})
    return TableView(
        "file_quality",
        "Quality of the jobs by file",
        "Gap: the time between one submission and the next. Clock-change rows: jobs whose local time is ambiguous "
        "because the clock changed. End before start: jobs whose recorded end lies before their start; the start is "
        "set to that end. Without an end: share of the jobs that ran. "
        f"{source.caption(source.jobs.height, 'jobs')}",
        columns(
            "file|file", "jobs|jobs|count", "gap_s|longest gap|duration", "gap_from_utc|from (UTC)|utc",
            "median_gap_s|median gap|duration", "ambiguous|clock-change rows|count",
            "end_before_start|end before start|count", "no_end_share|without an end|percent",
        ),
        sorted(rows, key=lambda row: str(row["file"])),
    )  # fmt: skip


def _rejects_table(source: Source, rejected: pl.DataFrame) -> TableView:
    """Group the rejects by reason, without the offending values; the first of each is the example."""
    hidden = source.names.are_hidden
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rejected.sort("path", "line").to_dicts():
        pattern = _FROM_VALUE_ON.sub("…", row["reason"]) if hidden else _VALUE.sub("…", row["reason"])
        groups.setdefault(pattern, []).append(row)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    rows = [
        {
            "reason": pattern,
            "n": len(members),
            "where": "" if hidden else f"{PurePath(members[0]['path']).name}:{members[0]['line']}",
            "example": _HIDDEN if hidden else members[0]["raw"][:EXAMPLE_CHARACTERS],
        }
        for pattern, members in ordered[:MOST_REASONS]
    ]
    return TableView(
        "rejects",
        "Refused records by reason",
        f"Values in a reason are shown as …. The example is the first record refused for that reason, cut to "
        f"{EXAMPLE_CHARACTERS} characters. {source.caption(rejected.height, 'refused records')}",
        columns("reason|reason", "n|records|count", "where|first at|code", "example|example|code"),
        rows,
        cut=max(0, len(ordered) - MOST_REASONS),
    )
