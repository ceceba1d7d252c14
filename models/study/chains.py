"""Play a study's policies on chains of a wanted service: which chains, at which settings, with which losses.

Chains (`models.provisioning.service`) are played only in the recorded world and are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from features.conventions import ORACLE, REACTIVE
from models.provisioning.comparison.outcomes import play
from models.provisioning.protocol import TrainedPolicy, no_pairs
from models.provisioning.service import names
from models.study.cluster import Study
from models.study.extent import first_calibrated_s
from models.study.inputs import read_record
from models.study.pair_tables import predecessors_in
from models.study.windows import Window
from traces.counted import counted
from traces.errors import InputError
from traces.store import warehouse
from traces.store.folder import DataFolder
from traces.units import HOUR_S

if TYPE_CHECKING:
    from agent.artifact import Artifact
    from models.provisioning.pairs.recorded import Predecessors
    from models.provisioning.service.chain import ChainPlayer, ServiceChain
    from models.provisioning.service.moment import LinkWaits
    from models.provisioning.service.play import Service
    from simulator.recorded.record import RecordedTrace


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
    report window did, at most one in the scenario's `every_s`. Limits above the longest that the record holds before
    the window are left out. `beyond_log` is the number of chains that continue after the log's last submission, when no
    jobs arrive any more. Raises InputError if no chain begins in the window.
    """
    from models.provisioning.service.figures import service_figures
    from models.provisioning.service.play import play_services
    from models.provisioning.service.timing import TimedPlayer
    from simulator.recorded.parameters import LEAST_FIT_S

    record, predecessors = predecessors_in(study.data, study.scenario, report)
    predecessors = _apart(record, predecessors, study.scenario.every_s)
    if not len(predecessors.row):
        raise InputError(f"cluster {study.scenario.cluster!r}: no chain begins between {report}; give a wider window")
    known = record.submit_s < report.from_s
    service = service.within(int(record.limit_s[known].max(initial=0)))
    artifacts = timing_artifacts(policies, trained)
    settings = chosen_settings(study, artifacts, select, weight)
    players = service_players(policies, artifacts, settings, weight, service.decision_s)
    span_s = None if study.scenario.from_s is None else LEAST_FIT_S
    chains = play_services(record, predecessors, [player for _, player in players], service, span_s)
    by_name: dict[str, list[Any]] = {}
    for (name, _), of_player in zip(players, chains, strict=True):
        by_name.setdefault(name, []).append(of_player)
    timing = [name for name in by_name if name in (REACTIVE, *artifacts)]
    rows = service_figures(by_name, timing, record.submit_s[predecessors.row], service, weight)
    played_at = {name: player.setting for name, player in players if isinstance(player, TimedPlayer)}
    about = {
        "world": study.scenario.world,
        "wanted_h": service.wanted_s / HOUR_S,
        "restart_s": service.restart_s,
        "limits_h": [limit_s / HOUR_S for limit_s in service.limits_s],
        "overlap_weight": weight,
    }
    last_s = int(record.submit_s[-1])
    for row in rows:
        name = row["policy"]
        row |= about | {"setting": played_at.get(name), "beyond_log": _beyond(by_name[name], last_s)}
    return rows


def _beyond(seeds: Sequence[Sequence[ServiceChain]], last_s: int) -> int:
    """How many chains continue after `last_s` with at least one seed."""
    return sum(any(chain.started[-1].start_s > last_s for chain in of_seeds) for of_seeds in zip(*seeds, strict=True))


def timing_artifacts(policies: Sequence[str], trained: Sequence[TrainedPolicy]) -> dict[str, list[Artifact]]:
    """The artifacts of the policies that choose only the moment, by name: a rule's, and those of each fit.

    Without reactive, which submits at the end and has no setting.
    """
    from models.provisioning.registry import is_known, make_policy

    fitted: dict[str, list[Artifact]] = {}
    for one in trained:
        fitted.setdefault(one.name, []).append(one.artifact)
    rules = [name for name in dict.fromkeys((*names.ALWAYS, *policies)) if is_known(name) and name != REACTIVE]
    return {name: [make_policy(name).fit(no_pairs(), 0)[0]] for name in rules if name not in fitted} | fitted


def chosen_settings(
    study: Study, artifacts: Mapping[str, Sequence[Artifact]], select: Window | None, weight: float
) -> dict[str, float]:
    """The setting of each policy, by name: that of least interruption + weight x overlap on pairs of the select window.

    Only pairs count whose outcome was known at the window's end. Without a select window, or without such pairs, it is
    the artifacts' own.
    """
    own = {name: float(of_policy[0].manifest["default_setting"]) for name, of_policy in artifacts.items()}
    if select is None:
        return own
    study = study.seeing(str(one.manifest["policy"]) for of_policy in artifacts.values() for one in of_policy)
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
    artifacts: Mapping[str, Sequence[Artifact]],
    settings: Mapping[str, float],
    weight: float,
    decision_s: int,
) -> list[tuple[str, ChainPlayer]]:
    """The players of those policies and of the ones that are always played, each with the name of its row.

    artifacts, settings: by name, of the policies that choose only the moment; they come last, a player for each seed.
    """
    from agent.chains.plan import ESTIMATES
    from models.provisioning.service.plan import Plan
    from models.provisioning.service.rules import KeepAhead, SubmitAtEnd
    from models.provisioning.service.timing import TimedPlayer, TimingOracle

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
        names.PLAN: Plan(weight, decision_s),
    }
    asked = [name for name in dict.fromkeys((*names.ALWAYS, *policies)) if name in by_hand]
    timed = [(name, TimedPlayer(one, settings[name])) for name, of_policy in artifacts.items() for one in of_policy]
    return [*((name, by_hand[name]) for name in asked), *timed]


def _apart(record: RecordedTrace, predecessors: Predecessors, every_s: int) -> Predecessors:
    """Those of the predecessors that were submitted at least `every_s` after the one before."""
    kept: list[int] = []
    for place, submit_s in enumerate(record.submit_s[predecessors.row].tolist()):
        if not kept or submit_s >= record.submit_s[predecessors.row[kept[-1]]] + every_s:
            kept.append(place)
    return type(predecessors)(predecessors.row[kept], predecessors.next_row[kept])


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
