"""The analytics in order of computation: name -> module with TABLES and compute(data, settings)."""

from __future__ import annotations

from types import ModuleType

from features import deployed, fragmentation, locality, order, queueing, quotas
from features.failures import failures
from features.load import load
from features.resources import accounting, utilization

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
