"""The release itself: what the gate lets through is registered, exported and becomes the cluster's champion.

The candidate rule and the gate are `models.release.candidate` and `models.release.gate`; here the registry changes,
through `models.release.champion` and `models.tracking.versions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from agent.artifact import Artifact
from features.ahead.summary import SEEN_AHEAD
from features.conventions import CANNOT_TELL, FAILED
from features.observe import FEATURES, VERSION
from models.comparison.outcomes import content_digest
from models.protocol import PairTable
from models.release import champion, export
from models.release import log as release_log
from models.release.candidate import Candidate
from models.release.gate import Gate, gate_window, held_against
from models.release.note import model_card, release_note
from models.release.promise import measured_on, promised
from models.scenario import Context
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import WorkError
from traces.store.folder import DataFolder

DIGEST_TAG, MADE_FROM_TAG = "content_digest", "released_from"
VERDICT_TAG, REASON_TAG = "verdict", "reason"


@dataclass(frozen=True)
class Offer:
    """A candidate, and what it takes to decide about it."""

    candidate: Candidate
    pairs: PairTable  # of the report window: no setting was chosen on them
    checked_on: PairTable  # of the select window: the released artifact carries some of their observations
    context: Context  # `until_s` is the end of the select window
    refit: Callable[[], Artifact]  # the candidate's recipe at its setting, fitted on everything known
    origin: Mapping[str, Any] = field(default_factory=dict)  # windows, world and its error: plain values
    made_from: str = ""  # digest of all of it
    fallback: Candidate | None = None  # the best rule of the select window, beside a candidate that learned
    earlier: PairTable | None = None  # all pairs of the select window: promises go by their outcomes as they get known


@dataclass(frozen=True)
class ReleaseDecision:
    """What became of a candidate. `version` carries the champion alias afterwards (None: there is no champion)."""

    cluster: str
    decided_utc: datetime
    policy: str
    seed: int
    setting: float
    gate: Gate
    champion_version: int | None  # before, and held against; None where there was none
    version: int | None
    candidate_version: int | None  # what the candidate is registered as
    is_new: bool = False  # a version was registered just now
    is_provisional: bool = False  # it is the first champion, although the gate cannot tell

    @property
    def passed(self) -> bool:
        """Whether the candidate was let through by the gate, now or when it became champion."""
        return self.gate.passed

    @property
    def reason(self) -> str:
        """Why, in a sentence for a person."""
        return self.gate.reason

    def log_row(self) -> dict[str, Any]:
        """A row of `models.tables.RELEASE_LOG`."""
        return {
            "cluster": self.cluster,
            "released_utc": self.decided_utc,
            "registered_version": self.version,
            "candidate_version": self.candidate_version,
            "policy": self.policy,
            "verdict": self.gate.verdict,
            "provisional": self.is_provisional,
            "reason": self.reason,
            "pairs": self.gate.n,
            "losing_pairs": self.gate.losing,
            "blocks": self.gate.blocks,
            "cost_difference_h": self.gate.difference_h,
            "cost_difference_low_h": self.gate.low_h,
            "cost_difference_high_h": self.gate.high_h,
            "champion_version": self.champion_version,
        }


def release(data: DataFolder, offer: Offer, decided_utc: datetime | None = None) -> ReleaseDecision:
    """Registers the candidate, and makes it champion of its cluster if it passes the gate.

    What passes is fitted once more on everything known, and that is what is released. A candidate that does not pass
    is registered too, as `challenger`, with the reason. Without a champion one about which the gate cannot tell
    becomes a provisional one, but a learner only where it is shown better than reactive; else the offer's fallback is
    decided about in its place. Nothing is registered where the candidate is the champion already (same content and
    loader), nor where it is a version that was rolled back: that one only comes back by `promote`.

    The caller logs the decision. Raises WorkError where there is a champion that cannot be compared with.
    """
    mlflow_store.initialise(data)
    now = decided_utc or datetime.now(UTC)
    now = (now.astimezone(UTC) if now.tzinfo else now).replace(tzinfo=None)
    candidate, cluster = offer.candidate, offer.context.scenario.cluster

    def decision(gate: Gate, held: int | None, version: int | None, registered: int | None) -> ReleaseDecision:
        who = cluster, now, candidate.policy, candidate.seed, candidate.setting
        return ReleaseDecision(*who, gate, held, version, registered)

    content = release_digest(candidate.artifact)
    with champion.alone(data, cluster):
        present = tracking.champion(data, cluster)
        before = None if present is None else present.version
        if present is not None and present.tags.get(DIGEST_TAG) == content:
            decided = release_log.decision_of(cluster, present)
            row: dict[str, Any] = {"verdict": CANNOT_TELL, "provisional": False} if decided is None else decided[0]
            same = Gate(row["verdict"], f"it is the champion already, version {before}: nothing new to release")
            return replace(decision(same, before, before, before), is_provisional=row["provisional"])
        twins = tracking.tagged(data, cluster, DIGEST_TAG, content)
        back = next((twin for twin in twins if champion.ROLLED_BACK_TAG in twin.tags), None)
        if back is not None:
            reason = f"it equals version {back.version}, which was rolled back; promote that one if it is wanted"
            return decision(Gate(FAILED, reason), before, before, back.version)
        opponent = None if before is None else _champion_artifact(data, offer, before, content)
        judged, released = _judged(offer, opponent)
        if offer.fallback is not None and _is_unproven(judged, opponent):
            kept, _ = _keep(data, offer, candidate.artifact, judged, content)
            _challenge(data, cluster, kept)
            return _release_rule(data, offer, offer.fallback, judged, now)
        if released is None:
            kept, is_new = _keep(data, offer, candidate.artifact, judged, content)
            _challenge(data, cluster, kept)
            return replace(decision(judged, before, before, kept), is_new=is_new)
        version, is_new = _keep(data, offer, released, judged, content, is_release=True)
        export.export(data, cluster, version)
        made = replace(decision(judged, before, version, version), is_new=is_new, is_provisional=not judged.passed)
        tag = release_log.tag_of(made.log_row(), offer.made_from)
        tracking.set_version_tag(data, cluster, version, release_log.DECISION_TAG, tag)
        champion.give_alias(data, cluster, version)
        return made


def _is_unproven(judged: Gate, opponent: Artifact | None) -> bool:
    """Whether it would be a first champion that the gate cannot tell of, without an interval below reactive's cost."""
    if opponent is not None or judged.verdict != CANNOT_TELL:
        return False
    return judged.high_h is None or judged.high_h >= 0.0


def _release_rule(
    data: DataFolder, offer: Offer, rule: Candidate, judged: Gate, decided_utc: datetime
) -> ReleaseDecision:
    """The decision about the best rule in place of a learner of which the gate cannot tell; that one is challenger."""
    instead = replace(offer, candidate=rule, refit=lambda: rule.artifact, fallback=None)
    made = release(data, instead, decided_utc)
    why = f"in place of {offer.candidate.policy}, which is not shown better than reactive ({judged.reason})"
    return replace(made, gate=replace(made.gate, reason=f"{made.gate.reason}; {why}"))


def release_digest(artifact: Artifact) -> str:
    """What was judged: the policy and the code that is released with it."""
    return digest(content_digest(artifact), code_digest(*tracking.SHIPPED))


def _judged(offer: Offer, opponent: Artifact | None) -> tuple[Gate, Artifact | None]:
    """The gate's verdict, and what is to be released: None where the champion stays."""
    scenario, candidate = offer.context.scenario, _selected(offer)
    part = gate_window(offer.pairs, [candidate, *([] if opponent is None else [opponent])], scenario.cluster)
    found = held_against(part, candidate, opponent, scenario.pairs)
    is_first = opponent is None and found.verdict == CANNOT_TELL
    if is_first:
        found = replace(found, reason=f"{found.reason}; there is no champion, so this one is provisional")
    if not found.passed and not is_first:
        return found, None
    refitted = replace(offer.refit(), checks=None)
    again = held_against(part, refitted, opponent, scenario.pairs)
    if again.verdict == FAILED:
        reason = f"fitted again on everything known it is worse even on pairs that it saw: {again.reason}"
        return replace(again, reason=reason), None
    return found, refitted


def _selected(offer: Offer) -> Artifact:
    """The candidate's artifact, with the window that its setting was picked on."""
    selected_on = {"cluster": offer.context.scenario.cluster, "until_s": offer.context.until_s}
    artifact = offer.candidate.artifact
    return replace(artifact, manifest={**artifact.manifest, "selected_on": selected_on})


def _champion_artifact(data: DataFolder, offer: Offer, version: int, content: str) -> Artifact:
    """The champion's artifact. Where it cannot be compared with, the candidate waits as challenger: WorkError."""
    cluster = offer.context.scenario.cluster
    try:
        artifact = tracking.load_artifact(data, cluster, version)
        made_for = artifact.manifest["features"], artifact.manifest.get("observe_version", VERSION)
        if made_for in ((list(FEATURES), VERSION), (list(SEEN_AHEAD), VERSION)):
            return artifact
        why = f"it was made for other features, observation version {made_for[1]} and not {VERSION}"
    except WorkError as error:
        why = str(error)
    judged = Gate(CANNOT_TELL, f"champion version {version} cannot be compared with: {why}")
    kept, _ = _keep(data, offer, offer.candidate.artifact, judged, content)
    _challenge(data, cluster, kept)
    raise WorkError(
        f"{judged.reason}; nothing is released for cluster {cluster!r} until a person decides: the candidate is "
        f"version {kept} (baton promote --cluster {cluster} {kept} --reason ...)"
    )


def _challenge(data: DataFolder, cluster: str, version: int) -> None:
    """Makes the version the challenger, where it is not."""
    present = tracking.aliased(data, cluster, tracking.CHALLENGER)
    if present is None or present.version != version:
        tracking.set_alias(data, cluster, tracking.CHALLENGER, version)


def _keep(
    data: DataFolder, offer: Offer, artifact: Artifact, judged: Gate, content: str, *, is_release: bool = False
) -> tuple[int, bool]:
    """The version that this artifact is registered as, and whether it was just now; with the newest verdict as tags.

    A version that a killed process left is taken; a release is a version of its own, not the one that was rejected.
    """
    cluster = offer.context.scenario.cluster
    made_from = {MADE_FROM_TAG: digest(offer.made_from)} if is_release else {}
    twins = tracking.tagged(data, cluster, DIGEST_TAG, content)
    twin = next((one for one in twins if one.tags.get(MADE_FROM_TAG) == made_from.get(MADE_FROM_TAG)), None)
    if twin is None:
        return _register(data, offer, artifact, judged, {DIGEST_TAG: content, **made_from}), True
    for key, value in _verdict_tags(judged).items():
        if twin.tags.get(key) != value:
            tracking.set_version_tag(data, cluster, twin.version, key, value)
    return twin.version, False


def _verdict_tags(judged: Gate) -> dict[str, str]:
    return {VERDICT_TAG: judged.verdict, REASON_TAG: judged.reason}


def _register(data: DataFolder, offer: Offer, artifact: Artifact, judged: Gate, digests: dict[str, str]) -> int:
    candidate, context = offer.candidate, offer.context
    tags = {
        "policy": candidate.policy,
        "setting": f"{candidate.setting:g}",
        "knob": str(artifact.manifest["knob"]),
        "seed": str(candidate.seed),
        "trace_digest": context.trace_digest,
        "fitted_until_utc": str(artifact.manifest.get("trained_on", {}).get("until_utc", "")),
        "scenario": context.scenario.brief,
        "code_version": context.code_version,
        "training_run_id": candidate.run_id,
        **digests,
        **_verdict_tags(judged),
    }
    numbers = {
        "select_cost_w1_h": candidate.cost_h,
        "gate_difference_h": judged.difference_h,
        "gate_low_h": judged.low_h,
        "gate_high_h": judged.high_h,
        "gate_pairs": float(judged.n),
        "gate_blocks": float(judged.blocks),
    }
    measured = measured_on(offer.pairs, candidate.artifact, offer.earlier, context.scenario.pairs)
    promise = promised(artifact, candidate, judged, context, offer.checked_on, offer.origin, measured)
    return tracking.register(
        data,
        context.scenario.cluster,
        promise,
        tags=tags,
        description=release_note(candidate, promise, judged),
        metrics={name: value for name, value in numbers.items() if value is not None},
        card=model_card(candidate, promise, judged),
    )
