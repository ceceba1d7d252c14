"""The baselines of every comparison: rules that learned nothing, and each learner untrained.

They are made quickly from the registry and the trained artifacts alone, so they are not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from features.conventions import FROZEN_AVERAGE, RULES, UNTRAINED
from models.provisioning.protocol import Learner, PairTable, TrainedPolicy
from models.provisioning.registry import is_known, make_policy


def missing_baselines(trained: Sequence[TrainedPolicy], pairs: PairTable) -> list[TrainedPolicy]:
    """The baselines missing among the trained policies: the rules of RULES, then `NAME-untrained` of each learner.

    A learner may appear under another name (`champion`); its artifact holds its own. pairs: any, because a rule has
    nothing to fit.
    """
    there = {one.name for one in trained}
    missing = [name for name in RULES if name not in there]
    rules = [TrainedPolicy(name, 0, make_policy(name).fit(pairs, 0)[0], "", 0.0) for name in missing]
    starts: dict[tuple[str, int], TrainedPolicy] = {}
    for one in trained:
        learner = _learner(str(one.artifact.manifest["policy"]))
        if learner is not None and (learner.name + UNTRAINED, one.seed) not in starts:
            start = _untrained(learner, one)
            starts[start.name, start.seed] = start
    return [*rules, *(start for start in starts.values() if start.name not in there)]


def is_rule(policy: str) -> bool:
    """Whether the policy of that name learned nothing: learners are compared with such rules."""
    return policy in (*RULES, FROZEN_AVERAGE) or policy.endswith(UNTRAINED)


def _learner(name: str) -> Learner | None:
    policy = make_policy(name) if is_known(name) else None
    return policy if isinstance(policy, Learner) else None


def _untrained(learner: Learner, one: TrainedPolicy) -> TrainedPolicy:
    """The learner in the state in which that fit began."""
    name = learner.name + UNTRAINED
    artifact = learner.untrained(one.artifact, one.seed)
    return TrainedPolicy(name, one.seed, replace(artifact, manifest={**artifact.manifest, "policy": name}), "", 0.0)
