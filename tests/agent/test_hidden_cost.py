"""What a release tells about the cost of hidden features, and how `check` says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent import cli
from agent.artifact import Artifact
from agent.check import check_agent
from agent.hidden_cost import HiddenCost, hidden_costs, words_of
from agent.sight import SlurmRequest
from features.observe import HIDDEN_TOGETHER
from tests.agent.lab import artifact
from tests.agent.test_sight import ME, NOW, OTHER, cluster

ROW = {"n": 360, "cost_w1": 1.5, "cost_w1_hidden": 1.75, "difference_h": 0.25, "ci95": [0.1, 0.4]}


def released(folder: Path, hidden: Any) -> Artifact:
    return Artifact.load(artifact(folder / "released", release={"results": {"hidden": hidden}}))


def warnings(folder: Path, hidden: Any, **fields: Any) -> list[str]:
    request = SlurmRequest(2, 8 * 3600, "me")
    found = check_agent(
        cluster(ME, OTHER, **fields), request, now_s=lambda: NOW, artifact=released(folder, hidden)
    )  # fmt: skip
    return [one.text for one in found if one.subject == "hidden"]


def test_costs_are_those_of_the_manifest(tmp_path: Path) -> None:
    costs = hidden_costs(released(tmp_path, {"recent": ROW, "nodes": ROW | {"ci95": None}, "of another version": ROW}))
    assert costs == {"recent": HiddenCost(0.25, 360, 0.1, 0.4), "nodes": HiddenCost(0.25, 360)}
    assert costs["recent"].text == "+0.25 h per handover in the simulator (95 % +0.10 to +0.40, n = 360)"
    assert costs["nodes"].text == "+0.25 h per handover in the simulator (no interval, n = 360)"
    assert words_of(["nodes", "limits"], costs).endswith("n = 360); limits hidden: cost not in the artifact")


@pytest.mark.parametrize("row", [
    None, [], ROW | {"difference_h": "0"}, ROW | {"difference_h": None}, ROW | {"difference_h": True},
    ROW | {"ci95": [0.1]}, ROW | {"ci95": [0.1, "much"]}, ROW | {"n": 1.5},
])  # fmt: skip
def test_something_else_in_their_place_is_refused_by_name(tmp_path: Path, row: Any) -> None:
    with pytest.raises(ValueError, match=r"manifest\.json: release\.results\.hidden\.limits must have"):
        hidden_costs(released(tmp_path, {"limits": row}))


def test_a_figure_that_is_no_number_is_refused(tmp_path: Path) -> None:
    manifest = released(tmp_path, {}).manifest
    for odd in (float("nan"), float("inf")):
        release = {"results": {"hidden": {"nodes": ROW | {"difference_h": odd}}}}
        with pytest.raises(ValueError, match=r"hidden\.nodes must have"):
            hidden_costs(Artifact(manifest | {"release": release}))


@pytest.mark.parametrize("release", [{"results": {"hidden": [1]}}, {"results": 3}, "x"])
def test_no_object_is_refused_and_nothing_told_is_nothing(tmp_path: Path, release: Any) -> None:
    with pytest.raises(ValueError, match="must be an object"):
        hidden_costs(Artifact.load(artifact(tmp_path / "odd", release=release)))
    assert hidden_costs(Artifact.load(artifact(tmp_path / "older", release={}))) == {}
    assert hidden_costs(Artifact.load(artifact(tmp_path / "bare"))) == {}


@pytest.mark.parametrize(("fields", "group"), [
    ({"broken": frozenset({"sacctmgr"})}, "limits"),
    ({"broken": frozenset({"sacct"})}, "recent"),
    ({"nodes": {}}, "nodes"),
])  # fmt: skip
def test_check_says_what_the_hidden_group_costs_and_no_other(
    tmp_path: Path, fields: dict[str, Any], group: str
) -> None:
    hidden = {name: ROW | {"difference_h": number / 100} for number, name in enumerate(HIDDEN_TOGETHER, 1)}
    (text,) = warnings(tmp_path, hidden, **fields)
    number = list(HIDDEN_TOGETHER).index(group) + 1
    assert text.endswith(
        f"; {group} hidden: +0.0{number} h per handover in the simulator (95 % +0.10 to +0.40, n = 360)"
    )
    assert text.count(" hidden: ") == 1


def test_nothing_hidden_costs_nothing_and_private_queues_leave_no_policy(tmp_path: Path) -> None:
    assert warnings(tmp_path, {"recent": ROW}) == ["nothing: every feature is observed"]
    (text,) = [one for one in warnings(tmp_path, {"recent": ROW}, private="me") if "PrivateData" in one]
    assert text.endswith("the agent falls back to the safe rule")


def test_check_refuses_an_artifact_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--artifact", str(tmp_path / "nowhere")]) == cli.USAGE
    assert "nowhere" in capsys.readouterr().err
