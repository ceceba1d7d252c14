"""Read a cluster's files into the tables of a world: slurm.conf, QOS, associations and reservations.

`SlurmCluster.remarks` lists, one line each, every setting of the files that the scheduler does not model.
`simulator.slurm.inputs.jobs` reads the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.slurm import world as w
from simulator.slurm.inputs.limits import TresLimits, int_column, tres_matrix
from simulator.slurm.inputs.qos import preempt_mode_of, qos_table
from traces.counted import counted
from traces.errors import InputError
from traces.slurm.accounts import Association, Qos
from traces.slurm.conf import NodeConf, PartitionConf, SlurmConf
from traces.slurm.reservations import Reservation

YEAR_S = 365 * 86_400  # the run time that slurmctld's backfill plans for a job without any limit
UNLIMITED_S = 2**40  # an OverTimeLimit that never comes

# PriorityFlags that change no start, and SchedulerParameters that only matter if a pass takes time.
_FLAGS_WITHOUT_EFFECT = frozenset({"calculate_running", "no_normal_assoc"})
_PLAIN_OPTIONS = ("partition_job_depth", "sched_max_job_start", "bf_max_job_assoc", "defer")


@dataclass(frozen=True)
class SlurmCluster:
    """The tables of a world without its jobs, the row of each name, and remarks on settings that are not modelled."""

    nodes: w.SlurmNodes
    partitions: w.Partitions
    qos: w.SlurmQos
    associations: w.Associations
    outages: w.Outages
    settings: w.SlurmSettings
    node_rows: dict[str, int]
    partition_rows: dict[str, int]
    qos_rows: dict[str, int]
    user_rows: dict[str, int]
    account_rows: dict[str, int]
    association_rows: dict[tuple[str, str], int]  # (account, user); user '' for the account itself
    gpu_types: dict[str, int]  # '' for GPUs without a type in the files
    remarks: tuple[str, ...]


def cluster(
    conf: SlurmConf,
    qos: Sequence[Qos] | None = None,
    associations: Sequence[Association] | None = None,
    *,
    reservations: Sequence[Reservation] = (),
    more_qos: Iterable[str] = (),
    more_users: Iterable[tuple[str, str]] = (),
) -> SlurmCluster:
    """Build the cluster of a slurm.conf and its dumps of QOS and associations, None for a missing dump.

    `more_qos` and `more_users`, (account, user), are the names in the jobs. A name without a row in the dumps gets a
    row without priority and limits, with one share, and a remark. Raises InputError for a partition QOS without a row.
    """
    remarks = [*conf.version_remarks, *(f"{line}: not modelled" for line in conf.unmodelled)]
    types = sorted({kind for node in conf.nodes for kind in node.gpus})
    gpu_types = {kind: row for row, kind in enumerate(types)}
    partition_rows = {p.name: row for row, p in enumerate(conf.partitions)}
    node_rows = {node.name: row for row, node in enumerate(conf.nodes)}
    enforced = bool({"limits", "safe", "all"} & set(conf.enforce))
    if (qos or associations) and not enforced:
        remarks.append(
            f"{conf.path}: AccountingStorageEnforce does not include 'limits': limits of QOS and accounts are off"
        )
    limits = TresLimits(types, enforced, remarks)
    qualities, qos_rows = qos_table(conf, list(qos or ()), more_qos, limits, dumped=qos is not None)
    tree = _Tree(list(associations or ()), more_users, limits, dumped=associations is not None)
    return SlurmCluster(
        nodes=_nodes(conf.nodes, gpu_types, remarks),
        partitions=_partitions(conf, node_rows, qos_rows, remarks),
        qos=qualities,
        associations=tree.table(),
        outages=_outages(conf.nodes, reservations, node_rows),
        settings=_settings(conf, limits),
        node_rows=node_rows,
        partition_rows=partition_rows,
        qos_rows=qos_rows,
        user_rows=tree.users,
        account_rows=tree.accounts,
        association_rows=tree.rows,
        gpu_types=gpu_types,
        remarks=(*remarks, *_unmodelled(conf)),
    )


def _nodes(nodes: tuple[NodeConf, ...], gpu_types: dict[str, int], remarks: list[str]) -> w.SlurmNodes:
    kinds = []
    for node in nodes:
        present = {kind: count for kind, count in node.gpus.items() if count}
        kinds.append(gpu_types[max(present, key=lambda kind: present[kind])] if present else w.NONE)
        if len(present) > 1:
            remarks.append(
                f"{node.where}: node {node.name} has GPUs of {counted(len(present), 'type')}: all count as the most "
                "common type"
            )
    return w.SlurmNodes(
        names=tuple(node.name for node in nodes),
        cpus=int_column(node.cpus for node in nodes),
        memory_mb=int_column(node.mem_mib for node in nodes),
        gpus=int_column(sum(node.gpus.values()) for node in nodes),
        gpu_type=np.array(kinds, np.int64),
        weight=int_column(node.weight for node in nodes),
    )


def _partitions(
    conf: SlurmConf, node_rows: dict[str, int], qos_rows: dict[str, int], remarks: list[str]
) -> w.Partitions:
    rows = conf.partitions
    members = np.zeros((len(rows), len(conf.nodes)), bool)
    linear = conf.select_type == "select/linear"
    spread = "cr_lln" in conf.select_parameters
    for row, partition in enumerate(rows):
        members[row, [node_rows[name] for name in partition.nodes]] = True
        _remark_on(partition, conf, remarks)
        if partition.qos and partition.qos not in qos_rows:
            known = ", ".join(qos_rows) or "none"
            no_row = f"{partition.where}: QOS={partition.qos!r} has no row in the QOS dump, which holds {known}"
            raise InputError(f"{no_row}: dump the QOS again or correct the partition")
    return w.Partitions(
        names=tuple(partition.name for partition in rows),
        nodes=members,
        priority_tier=int_column(partition.tier for partition in rows),
        priority_job_factor=int_column(partition.job_factor for partition in rows),
        max_time_s=int_column(partition.max_time_s for partition in rows),
        max_nodes=int_column(partition.max_nodes for partition in rows),
        exclusive=np.array(
            [linear or partition.exclusive == "node" or partition.oversubscribe == "exclusive" for partition in rows],
            bool,
        ),
        least_loaded=np.array([spread or partition.least_loaded for partition in rows], bool),
        qos=int_column((qos_rows.get(partition.qos) for partition in rows), unset=w.NONE),
        billing=np.array([_billing(partition, remarks) for partition in rows], float).reshape(-1, w.TRES),
        preempt_mode=int_column(
            preempt_mode_of(conf, ",".join(partition.preempt_mode), f"partition {partition.name}", remarks)
            if conf.preempt_type == "preempt/partition_prio" and set(conf.preempt_mode) != {"off"}
            else w.PREEMPT_OFF
            for partition in rows
        ),
    )


def _remark_on(partition: PartitionConf, conf: SlurmConf, remarks: list[str]) -> None:
    what = f"{partition.where}: partition {partition.name}"
    if partition.state != "up":
        remarks.append(f"{what}: State={partition.state.upper()}: taken as UP for the recorded jobs that ask for it")
    if partition.oversubscribe.startswith(("yes", "force")):
        remarks.append(f"{what}: OverSubscribe={partition.oversubscribe.upper()}: taken as NO")
    if partition.exclusive in ("user", "topo"):
        remarks.append(f"{what}: Exclusive={partition.exclusive.upper()}: not modelled")
    if partition.over_time_limit_s not in (0, conf.over_time_limit_s):
        remarks.append(f"{what}: OverTimeLimit: the cluster's value is used")


def _billing(partition: PartitionConf, remarks: list[str]) -> list[float]:
    """Return the weights of CPU, MiB, node and GPU. Without TRESBillingWeights a CPU counts one (slurm.conf(5))."""
    if not partition.billing_weights:
        return [1.0, 0.0, 0.0, 0.0]
    types = [name.removeprefix("gres/gpu:") for name in partition.billing_weights if name.startswith("gres/gpu:")]
    return TresLimits(types, True, remarks).vector(partition.billing_weights, f"{partition.where}: billing weight", 0.0)


class _Tree:
    """The associations, parents before their children, with the users and accounts that only the jobs name."""

    def __init__(
        self, rows: list[Association], named: Iterable[tuple[str, str]], limits: TresLimits, *, dumped: bool
    ) -> None:
        self.limits = limits
        self.accounts: dict[str, int] = {}
        self.users: dict[str, int] = {}
        self.rows: dict[tuple[str, str], int] = {}
        self.parents: list[int] = []
        self.kept: list[Association] = []
        by_account = {row.account: row for row in rows if not row.user}
        self._account("root", by_account)
        for account in by_account:
            self._account(account, by_account)
        for row in rows:
            if row.user and (row.account, row.user) not in self.rows:
                self._add(row, self.rows[row.account, ""])
            elif row.user:
                limits.remarks.append(
                    f"association {row.account}/{row.user} of partition {row.partition!r}: not modelled"
                )
        strange = [pair for pair in dict.fromkeys(named) if pair not in self.rows and pair[1]]
        if strange and dumped:
            some = ", ".join("/".join(pair) for pair in strange[:3])
            limits.remarks.append(
                f"{len(strange)} associations without a row in the dump ({some}, ...): one share each"
            )
        for account, user in strange:
            self._account(account, by_account)
            self._add(Association(account, user), self.rows[account, ""])

    def _account(self, name: str, by_account: dict[str, Association]) -> None:
        """Add an account and those above it. An account that is missing in the dump goes below the root."""
        chain = [name]
        while True:
            row = by_account.get(chain[-1])
            above = "" if chain[-1] == "root" else (row.parent if row and row.parent else "root")
            if not above or (above, "") in self.rows:
                break
            if above in chain:
                raise InputError(f"account {above!r} is its own ancestor in the association dump: correct its parent")
            chain.append(above)
        for account in reversed(chain):
            if (account, "") in self.rows:
                continue
            own = by_account.get(account) or Association(account)
            self._add(own, w.NONE if account == "root" else self.rows[own.parent or "root", ""])

    def _add(self, row: Association, parent: int) -> None:
        self.accounts.setdefault(row.account, len(self.accounts))
        if row.user:
            self.users.setdefault(row.user, len(self.users))
        if row.shares is None:
            self.limits.remarks.append(f"association {row.account}/{row.user}: Fairshare=parent: taken as one share")
        if row.max_tres_per_job and self.limits.enforced:
            self.limits.remarks.append(f"association {row.account}/{row.user}: MaxTRES of a job: not modelled")
        self.rows[row.account, row.user] = len(self.kept)
        self.kept.append(row)
        self.parents.append(parent)

    def table(self) -> w.Associations:
        rows = self.kept
        most: list[int | None] = []  # MaxJobs of a row, else of the nearest account above
        for row, parent in zip(rows, self.parents, strict=True):
            most.append(row.max_jobs if row.max_jobs is not None or parent == w.NONE else most[parent])
        what = [f"association {row.account}/{row.user}" for row in rows]
        return w.Associations(
            parent=np.array(self.parents, np.int64),
            user=int_column((self.users.get(row.user) for row in rows), unset=w.NONE),
            account=int_column(self.accounts[row.account] for row in rows),
            shares=int_column(1 if row.shares is None else row.shares for row in rows),
            group_jobs=int_column(self.limits.count(row.grp_jobs) for row in rows),
            group_tres=tres_matrix(self.limits.tres(row.grp_tres, name) for row, name in zip(rows, what, strict=True)),
            max_jobs=int_column(self.limits.count(value) for value in most),
        )


def _outages(nodes: tuple[NodeConf, ...], reservations: Sequence[Reservation], node_rows: dict[str, int]) -> w.Outages:
    """Return the outages: nodes that are down in the configuration, for the whole run, and reservations.

    Reservations are known from the beginning. No job runs on their nodes: the job table does not show which jobs did.
    """
    rows: list[tuple[int, int, int, list[int]]] = []
    if down := [row for row, node in enumerate(nodes) if not node.is_up]:
        rows.append((w.DRAIN, 0, w.NEVER, down))
    for reservation in reservations:
        if strange := [name for name in reservation.nodes if name not in node_rows]:
            unknown = f"{reservation.where}: Nodes names {strange[0]!r}, which is not a node of this cluster"
            raise InputError(f"{unknown}: correct the reservation or slurm.conf")
        held = [node_rows[name] for name in reservation.nodes]
        rows.append((w.RESERVATION, reservation.start_s, reservation.end_s, held))
    members = np.zeros((len(rows), len(nodes)), bool)
    for row, (*_, held) in enumerate(rows):
        members[row, held] = True
    kind, begin, end = (int_column(row[at] for row in rows) for at in range(3))  # type: ignore[misc]
    return w.Outages(kind=kind, begin_s=begin, end_s=end, announced_s=np.zeros(len(rows), np.int64), nodes=members)


def _unmodelled(conf: SlurmConf) -> list[str]:
    """A remark for each scheduling option and priority setting of a slurm.conf that the simulator ignores."""
    options = conf.options
    remarks: list[str] = []
    for name in _PLAIN_OPTIONS:
        if getattr(options, name, 0):
            remarks.append(f"{conf.path}: SchedulerParameters {name}: not modelled")
    if options.sched_min_interval_us > 1_000_000:  # the clock counts seconds
        remarks.append(f"{conf.path}: SchedulerParameters sched_min_interval over a second: not modelled")
    flags = [flag for flag in conf.priority_flags if flag not in _FLAGS_WITHOUT_EFFECT]
    if flags:
        remarks.append(f"{conf.path}: PriorityFlags {', '.join(flags).upper()}: not modelled")
    if conf.weight_assoc:
        remarks.append(f"{conf.path}: PriorityWeightAssoc: not modelled")
    return remarks


def _settings(conf: SlurmConf, limits: TresLimits) -> w.SlurmSettings:
    options = conf.options
    settings = w.SlurmSettings(
        calc_period_s=max(conf.calc_period_s, 1),
        default_queue_depth=options.default_queue_depth,
        sched_interval_s=options.sched_interval_s,
        batch_sched_delay_s=options.batch_sched_delay_s,
        backfill=conf.scheduler_type != "sched/builtin",
        bf_interval_s=options.bf_interval_s,
        bf_window_s=options.bf_window_min * 60,
        bf_resolution_s=options.bf_resolution_s,
        bf_max_job_test=options.bf_max_job_test,
        bf_max_job_part=options.bf_max_job_part,
        bf_max_job_user=options.bf_max_job_user,
        bf_max_job_start=options.bf_max_job_start,
        bf_max_job_array_resv=options.bf_max_job_array_resv,
        bf_job_part_count_reserve=options.bf_job_part_count_reserve,
        bf_min_age_reserve_s=options.bf_min_age_reserve_s,
        bf_min_prio_reserve=options.bf_min_prio_reserve,
        requeue_delay_s=(conf.cred_expire_s if options.requeue_delay_s is None else options.requeue_delay_s) + 1,
        preempt_by_partition=conf.preempt_type == "preempt/partition_prio",
        preempt_youngest_first=options.preempt_youngest_first,
        preempt_strict_order=options.preempt_strict_order,
        preempt_reorder_count=options.preempt_reorder_count,
        kill_wait_s=conf.kill_wait_s,
        over_time_limit_s=UNLIMITED_S if conf.over_time_limit_s is None else conf.over_time_limit_s,
    )
    if conf.priority_type != "priority/multifactor":  # priority/basic: first come, first served
        return settings
    tres = limits.vector(conf.weight_tres, f"{conf.path}: PriorityWeightTRES", 0.0)
    return replace(
        settings,
        weight_age=conf.weight_age,
        weight_fairshare=conf.weight_fairshare,
        weight_job_size=conf.weight_job_size,
        weight_partition=conf.weight_partition,
        weight_qos=conf.weight_qos,
        weight_tres=(tres[0], tres[1], tres[2], tres[3]),
        favor_small=conf.favor_small,
        max_age_s=max(conf.max_age_s, 1),
        decay_half_life_s=conf.decay_half_life_s,
    )
