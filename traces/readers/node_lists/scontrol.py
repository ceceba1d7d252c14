"""Reader of `scontrol show node`, with one line (`-o`) or one paragraph per node.

Format: slurm_sprint_node_table in Slurm's src/api/node_info.c. Values are not quoted. So free text is skipped: the
operating system (OS), and an administrator's text (Reason, Comment, Extra), which is last.
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
_NEEDED = ("CPUTot", "RealMemory", "State")  # present for every node; Slurm omits other keys without a value
_PAIR = re.compile(rf"(?:^|\s)({'|'.join(_KEYS)})=(\S*)")
_FREE_TEXT = re.compile(r"(?s)\sOS=.*?(?=\sRealMemory=)|\s(?:Reason|Comment|Extra)=.*")


class ScontrolNodes:
    """The reader of `scontrol show node`."""

    name = "scontrol-nodes"
    version = 1

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the file begins with a node and its number of CPUs."""
        text = head.decode("utf-8", errors="replace").removeprefix("\ufeff").lstrip()
        return text.startswith("NodeName=") and "CPUTot=" in text

    def read(self, file: RawFile) -> Parsed:
        """Read all nodes. Raises InputError where there is none."""
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
    """Add one node from its line or paragraph."""
    if not record:
        return
    raw = "\n".join(record).rstrip()
    values: dict[str, str] = {}
    for key, value in _PAIR.findall(_FREE_TEXT.sub("", raw)):
        values.setdefault(key, value)
    missing = [key for key in _NEEDED if not values.get(key)]
    if missing:
        rows.refuse(line, f"the node has no {', '.join(missing)}: is the record cut short?", raw)
        return
    rows.add(line, raw, {"gres": "", **{_KEYS[key]: value for key, value in values.items()}})
