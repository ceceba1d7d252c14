"""The state of a cluster at one time, as `scontrol show node|partition|reservation -o` prints it.

slurm.conf says what was meant; these dumps say what is: nodes drained and down, partitions changed at run time, and
reservations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from zoneinfo import ZoneInfo

from traces import instants
from traces.errors import InputError
from traces.slurm import conf_values as values
from traces.slurm.conf import NodeConf, PartitionConf, SlurmConf, expanded, filled
from traces.slurm.conf_lines import Pair, read_records, shown

_UNSET = frozenset({"(null)", "n/a", "none", ""})


@dataclass(frozen=True)
class Reservation:
    """One advance reservation: its nodes are for `users` and `accounts` alone from `start_s` to `end_s`."""

    name: str
    where: str
    start_s: int  # epoch seconds
    end_s: int
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    accounts: tuple[str, ...]
    flags: tuple[str, ...]


def _set(record: dict[str, Pair]) -> dict[str, Pair]:
    return {key: pair for key, pair in record.items() if pair.value.lower() not in _UNSET}


def read_nodes(path: Path) -> tuple[NodeConf, ...]:
    """The nodes of `scontrol show node -o`. Raises InputError (file:line)."""
    nodes = []
    for record in read_records(path, "NodeName"):
        own = _set(record)
        if "activefeatures" in own:
            own["features"] = own["activefeatures"]
        name = record["nodename"]
        node = filled(NodeConf(name.value, name.where), own)
        cpus = own.get("cpuefctv") or own.get("cputot")
        nodes.append(replace(node, cpus=_count(cpus)) if cpus else node)
    return tuple(nodes)


def _count(pair: Pair) -> int:
    try:
        return values.count(pair.value)
    except ValueError as error:
        raise InputError(f"{pair.where}: {pair.key}={shown(pair.value)}: {error}") from error


def read_partitions(path: Path) -> tuple[PartitionConf, ...]:
    """The partitions of `scontrol show partition -o`. Raises InputError (file:line)."""
    partitions = []
    for record in read_records(path, "PartitionName"):
        own, name = _set(record), record["partitionname"]
        members = tuple(expanded(own["nodes"].value, name.where)) if "nodes" in own else ()
        partitions.append(filled(PartitionConf(name.value, name.where, nodes=members), own))
    return tuple(partitions)


def as_it_is(conf: SlurmConf, *, nodes: Path | None = None, partitions: Path | None = None) -> SlurmConf:
    """The configuration with the nodes and partitions of these dumps in place of its own.

    Raises InputError where a partition holds a node that the cluster does not have.
    """
    conf = replace(conf, nodes=read_nodes(nodes) if nodes else conf.nodes)
    conf = replace(conf, partitions=read_partitions(partitions) if partitions else conf.partitions)
    known = {node.name for node in conf.nodes}
    for partition in conf.partitions:
        if strange := [name for name in partition.nodes if name not in known]:
            raise InputError(f"{partition.where}: Nodes names {shown(strange[0])}, which is no node of this cluster")
    return conf


def read_reservations(path: Path, timezone: str) -> tuple[Reservation, ...]:
    """The reservations of `scontrol show reservation -o`, whose times are local ones of `timezone`.

    Raises InputError (file:line) for a time that is none and for an end that is not after the start.
    """
    zone = ZoneInfo(timezone)
    found = []
    for record in read_records(path, "ReservationName"):
        own, name = _set(record), record["reservationname"]
        for key in ("starttime", "endtime"):
            if key not in own:
                raise InputError(f"{name.where}: reservation {shown(name.value)} has no {key}")
        start, end = _epoch_s(own["starttime"], zone), _epoch_s(own["endtime"], zone)
        if end <= start:
            raise InputError(
                f"{name.where}: reservation {shown(name.value)} ends ({shown(own['endtime'].value)}) before it starts"
            )
        lists = {key: values.words(own[key].value) if key in own else () for key in ("accounts", "flags")}
        users = tuple(own["users"].value.split(",")) if "users" in own else ()
        members = tuple(expanded(own["nodes"].value, name.where)) if "nodes" in own else ()
        found.append(Reservation(name.value, name.where, start, end, members, users, lists["accounts"], lists["flags"]))
    return tuple(found)


def _epoch_s(pair: Pair, zone: ZoneInfo) -> int:
    try:
        return instants.epoch_s(instants.parse(pair.value), zone)
    except ValueError as error:
        raise InputError(f"{pair.where}: {pair.key}={shown(pair.value)}: a time such as 2026-11-21T08:00:00") from error
