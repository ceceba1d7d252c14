"""One decision with its reason: submit the successor now or wait, by the policy, else by a safe rule.

The policy is the artifact at a path. A new version there is loaded between two decisions. If it cannot be loaded, the
old one stays in use.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.__main__ import artifact_folder
from agent.artifact import FORMAT_VERSION, Artifact
from agent.chains.plan import PlannedLink, best_of
from agent.chains.state import LinkAsk
from agent.futures import Site, site_of
from agent.kinds import REMAINING
from agent.model_folder import ARRAYS, CHECKS, MAX_ARRAY_BYTES, difference, pack_arrays, read_file
from agent.slurm.limits import QosTable, UserQos
from features.futures.summary import QUANTILES, SEEN_AHEAD
from features.observe import FEATURES, FILLS, VERSION
from traces.counted import counted
from traces.units import HOUR_S

Observation = Mapping[str, float | None]
# What made a decision; PLAN is also the policy's name in the journal.
POLICY, PLAN, ESTIMATE, END = "policy", "plan", "start estimate", "predecessor's end"
ONE_NUMBER = "estimate-ratio"  # the artifact kind whose score is monotonic in one number of the futures


@dataclass(frozen=True)
class SubmitDecision:
    """A decision, what made it, and the reason. score: the policy's; not negative if it submits."""

    submit: bool
    by: str  # POLICY, PLAN, ESTIMATE or END
    reason: str
    score: float | None = None
    ask: LinkAsk | None = None  # what the next link asks for; None: as the script
    is_held: bool = False  # by a dependency on the predecessor's end

    @property
    def for_end(self) -> bool:
        """Whether the successor is submitted now but starts only after the predecessor has ended."""
        return self.by == END or self.is_held


def start_estimate() -> Artifact:
    """Return the built-in policy: submit when the estimated wait reaches the predecessor's remaining time.

    The estimate is `start_estimate_h` of `features.observe`: that of `squeue --start`, from time limits.
    """
    return Artifact({
        "policy": "start-estimate", "kind": ONE_NUMBER, "knob": "factor on the estimated wait",
        "settings": [0.1, 1.0, 10.0], "default_setting": 1.0, "parameters": {"feature": "start_estimate_h"},
        "features": list(FEATURES), "fills": FILLS, "observe_version": VERSION,
        "format_version": FORMAT_VERSION, "requirements": [],
    })  # fmt: skip


class ReleasedPolicy:
    """The released policy at a path, or without one the built-in start estimate.

    must_load: raise ValueError, one line, if there is none at the path that this program can use. Otherwise the start
    estimate decides until `refresh` finds one, and `problem` explains why.
    """

    def __init__(self, path: Path | None, setting: float | None = None, *, must_load: bool = True) -> None:
        self.path = path
        self.problem: str | None = None
        self._setting = setting
        self._content: dict[str, str] | None = _content(path)
        try:
            self.artifact = load(path, setting)
            self._is_stand_in = False  # the start estimate, until the artifact can be loaded
        except (OSError, ValueError) as error:
            if must_load:
                raise
            self.problem = str(error)
            self.artifact = start_estimate()
            self._is_stand_in = True
            self._content = None  # so that `refresh` tries again even if nothing changes

    @property
    def setting(self) -> float:
        """The value of the policy's knob."""
        given = None if self._is_stand_in else self._setting
        return float(self.artifact.manifest["default_setting"] if given is None else given)

    @property
    def name(self) -> str:
        """The policy's name and setting, as text."""
        built_in = "built-in " if self.path is None or self._is_stand_in else ""
        return f"{built_in}{self.artifact.manifest['policy']}, {self.artifact.manifest['knob']} = {self.setting:g}"

    @property
    def site(self) -> Site | None:
        """The rules for simulating its futures; None if it does not look ahead."""
        return site_of(self.artifact.manifest) if uses_futures(self.artifact) else None

    @property
    def version(self) -> str:
        """Twelve hexadecimal digits of the digest of manifest and arrays; any change gives another version."""
        manifest = json.dumps(self.artifact.manifest, sort_keys=True).encode()
        return hashlib.sha256(manifest + pack_arrays(self.artifact.arrays)).hexdigest()[:12]

    def refresh(self) -> str | None:
        """Load a new version if the path holds one; return a message about it, or None.

        A version that cannot be loaded is tried again at the next call, because its files may still be on the way. The
        message is given once.
        """
        content = _content(self.path)
        if content == self._content:
            return None
        try:
            self.artifact = load(self.path, self._setting)
        except (OSError, ValueError) as error:
            known, self.problem = self.problem, str(error)
            text = f"the new version at {self.path} cannot be used, so {self.name} stays in use: {error}"
            return text if known != self.problem else None
        # The content was read before the load, so a later change gives another one.
        self._content, self.problem, self._is_stand_in = content, None, False
        return f"loaded a new version of the policy: {self.name}"

    def decide(self, observed: Observation) -> SubmitDecision:
        """Let the policy decide; fall back to the safe rule if it cannot."""
        try:
            row = [self.artifact.row(observed)]
            submit = bool(self.artifact.decide(row, self.setting)[0])
            score = float(self.artifact.score(row, self.setting)[0])
        except ValueError as error:
            return by_rule(observed, f"the policy cannot decide: {error}")
        answer = "submits" if submit else "waits"
        return SubmitDecision(submit, POLICY, f"{self.name} {answer}, score {score:+.2f}; {seen(observed)}", score)

    def decides_alike(self, observed: Sequence[Observation]) -> bool:
        """Whether it decides the same on these observations, and on all between them. They differ only in futures."""
        return decides_alike(self.artifact, self.setting, observed)


def decides_alike(artifact: Artifact, setting: float, observed: Sequence[Observation]) -> bool:
    """Whether a policy decides the same on these observations, and on all between them.

    False if its decision depends on more than one number: it may then decide differently between two observations.
    """
    if artifact.manifest["kind"] != ONE_NUMBER:
        return False
    try:
        submit = artifact.decide([artifact.row(each) for each in observed], setting)
    except ValueError:  # a feature is not observed; `ReleasedPolicy.decide` reports it
        return False
    return bool(submit.all() or not submit.any())


def load(path: Path | None, setting: float | None) -> Artifact:
    """Load the artifact at a path and check that it takes this program's observation. Raises ValueError.

    None: the built-in policy.
    """
    artifact = start_estimate() if path is None else Artifact.load(artifact_folder(path))
    if uses_futures(artifact):
        site_of(artifact.manifest)
    elif artifact.manifest["features"] != list(FEATURES):
        raise ValueError(f"{path}: unreadable artifact: {difference(list(FEATURES), artifact.manifest['features'])}")
    version = artifact.manifest.get("observe_version", VERSION)
    if version != VERSION:
        raise ValueError(
            f"{path}: made for observation version {version!r}, but this program uses version {VERSION}: train it again"
        )
    if setting is not None:
        low, high = min(artifact.settings), max(artifact.settings)
        if not low <= setting <= high:
            raise ValueError(f"setting is {setting:g}; allowed for this policy: {low:g} to {high:g}")
    return artifact


def uses_futures(artifact: Artifact) -> bool:
    """Whether a policy also uses simulated futures."""
    return bool(artifact.manifest["features"] == list(SEEN_AHEAD))


def trained_capacity(artifact: Artifact) -> int | None:
    """Return the number of nodes of the cluster that the policy was trained on; None if the manifest lacks it."""
    trained_on: Any = artifact.manifest.get("trained_on")
    capacity = trained_on.get("capacity") if isinstance(trained_on, dict) else None
    return capacity if isinstance(capacity, int) and not isinstance(capacity, bool) else None


def by_rule(observed: Observation, why: str) -> SubmitDecision:
    """Decide without a policy: submit when the estimated wait reaches the predecessor's remaining time.

    Without an estimate, submit now with a dependency on the predecessor's end.
    """
    left_h, wait_h = observed.get(REMAINING), observed.get("start_estimate_h")
    if left_h is None or wait_h is None:
        return SubmitDecision(
            True, END, f"{why}; no start estimate either, so the successor is queued for the predecessor's end"
        )
    submit = wait_h >= left_h
    answer = "submits" if submit else "waits"
    return SubmitDecision(submit, ESTIMATE, f"{why}; the rule on the start estimate {answer}; {seen(observed)}")


def by_plan(found: Sequence[PlannedLink], is_second: bool, own_nodes: int, table: QosTable) -> SubmitDecision:
    """Submit the best candidate if it is to be submitted now. own_nodes: the script's."""
    if not found:
        return SubmitDecision(False, PLAN, "waits: the start of the queued link cannot be simulated")
    best = best_of(list(found))
    expected = best.expectation
    lost = "" if expected["lost_h_per_day"] is None else (
        f", {expected['lost_h_per_day']:.2f} h lost a day [{expected['ci95'][0]:.2f}, {expected['ci95'][1]:.2f}]"
    )  # fmt: skip
    which = "a second link" if is_second else "a link"
    when = "now" if best.delay_s == 0 else f"in {best.delay_s / HOUR_S:.2f} h"
    least_s = best.least_s if best.least_s < best.limit_s else None
    least = "" if least_s is None else f", at least {least_s / HOUR_S:g} h,"
    nodes = best.nodes if best.nodes != own_nodes else None
    fewer = "" if nodes is None else f" on {nodes} of {counted(own_nodes, 'node')}"
    link = f"{which} of {best.limit_s / HOUR_S:g} h{least}{fewer}{_under(best.qos, table)}"
    reason = f"plan: {link} {when}{lost}, of {counted(len(found), 'candidate')} compared"
    return SubmitDecision(best.delay_s == 0, PLAN, reason, ask=LinkAsk(best.limit_s, least_s, nodes, best.qos))


def _under(qos: str, table: QosTable) -> str:
    """Name the QOS of a link, and how its usage counts; "" for the script's own."""
    factor = table.by_name.get(qos, UserQos()).usage_factor
    return qos and f" under QOS {qos}" + (f" (its usage counts {factor:g} times)" if factor != 1 else "")


def timed_plan(decision: SubmitDecision, *, is_held: bool) -> SubmitDecision:
    """Say why the link of a job that never saves is held by a dependency, or is not."""
    why = "held until the running link ends, and gains priority meanwhile: slurm.conf has PriorityFlags=ACCRUE_ALWAYS"
    if not is_held:
        why = (
            "not submitted early and held: a held link gains no priority (no ACCRUE_ALWAYS in PriorityFlags, or no age)"
        )
    return replace(decision, is_held=is_held, reason=f"{decision.reason}; {why}")


def seen(observed: Observation) -> str:
    """Describe the time left and the range of the predicted wait."""
    left_h = observed.get(REMAINING)
    waits_h = [observed.get("start_estimate_h"), observed.get("start_estimate_expected_h")]
    known = sorted(wait for wait in waits_h if wait is not None)
    left = "time left unknown" if left_h is None else f"{left_h:.2f} h left"
    if not known:
        return f"{left}, no estimate of the wait"
    waits = f"{left}, predicted wait {known[0]:.2f} to {known[-1]:.2f} h (from expected run times and from limits)"
    ahead = [wait for name in QUANTILES if (wait := observed.get(name)) is not None]
    return f"{waits}, {' / '.join(f'{wait:.2f}' for wait in ahead)} h in simulated futures" if ahead else waits


def _content(path: Path | None) -> dict[str, str]:
    """Return the SHA-256 of each file of the artifact at a path; {} if there is none or they cannot be read."""
    if path is None:
        return {}
    try:
        folder = artifact_folder(path).resolve()
        names = [name for name in ("manifest.json", ARRAYS, CHECKS) if (folder / name).exists()]
        return {name: hashlib.sha256(read_file(folder / name, MAX_ARRAY_BYTES)).hexdigest() for name in names}
    except (OSError, ValueError):
        return {}
