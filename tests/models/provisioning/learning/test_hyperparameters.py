"""Which hyper-parameters there are, that each reaches its policy, and what is said of others."""

from __future__ import annotations

from typing import Any

import pytest

from models.provisioning.learning.hyperparameters import TUNABLE, check_values, tunable, values_of, with_values
from models.provisioning.registry import LOOKING_AHEAD, POLICIES, READING_DAYS, make_policy
from traces.errors import InputError


def test_every_learner_is_tunable_and_no_rule_is() -> None:
    assert set(TUNABLE) == {name for name in (*POLICIES, *LOOKING_AHEAD, *READING_DAYS) if make_policy(name).is_learned}
    with pytest.raises(InputError, match="policy 'reactive' has no hyper-parameters; policies with some: forest"):
        tunable("reactive")
    assert values_of(make_policy("reactive")) == {}


@pytest.mark.parametrize("name", TUNABLE)
def test_a_policys_own_values_are_within_its_bounds(name: str) -> None:
    own = values_of(make_policy(name))
    assert set(own) == set(TUNABLE[name])
    assert check_values(name, own) == own


@pytest.mark.parametrize("name", TUNABLE)
def test_every_bound_may_be_set_and_reaches_the_policy(name: str) -> None:
    for end in ("low", "high"):
        wanted = {one: getattr(bounds, end) for one, bounds in TUNABLE[name].items()}
        made = with_values(make_policy(name), wanted)
        assert values_of(made) == wanted
        assert all(isinstance(values_of(made)[one], int) for one, bounds in TUNABLE[name].items() if bounds.whole)
    untouched = make_policy(name)
    assert with_values(untouched, {}) is untouched


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"depth": 9}, "xgboost.depth is 9; a whole number from 2 to 8 is allowed"),
        ({"depth": 2.5}, "xgboost.depth is 2.5; a whole number"),
        ({"subsample": "half"}, "xgboost.subsample is half; a number from 0.3 to 1 is allowed"),
        ({"subsample": True}, "xgboost.subsample is True"),
        ({"subsample": float("nan")}, "xgboost.subsample is nan"),
        ({"leaves": 3}, "xgboost has no 'leaves'; it has rounds, learning_rate, depth"),
    ],
)
def test_other_values_are_refused_in_one_line(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        check_values("xgboost", values, "clusters.toml")
    assert str(caught.value).startswith("clusters.toml: ") and "\n" not in str(caught.value)
