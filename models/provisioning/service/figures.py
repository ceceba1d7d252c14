"""Figures of chains with a wanted service: what a policy loses, what it costs, and the interval of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from features.bootstrap import block_count, interval, resampled_means, seed_weights, start_weights
from features.conventions import INDICATIVE_BELOW_BLOCKS
from models.provisioning.service.chain import ServiceChain, work_of
from models.provisioning.service.names import PLAN
from models.provisioning.service.play import Service
from traces.arrays import Float64s, Int64s
from traces.units import DAY_S, HOUR_S

NOTICED_S = 600  # a shorter interruption leaves a day undisturbed
LOST, OVERLAP = "lost_h_per_day", "overlap_h_per_day"
MEASURES = (LOST, OVERLAP, "restarts_per_day", "node_hours_ratio", "undisturbed_days_share", "most_queued")


def measures_of(chain: ServiceChain, service: Service) -> dict[str, float]:
    """The MEASURES of one chain. A day is a day of work done; until the work was finished.

    lost_h_per_day: hours of interruption, of restarts, and lost to fewer nodes. overlap_h_per_day: hours that links
    held nodes beside the serving one. restarts_per_day. node_hours_ratio: node hours of all links over those of the
    work alone.
    undisturbed_days_share: of the days since the first start, those without an interruption of over 10 minutes.
    most_queued: most links queued at once.
    """
    work = work_of(chain.started, service.wanted_s, service.restart_s)
    days = work.done_s / DAY_S
    first_s = chain.started[0].start_s
    interrupted_s = sum(end - begin for begin, end in work.interruptions)
    disturbed: set[int] = set()
    for begin, end in work.interruptions:
        if end - begin > NOTICED_S:
            disturbed |= set(range((begin - first_s) // DAY_S, (end - 1 - first_s) // DAY_S + 1))
    served_s = work.until_s - first_s - interrupted_s
    values = (
        (interrupted_s + work.restart_s + work.slow_s) / HOUR_S / days,
        (work.held_s - served_s) / HOUR_S / days,
        work.restarts / days,
        work.node_s / work.done_s,
        1.0 - len(disturbed) / -(-(work.until_s - first_s) // DAY_S),
        float(chain.most_queued),
    )
    return dict(zip(MEASURES, values, strict=True))


def service_figures(
    played: Mapping[str, Sequence[Sequence[ServiceChain]]],
    timing: Sequence[str],
    submit_s: Int64s,
    service: Service,
    weight: float,
) -> list[dict[str, Any]]:
    """A row for each policy. played: by policy, the chains of each seed, all from the same predecessors.

    timing: policies that choose only the moment; each row has the paired difference to the one of them with least lost
    + weight x overlap, and to `plan` if that is played. submit_s: (chains,) submissions of the jobs that the first
    links replace, for blocks of 7 days.
    """
    values = {
        name: np.array([[list(measures_of(chain, service).values()) for chain in seed] for seed in seeds])
        for name, seeds in played.items()
    }  # (seeds, chains, measures)
    weights, blocks = start_weights(submit_s), block_count(submit_s, int(submit_s.min()))
    best = min(timing, key=lambda name: float((values[name][..., 0] + weight * values[name][..., 1]).mean()))
    rows, asked = [], (service.wanted_s, service.restart_s)
    for name, of_policy in values.items():
        ends = {measure: _interval(of_policy[..., k], weights) for k, measure in enumerate(MEASURES)}
        works = (work_of(chain.started, *asked) for seed in played[name] for chain in seed)
        rows.append(
            {
                "policy": name,
                "n": len(submit_s),
                "blocks": blocks,
                "indicative": blocks < INDICATIVE_BELOW_BLOCKS,
                "seeds": len(of_policy),
                **{measure: float(of_policy[..., k].mean()) for k, measure in enumerate(MEASURES)},
                "ci95": ends[LOST],
                "intervals": ends,
                "cost_h_per_day": float((of_policy[..., 0] + weight * of_policy[..., 1]).mean()),
                "unfinished": sum(not work.is_finished for work in works),
                "difference_to_best_timing": {"policy": best, **_difference(of_policy, values[best], weights)},
                "difference_to_plan": _difference(of_policy, values[PLAN], weights) if PLAN in values else None,
            }
        )
    return rows


def _difference(of_policy: Float64s, other: Float64s, starts: Float64s | None) -> dict[str, Any]:
    """The paired difference of the hours lost to those of another policy; both (seeds, chains, measures)."""
    beside = of_policy[..., 0] - other[..., 0].mean(axis=0)
    return {LOST: float(beside.mean()), "ci95": _interval(beside, starts)}


def _interval(values: Float64s, starts: Float64s | None) -> list[float] | None:
    """Interval of the mean of `values`, (seeds, chains); None for a single block."""
    if starts is None:
        return None
    return interval(resampled_means(values[:, None], starts, seed_weights(len(values)))[:, 0])
