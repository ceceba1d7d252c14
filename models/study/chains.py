"""Play a study's policies on chains of links, in addition to pairs: which chains, at which settings, with which losses.

Chains are played only in the recorded world (`models.provisioning.chains`) and are not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from features.bootstrap import block_count, interval, resampled_means, seed_weights, start_weights
from features.conventions import INDICATIVE_BELOW_BLOCKS, ORACLE, interruption_h, overlap_h
from models.provisioning.comparison.outcomes import play
from models.provisioning.protocol import TrainedPolicy
from models.study.cluster import Study
from models.study.pair_tables import predecessors_in
from models.study.windows import Window
from traces.arrays import Float64s, Int64s
from traces.errors import InputError
from traces.units import HOUR_S


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
