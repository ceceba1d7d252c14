"""The error for a file that no reader recognises: what its first lines look like, and what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from traces.formats import FORMATS
from traces.readers.csv_lines import header_names
from traces.readers.sacct.columns import NAMES
from traces.readers.sacct.layout import DELIMITERS

AGAIN = "dump the jobs with sacct -a -D -P (the README has the whole command)"
NODES = 'print them: sinfo -N -o "%N|%P|%c|%m|%G|%f|%t"'
MOST_LINES, MOST_NAMED = 50, 8
# Sets of header words of other Slurm commands; a header that holds all words of a set is the command's output.
_COMMANDS = {
    "squeue": ({"NODELIST(REASON)"}, {"JOBID", "ST"}, {"JOBID", "STATE"}, {"JOBID", "NAME", "PARTITION"}),
    "sinfo": ({"AVAIL"}, {"NODELIST", "STATE"}),
    "sprio": ({"JOBID", "PRIORITY"},),
}
_SCONTROL = ("JobId=", "PartitionName=", "ReservationName=", "Configuration data as of")
_JOB_ID = re.compile(r"\d+([_+.]\S*)?")
_TIME_OR_STATE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|(COMPLETED|FAILED|TIMEOUT|RUNNING|PENDING|CANCELLED)( by \d+)?"
)
# The columns of the README's command, in order; below, all other columns of sacct follow them.
_README = """
JobID JobIDRaw JobName User Account Partition QOS State ExitCode Submit Eligible Start End ElapsedRaw TimelimitRaw
NNodes NCPUS ReqTRES AllocTRES ReqMem NodeList Priority Flags Reason
"""
_IN_ORDER = tuple(dict.fromkeys([*_README.split(), *NAMES]))


def what_it_is(head: bytes, headers: Mapping[str, set[str]]) -> str:
    """Describe what the first bytes look like and what to do. `headers` holds the column names of the CSV readers."""
    text = head.decode("utf-8", errors="replace")
    lines = [line for line in text.split("\n") if line.strip()][:MOST_LINES]
    first = lines[0] if lines else text
    if (command := _command(lines or [text])) == "sinfo":
        return f"this looks like the output of sinfo without CPUs, memory or GRES: for a node list {NODES}; {AGAIN}"
    if command:
        return f"this looks like the output of {command}, which does not record when jobs ran: {AGAIN}"
    if columns := _headerless(lines):
        return _name_the_columns(columns)
    description = f"unknown format, the file begins with {first[:60]!r}"
    known = f"known are {', '.join(FORMATS)}"
    if near := _nearest(header_names(first.encode()), headers):
        return f"{description}: {known}; {near}"
    if len(names := header_names(first.encode())) > 2:
        shown = ", ".join(name[:30] for name in names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
        return f"{description}: no known job log is a CSV with the columns {shown!r}; for Slurm, {AGAIN}"
    return f"{description}: {known}; for Slurm, {AGAIN}"


def _command(lines: list[str]) -> str | None:
    """Return the Slurm command that prints such lines, or None."""
    first = lines[0]
    if first.startswith(_SCONTROL):
        return "scontrol"
    if any(line.startswith("sdiag output at ") for line in lines[:2]):
        return "sdiag"
    words = set(re.split(r"[\s|,;]+", first.strip()))
    return next((name for name, any_ in _COMMANDS.items() if any(all_ <= words for all_ in any_)), None)


def _headerless(lines: list[str]) -> int:
    """Return the number of columns of a sacct dump without a header; 0 if the lines are not jobs of sacct."""
    texts = [line.removesuffix("\r") for line in lines]
    for delimiter in DELIMITERS:
        # if only some lines end with the delimiter, their last column is blank
        trailing = all(text.endswith(delimiter) for text in texts[:-1] or texts)
        rows = [(text.removesuffix(delimiter) if trailing else text).split(delimiter) for text in texts]
        width = max((len(row) for row in rows), key=[len(row) for row in rows].count, default=0)
        jobs = [row for row in rows if len(row) == width and any(map(_JOB_ID.fullmatch, row))]
        header = bool(rows) and len(rows[0]) == width and rows[0] not in jobs
        all_dated = all(any(map(_TIME_OR_STATE.fullmatch, row)) for row in jobs)
        if width > 2 and not header and 2 * len(jobs) > len(rows) and all_dated:
            return width
    return 0


def _name_the_columns(number: int) -> str:
    """Return the advice for naming that many columns."""
    return (
        f"this looks like a dump of sacct without a header: name its {number} columns with --fields, in the order of "
        f"sacct's --format option, for example --fields {','.join(_IN_ORDER[:number])}"
    )


def _nearest(names: list[str], headers: Mapping[str, set[str]]) -> str:
    """Name the CSV format with the largest share of its columns in the header, and its missing columns.

    '' if no format has half of its columns there.
    """
    share, name = max((len(header & set(names)) / len(header), name) for name, header in headers.items())
    if share < 0.5:
        return ""
    missing = ", ".join(sorted(headers[name] - set(names)))
    if not missing:
        return f"nearest is {name}, but the file has columns of another format too"
    return f"nearest is {name}, but the file lacks {missing}"
