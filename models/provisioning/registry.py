"""The registry of provisioning policies: each name with the function that makes the policy.

An unknown name raises an error that lists the known ones. A policy's module is imported only when the policy is made,
so looking up a name is cheap. Places are written in full, "module:name", so that `traces.cache.closure` can follow them
without importing anything.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from traces.errors import InputError

if TYPE_CHECKING:
    from agent.artifact import Artifact
    from models.provisioning.protocol import Policy


@dataclass(frozen=True)
class PolicyFactory:
    """Makes a policy. `place` is its "module:name", imported at the call; `stored_as` is the class of its fits."""

    place: str
    is_releasable: bool = True
    stored_as: str = "agent.artifact:Artifact"

    def __call__(self) -> Policy:
        """Make a new policy."""
        policy: Policy = _at(self.place)()
        return policy

    @property
    def artifact(self) -> type[Artifact]:
        """The class of its fits, whose `load` reads them."""
        found: type[Artifact] = _at(self.stored_as)
        return found


def _at(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


POLICIES: dict[str, PolicyFactory] = {
    "reactive": PolicyFactory("models.provisioning.policies.reactive:Reactive"),
    "average-wait": PolicyFactory("models.provisioning.policies.estimates:average_wait"),
    "start-estimate": PolicyFactory("models.provisioning.policies.estimates:start_by_limits"),
    "start-expected": PolicyFactory("models.provisioning.policies.estimates:start_by_expected_run_times"),
    "forest": PolicyFactory("models.provisioning.policies.forest:RandomForest"),
    "xgboost": PolicyFactory("models.provisioning.policies.xgboost:XGBoostMean"),
    "lightgbm": PolicyFactory("models.provisioning.policies.lightgbm:LightGBMQuantile"),
    "fitted-q": PolicyFactory("models.provisioning.policies.fitted_q:FittedQ"),
    "dqn": PolicyFactory("models.provisioning.policies.dqn:DQN"),
    "policy-gradient": PolicyFactory("models.provisioning.policies.policy_gradient:PolicyGradient"),
}
# Policies that look at simulated futures: of recorded pairs alone, and only where they are asked for by name.
LOOKING_AHEAD: dict[str, PolicyFactory] = {
    "simulate-ahead": PolicyFactory("models.provisioning.policies.simulate_ahead:SimulateAhead"),
    "xgboost-ahead": PolicyFactory("models.provisioning.policies.xgboost:xgboost_ahead"),
    "fitted-q-ahead": PolicyFactory("models.provisioning.policies.fitted_q:fitted_q_ahead"),
    "dqn-ahead": PolicyFactory("models.provisioning.policies.dqn:dqn_ahead"),
    "policy-gradient-ahead": PolicyFactory("models.provisioning.policies.policy_gradient:policy_gradient_ahead"),
}
# Mirage's methods: of injected pairs alone, and only where they are asked for by name. They decide on a day of
# snapshots, which no observation holds, so that they can be compared and not released.
_DAY_TREES = "models.provisioning.mirage.trees:TreesArtifact"
_DAY = "models.provisioning.mirage.artifact:NetworkArtifact"
READING_DAYS: dict[str, PolicyFactory] = {
    "mirage-forest": PolicyFactory("models.provisioning.mirage.trees:forest", False, _DAY_TREES),
    "mirage-xgboost": PolicyFactory("models.provisioning.mirage.trees:xgboost", False, _DAY_TREES),
    "mirage-transformer-dqn": PolicyFactory("models.provisioning.mirage.policies:transformer_dqn", False, _DAY),
    "mirage-transformer-pg": PolicyFactory("models.provisioning.mirage.policies:transformer_pg", False, _DAY),
    "mirage-moe-dqn": PolicyFactory("models.provisioning.mirage.policies:moe_dqn", False, _DAY),
    "mirage-moe-pg": PolicyFactory("models.provisioning.mirage.policies:moe_pg", False, _DAY),
}

# Policies that plan chains with a wanted service: they decide on candidates, which no observation holds, so that they
# can be compared and not released.
_PLAN = "models.provisioning.service.candidates:PlanArtifact"
PLANNING: dict[str, PolicyFactory] = {
    "plan-regret": PolicyFactory("models.provisioning.policies.plan_learned:PlanRegret", False, _PLAN),
    "plan-fitted-q": PolicyFactory("models.provisioning.policies.plan_learned:plan_fitted_q", False, _PLAN),
}
# Plan chains and learn nothing. Links of the second may get less than they ask for, those of the third fewer nodes.
PLANS = ("plan", "plan-time-min", "plan-elastic")
_EVERY = ChainMap(PLANNING, READING_DAYS, LOOKING_AHEAD, POLICIES)  # iterates from the last map to the first


def every_policy() -> list[str]:
    """The names from the simplest policy to the most involved, without those that must be asked for by name."""
    return list(POLICIES)


def is_known(name: str) -> bool:
    """Whether the registry has a policy of that name."""
    return name in _EVERY


def check_policy(name: str) -> None:
    """Raise InputError, listing the known names, if the registry does not have this one."""
    if not is_known(name):
        raise InputError(f"unknown policy {name!r}; known: {', '.join(_EVERY)}")


def make_policy(name: str) -> Policy:
    """Make the policy of that name. Raises InputError, listing the known names, for an unknown one."""
    check_policy(name)
    return _named(name)()


def module_of(name: str) -> str:
    """Dotted name of the module that makes the policy. Raises InputError, listing the known names, for others."""
    check_policy(name)
    return _named(name).place.partition(":")[0]


def looks_ahead(name: str) -> bool:
    """Whether the policy also decides on simulated futures."""
    return name in LOOKING_AHEAD


def reads_days(name: str) -> bool:
    """Whether the policy decides on the snapshots of a day."""
    return name in READING_DAYS


def plans_chains(name: str) -> bool:
    """Whether the policy plans chains, and thus learns from chains."""
    return name in PLANNING


def is_releasable(name: str) -> bool:
    """Whether the policy may be offered for release; also true of names outside the registry, such as `champion`."""
    return not is_known(name) or _named(name).is_releasable


def artifact_of(name: str) -> type[Artifact]:
    """The class of the policy's stored fits. Raises InputError, listing the known names, for an unknown policy."""
    check_policy(name)
    return _named(name).artifact


def _named(name: str) -> PolicyFactory:
    return _EVERY[name]
