"""The simulated scenario, and the context of a fit or a comparison. Plain values; reads and stores nothing."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from agent.artifact import DECIDE_EVERY_S
from features.conventions import CUT_LIMIT_H
from models.provisioning.worlds import PAIRS
from simulator.workload import Workload
from traces import instants
from traces.counted import plural
from traces.units import HOUR_S

LIMIT_S = 48 * HOUR_S  # wall-clock limit of both jobs of a pair, by default
EVERY_S = 4 * HOUR_S  # between the starts of pairs
LEAST_RECORDED_LIMIT_S = CUT_LIMIT_H * HOUR_S  # a job cut by a shorter limit is not a long training
INJECTED, RECORDED = "injected", "recorded"  # pairs: submitted to a simulated cluster, or jobs that the log shows cut
# Worlds; `models.provisioning.worlds.PAIRS` lists the kind of pairs in each.
PLAIN, CALIBRATED, RECORDED_WAIT = "plain", "calibrated", "recorded-wait"
FIT_CAPACITIES = (1.0, 0.9)  # shares of the nodes on which learners see the fit window: as it was, and busier


@dataclass(frozen=True)
class Scenario:
    """Everything that defines the simulated cluster and its pairs, except the window."""

    cluster: str
    capacity: int  # nodes
    pair_nodes: tuple[int, ...] = (1, 8)  # of injected pairs
    limit_s: int = LIMIT_S  # of both jobs of an injected pair; recorded ones have their own, at least this long
    scheduler: str = "mirage"  # of the plain world
    world: str = PLAIN
    every_s: int = EVERY_S  # between the starts of injected pairs
    from_s: int | None = None  # first submission replayed, epoch s; None: the whole trace (`models.study.extent`)
    known_until_s: int | None = None  # use the trace as a dump at that time would hold it, epoch s; None: all of it
    partition: str = ""  # of injected pairs under slurm with a slurm.conf, as are the user and account; else ""
    user: str = ""
    account: str = ""
    decide_every_s: int = DECIDE_EVERY_S  # between the decisions on a pair

    @property
    def pairs(self) -> str:
        """INJECTED or RECORDED."""
        return PAIRS[self.world]

    @property
    def brief(self) -> str:
        """Scheduler, nodes and world in a few words: the column `scenario` of the tables."""
        newest = "" if self.from_s is None else f", the trace from {instants.text(self.from_s)}"
        by = "recorded pairs" if self.pairs == RECORDED else self.scheduler
        return f"{by}, {self.capacity} {plural(self.capacity, 'node')}, {self.world}{newest}"

    def __str__(self) -> str:
        sizes = ",".join(map(str, self.pair_nodes))
        since = "" if self.from_s is None else instants.text(self.from_s)
        newest = since and f", of a longer trace what was submitted from {since}"
        if self.decide_every_s != DECIDE_EVERY_S:
            newest += f", a decision every {self.decide_every_s / 60:g} min"
        if self.pairs == RECORDED:
            return (
                f"{self.cluster}: jobs cut by a limit of at least {self.limit_s / HOUR_S:g} h, in the recorded cluster "
                f"(world {self.world}){newest}"
            )
        inside = self.partition and f" in partition {self.partition} (user {self.user}, account {self.account})"
        return (
            f"{self.cluster}: {self.scheduler} on {self.capacity} {plural(self.capacity, 'node')}, world {self.world}, "
            f"{sizes}-node pairs of {self.limit_s / HOUR_S:g} h{inside}, "
            f"a start every {self.every_s / HOUR_S:g} h{newest}"
        )


@dataclass(frozen=True)
class Context:
    """The context of a fit or a comparison: the scenario, the trace, what was known, and the code.

    It is part of every artifact's manifest, every MLflow run and every result row.
    """

    scenario: Scenario
    trace_digest: str  # of the raw files
    until_s: int  # epoch s: the fit knows nothing that happened at or after it
    fit_capacities: tuple[int, ...]  # nodes of the clusters that learners were fitted on
    code_version: str
    site: dict[str, Any] | None = (
        None  # the rules inferred by then, for policies that look ahead (`agent.futures.Site`)
    )

    @property
    def until_utc(self) -> str:
        """`until_s` as text: 2023-02-01T00:00:00."""
        return instants.utc(self.until_s).isoformat()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, under the names that manifests and MLflow use."""
        values = asdict(self.scenario)
        from_s = values.pop("from_s")
        del values["every_s"], values["known_until_s"], values["decide_every_s"]
        if not self.scenario.partition:
            del values["partition"], values["user"], values["account"]
        return {
            **values,
            "pair_nodes": list(self.scenario.pair_nodes),
            "trace_digest": self.trace_digest,
            "until_utc": self.until_utc,
            "until_s": self.until_s,
            "fit_capacities": list(self.fit_capacities),
            "code_version": self.code_version,
            **({} if from_s is None else {"trace_from_utc": instants.text(from_s)}),
        }


def fit_scenarios(scenario: Scenario, workload: Workload) -> list[Scenario]:
    """The clusters that learners see: as it is, and with fewer nodes (but enough for the widest job).

    A policy that saw only a calm month does not learn what to do in a congested one. The same jobs on a tenth fewer
    nodes wait up to four times as long (docs/decisions/0010).
    """
    if scenario.pairs == RECORDED:  # only the cluster as it was is recorded
        return [scenario]
    least = min(max(int(workload.size.max()), *scenario.pair_nodes), scenario.capacity)
    nodes = {max(int(scenario.capacity * share), least) for share in FIT_CAPACITIES}
    return [replace(scenario, capacity=capacity) for capacity in sorted(nodes, reverse=True)]
