"""The study of one cluster: its trace in one scenario, with its windows and their pairs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from agent.artifact import DECIDE_EVERY_S, LEAST_EVERY_S, MOST_EVERY_S
from models.provisioning import registry
from models.provisioning.protocol import PairTable, concatenate
from models.provisioning.scenario import (
    CALIBRATED,
    INJECTED,
    LEAST_RECORDED_LIMIT_S,
    LIMIT_S,
    PLAIN,
    RECORDED,
    Context,
    Scenario,
    fit_scenarios,
)
from models.provisioning.training.train import SEEDS, code_version
from models.provisioning.worlds import PAIRS, check_world
from models.study import days, extent, futures, inputs
from models.study.pair_tables import apart, pair_table, predecessors_in
from models.study.slurm import pairs as slurm_pairs
from models.study.slurm.files import SlurmFiles
from models.study.windows import (
    COOL_DOWN_S,
    FIT_EVERY,
    WARM_UP_S,
    Window,
    Windows,
    first_start_s,
    split_trace,
    usable_starts,
)
from simulator.names import check_names
from simulator.recorded.parameters import LEAST_FIT_S
from simulator.workload import Workload
from traces import instants
from traces.arrays import Float64s
from traces.clusters import ClusterSettings
from traces.counted import counted
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.store.raw_files import lake_digest
from traces.units import HOUR_S

CHAINS_EVERY_S = 12 * HOUR_S  # between the first links of chains to learn from
PAIR_NODES = (1, 8)  # sizes of pairs, where nobody asks for others


@dataclass(frozen=True)
class Study:
    """One cluster's trace in one scenario. Make it with `open_study`."""

    data: DataFolder
    settings: ClusterSettings
    scenario: Scenario
    workload: Workload
    is_every_asked: bool = True  # somebody asked for the time between starts; else it follows from the trace
    sees_futures: bool = False  # pairs come with what simulated futures say of their decisions
    sees_days: bool = False  # pairs come with snapshots of their cluster
    sees_chains: bool = False  # pairs come with rows of the chains that begin with them

    @cached_property
    def usable(self) -> Window:
        """The starts that the trace supports."""
        return usable_starts(self.workload, *self._warm_up)

    @cached_property
    def windows(self) -> Windows:
        """The fit, select and report window."""
        return split_trace(
            self.usable, inputs.declared_dates(self.settings), self.settings.name, self.scenario.decide_every_s
        )

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of learners: as many as the cluster's settings say, else SEEDS."""
        return SEEDS if self.settings.seeds is None else tuple(range(self.settings.seeds))

    @property
    def policies(self) -> list[str]:
        """Registry names of the candidates for a release; includes those that look ahead if the settings say so."""
        looks = self.settings.looks_ahead and self.scenario.pairs == RECORDED
        return [*registry.every_policy(), *(registry.LOOKING_AHEAD if looks else ())]

    def pairs(self, window: Window) -> PairTable:
        """The pairs that start in the window, on the cluster as it is."""
        return self._table(self.workload, self.scenario, window)

    def seeing(self, policies: Iterable[str]) -> Study:
        """This study, with what those policies (registry names) see besides observations: futures, snapshots, chains.

        Raises InputError if this world does not have them.
        """
        names = list(policies)
        looking = next((name for name in names if registry.looks_ahead(name)), None)
        reading = next((name for name in names if registry.reads_days(name)), None)
        planning = next((name for name in names if registry.plans_chains(name)), None)
        if looking is not None:
            futures.check_world(self.scenario, looking)
        if reading is not None:
            days.check_world(self.scenario, reading)
        if planning is not None and self.scenario.world != CALIBRATED:
            raise InputError(
                f"policy {planning!r} learns from chains of recorded jobs, which --world {self.scenario.world} lacks: "
                f"give --world {CALIBRATED}"
            )
        seen = (looking is not None, reading is not None, planning is not None)
        before = (self.sees_futures, self.sees_days, self.sees_chains)
        futures_, days_, chains_ = (one or other for one, other in zip(seen, before, strict=True))
        if (futures_, days_, chains_) == before:
            return self
        return replace(self, sees_futures=futures_, sees_days=days_, sees_chains=chains_)

    def _table(self, workload: Workload, scenario: Scenario, window: Window) -> PairTable:
        made = futures.table_with_futures if self.sees_futures else pair_table
        table = made(self.data, workload, scenario, window)
        if self.sees_days:
            table = days.with_days(self.data, workload, scenario, window, table)
        return replace(table, candidates=self._candidates(scenario, window)) if self.sees_chains else table

    def _candidates(self, scenario: Scenario, window: Window) -> Float64s:
        """Rows of chains that begin in the window (`models.provisioning.service.rows`), by what its end shows."""
        from models.provisioning.service.rows import chain_rows

        record, predecessors = predecessors_in(self.data, scenario, window)
        predecessors = apart(record, predecessors, CHAINS_EVERY_S)
        span_s = None if scenario.from_s is None else LEAST_FIT_S
        return chain_rows(record, predecessors, scenario.decide_every_s, window.until_s, span_s)

    def known_before(self, until_s: int) -> Study:
        """This study as of `until_s` (epoch s): what a dump taken then would hold (docs/decisions/0021).

        Its workload also holds the jobs that were running or pending then. Jobs that request more nodes than there are
        stay pending for ever and block no other job, so they are left out. Raises InputError if no job was submitted by
        then.
        """
        if self.scenario.known_until_s == until_s:
            return self
        if until_s not in self._known:
            self._known[until_s] = self._read_until(until_s)
        return self._known[until_s]

    def _read_until(self, until_s: int) -> Study:
        cluster, every_s = self.scenario.cluster, self.scenario.every_s
        from_s = _first_read_s(self.data, self.settings, self.scenario.world, until_s)
        workload, _ = inputs.read_workload(self.data, cluster, from_s, until_s)
        workload = workload.take(workload.size <= self.scenario.capacity)
        if not len(workload):
            raise InputError(
                f"no job of cluster {cluster!r} was submitted before {instants.text(until_s)}; give a later date"
            )
        if not self.is_every_asked:
            every_s = extent.starts_every_s(workload, int(np.ptp(workload.submit_s)))
        scenario = replace(self.scenario, from_s=from_s, every_s=every_s, known_until_s=until_s)
        return replace(self, scenario=scenario, workload=workload)

    @cached_property
    def _known(self) -> dict[int, Study]:
        """The studies that `known_before` has read."""
        return {}

    @property
    def _warm_up(self) -> tuple[int, int | None]:
        """Seconds of trace before the first start, and the instant (epoch s) from which they count."""
        if self.scenario.pairs == INJECTED:
            return WARM_UP_S, None
        return LEAST_FIT_S, inputs.declared_dates(self.settings).fit_from_s

    def fit_scenarios(self, until_s: int) -> list[Scenario]:
        """The clusters that learners see, by what was known before `until_s` (epoch s)."""
        known = self.known_before(until_s)
        return fit_scenarios(known.scenario, known.workload)

    def fit_pairs(self, window: Window) -> PairTable:
        """The pairs for fitting learners until the window's end: its pairs on each cluster of `fit_scenarios`.

        They use only what was known at the window's end. The outcomes of some came later; see `PairTable.known_before`.
        """
        workload = self.known_before(window.until_s).workload
        scenarios = self.fit_scenarios(window.until_s)
        return concatenate(self._table(workload, scenario, window) for scenario in scenarios)

    def fit_window(self, until_s: int | None) -> Window:
        """Starts to fit on: all usable ones before `until_s`; None means the end of the declared fit window."""
        if until_s is None:
            return self.windows.fit
        first_s = first_start_s(self.known_before(until_s).workload, *self._warm_up)
        first_s = max(first_s, inputs.declared_dates(self.settings).fit_from_s or 0)
        if first_s >= until_s:
            raise InputError(
                f"--until {instants.text(until_s)}: the usable starts of cluster {self.scenario.cluster!r} begin at "
                f"{instants.text(first_s)}; give a later date"
            )
        return Window(first_s, until_s, FIT_EVERY * self.scenario.decide_every_s)

    def context(self, until_s: int) -> Context:
        """The context of a fit on outcomes known before `until_s`, or of a comparison of starts from then on."""
        return Context(
            scenario=self.scenario,
            trace_digest=lake_digest(self.data, self.scenario.cluster),
            until_s=until_s,
            fit_capacities=tuple(scenario.capacity for scenario in fit_scenarios(self.scenario, self.workload)),
            code_version=code_version(),
            site=futures.site_of(self.data, self.scenario, until_s) if self.sees_futures else None,
        )


def open_study(
    data: DataFolder,
    settings: ClusterSettings,
    *,
    capacity: int | None = None,
    pair_nodes: tuple[int, ...] | None = None,
    limit_s: int | None = None,
    scheduler: str = "mirage",
    world: str = PLAIN,
    every_s: int | None = None,
    partition: str | None = None,
    user: str | None = None,
    account: str | None = None,
    decide_every_s: int | None = None,
) -> Study:
    """Open the study of a cluster. `pair_nodes` None means those declared, else those of PAIR_NODES that fit on it.

    `limit_s` None means LIMIT_S for injected pairs, and the least limit of recorded ones.

    `decide_every_s` None means the value that the cluster declares, else DECIDE_EVERY_S.

    A trace longer than `models.study.extent` allows is cut to its newest part. `every_s` None means the value from
    there. Under slurm with a slurm.conf, pairs are jobs of that partition, user and account (None: the defaults of
    `slurm_pairs.submitted`). Raises InputError if the cluster cannot be replayed in that scenario.
    """
    check_names(scheduler=scheduler, slurm=True)
    check_world(world)
    if limit_s is None:
        limit_s = LEAST_RECORDED_LIMIT_S if PAIRS[world] == RECORDED else LIMIT_S
    from_s = _first_read_s(data, settings, world)
    workload, _ = inputs.read_workload(data, settings.name, from_s)
    files = slurm_pairs.by_files(data, settings, scheduler, PAIRS[world])
    given = (partition, user, account)
    slurm_pairs.check_options(files, settings.name, given)
    nodes = inputs.capacity_of(data, settings, capacity) if files is None else _nodes_of(files, capacity)
    pair_nodes = pair_nodes or settings.pair_nodes or tuple(size for size in PAIR_NODES if size <= nodes)
    if max(pair_nodes) > nodes:
        raise InputError(
            f"--pair-nodes {max(pair_nodes)}: cluster {settings.name!r} has {counted(nodes, 'node')}; ask for fewer"
        )
    is_every_asked = every_s is not None
    every_s = every_s or extent.starts_every_s(workload, int(np.ptp(workload.submit_s)))
    scenario = Scenario(
        settings.name, nodes, pair_nodes, limit_s, scheduler, world, every_s, from_s,
        decide_every_s=_decide_every_s(decide_every_s or settings.decide_every_s or DECIDE_EVERY_S),
    )  # fmt: skip
    if files is not None:
        scenario = slurm_pairs.submitted(scenario, files, given)
    return Study(data, settings, scenario, workload, is_every_asked)


def _decide_every_s(seconds: int) -> int:
    """`seconds`, if an agent can keep to it. Raises InputError."""
    if not LEAST_EVERY_S <= seconds <= MOST_EVERY_S:
        raise InputError(
            f"--decide-every {seconds} s: decide every {LEAST_EVERY_S // 60} min to {MOST_EVERY_S // HOUR_S} h"
        )
    return seconds


def _nodes_of(files: SlurmFiles, capacity: int | None) -> int:
    """Nodes in service: all of the slurm.conf, or `capacity` of them."""
    most = len(files.conf.nodes)
    if capacity is not None and capacity > most:
        raise InputError(f"--capacity {capacity}: {files.conf.path} has {counted(most, 'node')}; ask for fewer")
    return most if capacity is None else capacity


def _first_read_s(
    data: DataFolder, settings: ClusterSettings, world: str, known_until_s: int | None = None
) -> int | None:
    """First submission, epoch s, of the part of the trace that is used, or was by `known_until_s`; None: all of it."""
    if PAIRS[world] == RECORDED:
        return extent.first_calibrated_s(data, settings.name, known_until_s)
    declared = inputs.declared_dates(settings)
    return extent.first_replayed_s(
        data,
        settings.name,
        warm_up_s=WARM_UP_S,
        cool_down_s=COOL_DOWN_S,
        from_s=declared.fit_from_s,
        until_s=known_until_s or declared.report_until_s,
        known_until_s=known_until_s,
    )
