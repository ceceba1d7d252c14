"""The registry of queue-time methods: each name with the place that makes the method, imported only when it is made.

Places are written in full, "module:name", so that `traces.cache.closure` can follow them without importing anything.
Published methods that Baton's are only compared with are in `bench/queue_time_peers`.
"""

from __future__ import annotations

from importlib import import_module

from models.queue_time.protocol import Method
from traces.errors import InputError

METHODS: dict[str, str] = {
    "limits": "models.queue_time.methods.estimates:limits",
    "expected": "models.queue_time.methods.estimates:expected",
    "partition-mean": "models.queue_time.methods.partitions:PartitionMean",
    "partition-median": "models.queue_time.methods.partitions:PartitionMedian",
    "trout-boosting": "models.queue_time.methods.trout_boosting:TroutBoosting",
    "boosting": "models.queue_time.methods.boosting:Boosting",
    "simulate-ahead": "models.queue_time.methods.futures:simulate_ahead",
    "boosting-ahead": "models.queue_time.methods.futures:BoostingAhead",
    "combination-ahead": "models.queue_time.methods.futures:CombinationAhead",
    "informed": "models.queue_time.methods.futures:informed",
    "combination": "models.queue_time.methods.combination:Combination",
}


def make_method(name: str) -> Method:
    """Make a method of that name. Raises InputError, listing the known ones, for an unknown name."""
    if name not in METHODS:
        raise InputError(f"unknown method {name!r}; known: {', '.join(METHODS)}")
    module, _, made_by = METHODS[name].partition(":")
    method: Method = getattr(import_module(module), made_by)()
    return method
