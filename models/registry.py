"""Names of provisioning policies to the functions that make them, and the simulated worlds' names.

An unknown name lists the known ones. A policy's module is imported when one is made: its name alone costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from traces.errors import InputError

if TYPE_CHECKING:
    from models.protocol import Policy

WORLDS = ("plain",)


def _of(module: str, name: str) -> Callable[[], Policy]:
    """What makes the policy that `models.policies.<module>` calls `name`."""

    def make() -> Policy:
        policy: Policy = getattr(import_module(f"models.policies.{module}"), name)()
        return policy

    return make


POLICIES: dict[str, Callable[[], Policy]] = {
    "reactive": _of("reactive", "Reactive"),
    "average-wait": _of("estimates", "average_wait"),
    "start-estimate": _of("estimates", "start_estimate"),
    "forest": _of("forest", "Forest"),
    "xgboost": _of("xgboost", "XGBoostMean"),
    "lightgbm": _of("lightgbm", "LightGBMQuantile"),
    "dqn": _of("dqn", "DQN"),
    "policy-gradient": _of("policy_gradient", "PolicyGradient"),
}


def every_policy() -> list[str]:
    """The names, from the simplest policy to the most involved."""
    return list(POLICIES)


def check_policy(name: str) -> None:
    """Raises InputError for a name that is not in the registry, listing those that are."""
    if name not in POLICIES:
        raise InputError(f"unknown policy {name!r}; known: {', '.join(POLICIES)}")


def check_world(name: str) -> None:
    """Raises InputError for a world that there is not, listing those that there are."""
    if name not in WORLDS:
        raise InputError(f"unknown world {name!r}; known: {', '.join(WORLDS)}")


def make_policy(name: str) -> Policy:
    """The policy of that name. Raises InputError listing the known ones."""
    check_policy(name)
    return POLICIES[name]()
