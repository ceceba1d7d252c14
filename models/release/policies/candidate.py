"""Choose the trained policy to offer for release: the candidate rule, a pure function of the select window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agent.artifact import Artifact
from features.bootstrap import interval, resampled_means, seed_weights, start_weights
from models.provisioning.comparison.groups import judged
from models.provisioning.comparison.outcomes import cost_h, play
from models.provisioning.protocol import PairTable, TrainedPolicy
from models.provisioning.registry import LOOKING_AHEAD, every_policy, is_releasable
from models.provisioning.scenario import INJECTED
from simulator.one_thread import one_thread
from traces.counted import counted
from traces.errors import InputError


@dataclass(frozen=True)
class Selected:
    """The part of the select window on which a candidate was picked, with the interval of its cost there."""

    n: int
    from_s: int  # first and last submission, epoch s
    until_s: int
    ci95: list[float] | None  # of the candidate's cost, all seeds together; None within one block of 7 days


@dataclass(frozen=True)
class Candidate:
    """The policy that the rule picks; its artifact's default setting is the one picked with it."""

    policy: str
    seed: int
    setting: float
    cost_h: float  # weight 1, on the select window, averaged over sizes and seeds
    artifact: Artifact
    run_id: str
    selected: Selected | None = None


@one_thread
def choose_candidate(select: PairTable, trained: Sequence[TrainedPolicy], kind: str = INJECTED) -> Candidate:
    """Choose the candidate. kind: `Scenario.pairs` of the select window.

    The candidate is the trained policy (never the oracle) with the least cost of weight 1 on the select window, at its
    best setting. Policies that are compared and not released are skipped (`registry.is_releasable`). The cost is
    averaged over the sizes of injected pairs, or over all recorded pairs, and over seeds. Of equals the simpler wins,
    which is the earlier in the registry. Of a learner's seeds, the one of median cost at that setting is taken (the
    lower of two middle ones), so that no lucky seed is released. Raises InputError if there is nothing to choose from.
    """
    offered = [fit for fit in trained if _is_releasable(fit)]
    if not len(select) or not offered:
        skipped = sorted({fit.name for fit in trained} - {fit.name for fit in offered})
        compared = "".join(f"; {name} is compared, not released" for name in skipped)
        raise InputError(
            f"no candidate: {counted(len(offered), 'trained policy')} on {counted(len(select), 'pair')} of the "
            f"select window{compared}; train first, or widen the window"
        )
    simplicity = {name: place for place, name in enumerate((*every_policy(), *LOOKING_AHEAD))}
    names = sorted({fit.name for fit in offered}, key=lambda name: (simplicity.get(name, len(simplicity)), name))
    parts = [select.take(group.of(select)) for group in judged(select, kind)]
    candidates = [_best_of(parts, [fit for fit in offered if fit.name == name]) for name in names]
    best = min(candidates, key=lambda candidate: round(candidate.cost_h, 9))
    fits = [fit.artifact.with_setting(best.setting) for fit in offered if fit.name == best.policy]
    return replace(best, selected=_selected(select, fits, kind))


def _is_releasable(fit: TrainedPolicy) -> bool:
    """Whether the policy may be released, under whatever name the fit appears."""
    return is_releasable(str(fit.artifact.manifest["policy"]))


def _best_of(parts: Sequence[PairTable], trained: Sequence[TrainedPolicy]) -> Candidate:
    """The best setting and the median seed of one policy; every part of the select window has the same weight."""
    artifacts = [fit.artifact for fit in trained]
    per_size = [play(part, artifacts, trained[0].name).cost_h(1.0).mean(axis=2) for part in parts]
    cost = np.mean(per_size, axis=0)  # (seeds, settings)
    at = int(np.argmin(cost.mean(axis=0)))
    middle = int(np.argsort(cost[:, at], kind="stable")[(len(trained) - 1) // 2])
    fit = trained[middle]
    setting = fit.artifact.settings[at]
    mean_h = float(cost[:, at].mean())
    return Candidate(fit.name, fit.seed, setting, mean_h, fit.artifact.with_setting(setting), fit.run_id)


def _selected(select: PairTable, fits: Sequence[Artifact], kind: str) -> Selected:
    """The window on which the fits (one per seed, at the setting picked) were picked, with their cost's interval."""
    starts = start_weights(select.submit_s)
    ci95 = None
    if starts is not None:
        seeds = seed_weights(len(fits), len(starts))
        cost = np.stack([cost_h(select, artifact) for artifact in fits])[:, None]  # (seeds, 1, p)
        masks = [group.of(select) for group in judged(select, kind)]
        ci95 = interval(np.mean([resampled_means(cost[..., m], starts[:, m], seeds)[:, 0] for m in masks], axis=0))
    return Selected(len(select), int(select.submit_s.min()), int(select.submit_s.max()), ci95)
