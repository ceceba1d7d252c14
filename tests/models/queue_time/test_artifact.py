"""What is released of a method answers as the method does, with numpy alone; a damaged or hostile one is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.distribution import LEVELS, SHORT_S, Distribution
from models.queue_time.artifact import RELEASABLE, Described, distribution, with_checks
from models.queue_time.conformal import Calibrated
from models.queue_time.protocol import COLUMN, FittedMethod, Rows
from models.queue_time.registry import make_method
from simulator.metrics import NOTICED_WAIT_S
from tests.conftest import REPOSITORY
from tests.models.queue_time.grounds import generated_rows
from traces.errors import InputError

NAMES = ["p0", "p1"]
OF = Described(NAMES, [1, 4])


@cache
def sized_rows() -> Rows:
    """Generated rows whose size says their class."""
    rows = generated_rows()
    observed = rows.observed.copy()
    observed[:, COLUMN["size"]] = np.array([1, 2, 8])[rows.size_class]
    return replace(rows, observed=observed)


@cache
def fitted(name: str) -> FittedMethod:
    return Calibrated(make_method(name)).fit(sized_rows().take(slice(0, 450)), 0)


@cache
def released(name: str) -> Distribution:
    rows = sized_rows()
    return with_checks(distribution(name, fitted(name), OF, {"cluster": "lab"}), rows.take(slice(0, 450)), NAMES)


@pytest.mark.parametrize("name", RELEASABLE)
def test_what_is_released_answers_as_what_was_fitted(name: str) -> None:
    later = sized_rows().take(slice(450, None))
    wanted = fitted(name).forecast(later)
    found = released(name).forecast(later.observed, [NAMES[one] for one in later.partition])
    assert np.allclose(found.quantiles_s, wanted.quantiles_s, rtol=1e-9, atol=1e-6)
    assert np.allclose(found.p_under_600s, wanted.p_under_600s, atol=1e-9)


@pytest.mark.parametrize("name", ["boosting", "limits", "trout-boosting"])
def test_a_folder_comes_back_as_it_was_saved(name: str, tmp_path: Path) -> None:
    released(name).save(tmp_path / "model")
    again = Distribution.load(tmp_path / "model")
    assert again.manifest == released(name).manifest
    rows = sized_rows().take(slice(450, 460)).observed
    assert np.array_equal(again.forecast(rows).quantiles_s, released(name).forecast(rows).quantiles_s)
    released(name).save(tmp_path / "again")
    for file in ("manifest.json", "arrays.npz", "checks.json"):
        assert (tmp_path / "model" / file).read_bytes() == (tmp_path / "again" / file).read_bytes()


def test_it_loads_and_answers_with_numpy_alone(tmp_path: Path) -> None:
    released("boosting").save(tmp_path / "model")
    program = (
        "import sys\n"
        "class Refused:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        top = name.partition('.')[0]\n"
        "        if top not in sys.stdlib_module_names and top not in ('agent', 'numpy') and '.' not in name:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refused())\n"
        "from agent.distribution import Distribution\n"
        "model = Distribution.load(sys.argv[1])\n"
        "print(model.forecast([[1.0] * len(model.manifest['features'])]).quantiles_s.shape)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model")], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert done.stdout == "(1, 39)\n", done.stderr


def test_a_partition_never_seen_is_any_partition() -> None:
    rows = sized_rows().take(slice(450, 470)).observed
    for name in ("partition-mean", "limits"):
        model = released(name)
        assert np.array_equal(model.forecast(rows, ["new"] * 20).quantiles_s, model.forecast(rows).quantiles_s)
    known = released("partition-mean").forecast(rows, ["p0"] * 20)
    assert not np.array_equal(known.quantiles_s, released("partition-mean").forecast(rows).quantiles_s)


def test_ten_minutes_are_those_of_the_house() -> None:
    assert SHORT_S == NOTICED_WAIT_S
    assert LEVELS[[0, 19, 38]].tolist() == [0.025, 0.5, 0.975]


def test_a_method_without_a_form_is_refused() -> None:
    with pytest.raises(InputError, match="'simulate-ahead' has no releasable form; methods with one: limits, expected"):
        distribution("simulate-ahead", make_method("simulate-ahead").fit(sized_rows(), 0), OF, {})


def _edited(folder: Path, change: dict[str, Any]) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, **change}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "trees"}, "kind is 'trees'"),
        ({"format_version": 9}, "format_version is 9"),
        ({"features": ["limit_h"]}, "features must include size"),
        ({"parts": []}, "allowed: 1 to 64"),
        ({"parts": [{"form": "magic"}]}, "form of part 0 is not one of bins"),
        ({"parts": [{"form": "table", "of_wait": 2.0, "of_short": 0.0}]}, "of_wait of part 0 is not within 0 to 1"),
        ({"parts": [{"form": "table", "of_wait": 1.0, "of_short": 0.0}]}, "lacks the arrays"),
        ({"partitions": [1]}, "partitions must be names"),
        ({"sha256": {}}, "damaged or truncated"),
        ({"sizes": [100, 400]}, "at the release"),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused_in_a_line(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    released("limits").save(tmp_path / "model")
    _edited(tmp_path / "model", change)
    with pytest.raises(ValueError, match="unreadable queue-time model") as refused:
        Distribution.load(tmp_path / "model")
    assert said in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("array", "value", "said"),
    [
        ("0_child", 0, "two parents|points outside"),
        ("0_feature", 9999, "a feature outside 0 to"),
        ("0_threshold", np.nan, "must be numbers"),
        ("moved_of_all", 2.0, "within 0 to 1"),
    ],
)
def test_hostile_arrays_are_refused(array: str, value: float, said: str) -> None:
    model = released("boosting")
    arrays = {name: column.copy() for name, column in model.arrays.items()}
    arrays[array][1:4] = value
    with pytest.raises(ValueError, match=said):
        Distribution(model.manifest, arrays)


def test_another_width_or_what_is_not_finite_is_refused() -> None:
    model = released("limits")
    with pytest.raises(ValueError, match=r"the distribution needs \(n, "):
        model.forecast([[1.0, 2.0]])
    row = np.zeros((1, len(model.manifest["features"])))
    row[0, 3] = np.inf
    with pytest.raises(ValueError, match="is inf, not a finite number"):
        model.forecast(row)
    with pytest.raises(ValueError, match="2 partitions for 1 observations"):
        model.forecast(np.zeros_like(row), ["a", "b"])
