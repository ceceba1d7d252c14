"""Reader of `sinfo --json` and `scontrol show nodes --json`.

Up to Slurm 22.05, both print a list `nodes` of the controller's records. Later versions of `sinfo --json` print a list
`sinfo` of groups of equal nodes in a partition (data_parser's SINFO_DATA). `line` is the number of the record.
"""

from __future__ import annotations

import re
from typing import Any

from traces.errors import InputError
from traces.readers.common import Parsed, RawFile, shown
from traces.readers.json_documents import Documents
from traces.readers.node_lists.rows import NodeRows

PIECE_BYTES = 1 << 22
_LIST = re.compile(r'"(jobs|nodes|sinfo)"\s*:\s*\[')
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class SinfoJson:
    """The reader of both lists."""

    name = "sinfo-json"
    version = 1

    def recognises(self, file: RawFile, head: bytes) -> bool:
        """Return whether the first list of the document holds nodes."""
        text = head.decode("utf-8", errors="replace").removeprefix("\ufeff").lstrip()
        return text.startswith("{") and _key(text) is not None

    def read(self, file: RawFile) -> Parsed:
        """Read all nodes. Raises InputError without a list of nodes."""
        key = _key(file.head().decode("utf-8", errors="replace")) or "nodes"
        rows, line = NodeRows(), 0
        documents = Documents(file.pieces(PIECE_BYTES), key)
        for line, element in enumerate(documents.elements(), 1):
            try:
                if element.wrong:
                    raise ValueError(element.wrong)
                printed = _group(element.value) if key == "sinfo" else _node(element.value)
                "".join(filter(None, printed.values())).encode()  # half a surrogate pair is valid in JSON only
            except UnicodeEncodeError as error:
                rows.refuse(line, f"not a node: half a surrogate pair in {shown(error.object)}", element.text)
            except _BROKEN as error:
                what = f"no field {error}" if isinstance(error, KeyError) else str(error)
                rows.refuse(line, f"not a node: {what[:300]}", element.text)
            else:
                rows.add(line, element.text, printed)
        if not documents.lists:
            raise InputError(f"{file.path}: JSON without a list of nodes: print it with `sinfo --json`")
        return rows.parsed(file.path)


def _key(text: str) -> str | None:
    """Return the key of the list to read; None if jobs are listed first, or there is no list."""
    found = _LIST.search(text)
    return found[1] if found and found[1] != "jobs" else None


def _node(node: dict[str, Any]) -> dict[str, str | None]:
    """Convert one record of the controller."""
    return {
        "nodes": str(node["name"]),
        "cpus": _number(node["cpus"]),
        "memory_mib": _number(node["real_memory"]),
        "gres": str(node.get("gres") or ""),
        "partitions": _joined(node.get("partitions"), ","),
        "features": _joined(node.get("features"), ","),
        "state": _joined([_joined(node.get("state"), "+"), *(node.get("state_flags") or [])], "+"),
    }


def _group(group: dict[str, Any]) -> dict[str, str | None]:
    """Convert a group of equal nodes in one partition; a size in which they differ is unknown."""
    return {
        "nodes": _joined(group["nodes"]["nodes"], ","),
        "cpus": _same(group["cpus"]),
        "memory_mib": _same(group["memory"]),
        "gres": str((group.get("gres") or {}).get("total") or ""),
        "partitions": str(group["partition"]["name"]),
        "features": _joined((group.get("features") or {}).get("total"), ","),
        "state": _joined(group["node"]["state"], "+"),
    }


def _same(size: dict[str, Any]) -> str | None:
    """Return the size of each node; None unless the minimum equals the maximum."""
    least, most = _number(size["minimum"]), _number(size["maximum"])
    return least if least == most else None


def _number(value: Any) -> str | None:
    """Return a plain number or one as {"set": true, "infinite": false, "number": 5} (since 23.02); None if not set."""
    if isinstance(value, dict):
        value = value["number"] if value["set"] and not value["infinite"] else None
    return None if value is None else str(int(value))


def _joined(value: Any, mark: str) -> str | None:
    """Join a list to one text; return a text unchanged."""
    if isinstance(value, list):
        return mark.join(str(part) for part in value if part) or None
    return None if value in (None, "") else str(value)
