"""The QOS of a cluster as a table, and how jobs are preempted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from simulator.slurm import world as w
from simulator.slurm.inputs.limits import TresLimits, int_column, tres_matrix
from traces.arrays import Bools
from traces.errors import InputError
from traces.slurm.accounts import Qos
from traces.slurm.conf import SlurmConf


def qos_table(
    conf: SlurmConf, rows: list[Qos], named: Iterable[str], limits: TresLimits, *, dumped: bool
) -> tuple[w.SlurmQos, dict[str, int]]:
    """Return the QOS of the dump and those that only the jobs name, and the row of each; see `cluster`."""
    known = {qos.name for qos in rows}
    wanted = dict.fromkeys([*named, *([] if rows else ["normal"])])
    strange = [name for name in wanted if name not in known]
    if strange and dumped:
        limits.remarks.append(f"QOS {', '.join(strange)}: no row in the QOS dump: taken without priority and limits")
    rows = [_absolute(qos, conf) for qos in rows] + [Qos(name) for name in strange]
    row_of = {qos.name: row for row, qos in enumerate(rows)}
    preempts = np.zeros((len(rows), len(rows)), bool)
    if conf.preempt_type == "preempt/qos" and set(conf.preempt_mode) != {"off"}:
        for qos in rows:
            preempts[row_of[qos.name], [row_of[other] for other in qos.preempt if other != qos.name]] = True
    elif conf.preempt_type not in ("preempt/none", "preempt/qos", "preempt/partition_prio"):
        limits.remarks.append(f"{conf.path}: PreemptType={conf.preempt_type}: not modelled")
    _check_levels(conf, preempts, list(row_of))
    what = [f"QOS {qos.name}" for qos in rows]
    table = w.SlurmQos(
        names=tuple(row_of),
        priority=int_column(qos.priority for qos in rows),
        usage_factor=np.array([qos.usage_factor for qos in rows]),
        group_jobs=int_column(limits.count(qos.grp_jobs) for qos in rows),
        group_tres=tres_matrix(limits.tres(qos.grp_tres, name) for qos, name in zip(rows, what, strict=True)),
        user_jobs=int_column(limits.count(qos.max_jobs_per_user) for qos in rows),
        user_tres=tres_matrix(limits.tres(qos.max_tres_per_user, name) for qos, name in zip(rows, what, strict=True)),
        account_jobs=int_column(limits.count(qos.max_jobs_per_account) for qos in rows),
        account_tres=tres_matrix(
            limits.tres(qos.max_tres_per_account, name) for qos, name in zip(rows, what, strict=True)
        ),
        job_tres=tres_matrix(limits.tres(qos.max_tres_per_job, name) for qos, name in zip(rows, what, strict=True)),
        preempts=preempts,
        preempt_mode=int_column(
            preempt_mode_of(
                conf, "" if qos.preempt_mode == "cluster" else qos.preempt_mode, f"QOS {qos.name}", limits.remarks
            )
            if conf.preempt_type == "preempt/qos"
            else w.PREEMPT_OFF
            for qos in rows
        ),
        preempt_exempt_s=int_column(
            conf.preempt_exempt_s if qos.preempt_exempt_s is None else qos.preempt_exempt_s for qos in rows
        ),
    )
    return table, row_of


def _check_levels(conf: SlurmConf, preempts: Bools, names: list[str]) -> None:
    """Raise InputError if QOS preempt one another in a ring: no order between them would exist."""
    reaches = preempts.copy()
    for through in range(len(names)):
        reaches |= reaches[:, through, None] & reaches[None, through, :]
    if ring := [name for row, name in enumerate(names) if reaches[row, row]]:
        raise InputError(f"{conf.path}: the QOS {', '.join(ring)} preempt one another: shorten a Preempt list")


def preempt_mode_of(conf: SlurmConf, own: str, what: str, remarks: list[str]) -> int:
    """Return how the jobs of a QOS or partition are preempted; `own` is its PreemptMode, "" for the cluster's."""
    modes = set(own.split(",") if own else conf.preempt_mode)
    if strange := modes & {"suspend", "gang", "within", "priority"}:
        remarks.append(f"{what}: PreemptMode {', '.join(sorted(strange)).upper()}: not modelled")
    if "requeue" in modes:
        return w.PREEMPT_REQUEUE if conf.job_requeue else w.PREEMPT_CANCEL
    return w.PREEMPT_CANCEL if "cancel" in modes else w.PREEMPT_OFF


def _absolute(qos: Qos, conf: SlurmConf) -> Qos:
    """Return the QOS with the limits of the flag Relative as amounts.

    They are percentages of the cluster, or of the partition that has the QOS, rounded down (sacctmgr(1), QOS flags).
    """
    if "relative" not in qos.flags:
        return qos
    of_it = {name for partition in conf.partitions if partition.qos == qos.name for name in partition.nodes}
    nodes = [node for node in conf.nodes if not of_it or node.name in of_it]
    totals = {"cpu": sum(node.cpus for node in nodes), "mem": sum(node.mem_mib for node in nodes), "node": len(nodes)}
    for node in nodes:
        for kind, count in node.gpus.items():
            for name in {"gres/gpu", f"gres/gpu:{kind}" if kind else "gres/gpu"}:
                totals[name] = totals.get(name, 0) + count

    def amounts(limits: Mapping[str, int]) -> dict[str, int]:
        return {name: min(share, 100) * totals.get(name, 0) // 100 for name, share in limits.items()}

    return replace(
        qos,
        grp_tres=amounts(qos.grp_tres),
        max_tres_per_job=amounts(qos.max_tres_per_job),
        max_tres_per_user=amounts(qos.max_tres_per_user),
        max_tres_per_account=amounts(qos.max_tres_per_account),
    )
