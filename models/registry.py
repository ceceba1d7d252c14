"""Names of provisioning policies to the functions that make them.

An unknown name lists the known ones. A policy's module is imported when one is made: its name alone costs nothing.
Places are written out whole, "module:name": `traces.cache.closure` follows them without importing anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from traces.errors import InputError

if TYPE_CHECKING:
    from models.protocol import Policy


@dataclass(frozen=True)
class Named:
    """What makes a policy: `place` is "module:name" of it, imported when it is called."""

    place: str

    def __call__(self) -> Policy:
        """A new one."""
        module, _, name = self.place.partition(":")
        policy: Policy = getattr(import_module(module), name)()
        return policy


POLICIES: dict[str, Named] = {
    "reactive": Named("models.policies.reactive:Reactive"),
    "average-wait": Named("models.policies.estimates:average_wait"),
    "start-estimate": Named("models.policies.estimates:start_estimate"),
    "start-expected": Named("models.policies.estimates:start_expected"),
    "forest": Named("models.policies.forest:Forest"),
    "xgboost": Named("models.policies.xgboost:XGBoostMean"),
    "lightgbm": Named("models.policies.lightgbm:LightGBMQuantile"),
    "fitted-q": Named("models.policies.fitted_q:FittedQ"),
    "dqn": Named("models.policies.dqn:DQN"),
    "policy-gradient": Named("models.policies.policy_gradient:PolicyGradient"),
}
# Those that look at simulated futures: of recorded pairs alone, and only where they are asked for by name.
LOOKING_AHEAD: dict[str, Named] = {
    "simulate-ahead": Named("models.policies.simulate_ahead:SimulateAhead"),
    "xgboost-ahead": Named("models.policies.xgboost:xgboost_ahead"),
    "fitted-q-ahead": Named("models.policies.fitted_q:fitted_q_ahead"),
    "dqn-ahead": Named("models.policies.dqn:dqn_ahead"),
    "policy-gradient-ahead": Named("models.policies.policy_gradient:policy_gradient_ahead"),
}


def every_policy() -> list[str]:
    """The names, from the simplest policy to the most involved, but for those that look ahead."""
    return list(POLICIES)


def check_policy(name: str) -> None:
    """Raises InputError for a name that is not in the registry, listing those that are."""
    if name not in POLICIES and name not in LOOKING_AHEAD:
        raise InputError(f"unknown policy {name!r}; known: {', '.join((*POLICIES, *LOOKING_AHEAD))}")


def make_policy(name: str) -> Policy:
    """The policy of that name. Raises InputError listing the known ones."""
    check_policy(name)
    return _named(name)()


def module_of(name: str) -> str:
    """Dotted name of the module that makes the policy. Raises InputError listing the known policies."""
    check_policy(name)
    return _named(name).place.partition(":")[0]


def looks_ahead(name: str) -> bool:
    """Whether the policy decides on simulated futures too."""
    return name in LOOKING_AHEAD


def _named(name: str) -> Named:
    return LOOKING_AHEAD[name] if name in LOOKING_AHEAD else POLICIES[name]
