"""The analytics in the order in which they are computed: name -> module with TABLES and compute(data, settings)."""

from __future__ import annotations

from types import ModuleType

from features import failures, fragmentation, queueing, utilization

FEATURES: dict[str, ModuleType] = {
    "queueing": queueing,
    "fragmentation": fragmentation,
    "failures": failures,
    "utilization": utilization,
}
