"""The release itself: what the gate lets through is registered and becomes champion.

The candidate rule and the gate are `models.release.candidate` and `models.release.gate`; here the registry changes,
through `models.release.champion` and `models.tracking.versions`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from agent.artifact import Artifact
from features.observe import FEATURES, VERSION
from models.comparison.outcomes import content_digest
from models.protocol import PairTable
from models.release import champion
from models.release import log as release_log
from models.release.candidate import Candidate
from models.release.gate import Gate, gate
from models.release.note import release_note
from models.scenario import Context
from models.tracking import store as mlflow_store
from models.tracking import versions as tracking
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import WorkError
from traces.store.folder import DataFolder

DIGEST_TAG = "content_digest"


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
        """Whether the candidate became champion, or stayed it."""
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
            "policy": self.policy,
            "passed": self.passed,
            "reason": self.reason,
            "cost_difference_low_h": self.gate.low_h,
            "cost_difference_high_h": self.gate.high_h,
            "champion_version": self.champion_version,
        }


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
        who = context.scenario.cluster, now, candidate.policy, candidate.seed, candidate.setting
        return ReleaseDecision(*who, gate, held_against, version, is_new)

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
    return digest(content_digest(artifact), code_digest(*tracking.SHIPPED))


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
