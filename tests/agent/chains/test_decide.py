"""How a decision is made and told, and which artifacts may make one."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.chains.decide import ReleasedPolicy, load, trained_capacity
from tests.agent.lab import artifact


def test_the_ends_of_the_knob_may_be_set_and_nothing_beyond(tmp_path: Path) -> None:
    artifact(tmp_path)
    for setting in (0.0, 4.0):
        assert load(tmp_path, setting).settings[-1] == 4.0
    for setting in (-0.1, 4.1):
        with pytest.raises(ValueError, match=f"setting is {setting:g}; allowed for this policy: 0 to 4"):
            load(tmp_path, setting)


@pytest.mark.parametrize(("said", "known"), [(80, 80), (True, None), ("80", None), (None, None)])
def test_the_size_of_the_cluster_is_a_number_or_unknown(tmp_path: Path, said: object, known: int | None) -> None:
    artifact(tmp_path, trained_on={"capacity": said})
    assert trained_capacity(load(tmp_path, None)) == known


def test_the_reason_says_what_is_done_by_whom_and_how_sure(tmp_path: Path) -> None:
    artifact(tmp_path)
    policy = ReleasedPolicy(tmp_path, 1.0)
    early, late = policy.decide({"remaining_h": 5.0}), policy.decide({"remaining_h": 0.5})
    assert (early.submit, late.submit) == (False, True)
    assert f"{policy.name} waits, score {early.score:+.2f}" in early.reason
    assert f"{policy.name} submits, score {late.score:+.2f}" in late.reason
