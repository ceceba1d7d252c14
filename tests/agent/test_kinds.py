"""The score of each kind of artifact by hand: its formula in plain Python on a few observations."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from agent.artifact import FORMAT_VERSION, Artifact

FEATURES = ["remaining_h", "estimate_h", "backlog"]


def make(kind: str, settings: list[float], parameters: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Artifact:
    manifest = {
        "policy": "toy",
        "kind": kind,
        "knob": "factor",
        "settings": settings,
        "default_setting": settings[0],
        "features": FEATURES,
        "format_version": FORMAT_VERSION,
        "requirements": [],
        "parameters": parameters,
    }
    return Artifact(manifest, arrays)


def test_a_constant_lead_is_the_setting_less_what_remains() -> None:
    lead = make("constant-lead", [2.0, 5.0], {}, {})
    assert lead.scores([[3.0, 0.0, 0.0], [2.0, 9.0, 9.0]]).tolist() == [[-1.0, 0.0], [2.0, 3.0]]
    assert lead.decisions([[3.0, 0.0, 0.0], [2.0, 9.0, 9.0]]).tolist() == [[False, True], [True, True]]


def test_a_ratio_is_the_factor_times_the_feature_less_what_remains() -> None:
    ratio = make("estimate-ratio", [1.0, 0.5], {"feature": "estimate_h"}, {})
    assert ratio.scores([[3.0, 8.0, 1.0]]).tolist() == [[5.0], [1.0]]


def one_tree(at_left: float, at_right: float) -> dict[str, NDArray[Any]]:
    """Left where the backlog is at most 10; a second tree is one leaf of a quarter."""
    return {
        "feature": np.array([0, 0, 0, 0], np.int16),
        "threshold": np.array([10.0, np.inf, np.inf, np.inf], np.float32),
        "child": np.array([1, 1, 2, 3], np.int32),
        "value": np.array([0.0, at_left, at_right, 0.25]),
        "root": np.array([0, 3], np.int32),
    }


@pytest.mark.parametrize(("estimate_h", "backlog"), [(3.0, 10.0), (3.0, 10.5), (0.0, 3.0), (-2.0, 11.0)])
@pytest.mark.parametrize("factor", [1.0, 0.4])
def test_trees_predict_the_logarithm_of_the_wait_relative_to_its_estimate(
    estimate_h: float, backlog: float, factor: float
) -> None:
    """No wait is below nothing, whatever the trees say: -2 on the left would be a wait of less than -0.8 h."""
    artifact = make("trees", [factor], {"base": "estimate_h", "inputs": ["backlog"]}, one_tree(-2.0, 0.75))
    log_ratio = (-2.0 if backlog <= 10.0 else 0.75) + 0.25
    predicted_h = max(0.0, (1 + max(0.0, estimate_h)) * math.exp(log_ratio) - 1)
    expected = factor * (1 + predicted_h) - 1 - 4.0
    assert artifact.score([[4.0, estimate_h, backlog]])[0] == pytest.approx(expected, rel=1e-9)


def test_a_predicted_wait_is_held_below_what_overflows() -> None:
    artifact = make("trees", [1.0], {"base": "estimate_h", "inputs": ["backlog"]}, one_tree(800.0, 0.0))
    assert artifact.score([[4.0, 1.0, 0.0]])[0] == pytest.approx(math.exp(300.0), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "place", "bad", "said"),
    [
        ("root", 0, 4, "points outside"),
        ("root", 1, 4, "points outside"),
        ("root", 1, -1, "points outside"),
        ("root", 1, 1, "two parents"),
        ("child", 0, 3, "points outside"),
        ("child", 2, 1, "points outside"),
        ("feature", 2, 1, "splits on a feature outside 0 to"),
        ("feature", 2, -1, "splits on a feature outside 0 to"),
        ("threshold", 2, 5.0, "infinity for leaves"),
        ("threshold", 0, np.nan, "must be numbers"),
        ("value", 3, 1e6 + 1, r"within \+-1e\+06"),
        ("value", 1, np.nan, r"within \+-1e\+06"),
    ],
)
def test_one_bad_number_among_good_ones_is_refused(name: str, place: int, bad: float, said: str) -> None:
    arrays = one_tree(-2.0, 0.75)
    arrays[name][place] = bad
    with pytest.raises(ValueError, match=said):
        make("trees", [1.0], {"base": "estimate_h", "inputs": ["backlog"]}, arrays)


STOPPING = {"base": "estimate_h", "inputs": ["estimate_h", "backlog"], "sharpness": 2.0, "prices": [0.5, 2.0, 8.0]}


def stumps() -> dict[str, NDArray[Any]]:
    """Four trees of two leaves, each on the backlog relative to what remains; the sum of price 2 has none."""
    roots = np.arange(4) * 3
    return {
        "feature": np.tile([1, 0, 0], 4).astype(np.int16),
        "threshold": np.tile([0.5, np.inf, np.inf], 4).astype(np.float32),
        "child": (np.tile([1, 1, 2], 4) + np.repeat(roots, 3)).astype(np.int32),
        "value": np.array([0.0, -0.5, 0.5, 0.0, 0.1, 0.2, 0.0, 1.0, 3.0, 0.0, -2.0, 4.0]),
        "root": roots.astype(np.int32),
        "group": np.array([0, 0, 1, 3], np.int16),
    }


@pytest.mark.parametrize("price", [0.1, 0.5, 0.9, 2.0, 3.3, 8.0, 50.0])
@pytest.mark.parametrize(("remaining_h", "backlog"), [(4.0, 1.0), (4.0, 30.0), (0.0, 0.0)])
def test_stopping_trees_add_up_between_prices(remaining_h: float, backlog: float, price: float) -> None:
    artifact = make("stopping-trees", [price], STOPPING, stumps())
    goes_right = math.log1p(backlog) - math.log1p(remaining_h) > 0.5
    ahead = (0.5 if goes_right else -0.5) + (0.2 if goes_right else 0.1)
    change = {0.5: 3.0 if goes_right else 1.0, 2.0: 0.0, 8.0: 4.0 if goes_right else -2.0}
    below = max((one for one in change if one <= price), default=0.5)
    above = min((one for one in change if one >= price), default=8.0)
    share = 0.0 if below == above else math.log(price / below) / math.log(above / below)
    expected = 2.0 * (math.log1p(3.0) - math.log1p(remaining_h)) + ahead - math.log(price)
    expected += (1 - share) * change[below] + share * change[above]
    assert artifact.score([[remaining_h, 3.0, backlog]])[0] == pytest.approx(expected, rel=1e-9)


def test_loaded_stopping_trees_answer_as_they_did_where_they_were_released(tmp_path: Path) -> None:
    seen = np.array([[4.0, 3.0, 1.0], [4.0, 3.0, 30.0], [0.5, 2.0, 0.0]])
    made = make("stopping-trees", [3.3, 0.7], STOPPING, stumps()).with_checks(seen)
    made.save(tmp_path / "policy")
    loaded = Artifact.load(tmp_path / "policy")
    assert loaded.manifest == made.manifest and loaded.checks == made.checks
    np.testing.assert_array_equal(loaded.scores(seen), made.scores(seen))


@pytest.mark.parametrize(
    ("parameters", "arrays", "said"),
    [
        ({"prices": []}, {}, "prices must be"),
        ({"prices": [2.0, 1.0]}, {}, "prices must be"),
        ({"prices": [1.0, 1.0]}, {}, "prices must be"),
        ({"prices": [0.0, 1.0]}, {}, "prices must be"),
        ({"prices": ["1"]}, {}, "prices must be"),
        ({"prices": 2.0}, {}, "prices must be"),
        ({"sharpness": -1.0}, {}, "sharpness must be"),
        ({"sharpness": True}, {}, "sharpness must be"),
        ({}, {"group": np.array([0, 0, 1])}, "one integer per tree"),
        ({}, {"group": np.array([0.0, 0.0, 1.0, 2.0])}, "one integer per tree"),
        ({}, {"group": np.array([0, 0, 1, 4])}, "not within 0 to 3"),
        ({}, {"group": np.array([0, 0, 1, -1])}, "not within 0 to 3"),
        ({}, {"value": np.full(12, np.nan)}, "within"),
        ({"base": "nothing"}, {}, "lack 'nothing'"),
    ],
)
def test_one_bad_part_of_stopping_trees_is_refused(
    parameters: dict[str, Any], arrays: dict[str, NDArray[Any]], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        make("stopping-trees", [1.0], {**STOPPING, **parameters}, {**stumps(), **arrays})


def network(head: str) -> dict[str, NDArray[Any]]:
    """Inputs: the backlog, and the estimate relative to what remains; two hidden units."""
    outputs = 2 if head == "q" else 1
    rng = np.random.default_rng(0)
    return {
        "column": np.array([2, 1]),
        "minus": np.array([-1, 0]),
        "mean": np.array([0.5, -0.25], np.float32),
        "scale": np.array([2.0, 0.1], np.float32),
        "condition_scale": np.array([3.0], np.float32),
        "skip": rng.normal(size=(outputs, 3)).astype(np.float32),
        "weight_0": rng.normal(size=(2, 3)).astype(np.float32),
        "bias_0": rng.normal(size=2).astype(np.float32),
        "weight_1": rng.normal(size=(outputs, 2)).astype(np.float32),
        "bias_1": rng.normal(size=outputs).astype(np.float32),
    }


def by_hand(arrays: dict[str, NDArray[Any]], head: str, row: list[float], setting: float) -> float:
    """The network of `network`, number by number."""
    remaining_h, estimate_h, backlog = row

    def log(x: float) -> float:
        return math.copysign(math.log(1 + abs(x)), x)

    raw = [log(backlog), log(estimate_h) - log(remaining_h)]
    seen = [(raw[i] - float(arrays["mean"][i])) / float(arrays["scale"][i]) for i in range(2)]
    x = [*(min(5.0, max(-5.0, number)) for number in seen), math.log(max(setting, 1e-6)) / 3.0]
    hidden = [
        max(0.0, sum(float(arrays["weight_0"][u, i]) * x[i] for i in range(3)) + float(arrays["bias_0"][u]))
        for u in range(2)
    ]
    out = [
        sum(float(arrays["weight_1"][o, u]) * hidden[u] for u in range(2))
        + float(arrays["bias_1"][o])
        + sum(float(arrays["skip"][o, i]) * x[i] for i in range(3))
        for o in range(len(arrays["bias_1"]))
    ]
    return out[1] - out[0] if head == "q" else out[0]


@pytest.mark.parametrize("head", ["q", "logit"])
@pytest.mark.parametrize("setting", [0.0, 0.02, 1.0, 40.0])
def test_a_network_number_by_number(head: str, setting: float) -> None:
    """Also far from what it was fitted on: inputs are held within five deviations, as in training."""
    arrays = network(head)
    artifact = make("mlp", [setting], {"head": head, "layers": 2}, arrays)
    for row in ([4.0, 1.0, 3.0], [4.0, 3.9, -3.0], [0.0, 240.0, 1e6], [40.0, 0.0, -1e6]):
        assert artifact.score([row])[0] == pytest.approx(by_hand(arrays, head, row, setting), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "bad", "said"),
    [
        ("column", np.array([2.0, 1.0]), "must be integers"),
        ("minus", np.array([0, 0], np.uint8), "must be integers"),
        ("condition_scale", np.array([3.0, 3.0]), "one number"),
        ("column", np.array([2, 3]), "must be features from 0 to"),
        ("column", np.array([2, -1]), "must be features from 0 to"),
        ("minus", np.array([-2, 0]), "must be features from 0 to"),
        ("minus", np.array([-1, 3]), "must be features from 0 to"),
        ("scale", np.array([2.0, 1e-7]), "at least 1e-06"),
        ("condition_scale", np.array([1e-7]), "at least 1e-06"),
        ("mean", np.array([0.0]), "have the same length"),
        ("mean", np.array([0.0, 2e6]), "within"),
        ("skip", np.zeros((2, 2)), r"skip has shape \(2, 2\)"),
        ("weight_0", np.zeros((2, 2)), "layer 0"),
        ("bias_1", np.zeros(1), "layer 1"),
        ("weight_0", np.zeros((2049, 3)), "at most 2048 wide"),
    ],
)
def test_one_bad_array_of_a_network_is_refused(name: str, bad: NDArray[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make("mlp", [1.0], {"head": "q", "layers": 2}, {**network("q"), name: bad})


def test_a_network_as_wide_as_is_allowed_is_taken() -> None:
    wide = {"weight_0": np.zeros((2048, 3)), "bias_0": np.zeros(2048), "weight_1": np.zeros((2, 2048))}
    artifact = make("mlp", [1.0], {"head": "q", "layers": 2}, {**network("q"), **wide})
    assert np.isfinite(artifact.score([[4.0, 1.0, 3.0]])).all()
