"""The filters' numbers of a page, unpacked by Python's own means: the twin of reports/templates/explore.js."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np


def unpacked(text: str) -> dict[str, Any]:
    """The content of what `reports.sections.explore.embedded` returns."""
    content: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text, validate=True)))
    return content


def cells(content: dict[str, Any]) -> list[dict[str, Any]]:
    """Names, period, sums and waits (s, in order) of every cell."""
    return [
        {"user": content["users"][user], "partition": content["partitions"][part], "period": period,
         "waits": np.repeat(np.cumsum(runs[::2]), runs[1::2]).tolist() if runs else [],
         **dict(zip(content["sums"], sums, strict=True))}
        for user, part, period, sums, runs, *_ in content["cells"]
    ]  # fmt: skip


def quantile(cells: list[dict[str, Any]], share: float, is_chosen: Callable[[dict[str, Any]], bool]) -> float:
    """Percentile of the waits of the chosen cells, linear between neighbours."""
    waits = [wait for cell in cells if is_chosen(cell) for wait in cell["waits"]]
    return float(np.quantile(waits, share, method="linear"))
