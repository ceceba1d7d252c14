"""Reader of text output of `sinfo` with a header: `sinfo -N -o "%N|%P|%c|%m|%G|%f|%t"`, or fields in another order.

Format: sinfo(1), options -o and -O. A line describes one node (-N), or equal nodes of one partition. `sinfo -N -l`
prints the date before the header, and cuts memory to six characters (Slurm 22.05 and 26.05 print 1031000 MiB as
103100), so a memory of six digits is unknown there.
"""

from __future__ import annotations

import re

from traces.progress import say
from traces.readers.common import Parsed, RawFile, shown
from traces.readers.node_lists.rows import NodeRows
from traces.slurm.text import expand_nodes

# Name of a field in the header -> name of the value in `NodeRows.add`, best first.
_FIELDS = {
    "NODELIST": "nodes", "HOSTNAMES": "nodes", "PARTITION": "partitions", "CPUS": "cpus", "CPUS(A/I/O/T)": "cpus",
    "MEMORY": "memory_mib", "GRES": "gres", "AVAIL_FEATURES": "features", "FEATURES": "features", "STATE": "state",
}  # fmt: skip
_STATES_OF_CPUS = "CPUS(A/I/O/T)"
_SIZES = ("cpus", "memory_mib", "gres")
_JOB_FIELDS = frozenset({"JOBID", "NAME", "ST", "TIME", "TIME_LEFT"})  # fields of squeue
_DELIMITERS = ("|", "\t", ";", ",")
_LONG_FORM = "AVAIL_FE"  # `sinfo -N -l` cuts even its header
_LONG_FORM_WIDTH = 6  # of its MEMORY
_DATE = re.compile(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ 0-3][0-9] [0-9]{2}:[0-9]{2}:[0-9]{2} [0-9]{4}")


class Sinfo:
    """The reader of `sinfo` text with CPUs, memory or GRES; `--fields` names the fields if there is no header."""

    name = "sinfo"
    version = 1

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the first line or `--fields` names nodes and at least one size."""
        header = _header(head.decode("utf-8-sig", errors="replace").split("\n"))
        return _is_known(_split(header, _delimiter(header))) or _is_known(_named(file))

    def read(self, file: RawFile) -> Parsed:
        """Read all nodes. Raises InputError where there is none."""
        rows = NodeRows()
        lines = file.text().split("\n")
        header = _header(lines)
        delimiter = file.delimiter or _delimiter(header)
        names, titles, cut = _split(header, delimiter), {header}, 0
        if not _is_known(names) and _is_known(_named(file)):
            names, titles = _named(file), set()
        for number, line in enumerate(lines, 1):
            text = line.strip()
            if not text or text in titles or _DATE.fullmatch(text):
                continue
            values = _split(text, delimiter)
            if not delimiter and names[-1:] == ["REASON"]:
                values = text.split(maxsplit=len(names) - 1)
            if not _is_known(names) or len(values) != len(names):
                rows.refuse(number, f"not {len(names)} fields as in the header: {shown(text)}", text)
                continue
            printed = _printed(names, values)
            if _LONG_FORM in names and len(printed.get("memory_mib") or "") >= _LONG_FORM_WIDTH:
                printed["memory_mib"] = None
                cut += 1
            rows.add(number, text, printed)
        if cut:
            say(
                f"{file.shown or file.path}: sinfo -l cuts memory to {_LONG_FORM_WIDTH} characters, so the memory of "
                f"{cut:,} lines is unknown; use sinfo -N -o '%N|%P|%c|%m|%G|%f|%t'"
            )
        return rows.parsed(file.path)


def _header(lines: list[str]) -> str:
    """Return the first line that is neither empty nor a date."""
    return next((text for line in lines if (text := line.strip()) and not _DATE.fullmatch(text)), "")


def _named(file: RawFile) -> list[str]:
    """Return the names of `--fields` in capitals, as in a header."""
    return [name.upper() for name in file.fields or ()]


def _delimiter(header: str) -> str:
    """Return the delimiter of the fields; '' for spaces."""
    return next((mark for mark in _DELIMITERS if mark in header), "")


def _split(line: str, delimiter: str) -> list[str]:
    return [part.strip() for part in line.split(delimiter)] if delimiter else line.split()


def _is_known(names: list[str]) -> bool:
    known = {_FIELDS.get(name) for name in names}
    return "nodes" in known and any(size in known for size in _SIZES) and not _JOB_FIELDS.intersection(names)


def _printed(names: list[str], values: list[str]) -> dict[str, str | None]:
    """Return the values by name. CPUs by state are totals of a line, so they are used only for a single node."""
    by_name: dict[str, str] = {}
    for name, value in zip(names, values, strict=True):
        by_name.setdefault(name, value)
    if _STATES_OF_CPUS in by_name:
        nodes = by_name.get("NODELIST") or by_name.get("HOSTNAMES", "")
        by_name[_STATES_OF_CPUS] = by_name[_STATES_OF_CPUS].rpartition("/")[2] if _is_one(nodes) else ""
    printed: dict[str, str | None] = {}
    for name, what in _FIELDS.items():
        if name in by_name:
            printed.setdefault(what, by_name[name])
    return printed


def _is_one(nodes: str) -> bool:
    try:
        return len(expand_nodes(nodes)) == 1
    except ValueError:
        return False  # `NodeRows.add` rejects it
