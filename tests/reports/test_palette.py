"""Colours: distinct, legible on their background, and those of the causes of waits distinct for everybody."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from reports.causes import CAUSES
from reports.palette import COLOURS


def test_colours_are_distinct_and_legible() -> None:
    light = [values[0] for values in COLOURS.values()]
    assert len(set(light)) == len(light)
    for name, values in COLOURS.items():
        if name in ("paper", "grid") or name.startswith("heat"):
            continue
        least = 4.5 if name in ("ink", "muted", "average-wait", "start-estimate") else 3.0
        for value, paper in zip(values, COLOURS["paper"], strict=True):
            assert _contrast(value, paper) >= least, (name, value)


# What light becomes for those who see no green and no red: linear RGB times these, after Machado, Oliveira and
# Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency" (2009), severity 1.
SIGHT = {
    "all": np.eye(3),
    "no green": np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]),
    "no red": np.array([[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]),
}


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_causes_of_waits_differ_for_everybody(theme: int, sight: str) -> None:
    """Distance in OKLab (black to white: 1); 0.09 is plainly another colour."""
    seen = {cause.name: _oklab(_linear(COLOURS[cause.tint][theme]) @ SIGHT[sight].T) for cause in CAUSES}
    for first, second in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[first] - seen[second]) >= 0.09, (first, second)


def _oklab(linear: NDArray[np.float64]) -> NDArray[np.float64]:
    """Bjoern Ottosson, "A perceptual color space for image processing" (2020)."""
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    axes = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    lab: NDArray[np.float64] = axes @ np.cbrt(cones @ linear.clip(0, 1))
    return lab


def _contrast(first: str, second: str) -> float:
    """WCAG 2.1 contrast ratio."""
    bright, dark = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(value: str) -> float:
    return float(_linear(value) @ (0.2126, 0.7152, 0.0722))


def _linear(value: str) -> NDArray[np.float64]:
    parts = [int(value[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return np.array([part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts])
