"""What an administrator types for changes of the nodes, partitions and QOS that jobs ask for.

A node that is added has a stand-in for its name, which the administrator replaces.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import count, islice

from models.what_if.advice.conf_text import DOWN, NODE, NODES, ConfEdit
from models.what_if.advice.draft import SlurmDraft, check_slurm_name, written_time
from models.what_if.advice.moved_jobs import JobMove
from models.what_if.changes import limit_of, relative
from models.what_if.recorded.changes import DIMENSIONS, LIKE, MOST, more_alike
from models.what_if.recorded.default_limits import default_limit_of, partitions_with_default
from traces.counted import counted
from traces.errors import InputError
from traces.slurm.conf import NodeConf, PartitionConf, SlurmConf
from traces.slurm.text import MOST_NODES, expand_nodes

BY_PEOPLE = "nodes are bought, repaired or removed by people; slurm.conf then lists them"
_NUMBERED = re.compile(r"(.*?)(\d+)")


def node_list(names: Iterable[str]) -> str:
    """Return the names as a node list of Slurm, which `expand_nodes` expands to them: n[01-12],login."""
    ranges: list[list[str]] = []  # prefix, first and last number
    for name in names:
        match = _NUMBERED.fullmatch(name)
        prefix, number = (match[1], match[2]) if match else (name, "")
        last = ranges[-1] if ranges else ["", "", ""]
        if number and last[0] == prefix and len(last[2]) == len(number) and int(number) == int(last[2] or -2) + 1:
            last[2] = number
        else:
            ranges.append([prefix, number, number])
    return ",".join(
        f"{prefix}[{first}-{last}]" if first != last else f"{prefix}{first}" for prefix, first, last in ranges
    )


def _nodes(draft: SlurmDraft, rest: str, value: str, change: str) -> None:
    """Add nodes like one of slurm.conf, or take nodes like it out of service."""
    if draft.conf is None or "@" in value:
        draft.by_hand.append(f"{change}: {BY_PEOPLE}")
        return
    up = [node for node in draft.conf.nodes if node.is_up]
    if rest.startswith(LIKE):
        like, more = _node(draft.conf, rest.removeprefix(LIKE), change), more_alike(value, change)
        alike = [node for node in up if _kind(node) == _kind(like)]
    elif rest:
        raise InputError(f"change {change!r} concerns all jobs; leave the name behind the dot out")
    else:
        kinds = Counter(_kind(node) for node in up)
        if len(kinds) != 1:
            draft.by_hand.append(f"{change}: {BY_PEOPLE}; those of slurm.conf differ: write nodes.like.NODENAME=+4")
            return
        most = Counter(_partitions(draft.conf, node) for node in up).most_common(1)[0][0]
        like = next(node for node in reversed(up) if _partitions(draft.conf, node) == most)
        more, alike = round(relative(len(up), value, change)) - len(up), up
    if more > 0:
        _add_nodes(draft, draft.conf, like, more, change)
    elif more < 0:
        _remove_nodes(draft, alike, -more, change)


def _node(conf: SlurmConf, name: str, change: str) -> NodeConf:
    found = next((node for node in conf.nodes if node.name == name), None)
    if found is None:
        known = node_list(node.name for node in conf.nodes)
        raise InputError(f"change {change[:80]!r}: {conf.path} has no node {name[:60]!r} (known: {known[:120]})")
    return found


def _kind(node: NodeConf) -> tuple[object, ...]:
    return node.cpus, node.mem_mib, tuple(sorted(node.gpus.items())), node.weight, node.features


def _partitions(conf: SlurmConf, node: NodeConf) -> tuple[str, ...]:
    return tuple(one.name for one in conf.partitions if node.name in one.nodes)


def _add_nodes(draft: SlurmDraft, conf: SlurmConf, like: NodeConf, more: int, change: str) -> None:
    if len(conf.nodes) + more > MOST_NODES:
        raise InputError(f"change {change!r}: a cluster of over {MOST_NODES:,} nodes is not simulated")
    taken = {node.name for node in conf.nodes}
    added = node_list(islice((name for name in (f"new{number}" for number in count(1)) if name not in taken), more))
    lists = (ConfEdit(NODES, added, name) for name in _partitions(conf, like))
    draft.edit(ConfEdit(NODE, added, like=like.name), *lists)
    draft.by_hand.append(
        f"{change}: {BY_PEOPLE}: write their host names for {added}, also in gres.conf and topology.conf if those name "
        "nodes, and restart slurmctld"
    )


def _remove_nodes(draft: SlurmDraft, alike: list[NodeConf], fewer: int, change: str) -> None:
    if fewer > len(alike):
        raise InputError(f"change {change!r}: slurm.conf has {counted(len(alike), 'node')} of that kind in service")
    names = node_list(node.name for node in alike[-fewer:])
    draft.edit(ConfEdit(DOWN, names))
    draft.by_hand.append(
        f"{change}: {BY_PEOPLE}; in a running Slurm `scontrol update NodeName={names} State=DOWN Reason=removed` takes "
        "them out"
    )


def _default_limit(draft: SlurmDraft, rest: str, value: str, change: str) -> None:
    """DefaultTime of the partition, or of each that may have it."""
    dimension, _dot, who = rest.partition(".")
    limit = default_limit_of(dimension, value, change)
    check_slurm_name(dimension, who, change)
    time = written_time(limit.new_s // 60)
    if draft.conf is None:
        if dimension:
            draft.edit(ConfEdit("DefaultTime", time, who))
        else:
            draft.by_hand.append(f"{change}: DefaultTime={time} of each partition, whose names are not known")
        return
    for one in partitions_with_default(draft.conf, who, limit.new_s, change):
        present_s = one.default_time_s or one.max_time_s
        if limit.present_s is not None and present_s != limit.present_s:
            draft.by_hand.append(
                f"{change}: the present default of partition {one.name} is that of slurm.conf, "
                f"{written_time(present_s // 60) if present_s else 'none'}; its own simulation goes by that"
            )
        draft.edit(ConfEdit("DefaultTime", time, one.name))


def _merge(draft: SlurmDraft, rest: str, value: str, change: str) -> None:
    dimension, _dot, who = rest.partition(".")
    if dimension not in ("partition", "qos") or who == value:
        raise InputError(f"change {change[:80]!r} is not understood; write merge.partition.A=B or merge.qos.A=B")
    for name in (who, value):
        check_slurm_name(dimension, name, change)
    if dimension == "qos":
        _merge_qos(draft, who.lower(), value.lower(), change)
    elif draft.conf is None:
        draft.by_hand.append(f"{change}: Nodes of partition {value} with those of {who}, whose line is then deleted")
    else:
        _merge_partitions(draft, _partition(draft.conf, who, change), _partition(draft.conf, value, change), change)


def _partition(conf: SlurmConf, name: str, change: str) -> PartitionConf:
    found = conf.partition(name)
    if found is None:
        known = ", ".join(one.name for one in conf.partitions)
        raise InputError(f"change {change[:80]!r}: {conf.path} has no partition {name[:60]!r} (known: {known})")
    return found


def _merge_partitions(draft: SlurmDraft, old: PartitionConf, into: PartitionConf, change: str) -> None:
    """The other partition gets the nodes and the longer MaxTime. Slurm ends the jobs of a line that is deleted."""
    more = [name for name in old.nodes if name not in into.nodes]
    if more:
        draft.edit(ConfEdit(NODES, node_list(more), into.name))
    if into.max_time_s is not None and (old.max_time_s is None or old.max_time_s > into.max_time_s):
        time = "UNLIMITED" if old.max_time_s is None else written_time(old.max_time_s // 60)
        draft.edit(ConfEdit("MaxTime", time, into.name))
    if old.is_default:
        draft.edit(ConfEdit("Default", "NO", old.name), ConfEdit("Default", "YES", into.name))
    draft.edit(ConfEdit("State", "DRAIN", old.name))
    draft.moves.append(JobMove("partition", old.name, "partition", into.name))
    draft.by_hand.append(f"{change}: delete the line of {old.name} when no job waits or runs there")
    draft.remarks.append(f"{change}: users ask for {into.name}; Slurm takes no new jobs for {old.name}")


def _merge_qos(draft: SlurmDraft, old: str, into: str, change: str) -> None:
    missing = [name for name in (old, into) if draft.qos is not None and name not in draft.qos_names()]
    if missing:
        known = ", ".join(draft.qos_names())
        raise InputError(f"change {change[:80]!r}: the dump has no QOS {missing[0][:60]!r} (known: {known})")
    for one in draft.conf.partitions if draft.conf else ():
        if one.qos == old:
            draft.edit(ConfEdit("QOS", into, one.name))
    draft.moves.append(JobMove("qos", old, "qos", into))
    delete = shlex.join(("sacctmgr", "delete", "qos", "where", f"name={old}"))
    draft.by_hand.append(
        f"{change}: give users and accounts with QOS {old} the other one (`sacctmgr modify user where name=NAME set "
        f"QOS+={into} QOS-={old}`, with DefaultQOS={into} where {old} is the default); then `{delete}`"
    )


def _new_partition(draft: SlurmDraft, rest: str, value: str, change: str) -> None:
    """A partition for the jobs of a user, account, partition or QOS, or those that ask for at most so much."""
    (name, _dot, which), conf = rest.partition("."), draft.conf
    dimension, _dot, who = which.partition(".")
    if dimension not in (*DIMENSIONS, *MOST) or not who:
        raise InputError(
            f"change {change[:80]!r} does not say which jobs go there: write partition.NAME.limit.4h=NODES"
        )
    check_slurm_name("partition", name, change)
    if dimension == "limit":
        limit_of(who, change)
    elif dimension == "nodes" and not (who.isascii() and who.isdigit() and len(who) < 19):
        raise InputError(f"change {change[:80]!r}: {who[:40]!r} is not a whole number of nodes")
    if conf is None:
        draft.by_hand.append(f"{change}: a line PartitionName={name} Nodes={value} of slurm.conf")
        return
    if conf.partition(name) is not None:
        raise InputError(f"change {change[:80]!r}: {conf.path} has a partition {name!r} already: choose another name")
    try:
        members = [node.name for node in conf.nodes] if value.upper() == "ALL" else expand_nodes(value)
    except ValueError as error:
        raise InputError(f"change {change[:80]!r}: {error}") from error
    for member in members:
        _node(conf, member, change)
    draft.edit(ConfEdit(NODES, node_list(dict.fromkeys(members)), name, is_new=True))
    who = who.lower() if dimension in ("qos", "account") else who
    draft.moves.append(JobMove(dimension, who, "partition", name))
    draft.remarks.append(f"{change}: users ask for it (sbatch --partition={name}), or a job_submit plugin sets it")


CLUSTER_CHANGES: dict[str, Callable[[SlurmDraft, str, str, str], None]] = {
    "nodes": _nodes,
    "default_limit": _default_limit,
    "merge": _merge,
    "partition": _new_partition,
}
