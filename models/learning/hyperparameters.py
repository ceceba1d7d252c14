"""Which hyper-parameters of the learners are tunable, and within which bounds.

A policy's own values are those that published figures were measured with; a cluster may override them
(`hyperparameters` in clusters.toml), and `baton tune` looks for better ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from traces.errors import InputError

if TYPE_CHECKING:
    from models.protocol import Policy

Value = int | float


@dataclass(frozen=True)
class Bounds:
    """From `low` to `high`, both allowed; `log`: by orders of magnitude; `whole`: integers."""

    low: float
    high: float
    log: bool = False
    whole: bool = False


_BOOSTING = {
    "rounds": Bounds(20, 400, log=True, whole=True),
    "learning_rate": Bounds(0.005, 0.3, log=True),
}
TUNABLE: dict[str, dict[str, Bounds]] = {
    "forest": {
        "trees": Bounds(10, 100, log=True, whole=True),
        "leaves": Bounds(20, 500, log=True, whole=True),
        "min_samples_leaf": Bounds(1, 200, log=True, whole=True),
        "max_features": Bounds(0.1, 1.0),
    },
    "xgboost": {
        **_BOOSTING,
        "depth": Bounds(2, 8, whole=True),
        "min_child_weight": Bounds(1.0, 300.0, log=True),
        "subsample": Bounds(0.3, 1.0),
        "colsample_bytree": Bounds(0.3, 1.0),
    },
    "lightgbm": {
        **_BOOSTING,
        "quantile": Bounds(0.3, 0.9),
        "leaves": Bounds(3, 63, log=True, whole=True),
        "min_data_in_leaf": Bounds(10, 300, log=True, whole=True),
        "feature_fraction": Bounds(0.3, 1.0),
        "bagging_fraction": Bounds(0.3, 1.0),
    },
    "fitted-q": {
        **_BOOSTING,
        "improvement_rounds": Bounds(5, 200, log=True, whole=True),
        "sharpness": Bounds(0.5, 8.0, log=True),
        "folds": Bounds(2, 6, whole=True),
        "leaves": Bounds(3, 31, log=True, whole=True),
        "min_data_in_leaf": Bounds(10, 300, log=True, whole=True),
        "feature_fraction": Bounds(0.3, 1.0),
        "bagging_fraction": Bounds(0.3, 1.0),
    },
    "dqn": {
        "updates": Bounds(200, 4000, log=True, whole=True),
        "imitated": Bounds(0.0, 0.8),
        "steps_ahead": Bounds(1, 64, log=True, whole=True),
        "learning_rate": Bounds(1e-4, 1e-2, log=True),
        "target_rate": Bounds(0.002, 0.2, log=True),
    },
    "policy-gradient": {
        "updates": Bounds(50, 1500, log=True, whole=True),
        "imitated": Bounds(0.0, 0.8),
        "sharpness": Bounds(0.5, 8.0, log=True),
        "clip": Bounds(0.05, 2.0, log=True),
        "entropy": Bounds(0.001, 0.3, log=True),
        "learning_rate": Bounds(1e-4, 1e-2, log=True),
        "average_rate": Bounds(0.01, 0.5, log=True),
    },
}
# Those that look ahead are made by the same recipes.
TUNABLE |= {f"{name}-ahead": TUNABLE[name] for name in ("xgboost", "fitted-q", "dqn", "policy-gradient")}


def tunable(policy: str) -> dict[str, Bounds]:
    """The hyper-parameters of the policy that may be set. Raises InputError for one that has none."""
    if policy not in TUNABLE:
        raise InputError(f"policy {policy!r} has no hyper-parameters; those that have: {', '.join(TUNABLE)}")
    return TUNABLE[policy]


def check_values(policy: str, values: Mapping[str, Any], where: str = "hyper-parameters") -> dict[str, Value]:
    """The values as the policy takes them. Raises InputError, a line that begins with `where`, for what it does not."""
    known = tunable(policy)
    checked: dict[str, Value] = {}
    for name, value in values.items():
        if name not in known:
            raise InputError(f"{where}: {policy} has no {name!r}; it has {', '.join(known)}")
        bounds = known[name]
        what = "a whole number" if bounds.whole else "a number"
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not bounds.low <= value <= bounds.high or (bounds.whole and value != int(value)):
            allowed = f"{what} from {bounds.low:g} to {bounds.high:g}"
            raise InputError(f"{where}: {policy}.{name} is {str(value)[:40]}; {allowed} is allowed")
        checked[name] = int(value) if bounds.whole else float(value)
    return checked


def with_values(policy: Policy, values: Mapping[str, Any]) -> Policy:
    """The policy with these hyper-parameters. Raises InputError for what `check_values` does not take."""
    if not values:
        return policy
    changed: Policy = replace(policy, **check_values(policy.name, values))  # type: ignore[type-var]
    return changed


def values_of(policy: Policy) -> dict[str, Value]:
    """The hyper-parameters that the policy has, by name; none of a rule."""
    return {name: getattr(policy, name) for name in TUNABLE.get(policy.name, {})}
