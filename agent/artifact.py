"""The one loader of policy artifacts, for training, evaluation and live use alike: numpy, and a booster's own library.

An artifact is a folder: `manifest.json`, `arrays.npz` (no pickles) and, for boosters, the model in their library's own
text or JSON form. It decides on a batch of observations: submit the successor now, or wait.

Self-contained on purpose: a released model carries a copy of this file, so it imports nothing of Baton.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

FORMAT_VERSION = 1


@dataclass(frozen=True)
class Artifact:
    """A fitted policy.

    manifest: `policy`, `kind`, `knob`, `settings`, `default_setting`, `features` (names in order), `format_version`,
    `requirements`, and what it was trained on. arrays: numeric parameters. files: name to bytes of booster models.
    """

    manifest: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
