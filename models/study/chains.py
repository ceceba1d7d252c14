"""Play a study's policies on chains of a wanted service: which chains, at which settings, with which losses.

Chains (`models.provisioning.service`) are played in the calibrated and in the plain world and are not stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from features.conventions import ORACLE, REACTIVE
from models.provisioning.comparison.outcomes import play
from models.provisioning.protocol import TrainedPolicy, no_pairs
from models.provisioning.registry import is_known, make_policy, plans_chains
from models.provisioning.scenario import INJECTED, RECORDED
from models.provisioning.service import names
from models.study.cluster import Study
from models.study.extent import first_calibrated_s
from models.study.futures import owners_of
from models.study.inputs import read_record
from models.study.pair_tables import apart, injected_build, predecessors_in
from models.study.windows import Window
from simulator.names import SLURM
from traces.arrays import Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import HOUR_S

if TYPE_CHECKING:
    from agent.artifact import Artifact
    from models.provisioning.service.chain import ChainPlayer, ServiceChain
    from models.provisioning.service.injected import InjectedCluster
    from models.provisioning.service.moment import LinkWaits
    from models.provisioning.service.play import Service


def service_rows(
    study: Study,
    policies: Sequence[str],
    trained: Sequence[TrainedPolicy],
    report: Window,
    select: Window | None,
    service: Service,
    weight: float,
) -> list[dict[str, Any]]:
    """A row for each policy on chains of a wanted service (`models.provisioning.service.figures`).

    policies: names of `models.provisioning.service.names` to play in addition to those that are always played; trained:
    the fits of those that learn. Settings are those of `chosen_settings`. A chain begins where a predecessor of the
    report window did, at most one in the scenario's `every_s`. Limits above the longest that the log holds before the
    window are left out. `beyond_log` is the number of chains that continue after the log's last submission, when no
    jobs arrive any more. Raises InputError if no chain begins in the window, and for a policy that needs futures in a
    world without them.
    """
    from models.provisioning.service.figures import service_figures
    from models.provisioning.service.timing import TimedPlayer

    begin = _recorded_begin if study.scenario.pairs == RECORDED else _injected_begin
    begins = begin(study, report)
    if not len(begins.submit_s):
        where = "give a wider window"
        if study.scenario.pairs == RECORDED:
            least_h = study.scenario.limit_s / HOUR_S
            where = (
                f"in the {study.scenario.world} world one begins in place of each recorded job that ended as TIMEOUT "
                f"at a limit of {least_h:g} h or more; give a wider window, a lower --limit, or --world plain"
            )
        raise InputError(f"cluster {study.scenario.cluster!r}: no chain begins in {report}; {where}")
    service = service.within(begins.longest_s)
    artifacts = timing_artifacts(policies, trained)
    settings = chosen_settings(study, artifacts, select, weight)
    players = service_players(policies, trained, artifacts, settings, weight, service.decision_s)
    chains = begins.play([player for _, player in players], service)
    by_name: dict[str, list[Any]] = {}
    for (name, _), of_player in zip(players, chains, strict=True):
        by_name.setdefault(name, []).append(of_player)
    timing = [name for name in by_name if name in (REACTIVE, *artifacts)]
    rows = service_figures(by_name, timing, begins.submit_s, service, weight)
    played_at = {name: player.setting for name, player in players if isinstance(player, TimedPlayer)}
    about = {
        "world": study.scenario.world,
        "scheduler": study.scenario.scheduler if study.scenario.pairs == INJECTED else None,
        "wanted_h": service.wanted_s / HOUR_S,
        "restart_s": service.restart_s,
        "limits_h": [limit_s / HOUR_S for limit_s in service.limits_s],
        "overlap_weight": weight,
    }
    for row in rows:
        name = row["policy"]
        row |= about | {"setting": played_at.get(name), "beyond_log": _beyond(by_name[name], begins.last_s)}
    return rows


class Begins(NamedTuple):
    """Where the chains of a window begin, and how they are played. Times in epoch s."""

    submit_s: Int64s  # (chains,) submissions of the first links
    longest_s: int  # limit of a job submitted before the window
    last_s: int  # the log's last submission
    play: Callable[[Sequence[ChainPlayer], Service], list[list[ServiceChain]]]
    """play(players, service): the chains by player, in the order of `submit_s`."""


def _recorded_begin(study: Study, report: Window) -> Begins:
    """In place of recorded jobs that their limits ended."""
    from models.provisioning.service.play import play_services
    from simulator.recorded.parameters import LEAST_FIT_S

    record, predecessors = predecessors_in(study.data, study.scenario, report)
    predecessors = apart(record, predecessors, study.scenario.every_s)
    span_s = None if study.scenario.from_s is None else LEAST_FIT_S
    longest_s = int(record.limit_s[record.submit_s < report.from_s].max(initial=0))
    submit_s = record.submit_s[predecessors.row]
    play = partial(play_services, record, predecessors, fit_span_s=span_s)
    return Begins(submit_s, longest_s, int(record.submit_s[-1]), play)


def _injected_begin(study: Study, report: Window) -> Begins:
    """Where pairs are injected: every `every_s` for each size, as far as the trace supports pairs."""
    scenario, workload = study.scenario, study.workload
    starts_s = report.starts(scenario.every_s)
    starts_s = starts_s[(starts_s >= study.usable.from_s) & (starts_s < study.usable.until_s)]

    def play(players: Sequence[ChainPlayer], service: Service) -> list[list[ServiceChain]]:
        from models.provisioning.service.play import play_injected

        played = [
            play_injected(_chain_cluster(study, report, nodes, service), starts_s, players, service)
            for nodes in scenario.pair_nodes
        ]
        return [[chain for of_size in of_player for chain in of_size] for of_player in zip(*played, strict=True)]

    longest_s = int(workload.limit_s[workload.submit_s < report.from_s].max(initial=0))
    submits_s = np.tile(starts_s, len(scenario.pair_nodes))
    return Begins(submits_s, longest_s, int(workload.submit_s[-1]), play)


def _chain_cluster(study: Study, report: Window, nodes: int, service: Service) -> InjectedCluster:
    """The simulated cluster for chains of links of that many nodes."""
    from models.provisioning.service.injected import FlatChainCluster, InjectedCluster
    from models.provisioning.service.play import ROOM

    scenario, workload = study.scenario, study.workload
    build = injected_build(study.data, workload, scenario, report.from_s, nodes)
    limits_s = scenario.limit_s, *service.limits_s
    rows = 4 * (service.wanted_s // min(limits_s) + ROOM)
    if scenario.scheduler == SLURM:
        return InjectedCluster(build, nodes, scenario.limit_s, max(limits_s), rows)
    owners = owners_of(study.data, workload, scenario)
    return FlatChainCluster(build, nodes, scenario.limit_s, max(limits_s), rows, workload, owners)


def _beyond(seeds: Sequence[Sequence[ServiceChain]], last_s: int) -> int:
    """How many chains continue after `last_s` with at least one seed."""
    return sum(any(chain.started[-1].start_s > last_s for chain in of_seeds) for of_seeds in zip(*seeds, strict=True))


def timing_artifacts(policies: Sequence[str], trained: Sequence[TrainedPolicy]) -> dict[str, list[Artifact]]:
    """The artifacts of the policies that choose only the moment, by name: a rule's, and those of each fit.

    Without reactive, which submits at the end and has no setting.
    """
    fitted: dict[str, list[Artifact]] = {}
    for one in (one for one in trained if not plans_chains(one.name)):
        fitted.setdefault(one.name, []).append(one.artifact)
    asked = dict.fromkeys((*names.ALWAYS, *policies))
    rules = [name for name in asked if is_known(name) and name != REACTIVE and not plans_chains(name)]
    return {name: [make_policy(name).fit(no_pairs(), 0)[0]] for name in rules if name not in fitted} | fitted


def chosen_settings(
    study: Study, artifacts: Mapping[str, Sequence[Artifact]], select: Window | None, weight: float
) -> dict[str, float]:
    """The setting of each policy, by name: that of least interruption + weight x overlap on pairs of the select window.

    Only pairs count whose outcome was known at the window's end. Without a select window, or without such pairs, it is
    the artifacts' own. Raises InputError for a policy that needs futures in a world without them.
    """
    study = study.seeing(str(one.manifest["policy"]) for of_policy in artifacts.values() for one in of_policy)
    own = {name: float(of_policy[0].manifest["default_setting"]) for name, of_policy in artifacts.items()}
    if select is None:
        return own
    pairs = study.pairs(select).known_before(select.until_s)
    if not len(pairs):
        return own
    outcomes = [play(pairs, of_policy, name) for name, of_policy in artifacts.items()]
    return {
        outcome.policy: outcome.settings[int(np.argmin(outcome.cost_h(weight).mean(axis=(0, 2))))]
        for outcome in outcomes
    }


def service_players(
    policies: Sequence[str],
    trained: Sequence[TrainedPolicy],
    artifacts: Mapping[str, Sequence[Artifact]],
    settings: Mapping[str, float],
    weight: float,
    decision_s: int,
) -> list[tuple[str, ChainPlayer]]:
    """The players of those policies and of the ones that are always played, each with the name of its row.

    artifacts, settings: by name, of the policies that choose only the moment. They come last, a player for each seed,
    after those of the fits in `trained` that plan.
    """
    from agent.chains.plan import ESTIMATES
    from models.provisioning.service.candidates import LearnedPlan, PlanArtifact
    from models.provisioning.service.plan import Plan
    from models.provisioning.service.rules import KeepAhead, SubmitAtEnd
    from models.provisioning.service.timing import TimedPlayer, TimingOracle

    plan = Plan(weight, decision_s)
    (estimate,), setting = artifacts[names.MOMENT], settings[names.MOMENT]
    by_hand: dict[str, ChainPlayer] = {
        REACTIVE: SubmitAtEnd(),
        names.SINGLETON: SubmitAtEnd(),
        names.TWO_AHEAD: KeepAhead(2),
        names.ALL_AT_ONCE: KeepAhead(None),
        names.SHORTEST: TimedPlayer(estimate, setting, limit=names.SHORTEST),
        names.LONGEST: TimedPlayer(estimate, setting, limit=names.LONGEST),
        names.HAND_OVER: TimedPlayer(estimate, ESTIMATES, limit=names.LONGEST, hands_over=True),
        ORACLE: TimingOracle(),
        names.PLAN: plan,
        names.TIME_MIN: Plan(weight, decision_s, shortens=True),
        names.ELASTIC: Plan(weight, decision_s, least_share=names.LEAST_SHARE),
    }
    asked = [name for name in dict.fromkeys((*names.ALWAYS, *policies)) if name in by_hand]
    timed = [(name, TimedPlayer(one, settings[name])) for name, of_policy in artifacts.items() for one in of_policy]
    learned = [(one.name, LearnedPlan(one.artifact, plan)) for one in trained if isinstance(one.artifact, PlanArtifact)]
    return [*((name, by_hand[name]) for name in asked), *learned, *timed]


def waits_at(data: DataFolder, cluster: str, now_s: int, nodes: int, limits_s: Sequence[int], user: str) -> LinkWaits:
    """The waits of links of those limits at `now_s`, epoch s, by what a dump taken then would hold.

    user: counts against this user's limits; one without jobs in the record is a new user. Raises InputError if no job
    was submitted before, or if no job was as wide as a link.
    """
    from models.provisioning.service.moment import recorded_waits
    from simulator.recorded.parameters import LEAST_FIT_S

    from_s = first_calibrated_s(data, cluster, now_s)
    record = read_record(data, cluster, from_s, now_s)
    most = int(record.size.max(initial=0))
    if nodes > most:
        raise InputError(
            f"links of {counted(nodes, 'node')}: the widest job of cluster {cluster!r} before then has {most:,}"
        )
    of_user = "SELECT job_key FROM jobs WHERE cluster = ? AND user_name = ?"
    own = set(warehouse.read(data, of_user, (cluster, user))["job_key"])
    number = next((int(record.user[row]) for row, key in enumerate(record.job_key) if key in own), record.users)
    return recorded_waits(record, now_s, nodes, limits_s, number, None if from_s is None else LEAST_FIT_S)
