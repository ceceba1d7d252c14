"""The analytics in order of computation: name -> module with TABLES and compute(data, settings)."""

from __future__ import annotations

from types import ModuleType

from features import accounting, deployed, failures, fragmentation, load, locality, order, queueing, quotas, utilization

FEATURES: dict[str, ModuleType] = {
    "queueing": queueing,
    "quotas": quotas,
    "order": order,
    "fragmentation": fragmentation,
    "locality": locality,
    "failures": failures,
    "utilization": utilization,
    "accounting": accounting,
    "load": load,
    "deployed": deployed,
}
