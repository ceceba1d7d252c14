"""Pairs under `--scheduler slurm`: their submitter, and the world that they are injected into.

A cluster whose settings name a slurm.conf is replayed by its files, as in `baton simulate --scheduler slurm`. For any
other, the limits and priorities are inferred from its record (`models.study.slurm.inferred`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from models.provisioning.scenario import INJECTED, Scenario
from models.study import inputs
from models.study.slurm import files as slurm_files
from models.study.slurm.files import SlurmFiles
from simulator.names import SLURM
from traces import clusters
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.progress import say
from traces.slurm.conf import PartitionConf
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import HOUR_S

if TYPE_CHECKING:
    from simulator.slurm.inputs.jobs import Loaded

OWN_USER = "(pair)"  # default user of pairs, without history; no real user has this name
OPTIONS = ("--partition", "--user", "--account")


def by_files(data: DataFolder, settings: ClusterSettings, scheduler: str, pairs: str) -> SlurmFiles | None:
    """The files that describe the cluster to such pairs; None if there are none, or if the pairs do not use them."""
    if scheduler != SLURM or pairs != INJECTED:
        return None
    return slurm_files.declared(data, settings)


def check_options(files: SlurmFiles | None, cluster: str, given: Sequence[str | None]) -> None:
    """Raise InputError if one of OPTIONS is given without files that describe partitions and users. `given`: values."""
    for name, value in zip(OPTIONS, given, strict=True):
        if value is not None and files is None:
            raise InputError(
                f"{name} {value!r} needs --scheduler slurm, --world plain and a slurm_conf of cluster {cluster!r} in "
                "clusters.toml; omit it"
            )


def submitted(scenario: Scenario, files: SlurmFiles, given: Sequence[str | None]) -> Scenario:
    """Add the partition, user and account of the pairs to the scenario. `given`: values of OPTIONS, None for defaults.

    The defaults are: the default partition; a user without history, in the account with most jobs; for a given user,
    the account in which it has most jobs. Raises InputError for names that the cluster does not know, and for pairs
    that a partition rejects.
    """
    name, user, account = given
    partition = files.conf.default_partition if name is None else files.conf.partition(name)
    known = ", ".join(one.name for one in files.conf.partitions)
    if partition is None:
        problem = "names no default partition: give --partition" if name is None else f"has no partition {name!r}"
        raise InputError(f"{files.conf.path} {problem} (known: {known})")
    _check_size(scenario, partition)
    account, user = _association(files, user, account and account.lower())
    return replace(scenario, partition=partition.name, user=user, account=account)


def _check_size(scenario: Scenario, partition: PartitionConf) -> None:
    """Raise InputError if a pair is longer or wider than the partition allows."""
    where = f"{partition.where}: partition {partition.name!r}"
    if partition.max_time_s is not None and scenario.limit_s > partition.max_time_s:
        raise InputError(
            f"{where} has MaxTime {partition.max_time_s / HOUR_S:g} h; --limit {scenario.limit_s / HOUR_S:g}h is longer"
        )
    most = min(len(partition.nodes), len(partition.nodes) if partition.max_nodes is None else partition.max_nodes)
    if max(scenario.pair_nodes) > most:
        raise InputError(
            f"{where} gives a job at most {counted(most, 'node')}; --pair-nodes {max(scenario.pair_nodes)} is more"
        )


def _association(files: SlurmFiles, user: str | None, account: str | None) -> tuple[str, str]:
    """Account and user of the pairs."""
    from simulator.slurm.inputs.jobs import ROOT

    counts = warehouse.read(
        files.data,
        "SELECT lower(account) AS account, user_name AS user, count(*) AS jobs FROM jobs WHERE cluster = ? "
        "GROUP BY ALL ORDER BY jobs DESC, account, user",
        (files.cluster,),
    ).rows()
    dump = files.read_associations()
    rows = [(row.account, row.user or None) for row in dump.rows] if dump else []
    pairs = [(one, other) for one, other, _ in counts if one] + rows  # most jobs first
    for option, value, names in (
        ("--user", user, {other for _, other in pairs if other}),
        ("--account", account, {one for one, _ in pairs}),
    ):
        if value is not None and value not in names:
            known = ", ".join(sorted(names)[:8]) or "none"
            raise InputError(f"{option} {value!r} is neither in the log of cluster {files.cluster!r} nor in its dump "
                             f"of associations (known: {known}{', ...' if len(names) > 8 else ''})")  # fmt: skip
    if account is None and user is not None:
        account = next(one for one, other in pairs if other == user)
    if account is None:
        jobs_of: dict[str, int] = {}
        for one, _, jobs in counts:
            jobs_of[one or ROOT] = jobs_of.get(one or ROOT, 0) + jobs
        account = max(sorted(jobs_of), key=lambda one: jobs_of[one])
    return account, OWN_USER if user is None else user


def _files(data: DataFolder, scenario: Scenario) -> SlurmFiles | None:
    if scenario.scheduler != SLURM:
        return None
    return by_files(data, clusters.resolve(data, cluster=scenario.cluster), scenario.scheduler, scenario.pairs)


def made_from(data: DataFolder, scenario: Scenario) -> str:
    """Digest of the files that describe the cluster to the scenario's pairs; empty without files."""
    files = _files(data, scenario)
    return "" if files is None else files.digest


def world(data: DataFolder, scenario: Scenario, from_s: int, pair_nodes: int) -> Loaded:
    """The world that pairs of that many nodes are injected into, with their submitter.

    Inference uses only what was recorded before `from_s` (epoch s), or before the instant until which the scenario
    knows the trace.
    """
    files = _files(data, scenario)
    if files is None:
        return _inferred(data, scenario, from_s, pair_nodes)
    from simulator.slurm.inputs.submitted import SubmitterNames
    from simulator.slurm.world import CapacityChanges

    names = SubmitterNames(scenario.partition, scenario.account, scenario.user)
    loaded = slurm_files.load_slurm_files(
        files, from_s=scenario.from_s, until_s=scenario.known_until_s, submitter=names
    )
    if scenario.capacity == len(loaded.world.nodes):
        return loaded
    fewer = CapacityChanges(np.zeros(1, np.int64), np.array([scenario.capacity], np.int64))
    return replace(loaded, world=replace(loaded.world, capacity=fewer))


def _inferred(data: DataFolder, scenario: Scenario, from_s: int, pair_nodes: int) -> Loaded:
    from models.study.slurm.inferred import from_record, inferred_limits_sentence
    from simulator.recorded.parameters import infer_parameters

    record = inputs.read_record(data, scenario.cluster, scenario.from_s, scenario.known_until_s)
    parameters = infer_parameters(record, scenario.known_until_s or from_s)
    say(
        f"slurm on {counted(scenario.capacity, 'node')} without a slurm.conf, inferred from the record: "
        f"{inferred_limits_sentence(parameters)}; usable nodes, holds, siblings and nodes out of service are not "
        "settings of Slurm and are left out"
    )
    return from_record(record, parameters, scenario.capacity, pair_nodes)
