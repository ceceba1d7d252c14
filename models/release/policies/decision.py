"""Release a policy: register the candidate, export it, and make it champion if the gate lets it through.

The candidate rule is in `models.release.policies.candidate` and the gate in `models.release.policies.gate`. This module
changes the registry, through `models.release.champion` and `models.tracking.versions`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from agent.artifact import Artifact
from features.conventions import CANNOT_TELL, FAILED
from features.futures.summary import SEEN_AHEAD
from features.observe import FEATURES, VERSION
from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.protocol import PairTable
from models.provisioning.scenario import Context
from models.release import champion, line
from models.release.log import POLICY_DECISIONS
from models.release.policies.candidate import Candidate
from models.release.policies.gate import GateVerdict, compare_with, gate_window
from models.release.policies.note import model_card, release_note
from models.release.policies.promise import measured_on, promised
from models.tracking import exported
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from models.tracking.kinds import POLICY
from models.tracking.pyfuncs import shipped
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import WorkError
from traces.store.folder import DataFolder

MADE_FROM_TAG = "released_from"


@dataclass(frozen=True)
class ReleaseOffer:
    """A candidate, with everything needed to decide about it."""

    candidate: Candidate
    pairs: PairTable  # of the report window, on which no setting was chosen
    checked_on: PairTable  # of the select window: the released artifact carries some of their observations
    context: Context  # `until_s` is the end of the select window
    refit: Callable[[], Artifact]  # fits the candidate's recipe at its setting on all data
    origin: Mapping[str, Any] = field(default_factory=dict)  # windows, world and its error: plain values
    made_from: str = ""  # digest of all inputs
    fallback: Candidate | None = None  # the best rule of the select window, if the candidate is a learner
    earlier: PairTable | None = None  # all pairs of the select window: promises use their outcomes as they become known


@dataclass(frozen=True)
class ReleaseDecision:
    """The decision about a candidate. `version` has the champion alias afterwards (None: there is no champion)."""

    cluster: str
    decided_utc: datetime
    policy: str
    seed: int
    setting: float
    gate: GateVerdict
    champion_version: int | None  # the previous champion, the candidate's opponent; None without one
    version: int | None
    candidate_version: int | None  # version that the candidate is registered as
    is_new: bool = False  # this decision registered a version
    is_provisional: bool = False  # it is the first champion, although the gate cannot tell

    @property
    def passed(self) -> bool:
        """Whether the gate let the candidate through, now or when it became champion."""
        return self.gate.passed

    @property
    def reason(self) -> str:
        """The reason of the verdict, in a sentence."""
        return self.gate.reason

    def log_row(self) -> dict[str, Any]:
        """Make a row of `models.tables.RELEASE_LOG`."""
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


def release(data: DataFolder, offer: ReleaseOffer, decided_utc: datetime | None = None) -> ReleaseDecision:
    """Register the candidate, and make it champion of its cluster if it passes the gate.

    A candidate that passes is refitted on all data, and the refit is released. A candidate that does not pass is
    registered as `challenger`, with the reason. Without a champion, a candidate about which the gate cannot tell
    becomes provisional champion; a learner does so only if it is shown better than reactive, else the offer's fallback
    is decided about instead. Nothing is registered if the candidate is already champion (same content and loader), or
    if it is a version that was rolled back: only `promote` brings that one back.

    The caller logs the decision. Raises WorkError if there is a champion that cannot be compared with.
    """
    mlflow_store.initialise(data)
    now = decided_utc or datetime.now(UTC)
    now = (now.astimezone(UTC) if now.tzinfo else now).replace(tzinfo=None)
    candidate, cluster = offer.candidate, offer.context.scenario.cluster

    def decision(gate: GateVerdict, before: int | None, version: int | None, registered: int | None) -> ReleaseDecision:
        identity = cluster, now, candidate.policy, candidate.seed, candidate.setting
        return ReleaseDecision(*identity, gate, before, version, registered)

    content = release_digest(candidate.artifact)
    with champion.alone(data, cluster):
        present = tracking.champion(data, cluster)
        before = None if present is None else present.version
        if present is not None and present.tags.get(line.CONTENT_TAG) == content:
            decided = POLICY_DECISIONS.decision_of(cluster, present)
            row: dict[str, Any] = {"verdict": CANNOT_TELL, "provisional": False} if decided is None else decided[0]
            same = GateVerdict(row["verdict"], f"it is already champion, as version {before}: nothing new to release")
            return replace(decision(same, before, before, before), is_provisional=row["provisional"])
        twins = tracking.tagged(data, cluster, line.CONTENT_TAG, content)
        back = next((twin for twin in twins if champion.ROLLED_BACK_TAG in twin.tags), None)
        if back is not None:
            reason = f"it equals version {back.version}, which was rolled back; promote that version to restore it"
            return decision(GateVerdict(FAILED, reason), before, before, back.version)
        opponent = None if before is None else _champion_artifact(data, offer, before, content)
        judged, released = _judged(offer, opponent)
        if offer.fallback is not None and _is_unproven(judged, opponent):
            kept, _ = _keep(data, offer, candidate.artifact, judged, content)
            line.make_challenger(data, cluster, kept, POLICY)
            return _release_rule(data, offer, offer.fallback, judged, now)
        if released is None:
            kept, is_new = _keep(data, offer, candidate.artifact, judged, content)
            line.make_challenger(data, cluster, kept, POLICY)
            return replace(decision(judged, before, before, kept), is_new=is_new)
        version, is_new = _keep(data, offer, released, judged, content, is_release=True)
        made = replace(decision(judged, before, version, version), is_new=is_new, is_provisional=not judged.passed)
        line.make_champion(data, POLICY_DECISIONS, made.log_row(), offer.made_from, before)
        return made


def _is_unproven(judged: GateVerdict, opponent: Artifact | None) -> bool:
    """Whether it would be a first champion without a verdict, and without an interval below reactive's cost."""
    if opponent is not None or judged.verdict != CANNOT_TELL:
        return False
    return judged.high_h is None or judged.high_h >= 0.0


def _release_rule(
    data: DataFolder, offer: ReleaseOffer, rule: Candidate, judged: GateVerdict, decided_utc: datetime
) -> ReleaseDecision:
    """Decide about the best rule instead of a learner without a verdict; the learner becomes challenger."""
    instead = replace(offer, candidate=rule, refit=lambda: rule.artifact, fallback=None)
    made = release(data, instead, decided_utc)
    why = f"instead of {offer.candidate.policy}, which is not shown better than reactive ({judged.reason})"
    return replace(made, gate=replace(made.gate, reason=f"{made.gate.reason}; {why}"))


def release_digest(artifact: Artifact) -> str:
    """Digest of the judged content: the policy, and the code released with it."""
    return digest(content_digest(artifact), code_digest(*shipped(POLICY)))


def _judged(offer: ReleaseOffer, opponent: Artifact | None) -> tuple[GateVerdict, Artifact | None]:
    """The gate's verdict, and the artifact to release; None if the champion stays."""
    scenario, candidate = offer.context.scenario, _selected(offer)
    part = gate_window(offer.pairs, [candidate, *([] if opponent is None else [opponent])], scenario.cluster)
    found = compare_with(part, candidate, opponent, scenario.pairs)
    is_first = opponent is None and found.verdict == CANNOT_TELL
    if is_first:
        found = replace(found, reason=f"{found.reason}; there is no champion, so this one becomes provisional")
    if not found.passed and not is_first:
        return found, None
    refitted = replace(offer.refit(), checks=None)
    again = compare_with(part, refitted, opponent, scenario.pairs)
    if again.verdict == FAILED:
        reason = f"refitted on all data, it is worse even on pairs that it saw: {again.reason}"
        return replace(again, reason=reason), None
    return found, refitted


def _selected(offer: ReleaseOffer) -> Artifact:
    """The candidate's artifact, marked with the window on which its setting was picked."""
    selected_on = {"cluster": offer.context.scenario.cluster, "until_s": offer.context.until_s}
    artifact = offer.candidate.artifact
    return replace(artifact, manifest={**artifact.manifest, "selected_on": selected_on})


def _champion_artifact(data: DataFolder, offer: ReleaseOffer, version: int, content: str) -> Artifact:
    """The champion's artifact. If it cannot be compared with, the candidate becomes challenger; raises WorkError."""
    cluster = offer.context.scenario.cluster
    try:
        artifact = exported.load_policy(data, cluster, version)
        made_for = artifact.manifest["features"], artifact.manifest.get("observe_version", VERSION)
        if made_for in ((list(FEATURES), VERSION), (list(SEEN_AHEAD), VERSION)):
            return artifact
        why = f"it uses other features: observation version {made_for[1]}, not {VERSION}"
    except WorkError as error:
        why = str(error)
    judged = GateVerdict(CANNOT_TELL, f"champion version {version} cannot be compared with: {why}")
    kept, _ = _keep(data, offer, offer.candidate.artifact, judged, content)
    line.make_challenger(data, cluster, kept, POLICY)
    raise WorkError(
        f"{judged.reason}; nothing is released for cluster {cluster!r} until a person decides. The candidate is "
        f"version {kept}; to promote it: baton promote --cluster {cluster} {kept} --reason ..."
    )


def _keep(
    data: DataFolder,
    offer: ReleaseOffer,
    artifact: Artifact,
    judged: GateVerdict,
    content: str,
    *,
    is_release: bool = False,
) -> tuple[int, bool]:
    """Register the artifact, with the newest verdict as tags; returns the version, and whether it is new.

    A release is a version of its own, not the one that was rejected.
    """
    made_from = {MADE_FROM_TAG: digest(offer.made_from)} if is_release else {}
    verdict = {line.VERDICT_TAG: judged.verdict, line.REASON_TAG: judged.reason}
    tags = {line.CONTENT_TAG: content, **made_from, **verdict}
    return line.registered_once(
        data,
        offer.context.scenario.cluster,
        POLICY,
        content,
        lambda: _register(data, offer, artifact, judged, tags),
        verdict=verdict,
        same=lambda twin: twin.tags.get(MADE_FROM_TAG) == made_from.get(MADE_FROM_TAG),
    )


def _register(
    data: DataFolder, offer: ReleaseOffer, artifact: Artifact, judged: GateVerdict, tags: dict[str, str]
) -> int:
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
        **tags,
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
