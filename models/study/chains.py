"""Play a study's policies on chains of links: which chains, at which settings, with which losses.

Chains of a number of links (`models.provisioning.chains`) and of a wanted service (`models.provisioning.service`) are
played only in the recorded world and are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from features.bootstrap import block_count, interval, resampled_means, seed_weights, start_weights
from features.conventions import INDICATIVE_BELOW_BLOCKS, ORACLE, REACTIVE, interruption_h, overlap_h
from models.provisioning.comparison.outcomes import play
from models.provisioning.protocol import TrainedPolicy, no_pairs
from models.provisioning.service import names
from models.study.cluster import Study
from models.study.pair_tables import predecessors_in
from models.study.windows import Window
from traces.arrays import Float64s, Int64s
from traces.errors import InputError
from traces.units import HOUR_S

if TYPE_CHECKING:
    from models.provisioning.pairs.recorded import Predecessors
    from models.provisioning.service.chain import ChainPlayer
    from models.provisioning.service.play import Service
    from simulator.recorded.record import RecordedTrace


def chain_rows(
    study: Study, trained: Sequence[TrainedPolicy], report: Window, select: Window | None, links: int
) -> list[dict[str, Any]]:
    """A row for each policy and one for the oracle: the losses on chains of `links` links, in hours.

    A chain begins where each predecessor of the report window did. Settings are those of least cost (weight 1) on the
    pairs of the select window; without one they are the artifacts' own. `beyond_log` is the number of chains that
    continue after the log's last submission, when no jobs arrive any more.
    """
    from models.provisioning.chains import Player, play_chains
    from simulator.recorded.parameters import LEAST_FIT_S

    study = study.seeing(str(one.artifact.manifest["policy"]) for one in trained)
    scenario = study.scenario
    record, predecessors = predecessors_in(study.data, scenario, report)
    if not len(predecessors.row):
        raise InputError(f"cluster {scenario.cluster!r}: no chain begins between {report}; give a wider window")
    settings = _settings(study, trained, select)
    players = [Player(one.artifact, settings[one.name]) for one in trained] + [Player(None)]
    beginnings = record.submit_s[predecessors.row]
    start_s = play_chains(
        record,
        predecessors,
        players,
        links=links,
        limit_s=scenario.limit_s,
        decision_s=report.decision_s,
        fit_span_s=None if scenario.from_s is None else LEAST_FIT_S,
    )
    names = np.array([*(one.name for one in trained), ORACLE])
    of_all = {"world": scenario.world, "links": links, "limit_h": scenario.limit_s / HOUR_S}
    rows = []
    for name in dict.fromkeys(names.tolist()):
        of_policy = start_s[names == name]
        beyond = (of_policy[..., -1] > record.submit_s[-1]).any(axis=0)
        measured = figures(of_policy, beginnings, scenario.limit_s)
        setting = settings.get(name)
        rows.append({"policy": name, "setting": setting, **of_all, **measured, "beyond_log": int(beyond.sum())})
    return rows


def figures(start_s: Int64s, submit_s: Int64s, limit_s: int) -> dict[str, Any]:
    """Figures of chains whose links started at `start_s`, (seeds, chains, links), and ran for `limit_s`.

    n, blocks, indicative, seeds; interruption_h and overlap_h per link (of all but the first), chain_interruption_h and
    chain_overlap_h; at_work_share, of the time between a chain's first start and its last end; ci95 of each by 7-day
    blocks over `submit_s`, (chains,) the submissions of the jobs that the first links replace. None for a single block.
    """
    gap_h = (start_s[..., 1:] - start_s[..., :-1] - limit_s) / HOUR_S
    lost_h, doubled_h = interruption_h(gap_h).sum(axis=-1), overlap_h(gap_h).sum(axis=-1)
    span_h = (start_s[..., -1] + limit_s - start_s[..., 0]) / HOUR_S
    after_first = gap_h.shape[-1]
    values = {
        "interruption_h": lost_h / after_first,
        "overlap_h": doubled_h / after_first,
        "chain_interruption_h": lost_h,
        "chain_overlap_h": doubled_h,
        "at_work_share": 1.0 - lost_h / span_h,
    }
    blocks = block_count(submit_s, int(submit_s.min()))
    weights = start_weights(submit_s)
    return {
        "n": len(submit_s),
        "blocks": blocks,
        "indicative": blocks < INDICATIVE_BELOW_BLOCKS,
        "seeds": len(start_s),
        **{name: float(value.mean()) for name, value in values.items()},
        "ci95": {name: _interval(value, weights) for name, value in values.items()},
    }


def _interval(values: Float64s, starts: Float64s | None) -> list[float] | None:
    """Interval of the mean of `values`, (seeds, chains)."""
    if starts is None:
        return None
    return interval(resampled_means(values[:, None], starts, seed_weights(len(values)))[:, 0])


def _settings(study: Study, trained: Sequence[TrainedPolicy], select: Window | None) -> Mapping[str, float]:
    """The setting of each policy at which its chains are played."""
    pairs = None if select is None else study.pairs(select).known_before(select.until_s)
    settings = {}
    for name in dict.fromkeys(one.name for one in trained):
        artifacts = [one.artifact for one in trained if one.name == name]
        settings[name] = float(artifacts[0].manifest["default_setting"])
        if pairs is not None and len(pairs):
            outcome = play(pairs, artifacts, name)
            settings[name] = outcome.settings[int(np.argmin(outcome.cost_h(1.0).mean(axis=(0, 2))))]
    return settings


def service_rows(
    study: Study,
    policies: Sequence[str],
    trained: Sequence[TrainedPolicy],
    report: Window,
    service: Service,
    weight: float,
) -> list[dict[str, Any]]:
    """A row for each policy on chains of a wanted service (`models.provisioning.service.figures`).

    policies: names of `models.provisioning.service.names` to play in addition to those that are always played; trained:
    the fits of those that learn, at their own settings. A chain begins where a predecessor of the report window did, at
    most one in the scenario's `every_s`. Limits above the longest that the record holds before the window are left out.
    """
    from models.provisioning.registry import is_known
    from models.provisioning.service.figures import service_figures
    from models.provisioning.service.play import play_services
    from simulator.recorded.parameters import LEAST_FIT_S

    record, predecessors = predecessors_in(study.data, study.scenario, report)
    predecessors = _apart(record, predecessors, study.scenario.every_s)
    if not len(predecessors.row):
        raise InputError(f"cluster {study.scenario.cluster!r}: no chain begins between {report}; give a wider window")
    known = record.submit_s < report.from_s
    service = service.within(int(record.limit_s[known].max(initial=0)))
    players = service_players(policies, trained, weight, service.decision_s)
    span_s = None if study.scenario.from_s is None else LEAST_FIT_S
    chains = play_services(record, predecessors, [player for _, player in players], service, span_s)
    by_name: dict[str, list[Any]] = {}
    for (name, _), of_player in zip(players, chains, strict=True):
        by_name.setdefault(name, []).append(of_player)
    timing = [name for name in by_name if is_known(name)]
    rows = service_figures(by_name, timing, record.submit_s[predecessors.row], service, weight)
    beyond = {
        name: sum(chain.started[-1].start_s > record.submit_s[-1] for seed in seeds for chain in seed)
        for name, seeds in by_name.items()
    }
    about = {"world": study.scenario.world, "wanted_h": service.wanted_s / HOUR_S, "restart_s": service.restart_s}
    limits = {"limits_h": [limit_s / HOUR_S for limit_s in service.limits_s], "overlap_weight": weight}
    return [{**row, **about, **limits, "beyond_log": beyond[row["policy"]]} for row in rows]


def service_players(
    policies: Sequence[str], trained: Sequence[TrainedPolicy], weight: float, decision_s: int
) -> list[tuple[str, ChainPlayer]]:
    """The players of those policies and of the ones that are always played, each with the name of its row."""
    from models.provisioning.registry import is_known, make_policy
    from models.provisioning.service.plan import Plan
    from models.provisioning.service.rules import KeepAhead, SubmitAtEnd
    from models.provisioning.service.timing import TimedPlayer, TimingOracle

    ahead = {names.TWO_AHEAD: 2, names.ALL_AT_ONCE: None}
    estimate = make_policy("start-estimate").fit(no_pairs(), 0)[0]
    players: list[tuple[str, ChainPlayer]] = []
    for name in dict.fromkeys((*names.ALWAYS, *policies)):
        if name in (REACTIVE, names.SINGLETON):
            players.append((name, SubmitAtEnd()))
        elif name in ahead:
            players.append((name, KeepAhead(ahead[name])))
        elif name in (names.SHORTEST, names.LONGEST):
            players.append((name, TimedPlayer(estimate, limit=name)))
        elif name == names.HAND_OVER:
            players.append((name, TimedPlayer(estimate, limit=names.LONGEST, hands_over=True)))
        elif name == ORACLE:
            players.append((name, TimingOracle()))
        elif name == names.PLAN:
            players.append((name, Plan(weight, decision_s)))
        elif is_known(name) and name not in {one.name for one in trained}:
            players.append((name, TimedPlayer(make_policy(name).fit(no_pairs(), 0)[0])))
    return players + [(one.name, TimedPlayer(one.artifact)) for one in trained]


def _apart(record: RecordedTrace, predecessors: Predecessors, every_s: int) -> Predecessors:
    """Those of the predecessors that were submitted at least `every_s` after the one before."""
    kept: list[int] = []
    for place, submit_s in enumerate(record.submit_s[predecessors.row].tolist()):
        if not kept or submit_s >= record.submit_s[predecessors.row[kept[-1]]] + every_s:
            kept.append(place)
    return type(predecessors)(predecessors.row[kept], predecessors.next_row[kept])
