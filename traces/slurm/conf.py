"""The parts of slurm.conf that the simulator needs: nodes, partitions, priority, scheduler loops, preemption, limits.

Every parameter that affects scheduling is read with Slurm's own default (slurm.conf(5), 22.05); each field of the
dataclasses names its key. These raise InputError with file:line: a bad value, an unreadable file, and an unknown name
among scheduling settings (SchedulerParameters, Priority*, node and partition lines, ...). All other settings are
listed: `SlurmConf.ignored` has no effect on scheduling; `SlurmConf.unmodelled` has one that is not simulated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from traces.errors import InputError
from traces.slurm import conf_names as names
from traces.slurm import conf_values as values
from traces.slurm import conf_versions as versions
from traces.slurm.conf_lines import Pair, quoted_line, read_lines
from traces.slurm.conf_remarks import ConfRemarks, unknown_name
from traces.slurm.node_lists import NodeLists
from traces.slurm.text import MOST_NODES

RECORDS = ("nodename", "partitionname", "nodeset", "downnodes", "frontendname", "slurmctldhost")
Record = TypeVar("Record")


def _key(name: str, parse: Callable[[str], Any], default: Any = MISSING) -> Any:
    """Declare a dataclass field by its slurm.conf key, the parser of its value, and Slurm's default."""
    metadata = {"key": name, "parse": parse}
    return (
        field(default_factory=dict, metadata=metadata) if default is dict else field(default=default, metadata=metadata)
    )


@dataclass(frozen=True)
class SchedulerOptions:
    """Slurm's SchedulerParameters: times in seconds; a count of 0 means no bound."""

    bf_interval_s: int = _key("bf_interval", values.count, 30)
    bf_window_min: int = _key("bf_window", values.count, 1440)
    bf_resolution_s: int = _key("bf_resolution", values.count, 60)
    bf_max_job_test: int = _key("bf_max_job_test", values.count, 500)
    bf_max_job_part: int = _key("bf_max_job_part", values.count, 0)
    bf_max_job_user: int = _key("bf_max_job_user", values.count, 0)
    bf_max_job_assoc: int = _key("bf_max_job_assoc", values.count, 0)
    bf_max_job_start: int = _key("bf_max_job_start", values.count, 0)
    bf_max_job_array_resv: int = _key("bf_max_job_array_resv", values.count, 20)
    bf_job_part_count_reserve: int = _key("bf_job_part_count_reserve", values.count, 0)
    bf_min_age_reserve_s: int = _key("bf_min_age_reserve", values.count, 0)
    bf_min_prio_reserve: int = _key("bf_min_prio_reserve", values.count, 0)
    default_queue_depth: int = _key("default_queue_depth", values.count, 100)
    partition_job_depth: int = _key("partition_job_depth", values.count, 0)
    sched_interval_s: int = _key("sched_interval", values.count, 60)
    sched_min_interval_us: int = _key("sched_min_interval", values.count, 2)
    sched_max_job_start: int = _key("sched_max_job_start", values.count, 0)
    batch_sched_delay_s: int = _key("batch_sched_delay", values.count, 3)
    defer: bool = _key("defer", values.yes_no, False)
    requeue_delay_s: int | None = _key("requeue_delay", values.count, None)  # None: SlurmConf.cred_expire_s
    # Of PreemptParameters since 23.02, there without `preempt_`
    preempt_youngest_first: bool = _key("preempt_youngest_first", values.yes_no, False)
    preempt_strict_order: bool = _key("preempt_strict_order", values.yes_no, False)
    preempt_reorder_count: int = _key("preempt_reorder_count", values.count, 1)


@dataclass(frozen=True)
class NodeConf:
    """One node. `gpus` counts GPUs by type ('' without a type); `state` is in the form of `values.node_state`."""

    name: str
    where: str
    cpus: int = 1
    mem_mib: int = _key("RealMemory", values.count, 1)
    gpus: Mapping[str, int] = _key("Gres", values.gpus, dict)
    weight: int = _key("Weight", values.count, 1)
    features: tuple[str, ...] = _key("Features", values.words, ())
    state: str = _key("State", values.node_state, "unknown")

    @property
    def is_up(self) -> bool:
        """Return whether jobs may be placed on it: it is not down, drained, failing or future."""
        return not set(self.state.split("+")) & {
            "down", "drain", "draining", "drained", "fail", "failing", "error", "future", "maint", "planned_down",
        }  # fmt: skip


@dataclass(frozen=True)
class PartitionConf:
    """One partition; None means no limit."""

    name: str
    where: str
    nodes: tuple[str, ...] = ()
    is_default: bool = _key("Default", values.yes_no, False)
    tier: int = _key("PriorityTier", values.count, 1)
    job_factor: int = _key("PriorityJobFactor", values.count, 1)
    max_time_s: int | None = _key("MaxTime", values.time_s, None)
    default_time_s: int | None = _key("DefaultTime", values.time_s, None)
    over_time_limit_s: int | None = _key("OverTimeLimit", values.minutes_s, 0)
    max_nodes: int | None = _key("MaxNodes", values.count_or_unlimited, None)
    state: str = _key("State", values.partition_state, "up")
    oversubscribe: str = _key("OverSubscribe", values.oversubscribe, "no")
    exclusive: str = _key("Exclusive", values.exclusive, "no")
    least_loaded: bool = _key("LLN", values.yes_no, False)
    qos: str = _key("QOS", str.lower, "")
    billing_weights: Mapping[str, float] = _key("TRESBillingWeights", values.billing_weights, dict)
    preempt_mode: tuple[str, ...] = _key("PreemptMode", values.preempt_mode, ())
    def_mem_per_cpu_mib: int = _key("DefMemPerCPU", values.count, 0)
    def_mem_per_gpu_mib: int = _key("DefMemPerGPU", values.count, 0)
    def_mem_per_node_mib: int = _key("DefMemPerNode", values.count, 0)


@dataclass(frozen=True)
class SlurmConf:
    """One slurm.conf. Nodes and partitions are in file order, by which Slurm breaks ties."""

    path: str
    nodes: tuple[NodeConf, ...] = ()
    partitions: tuple[PartitionConf, ...] = ()
    options: SchedulerOptions = field(default_factory=SchedulerOptions)
    ignored: tuple[str, ...] = ()  # 'file:line: Key', without effect on scheduling
    unmodelled: tuple[str, ...] = ()  # 'file:line: Key=value', affects scheduling and is not simulated
    version_remarks: tuple[str, ...] = ()  # names and defaults that depend on the version of Slurm
    version: tuple[int, int] | None = _key("SLURM_VERSION", versions.parse_version, None)
    cred_expire_s: int = _key("AuthInfo", values.cred_expire_s, values.CRED_EXPIRE_S)
    cluster: str = _key("ClusterName", str, "")
    scheduler_type: str = _key("SchedulerType", str.lower, "sched/backfill")
    priority_type: str = _key("PriorityType", str.lower, "priority/basic")
    priority_flags: tuple[str, ...] = _key("PriorityFlags", values.words, ())
    weight_age: int = _key("PriorityWeightAge", values.count, 0)
    weight_assoc: int = _key("PriorityWeightAssoc", values.count, 0)
    weight_fairshare: int = _key("PriorityWeightFairshare", values.count, 0)
    weight_job_size: int = _key("PriorityWeightJobSize", values.count, 0)
    weight_partition: int = _key("PriorityWeightPartition", values.count, 0)
    weight_qos: int = _key("PriorityWeightQOS", values.count, 0)
    weight_tres: Mapping[str, float] = _key("PriorityWeightTRES", values.weights, dict)
    max_age_s: int = _key("PriorityMaxAge", values.period_s, 7 * 86_400)
    decay_half_life_s: int = _key("PriorityDecayHalfLife", values.period_s, 7 * 86_400)
    calc_period_s: int = _key("PriorityCalcPeriod", values.period_s, 300)
    favor_small: bool = _key("PriorityFavorSmall", values.yes_no, False)
    preempt_type: str = _key("PreemptType", str.lower, "preempt/none")
    preempt_mode: tuple[str, ...] = _key("PreemptMode", values.preempt_mode, ("off",))
    preempt_exempt_s: int = _key("PreemptExemptTime", values.exempt_s, 0)
    kill_wait_s: int = _key("KillWait", values.count, 30)
    over_time_limit_s: int | None = _key("OverTimeLimit", values.minutes_s, 0)
    job_requeue: bool = _key("JobRequeue", values.yes_no, True)
    select_type: str = _key("SelectType", str.lower, "select/linear")
    select_parameters: tuple[str, ...] = _key("SelectTypeParameters", values.words, ())
    enforce: tuple[str, ...] = _key("AccountingStorageEnforce", values.words, ())
    def_mem_per_cpu_mib: int = _key("DefMemPerCPU", values.count, 0)
    def_mem_per_gpu_mib: int = _key("DefMemPerGPU", values.count, 0)
    def_mem_per_node_mib: int = _key("DefMemPerNode", values.count, 0)

    def partition(self, name: str) -> PartitionConf | None:
        """Return the partition of that name, or None."""
        return next((p for p in self.partitions if p.name == name), None)

    @property
    def default_partition(self) -> PartitionConf | None:
        """Return the partition of jobs that name none: the last one marked Default=YES."""
        return next((p for p in reversed(self.partitions) if p.is_default), None)


def read_slurm_conf(path: Path) -> SlurmConf:
    """Read the configuration in `path` and its included files. Raises InputError (file:line); see the module."""
    top, records = _split_records(read_lines(path))
    remarks = ConfRemarks()
    own = {pair.key.lower(): pair for pair in top}  # the last of a repeated parameter counts
    known = {f.metadata["key"].lower() for f in fields(SlurmConf) if f.metadata}
    for pair in own.values():
        remarks.parameter(pair, known)
    options = {name: pair for name, pair in own.items() if name in ("schedulerparameters", "preemptparameters")}
    lists = NodeLists()
    nodes = _nodes(records, lists, remarks)
    conf = filled(SlurmConf(str(path)), own)
    conf = replace(
        conf,
        nodes=nodes,
        partitions=_partitions(records, nodes, lists, conf, remarks),
        options=_options(options, remarks),
        ignored=tuple(remarks.ignored),
        unmodelled=tuple(remarks.unmodelled),
    )
    conf = _of_its_version(conf, own, remarks.used)
    if not conf.nodes or not conf.partitions:
        what = "NodeName" if not conf.nodes else "PartitionName"
        raise InputError(f"{path}: no {what} line: give the controller's slurm.conf with the files that it includes")
    return conf


def _of_its_version(conf: SlurmConf, own: Mapping[str, Pair], used: list[str]) -> SlurmConf:
    """Return the configuration with the defaults of its version, and what depends on the version as remarks.

    Without SLURM_VERSION the version is the oldest that documents every name in the file.
    """
    version = conf.version or versions.oldest_with(used)
    remarks = []
    if others := versions.of_other_versions(used, version):
        remarks.append(
            f"{conf.path}: names of other versions than Slurm {versions.written(version)}: {'; '.join(others)}"
        )
    newer = version >= versions.CONS_TRES_IS_DEFAULT
    defaults = {"select_type": "select/cons_tres", "priority_type": "priority/multifactor"} if newer else {}
    weighs = any(name.startswith("priorityweight") for name in own)  # else both types order jobs alike
    unset = [key for key in ("SelectType", *(["PriorityType"] if weighs else [])) if key.lower() not in own]
    if unset and conf.version is None:
        remarks.append(
            f"{conf.path}: {' and '.join(unset)} not set: the defaults of Slurm {versions.written(version)} are used; "
            "append the line that `scontrol show config | grep SLURM_VERSION` prints"
        )
    missing = {name: value for name, value in defaults.items() if name.replace("_", "") not in own}
    return replace(conf, version_remarks=tuple(remarks), **missing)  # type: ignore[arg-type]


def parsed(pair: Pair, parse: Callable[[str], Any]) -> Any:
    """Parse the pair's value with a function of conf_values. Raises InputError (file:line) with the allowed form."""
    try:
        return parse(pair.value)
    except ValueError as error:
        raise InputError(f"{pair.where}: {pair.key}={quoted_line(pair.value)}: {error}") from error


def filled(empty: Record, pairs: dict[str, Pair]) -> Record:
    """Return `empty` with those fields set whose keys are among `pairs`."""
    parsed_values = {
        f.name: parsed(pairs[f.metadata["key"].lower()], f.metadata["parse"])
        for f in _declared(empty)
        if f.metadata["key"].lower() in pairs
    }
    return replace(empty, **parsed_values)  # type: ignore[type-var]


def _declared(record: Any) -> list[Field[Any]]:
    return [f for f in fields(record) if f.metadata]


def _split_records(lines: list[list[Pair]]) -> tuple[list[Pair], dict[str, list[dict[str, Pair]]]]:
    """Return top-level pairs in order, and records by kind: each a dictionary by lower-case key, its name first."""
    top: list[Pair] = []
    records: dict[str, list[dict[str, Pair]]] = {kind: [] for kind in RECORDS}
    for line in lines:
        for index, pair in enumerate(line):
            if pair.key.lower() in RECORDS:
                record = {other.key.lower(): other for other in reversed(line[index:])}
                records[pair.key.lower()].append({pair.key.lower(): pair, **record})
                break
            top.append(pair)
    return top, records


def _options(pairs: Mapping[str, Pair], remarks: ConfRemarks) -> SchedulerOptions:
    """Parse the comma-separated SchedulerParameters and PreemptParameters."""
    known = {f.metadata["key"]: f.metadata["parse"] for f in fields(SchedulerOptions)}
    options: dict[str, Pair] = {}
    parts = [(key, pair, part.strip()) for key, pair in pairs.items() for part in pair.value.split(",")]
    for key, pair, part in parts:
        if not part:
            continue
        name, equals, value = part.partition("=")
        option = Pair(name, value if equals else "yes", f"{pair.where}: {pair.key}")
        lower = {"max_job_bf": "bf_max_job_test"}.get(name.lower(), name.lower())
        lower = f"preempt_{lower}" if key == "preemptparameters" else lower
        if lower in known:
            if not equals and known[lower] is not values.yes_no:
                raise InputError(f"{option.where}: {quoted_line(name)} needs a value: write {name}=<number>")
            options[lower] = option
        elif lower in names.OPTIONS_THAT_MATTER:
            remarks.unmodelled.append(f"{option.where} {part}")
        elif lower in names.OPTIONS_WITHOUT_EFFECT:
            remarks.ignored.append(f"{option.where} {part}")
        else:
            raise unknown_name(option, "option", {*known, *names.OPTIONS_THAT_MATTER, *names.OPTIONS_WITHOUT_EFFECT})
    for name in ("bf_interval", "bf_window", "bf_resolution", "bf_max_job_test", "sched_interval"):
        if name in options and options[name].value == "0":
            raise InputError(f"{options[name].where} {name}=0: must be at least 1")
    return filled(SchedulerOptions(), options)


def _with_defaults(records: list[dict[str, Pair]], kind: str) -> Iterable[tuple[Pair, dict[str, Pair]]]:
    """Yield (name, fields) of each record except DEFAULT, with the fields of DEFAULT lines above it filled in."""
    defaults: dict[str, Pair] = {}
    for record in records:
        own = {name: pair for name, pair in record.items() if name != kind}
        if record[kind].value.upper() == "DEFAULT":
            defaults = {**defaults, **own}
        else:
            yield record[kind], {**defaults, **own}


_SHAPE = ("sockets", "socketsperboard", "boards", "corespersocket", "threadspercore")
_CPUS = ("cpus", "procs")


def _nodes(records: dict[str, list[dict[str, Pair]]], lists: NodeLists, remarks: ConfRemarks) -> tuple[NodeConf, ...]:
    known = {f.metadata["key"].lower() for f in fields(NodeConf) if f.metadata}
    known |= {*_SHAPE, *_CPUS, "nodename", "feature"}
    nodes: dict[str, NodeConf] = {}
    for record in records["nodename"]:
        remarks.fields_of(
            "node", record, known, free=names.NODE_FIELDS_WITHOUT_EFFECT, matter=names.NODE_FIELDS_THAT_MATTER
        )
    for pair, own in _with_defaults(records["nodename"], "nodename"):
        if "feature" in own and "features" not in own:
            own["features"] = own["feature"]
        model = filled(NodeConf("", pair.where, cpus=_cpus(own)), own)
        for name in lists.expanded(pair.value, pair.where):
            if name in nodes:
                raise InputError(
                    f"{pair.where}: node {quoted_line(name)} is already declared at {nodes[name].where}: keep one line"
                )
            nodes[name] = replace(model, name=name)
        if len(nodes) > MOST_NODES:
            raise InputError(f"{pair.where}: up to this line over {MOST_NODES} nodes are declared")
    for record in records["downnodes"]:
        pair = record["downnodes"]
        state = parsed(record["state"], values.node_state) if "state" in record else "down"
        for name in lists.expanded(pair.value, pair.where):
            if name not in nodes:
                raise InputError(f"{pair.where}: DownNodes names {quoted_line(name)}, which no NodeName line declares")
            nodes[name] = replace(nodes[name], state=state)
    return tuple(nodes.values())


def _cpus(own: dict[str, Pair]) -> int:
    """Return CPUs= or Procs=, else sockets x cores x threads (src/common/read_config.c, _parse_nodename)."""
    for name in _CPUS:
        if name in own:
            return int(parsed(own[name], values.count)) or 1
    shape = {name: int(parsed(own[name], values.count)) or 1 for name in _SHAPE if name in own}
    boards = shape.get("boards", 1)
    sockets = boards * shape["socketsperboard"] if "socketsperboard" in shape else shape.get("sockets", boards)
    return sockets * shape.get("corespersocket", 1) * shape.get("threadspercore", 1)


def _partitions(
    records: dict[str, list[dict[str, Pair]]],
    nodes: tuple[NodeConf, ...],
    lists: NodeLists,
    conf: SlurmConf,
    remarks: ConfRemarks,
) -> tuple[PartitionConf, ...]:
    known = {f.metadata["key"].lower() for f in fields(PartitionConf) if f.metadata}
    known |= {"partitionname", "nodes", "shared", "priority"}
    for record in records["partitionname"]:
        free, matter = names.PARTITION_FIELDS_WITHOUT_EFFECT, names.PARTITION_FIELDS_THAT_MATTER
        remarks.fields_of("partition", record, known, free=free, matter=matter)
    declared = {node.name: node for node in nodes}
    sets = _node_sets(records["nodeset"], declared, lists)
    partitions: dict[str, PartitionConf] = {}
    for pair, own in _with_defaults(records["partitionname"], "partitionname"):
        name = pair.value
        for old, new in (("shared", "oversubscribe"), ("priority", "priorityjobfactor"), ("priority", "prioritytier")):
            if old in own and (new not in own or old == "priority"):
                own[new] = own[old]
        # A second line of the same name adds its nodes and overrides the rest (slurmctld's read_config.c).
        empty = PartitionConf(name, pair.where, over_time_limit_s=conf.over_time_limit_s)
        model = filled(partitions.get(name, empty), own)
        members = dict.fromkeys(model.nodes)
        if "nodes" in own:
            members.update(dict.fromkeys(_members(own["nodes"], declared, sets, lists)))
        partitions[name] = replace(model, nodes=tuple(members))
    return tuple(partitions.values())


def _node_sets(
    records: list[dict[str, Pair]], declared: Mapping[str, NodeConf], lists: NodeLists
) -> dict[str, list[str]]:
    sets: dict[str, list[str]] = {}
    for record in records:
        name = record["nodeset"].value
        chosen = sets.setdefault(name, [])
        if "nodes" in record:
            chosen += _members(record["nodes"], declared, {}, lists)
        if "feature" in record:
            pair = record["feature"]
            having = [name for name, node in declared.items() if pair.value.lower() in node.features]
            chosen += lists.counted(having, pair.where)
    return sets


def _members(pair: Pair, declared: Mapping[str, NodeConf], sets: dict[str, list[str]], lists: NodeLists) -> list[str]:
    """Return the nodes of a partition's `Nodes`: node lists, node sets, ALL, or (null) and blank for none."""
    members: list[str] = []
    for name in lists.expanded(re.sub(r"\s+", ",", pair.value.strip()), pair.where):
        if name.upper() == "ALL":
            members += lists.counted(list(declared), pair.where)
        elif name in sets:
            members += lists.counted(sets[name], pair.where)
        elif name in declared:
            members.append(name)
        else:
            quoted = quoted_line(name)
            raise InputError(f"{pair.where}: Nodes names {quoted}, which no NodeName or NodeSet line declares")
    return members
