"""Give a share of a window's long jobs to agents, simulate all of them, and compare with the same chains reactive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from features.bootstrap import block_count, interval, resampled_means, seed_weights, start_weights
from features.conventions import INDICATIVE_BELOW_BLOCKS, REACTIVE
from models.provisioning.protocol import TrainedPolicy
from models.provisioning.service.chain import ChainPlayer, ServiceChain
from models.provisioning.service.figures import MEASURES, measures_of
from models.provisioning.service.play import ROOM, Service
from models.study.chains import chosen_settings, service_players, timing_artifacts
from models.study.cluster import Study
from models.study.pair_tables import predecessors_in
from models.study.windows import Window
from models.what_if.agents.live import LinkOwner, LiveCluster
from models.what_if.agents.play import NO_CAP, AgentChain, LinkCap, WaitingLinks, play_agents
from models.what_if.recorded.scene import Stretch, follow_window
from simulator.recorded.follow import HORIZON_S, TICK_S
from simulator.recorded.record import NEVER, RecordedTrace
from traces.arrays import Float64s, Int64s
from traces.counted import counted
from traces.errors import InputError
from traces.units import HOUR_S

LONGEST = 3  # a chain is given up so many times its work after the window


@dataclass(frozen=True)
class AgentsPlayed:
    """One simulation of all chains under one policy."""

    chains: list[AgentChain]
    waiting: WaitingLinks
    start_s: Int64s  # (jobs of the stretch,) at the end of the simulation if not started


def groups_of(record: RecordedTrace, rows: Int64s, wanted_s: int) -> list[Int64s]:
    """Group long jobs so that the run times of each group add up to the wanted service.

    Jobs of a group have the same number of nodes and follow each other by submission. What is left over is not grouped.
    Groups come in order of their first submission.
    """
    groups: list[list[int]] = []
    for nodes in np.unique(record.size[rows]):
        group: list[int] = []
        work_s = 0
        for row in rows[record.size[rows] == nodes].tolist():
            group.append(row)
            work_s += int(record.end_s[row] - record.start_s[row])
            if work_s >= wanted_s:
                groups.append(group)
                group, work_s = [], 0
    groups.sort(key=lambda group: int(record.submit_s[group[0]]))
    return [np.array(group, np.int64) for group in groups]


def share_of(groups: Sequence[Int64s], share: float) -> list[Int64s]:
    """Choose that share of the groups, evenly over the window."""
    chosen = np.floor(np.arange(len(groups) + 1) * share + 1e-9)  # 29 % of 100 are 29, whatever 100 x 0.29 rounds to
    return [groups[place] for place in np.flatnonzero(np.diff(chosen)).tolist()]


def agents_rows(
    study: Study,
    policies: Sequence[str],
    trained: Sequence[TrainedPolicy],
    report: Window,
    select: Window | None,
    service: Service,
    weight: float,
    shares: Sequence[float],
    caps: Sequence[LinkCap],
) -> list[dict[str, Any]]:
    """A row for each share, policy and cap. The first row of a share is `reactive`, with which others are compared.

    Each chain does the work of a group of recorded long jobs (`groups_of`), from the first one's submission on. Of a
    policy fitted with several seeds only the last plays. Raises InputError if a share has no chain.
    """
    record, predecessors = predecessors_in(study.data, study.scenario, report)
    groups = groups_of(record, predecessors.row, service.wanted_s)
    if not share_of(groups, min(shares)):
        few = f"{counted(len(groups), 'chain')}, and --agents {100 * min(shares):g}% of them is none"
        raise InputError(
            f"cluster {study.scenario.cluster!r}: the long jobs of {report} make "
            f"{few if groups else 'no chain'} of {service.wanted_s / HOUR_S:g} h; give a wider window, shorter "
            "--chains or larger shares"
        )
    known = record.submit_s < report.from_s
    service = service.within(int(record.limit_s[known].max(initial=0)))
    span_s = report.until_s - report.from_s
    scene = follow_window(
        record, pl.DataFrame(), report.from_s, report.until_s, span_s, also_whole=False, is_frozen=True
    )
    world = _World(record, scene.daily[0], service, report)
    names = [REACTIVE, *(name for name in dict.fromkeys(policies) if name != REACTIVE)]
    artifacts = timing_artifacts(policies, trained)
    settings = chosen_settings(study, artifacts, select, weight)
    players = dict(service_players(policies, trained, artifacts, settings, weight, service.decision_s))
    return [
        row
        for share in shares
        for row in _rows(world, share_of(groups, share), share, {name: players[name] for name in names}, caps)
    ]


@dataclass(frozen=True)
class _World:
    """What all simulations share."""

    record: RecordedTrace
    stretch: Stretch
    service: Service
    report: Window

    def play(self, groups: Sequence[Int64s], player: ChainPlayer, cap: LinkCap) -> AgentsPlayed:
        """Simulate the chains of the groups under one player."""
        record = self.record
        rows = sum(-(-self.service.wanted_s // int(record.limit_s[group[0]])) + ROOM for group in groups)
        cluster = LiveCluster(record, self.stretch, np.concatenate(groups), rows)
        chains = []
        for number, group in enumerate(groups):
            first = int(group[0])
            chain = ServiceChain(number, int(record.limit_s[first]), [])
            chains.append(AgentChain(LinkOwner(record, first), int(record.submit_s[first]), chain))
        until_s = self.report.until_s + max(HORIZON_S, LONGEST * self.service.wanted_s)
        waiting = play_agents(cluster, chains, player, self.service, until_s, cap)
        start_s = np.minimum(cluster.starts[: cluster.first], until_s)
        return AgentsPlayed(chains, waiting, start_s)


def _rows(
    world: _World, groups: Sequence[Int64s], share: float, players: dict[str, ChainPlayer], caps: Sequence[LinkCap]
) -> Iterator[dict[str, Any]]:
    near, report = world.record.take(world.stretch.rows), world.report
    absent = np.isin(world.stretch.rows, np.concatenate(groups))
    judged = near.ran & ~absent & (near.submit_s >= report.from_s) & (near.submit_s < report.until_s)
    weights = start_weights(near.submit_s[judged])
    blocks = block_count(near.submit_s[judged], report.from_s)
    reference: Float64s | None = None
    for name, player in players.items():
        for cap in (NO_CAP,) if name == REACTIVE else caps:
            played = world.play(groups, player, cap)
            wait_h = (played.start_s - near.submit_s)[judged] / HOUR_S
            reference = wait_h if reference is None else reference
            change = (wait_h - reference) / reference.mean()
            begun = [one.chain for one in played.chains if one.chain.started]
            measured = [measures_of(chain, world.service) for chain in begun]
            yield {
                "share": share,
                "policy": name,
                "cap_of_user": cap.of_user,
                "cap_share": cap.share,
                "chains": len(groups),
                "unfinished": sum(not one.is_over for one in played.chains),
                **{key: float(np.mean([one[key] for one in measured])) if measured else np.nan for key in MEASURES},
                "others": {
                    "n": int(judged.sum()),
                    "blocks": blocks,
                    "indicative": blocks < INDICATIVE_BELOW_BLOCKS,
                    "wait_h": float(wait_h.mean()),
                    "change": float(change.mean()),
                    "ci95": _change_interval(change, weights),
                },
                **_use(world, near, played, absent),
            }


def _change_interval(change: Float64s, weights: Float64s | None) -> list[float] | None:
    """Interval of the mean of paired changes, (jobs,); None for a single block."""
    return None if weights is None else interval(resampled_means(change[None, None], weights, seed_weights(1))[:, 0])


def _use(world: _World, near: RecordedTrace, played: AgentsPlayed, absent: Any) -> dict[str, float]:
    """Utilization of the usable nodes, and the links that wait, in the window."""
    from_s, until_s = world.report.from_s, world.report.until_s
    span_s = until_s - from_s

    def within(begin_s: Int64s, end_s: Int64s) -> Int64s:
        inside: Int64s = np.maximum(np.minimum(end_s, until_s) - np.maximum(begin_s, from_s), 0)
        return inside

    present = near.ran & ~absent
    start_s = np.where(near.start_s < from_s, near.start_s, played.start_s)
    begun_s, run_s = start_s[present], (near.end_s - near.start_s)[present]
    held = float((near.size[present] * within(begun_s, begun_s + np.minimum(run_s, NEVER))).sum())
    runs = [(one.owner.nodes, link.start_s, link.end_s) for one in played.chains for link in one.chain.started]
    nodes, begin_s, end_s = np.array(runs, np.int64).reshape(-1, 3).T
    held += float((nodes * within(begin_s, end_s)).sum())
    waits = [(link.submit_s, link.start_s) for one in played.chains for link in one.chain.started]
    waits += [
        *played.waiting.cancelled,
        *((link.submit_s, NEVER) for one in played.chains for link in one.chain.queued),
    ]
    ticks = near.submit_s[0] + TICK_S * np.arange(len(world.stretch.shown.usable))
    usable = world.stretch.shown.usable[(ticks >= from_s) & (ticks < until_s)]
    waiting = float(within(*np.array(waits, np.int64).reshape(-1, 2).T).sum()) / span_s
    pending = waiting + float(within(near.submit_s[present], begun_s).sum()) / span_s
    return {
        "utilization": held / (float(usable.mean()) * span_s),
        "queued_links": waiting,
        "most_queued_links": float(played.waiting.most),
        "share_of_queue": waiting / pending if pending else 0.0,
    }
