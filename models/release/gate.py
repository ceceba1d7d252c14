"""Which policy is released, and whether it may be.

The candidate rule and the gate are pure functions of pair tables; `release` changes the registry, through
`models.release.champion` and `models.tracking.versions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from agent.artifact import Artifact
from features.observe import FEATURES, VERSION
from models.comparison.bootstrap import (
    INDICATIVE_BELOW_BLOCKS,
    block_count,
    interval,
    resampled_means,
    seed_weights,
    start_weights,
)
from models.comparison.one_thread import one_thread
from models.comparison.outcomes import content_digest, of_size, play, sizes, stopping_rows
from models.fingerprint import code_digest, digest
from models.protocol import PairTable, TrainedPolicy
from models.release import champion
from models.release import log as release_log
from models.release.note import release_note
from models.scenario import Context
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from traces.errors import InputError, WorkError
from traces.store.folder import DataFolder

GATE_S = 28 * 86_400
TOLERANCE_H = 0.1  # upper end of the interval of the cost difference up to which a candidate counts as not worse
RELEASED_CODE = ("agent/artifact.py", "features/observe.py", "models/tracking/pyfunc_entry.py")
DIGEST_TAG = "content_digest"


@dataclass(frozen=True)
class Selected:
    """The part of the select window that a candidate was picked on, and how sure its cost there is."""

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
    cost_h: float  # weight 1, on the select window, averaged over pair sizes and seeds
    artifact: Artifact
    run_id: str
    selected: Selected | None = None


@dataclass(frozen=True)
class Gate:
    """The paired comparison on the gate's window: candidate minus opponent, cost of weight 1, hours a pair."""

    passed: bool
    reason: str
    n: int = 0
    blocks: int = 0
    from_s: int | None = None  # first and last submission compared, epoch s
    until_s: int | None = None
    difference_h: float | None = None
    low_h: float | None = None
    high_h: float | None = None


@dataclass(frozen=True)
class ReleaseDecision:
    """What became of a candidate. `version` carries the champion alias afterwards (None: there is no champion)."""

    cluster: str
    decided_utc: datetime
    policy: str
    seed: int
    setting: float
    gate: Gate
    champion_version: int | None  # before; None where there was none, or it could not be compared with
    version: int | None
    is_new: bool  # a version was registered just now

    @property
    def passed(self) -> bool:
        return self.gate.passed

    @property
    def reason(self) -> str:
        return self.gate.reason

    def log_row(self) -> dict[str, Any]:
        """A row of `models.tables.RELEASE_LOG`."""
        return {
            "cluster": self.cluster,
            "released_utc": self.decided_utc,
            "registered_version": self.version,
            "policy": self.policy,
            "passed": self.passed,
            "reason": self.reason,
            "cost_difference_low_h": self.gate.low_h,
            "cost_difference_high_h": self.gate.high_h,
            "champion_version": self.champion_version,
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            **asdict(self),
            "decided_utc": self.decided_utc.isoformat(),
            "passed": self.passed,
            "reason": self.reason,
        }


@one_thread
def choose_candidate(select: PairTable, trained: Sequence[TrainedPolicy]) -> Candidate:
    """The candidate rule.

    Among all trained policies (the oracle is none of them), the one with least cost of weight 1 on the select window,
    averaged over pair sizes and seeds, at the setting that makes it least; of equals the simpler, that is the earlier
    in the registry. Of a learner's seeds, the one of median cost at that setting (the lower of two middle ones), so
    that a lucky seed is not what is released. Raises InputError where there is nothing to choose from.
    """
    if not len(select) or not trained:
        raise InputError(
            f"no candidate: {len(trained)} trained policies on {len(select)} pairs of the select window; "
            "train first, or widen the window"
        )
    from models.registry import POLICIES

    simplicity = {name: place for place, name in enumerate(POLICIES)}
    names = sorted({one.name for one in trained}, key=lambda name: (simplicity.get(name, len(simplicity)), name))
    candidates = [_best_of(select, [one for one in trained if one.name == name]) for name in names]
    best = min(candidates, key=lambda candidate: round(candidate.cost_h, 9))
    fits = [one.artifact.with_setting(best.setting) for one in trained if one.name == best.policy]
    return replace(best, selected=_selected(select, fits))


@one_thread
def gate(
    pairs: PairTable, candidate: Artifact, champion: Artifact | None, cluster: str, known_until_s: int | None = None
) -> Gate:
    """Holds the candidate against the champion (None: reactive) at their default settings.

    Compared are the pairs that start in the newest 28 days for which the outcome is known (before `known_until_s`,
    where given) and that start after both were fitted. Passed where the upper end of the paired 95 % moving-block
    interval of the cost difference (weight 1) is at most 0.1 h.
    """
    opponent = "reactive" if champion is None else "the champion"
    part = gate_window(pairs, [candidate, *([champion] if champion else [])], cluster, known_until_s)
    if not len(part):
        return Gate(False, f"no pair starts after candidate and {opponent} were fitted; add newer logs, or fit on less")
    difference = _cost_h(part, candidate) - _cost_h(part, champion)
    starts = start_weights(part.submit_s)
    found = None
    if starts is not None:
        found = interval(resampled_means(difference[None, None], starts, seed_weights(1))[:, 0])
    blocks = block_count(part.submit_s, int(part.submit_s.min()))
    window = (len(part), blocks, int(part.submit_s.min()), int(part.submit_s.max()), float(difference.mean()))
    if found is None:
        reason = f"{len(part)} pairs against {opponent} span no more than one block of 7 days; add newer logs"
        return Gate(False, reason, *window)
    passed = found[1] <= TOLERANCE_H
    note = ", indicative" if blocks < INDICATIVE_BELOW_BLOCKS else ""
    reason = (
        f"{'not worse' if passed else 'not shown to be no worse'} than {opponent}: cost difference "
        f"{difference.mean():+.3f} h a pair, 95 % [{found[0]:+.3f}, {found[1]:+.3f}] (at most {TOLERANCE_H:+.1f} "
        f"passes), {len(part)} pairs in {blocks} blocks{note}"
    )
    return Gate(passed, reason, *window, found[0], found[1])


def gate_window(
    pairs: PairTable, artifacts: Sequence[Artifact], cluster: str, known_until_s: int | None = None
) -> PairTable:
    """The newest 28 days of pairs with known outcomes that none of the artifacts was fitted on."""
    fitted = [artifact.manifest.get("trained_on", {}) for artifact in artifacts]
    after_s = max((int(note["until_s"]) for note in fitted if note.get("cluster") == cluster), default=None)
    known = pairs if known_until_s is None else pairs.known_before(known_until_s)
    fresh = known if after_s is None else known.take(known.submit_s >= after_s)
    return fresh.take(fresh.submit_s > fresh.submit_s.max() - GATE_S) if len(fresh) else fresh


def release(
    data: DataFolder,
    candidate: Candidate,
    pairs: PairTable,
    *,
    context: Context,
    known_until_s: int | None = None,
    decided_utc: datetime | None = None,
    made_from: str = "",
) -> ReleaseDecision:
    """Registers the candidate and makes it champion if it passes the gate on `pairs`.

    Nothing new is registered where the candidate is the champion already (same content and loader), nor where it is a
    version that was rolled back: that one only comes back by `promote`. The caller logs the decision; `made_from` says
    what it was made from, and lets the next process log it where this one is killed before (`models.release.log`).
    """
    mlflow_store.initialise(data)
    now = decided_utc or datetime.now(UTC)
    now = (now.astimezone(UTC) if now.tzinfo else now).replace(tzinfo=None)

    def decision(gate: Gate, held_against: int | None, version: int | None, is_new: bool = False) -> ReleaseDecision:
        return ReleaseDecision(
            context.scenario.cluster,
            now,
            candidate.policy,
            candidate.seed,
            candidate.setting,
            gate,
            held_against,
            version,
            is_new,
        )

    content = release_digest(candidate.artifact)
    with champion.alone(data):
        present = tracking.champion(data)
        before = None if present is None else present.version
        if present is not None and present.tags.get(DIGEST_TAG) == content:
            same = Gate(True, f"it is the champion already, version {before}: nothing new to release")
            return decision(same, before, before)
        twin = tracking.find_tagged(data, DIGEST_TAG, content)
        if twin is not None and twin.tags.get(champion.ROLLED_BACK_TAG):
            reason = f"it equals version {twin.version}, which was rolled back; promote that one if it is wanted"
            return decision(Gate(False, reason), before, before)
        opponent, why_not = _champion_artifact(data, before)
        result = gate(pairs, candidate.artifact, opponent, context.scenario.cluster, known_until_s)
        result = replace(result, reason=result.reason + why_not)
        held_against = before if opponent is not None else None
        if not result.passed:
            return decision(result, held_against, before)
        version = twin.version if twin is not None else _register(data, candidate, result, context, content)
        made = decision(result, held_against, version, is_new=twin is None)
        tag = release_log.tag_of(made.log_row(), made_from)
        tracking.set_version_tag(data, version, release_log.DECISION_TAG, tag)
        champion.give_alias(data, version)
        return made


def release_digest(artifact: Artifact) -> str:
    """What a consumer gets: the policy and the code that is released with it."""
    return digest(content_digest(artifact), code_digest(*RELEASED_CODE))


def _best_of(select: PairTable, trained: Sequence[TrainedPolicy]) -> Candidate:
    """The setting and the seed of one policy."""
    artifacts = [one.artifact for one in trained]
    per_size = [
        play(select.take(of_size(select, size)), artifacts, trained[0].name).cost_h(1.0).mean(axis=2)
        for size in sizes(select)
    ]
    cost = np.mean(per_size, axis=0)  # (seeds, settings)
    at = int(np.argmin(cost.mean(axis=0)))
    middle = int(np.argsort(cost[:, at], kind="stable")[(len(trained) - 1) // 2])
    one = trained[middle]
    setting = one.artifact.settings[at]
    mean_h = float(cost[:, at].mean())
    return Candidate(one.name, one.seed, setting, mean_h, one.artifact.with_setting(setting), one.run_id)


def _selected(select: PairTable, fits: Sequence[Artifact]) -> Selected:
    """Where the fits (one a seed, at the setting picked) were picked, with the interval of their mean cost there."""
    starts = start_weights(select.submit_s)
    found = None
    if starts is not None:
        seeds = seed_weights(len(fits), len(starts))
        cost = np.stack([_cost_h(select, artifact) for artifact in fits])[:, None]  # (seeds, 1, p)
        masks = [of_size(select, size) for size in sizes(select)]
        found = interval(np.mean([resampled_means(cost[..., m], starts[:, m], seeds)[:, 0] for m in masks], axis=0))
    return Selected(len(select), int(select.submit_s.min()), int(select.submit_s.max()), found)


def _cost_h(pairs: PairTable, artifact: Artifact | None) -> Any:
    """(p,) cost of weight 1 at the default setting; None is reactive."""
    rows = pairs.last if artifact is None else stopping_rows(pairs, artifact.decide(pairs.observations))
    return np.abs(pairs.gap_h[rows])


def _champion_artifact(data: DataFolder, version: int | None) -> tuple[Artifact | None, str]:
    """The champion's artifact; None, and why, where reactive must stand in for it."""
    if version is None:
        return None, " (there is no champion yet)"
    try:
        artifact = tracking.load_artifact(data, version)
    except WorkError as error:
        return None, f" (champion version {version} cannot be compared with: {error})"
    made_for = artifact.manifest["features"], artifact.manifest.get("observe_version", VERSION)
    if made_for != (list(FEATURES), VERSION):
        return None, f" (champion version {version} was made for other features)"
    return artifact, ""


def _register(data: DataFolder, candidate: Candidate, gate: Gate, context: Context, content: str) -> int:
    note = candidate.artifact.manifest.get("trained_on", {})
    tags = {
        "policy": candidate.policy,
        "setting": f"{candidate.setting:g}",
        "knob": str(candidate.artifact.manifest["knob"]),
        "seed": str(candidate.seed),
        "cluster": context.scenario.cluster,
        "trace_digest": context.trace_digest,
        "fitted_until_utc": str(note.get("until_utc", "")),
        "scenario": context.scenario.brief,
        "code_version": context.code_version,
        "training_run_id": candidate.run_id,
        DIGEST_TAG: content,
    }
    numbers = {"select_cost_w1_h": candidate.cost_h, "gate_difference_h": gate.difference_h, "gate_low_h": gate.low_h}
    numbers |= {"gate_high_h": gate.high_h, "gate_pairs": float(gate.n), "gate_blocks": float(gate.blocks)}
    description = release_note(candidate, gate)
    return tracking.register(
        data,
        candidate.artifact,
        tags=tags,
        description=description,
        metrics={name: value for name, value in numbers.items() if value is not None},
    )
