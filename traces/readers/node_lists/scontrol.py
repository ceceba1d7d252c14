"""`scontrol show node`, one node a line (`-o`) or a paragraph a node.

Format: slurm_sprint_node_table of Slurm's src/api/node_info.c. Values are not quoted: the name of the system (OS) is
not read, nor what an administrator writes (Reason, Comment, Extra), which stands last.
"""

from __future__ import annotations

import re

from traces.readers.common import Parsed, RawFile, shown
from traces.readers.node_lists.rows import NodeRows

# Key of the output -> name of the value in `NodeRows.add`.
_KEYS = {
    "NodeName": "nodes", "CPUTot": "cpus", "RealMemory": "memory_mib", "Gres": "gres", "Partitions": "partitions",
    "AvailableFeatures": "features", "State": "state",
}  # fmt: skip
_NEEDED = ("CPUTot", "RealMemory", "State")  # of every node; the others are left out where there is nothing to say
_PAIR = re.compile(rf"(?:^|\s)({'|'.join(_KEYS)})=(\S*)")
_FREE_TEXT = re.compile(r"(?s)\sOS=.*?(?=\sRealMemory=)|\s(?:Reason|Comment|Extra)=.*")


class ScontrolNodes:
    """The reader of `scontrol show node`."""

    name = "scontrol-nodes"
    version = 1

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Does it begin with a node and its count of CPUs?"""
        text = head.decode("utf-8", errors="replace").removeprefix("\ufeff").lstrip()
        return text.startswith("NodeName=") and "CPUTot=" in text

    def read(self, file: RawFile) -> Parsed:
        """All nodes. Raises InputError where there is none."""
        rows = NodeRows()
        record: list[str] = []
        begin = 0
        for number, line in enumerate(file.text().split("\n"), 1):
            text = line.removesuffix("\r")
            if text.startswith("NodeName="):
                _take(rows, begin, record)
                begin, record = number, [text]
            elif record and text[:1].isspace():
                record.append(text)
            elif text.strip():
                rows.refuse(number, f"not a node: {shown(text)}", text)
        _take(rows, begin, record)
        return rows.parsed(file.path)


def _take(rows: NodeRows, line: int, record: list[str]) -> None:
    """One node, from its line or paragraph."""
    if not record:
        return
    raw = "\n".join(record).rstrip()
    values: dict[str, str] = {}
    for key, value in _PAIR.findall(_FREE_TEXT.sub("", raw)):
        values.setdefault(key, value)
    missing = [key for key in _NEEDED if not values.get(key)]
    if missing:
        rows.refuse(line, f"a node without {', '.join(missing)}: is it cut short?", raw)
        return
    rows.add(line, raw, {"gres": "", **{_KEYS[key]: value for key, value in values.items()}})
