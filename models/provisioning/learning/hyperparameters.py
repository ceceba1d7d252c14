"""The tunable hyper-parameters of the learners, with their bounds.

Published figures were measured with a policy's own values. A cluster may override them (`hyperparameters` in
clusters.toml), and `baton tune` searches for better ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from traces.errors import InputError

if TYPE_CHECKING:
    from models.provisioning.protocol import Policy

Value = int | float


@dataclass(frozen=True)
class HyperparameterBounds:
    """From `low` to `high`, both allowed. `log`: search by orders of magnitude; `whole`: integers."""

    low: float
    high: float
    log: bool = False
    whole: bool = False


_BOOSTING = {
    "rounds": HyperparameterBounds(20, 400, log=True, whole=True),
    "learning_rate": HyperparameterBounds(0.005, 0.3, log=True),
}
TUNABLE: dict[str, dict[str, HyperparameterBounds]] = {
    "forest": {
        "trees": HyperparameterBounds(10, 100, log=True, whole=True),
        "leaves": HyperparameterBounds(20, 500, log=True, whole=True),
        "min_samples_leaf": HyperparameterBounds(1, 200, log=True, whole=True),
        "max_features": HyperparameterBounds(0.1, 1.0),
    },
    "xgboost": {
        **_BOOSTING,
        "depth": HyperparameterBounds(2, 8, whole=True),
        "min_child_weight": HyperparameterBounds(1.0, 300.0, log=True),
        "subsample": HyperparameterBounds(0.3, 1.0),
        "colsample_bytree": HyperparameterBounds(0.3, 1.0),
    },
    "lightgbm": {
        **_BOOSTING,
        "quantile": HyperparameterBounds(0.3, 0.9),
        "leaves": HyperparameterBounds(3, 63, log=True, whole=True),
        "min_data_in_leaf": HyperparameterBounds(10, 300, log=True, whole=True),
        "feature_fraction": HyperparameterBounds(0.3, 1.0),
        "bagging_fraction": HyperparameterBounds(0.3, 1.0),
    },
    "fitted-q": {
        **_BOOSTING,
        "improvement_rounds": HyperparameterBounds(5, 200, log=True, whole=True),
        "sharpness": HyperparameterBounds(0.5, 8.0, log=True),
        "folds": HyperparameterBounds(2, 6, whole=True),
        "leaves": HyperparameterBounds(3, 31, log=True, whole=True),
        "min_data_in_leaf": HyperparameterBounds(10, 300, log=True, whole=True),
        "feature_fraction": HyperparameterBounds(0.3, 1.0),
        "bagging_fraction": HyperparameterBounds(0.3, 1.0),
    },
    "dqn": {
        "updates": HyperparameterBounds(200, 4000, log=True, whole=True),
        "imitated": HyperparameterBounds(0.0, 0.8),
        "steps_ahead": HyperparameterBounds(1, 64, log=True, whole=True),
        "learning_rate": HyperparameterBounds(1e-4, 1e-2, log=True),
        "target_rate": HyperparameterBounds(0.002, 0.2, log=True),
    },
    "policy-gradient": {
        "updates": HyperparameterBounds(50, 1500, log=True, whole=True),
        "imitated": HyperparameterBounds(0.0, 0.8),
        "sharpness": HyperparameterBounds(0.5, 8.0, log=True),
        "clip": HyperparameterBounds(0.05, 2.0, log=True),
        "entropy": HyperparameterBounds(0.001, 0.3, log=True),
        "learning_rate": HyperparameterBounds(1e-4, 1e-2, log=True),
        "average_rate": HyperparameterBounds(0.01, 0.5, log=True),
    },
}
# Policies that look ahead have the hyper-parameters of their originals.
TUNABLE |= {f"{name}-ahead": TUNABLE[name] for name in ("xgboost", "fitted-q", "dqn", "policy-gradient")}
_MIRAGE_TREES = {"trees": HyperparameterBounds(1, 500, log=True, whole=True)}
_MIRAGE = {
    "epochs": HyperparameterBounds(1, 1000, log=True, whole=True),
    "minutes": HyperparameterBounds(0.01, 1440.0, log=True),
    "width": HyperparameterBounds(2, 1024, log=True, whole=True),
    "inner": HyperparameterBounds(1, 1024, log=True, whole=True),
}
_MIRAGE_MOE = _MIRAGE | {
    "expert_epochs": HyperparameterBounds(1, 2000, log=True, whole=True),
    "experts": HyperparameterBounds(1, 20, whole=True),
}
_MIRAGE_HEAD = {"head_epochs": HyperparameterBounds(1, 200, log=True, whole=True)}
TUNABLE |= {
    "mirage-forest": _MIRAGE_TREES,
    "mirage-xgboost": _MIRAGE_TREES,
    "mirage-transformer-dqn": _MIRAGE,
    "mirage-transformer-pg": _MIRAGE | _MIRAGE_HEAD,
    "mirage-moe-dqn": _MIRAGE_MOE,
    "mirage-moe-pg": _MIRAGE_MOE | _MIRAGE_HEAD,
}


def tunable(policy: str) -> dict[str, HyperparameterBounds]:
    """The tunable hyper-parameters of the policy. Raises InputError for a policy without any."""
    if policy not in TUNABLE:
        raise InputError(f"policy {policy!r} has no hyper-parameters; policies with some: {', '.join(TUNABLE)}")
    return TUNABLE[policy]


def check_values(policy: str, values: Mapping[str, Any], where: str = "hyper-parameters") -> dict[str, Value]:
    """Convert the values to the policy's types. Raises InputError, beginning with `where`, for a wrong one."""
    known = tunable(policy)
    checked: dict[str, Value] = {}
    for name, value in values.items():
        if name not in known:
            raise InputError(f"{where}: {policy} has no {name!r}; it has {', '.join(known)}")
        bounds = known[name]
        kind = "a whole number" if bounds.whole else "a number"
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not bounds.low <= value <= bounds.high or (bounds.whole and value != int(value)):
            allowed = f"{kind} from {bounds.low:g} to {bounds.high:g}"
            raise InputError(f"{where}: {policy}.{name} is {str(value)[:40]}; {allowed} is allowed")
        checked[name] = int(value) if bounds.whole else float(value)
    return checked


def with_values(policy: Policy, values: Mapping[str, Any]) -> Policy:
    """The policy with these hyper-parameters. Raises InputError as `check_values` does."""
    if not values:
        return policy
    changed: Policy = replace(policy, **check_values(policy.name, values))  # type: ignore[type-var]
    return changed


def values_of(policy: Policy) -> dict[str, Value]:
    """The hyper-parameters of the policy, by name; none for a rule."""
    return {name: getattr(policy, name) for name in TUNABLE.get(policy.name, {})}
