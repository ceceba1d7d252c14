"""The registry of queue-time peers: each name with what makes the method.

A peer implements `models.queue_time.protocol.Method`, so that the same code scores it and the product's methods. None
has a released form (`models.queue_time.artifact`): `qbets` needs every start up to the submission, and no result shows
`hgb-bins` or `trout` to be better than the methods that can be released (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Callable

from bench.queue_time_peers.hgb_bins import HgbBins
from bench.queue_time_peers.qbets import Qbets
from bench.queue_time_peers.trout import TroutNetwork
from models.queue_time import registry
from models.queue_time.protocol import Method
from traces.errors import InputError

PEERS: dict[str, Callable[[], Method]] = {"qbets": Qbets, "hgb-bins": HgbBins, "trout": TroutNetwork}


def make_method(name: str) -> Method:
    """Make a peer or one of the product's methods. Raises InputError, listing the known names, for an unknown one."""
    if name in PEERS:
        return PEERS[name]()
    if name in registry.METHODS:
        return registry.make_method(name)
    raise InputError(f"unknown method {name!r}; peers: {', '.join(PEERS)}; methods: {', '.join(registry.METHODS)}")
