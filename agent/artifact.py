"""The loader of policy artifacts for training, evaluation and live use. Needs only numpy.

An artifact is a folder (`agent.model_folder`). It decides on a batch of observations whether to submit the successor
now or wait, by its kind (`agent.kinds`).

A released model carries copies of this file, `agent.kinds`, `agent.model_folder` and `agent.trees`, so they import
nothing else of Baton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agent.kinds import KINDS, MAX_FEATURES, MAX_NUMBER, MAX_SETTINGS, REMAINING, Float32s, Float64s, within_bound
from agent.model_folder import (
    CHECK_TOLERANCE,
    CHECKS,
    MAX_CHECKS,
    ModelParts,
    finite_rows,
    one_line,
    read_model,
    write_model,
)

FORMAT_VERSION = 1

# Time between the decisions on a predecessor, s: the default of an artifact, and the bounds of any.
DECIDE_EVERY_S, LEAST_EVERY_S, MOST_EVERY_S = 600, 60, 21_600
# As in `agent.model_folder`: bounds of an artifact that may be untrusted, and the most that a fit has needed so far.
MAX_MANIFEST_BYTES = 1 << 20  # 2 kB
MAX_PROMISES = 16  # 3
BLOCK_ROWS = 1024  # rows processed at once, so that intermediate arrays stay in the cache
KEYS: dict[str, type | tuple[type, ...]] = {
    "policy": str,
    "kind": str,
    "knob": str,
    "settings": list,
    "default_setting": (int, float),
    "features": list,
    "format_version": int,
    "requirements": list,
}


@dataclass(frozen=True)
class Artifact:
    """A fitted policy.

    manifest: `policy`, `kind` (a key of KINDS), `knob`, `settings` (from least to most overlap), `default_setting`,
    `features` (names in order), `fills` (for each feature that may be missing, a number or another feature to use
    instead; all other features are required), `format_version`, `requirements` (pip lines), `parameters` (of the kind),
    and the provenance of training, selection and release. arrays: numeric parameters. checks: `observations` (n, F)
    with the `scores` (n,) and `submit` (n,) required at the default setting; None if there are none.

    Raises ValueError, one line, if the parts are inconsistent.
    """

    manifest: dict[str, Any]
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    checks: dict[str, Any] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        check_manifest(self.manifest)
        kind = KINDS.get(self.manifest["kind"])
        if kind is None:
            raise ValueError(f"artifact of unknown kind {self.manifest['kind']!r}; known: {', '.join(KINDS)}")
        if set(self.arrays) != set(kind.arrays(self)):
            raise ValueError(
                f"a {self.manifest['kind']} artifact has the arrays {sorted(self.arrays)}; required: "
                f"{sorted(kind.arrays(self))}"
            )
        for name, array in self.arrays.items():
            if array.dtype.kind not in "fiu":
                raise ValueError(f"array {name} of the artifact is {array.dtype}, not numeric")
            widest = np.dtype(np.float64 if array.dtype.kind == "f" else np.int64)
            if not np.can_cast(array.dtype, widest):
                raise ValueError(f"array {name} of the artifact is {array.dtype}, wider than {widest}")
        kind.check(self)

    @property
    def decide_every_s(self) -> int:
        """Seconds between the decisions on a predecessor, as in the pairs on which the policy was judged."""
        return int(self.manifest.get("decide_every_s", DECIDE_EVERY_S))

    @property
    def settings(self) -> tuple[float, ...]:
        """Values of the knob, from least to most overlap."""
        return tuple(float(s) for s in self.manifest["settings"])

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the kind that are not arrays."""
        parameters = self.manifest.get("parameters", {})
        return parameters if isinstance(parameters, dict) else {}

    @property
    def promises(self) -> list[dict[str, Any]]:
        """The promises of a release, one per risk; empty if the artifact is not released.

        Each has `risk` (the largest promised probability of an interruption), `next_setting` (the knob's value that
        keeps it on the data known at the release; None: submit at once), `is_next_promised` (False: even that does not
        keep it), and how it was kept: `interrupted_share`, `ci95`, `is_kept`, `promised_pairs`, `overlap_h`.
        """
        release = self.manifest.get("release", {})
        return list(release.get("promises", [])) if isinstance(release, dict) else []

    def column(self, name: Any) -> int:
        """Return the column of that feature in an observation. Raises ValueError if there is none."""
        try:
            return int(self.manifest["features"].index(name))
        except ValueError:
            raise ValueError(f"the artifact's features lack {name!r}") from None

    def with_setting(self, setting: float) -> Artifact:
        """Return the same policy with another default setting, without the checks of the old one."""
        return replace(self, manifest={**self.manifest, "default_setting": float(setting)}, checks=None)

    def with_checks(self, observations: ArrayLike) -> Artifact:
        """Return the same policy with checks: wherever it is loaded it must answer these observations as here."""
        rows = self._checked(observations)
        answers = {"scores": self.score(rows).tolist(), "submit": self.decide(rows).tolist()}
        return replace(self, checks={"observations": rows.tolist(), **answers})

    def replay(self) -> None:
        """Raise ValueError unless the observations of `checks` give the stored answers."""
        if self.checks is None:
            return
        rows, stored = self._checked(self.checks["observations"]), np.asarray(self.checks["scores"], np.float64)
        submit = np.asarray(self.checks["submit"])
        if not len(rows) == len(stored) == len(submit) <= MAX_CHECKS or submit.dtype != np.bool_ or stored.ndim != 1:
            raise ValueError(f"{CHECKS} must hold as many scores and decisions as observations, at most {MAX_CHECKS}")
        scores, allowed = self.score(rows), CHECK_TOLERANCE * np.maximum(1.0, np.abs(stored))
        is_same = (np.abs(scores - stored) <= allowed) & ((self.decide(rows) == submit) | (np.abs(stored) <= allowed))
        if not is_same.all():
            row = int(np.argmin(is_same))
            raise ValueError(
                f"{CHECKS}: observation {row} scores {scores[row]:.9g} here, but {stored[row]:.9g} at the release: "
                "this is not the released policy, or this installation of numpy computes differently"
            )

    # -- deciding ---------------------------------------------------------------------------------------------------

    def scores(self, observations: ArrayLike, settings: Sequence[float] | None = None) -> Float64s:
        """Return (k, n) scores for submitting now, for k settings (default: all of them) and observations (n, F).

        Zero or positive means submit. The unit is hours, with two exceptions: for a network it is the difference of
        Q-values (weighted hours) or the logit; for stopping trees it is the log-odds. Raises ValueError for a wrong
        width or an observation that is not finite.
        """
        chosen = np.asarray(self.settings if settings is None else settings, np.float64)
        if not within_bound(chosen):
            raise ValueError(f"the settings {chosen.tolist()} are not all within +-{MAX_NUMBER:g}")
        rows = self._checked(observations)
        kind = KINDS[self.manifest["kind"]]
        out = np.empty((len(chosen), len(rows)), np.float64)
        for begin in range(0, len(rows), BLOCK_ROWS):
            block = rows[begin : begin + BLOCK_ROWS]
            out[:, begin : begin + BLOCK_ROWS] = kind.scores(self, block, chosen)
        return out

    def decisions(self, observations: ArrayLike, settings: Sequence[float] | None = None) -> NDArray[np.bool_]:
        """Return (k, n): whether to submit now, for k settings (default: all of them), with one pass of the model.

        Once the predecessor has ended (remaining_h <= 0) the answer is always True.
        """
        rows = self._checked(observations)
        submit: NDArray[np.bool_] = self.scores(rows, settings) >= 0.0
        return submit | (rows[:, self.column(REMAINING)] <= 0.0)

    def score(self, observations: ArrayLike, setting: float | None = None) -> Float64s:
        """Return one row (n,) of `scores`; None: the default setting."""
        scores: Float64s = self.scores(observations, [self._setting(setting)])[0]
        return scores

    def decide(self, observations: ArrayLike, setting: float | None = None) -> NDArray[np.bool_]:
        """Return one row (n,) of `decisions`; None: the default setting. observations: (n, F) float32."""
        submit: NDArray[np.bool_] = self.decisions(observations, [self._setting(setting)])[0]
        return submit

    def _setting(self, setting: float | None) -> float:
        return float(self.manifest["default_setting"] if setting is None else setting)

    def _checked(self, observations: ArrayLike) -> Float32s:
        return finite_rows(observations, self.manifest["features"], "artifact")

    def row(self, observed: Mapping[str, Any]) -> list[float]:
        """Return an observation as a row (F,) in the order of the features; missing ones or None get their fill.

        Raises ValueError for missing features without a fill, for unknown ones, and for values that are not numbers.
        """
        names, fills = self.manifest["features"], self.manifest.get("fills", {})
        missing = [name for name in names if observed.get(name) is None and name not in fills]
        unknown = [name for name in observed if name not in names]
        if missing or unknown:
            raise ValueError(f"features missing: {missing}; unknown: {unknown}")
        numbers = []
        for name in names:
            number = observed.get(name)
            if number is None:
                number = observed[fills[name]] if isinstance(fills[name], str) else fills[name]
            if not isinstance(number, int | float) or isinstance(number, bool):
                raise ValueError(f"{name} is {number!r}, not a number")
            numbers.append(float(number))
        return numbers

    @cached_property
    def inputs(self) -> NDArray[np.int64]:
        """Columns of an observation that are the model's inputs, in its order."""
        return np.asarray([self.column(name) for name in self.parameters["inputs"]], np.int64)

    # -- the folder -------------------------------------------------------------------------------------------------

    def save(self, folder: Path | str) -> None:
        """Write the folder, replacing an older one as a whole. The same artifact gives the same bytes."""
        write_model(Path(folder), ModelParts(self.manifest, self.arrays, self.checks))

    @classmethod
    def load(cls, folder: Path | str, features: Sequence[str] | None = None) -> Artifact:
        """Read a folder. features: the names that the caller will observe, in order; the artifact must match them.

        Raises ValueError, one line, for anything that is not a complete artifact of this format.
        """
        folder = Path(folder)
        with one_line(f"{folder}: unreadable artifact"):
            loaded = cls(*read_model(folder, MAX_MANIFEST_BYTES, check_manifest, features))
            loaded.replay()
            return loaded


def check_manifest(manifest: dict[str, Any]) -> None:
    """Raise ValueError unless the manifest has every key, of its type, in this format."""
    version = manifest.get("format_version")
    if version != FORMAT_VERSION:
        raise ValueError(f"artifact format_version is {version!r}; this program reads {FORMAT_VERSION}")
    for key, kind in KEYS.items():
        if not isinstance(manifest.get(key), kind) or isinstance(manifest[key], bool):
            raise ValueError(f"manifest.json: {key} is missing or has the wrong type")
    numbers = [*manifest["settings"], manifest["default_setting"]]
    if not 1 <= len(manifest["settings"]) <= MAX_SETTINGS or not all(
        isinstance(n, (int, float)) and not isinstance(n, bool) and abs(n) <= MAX_NUMBER for n in numbers
    ):
        raise ValueError(f"manifest.json: settings must be 1 to {MAX_SETTINGS} numbers within +-{MAX_NUMBER:g}")
    features = manifest["features"]
    if not all(isinstance(n, str) for n in features) or not len(set(features)) == len(features) <= MAX_FEATURES:
        raise ValueError(f"manifest.json: features must be distinct names, at most {MAX_FEATURES}")
    if REMAINING not in features:
        raise ValueError(f"manifest.json: features lack {REMAINING}")
    fills = manifest.get("fills", {})
    needed = [name for name in features if name not in fills] if isinstance(fills, dict) else []
    for name, fill in fills.items() if isinstance(fills, dict) else [(None, None)]:
        is_number = isinstance(fill, (int, float)) and not isinstance(fill, bool) and abs(fill) <= MAX_NUMBER
        if name not in features or not (is_number or fill in needed):
            raise ValueError("manifest.json: each of fills must be a number, or a feature that has no fill itself")
    if not all(isinstance(line, str) for line in manifest["requirements"]):
        raise ValueError("manifest.json: requirements must be lines of text")
    check_interval(manifest.get("decide_every_s", DECIDE_EVERY_S))
    check_promises(manifest.get("release", {}))


def check_interval(seconds: Any) -> None:
    """Raise ValueError unless the time between decisions is a whole number of seconds that an agent can keep."""
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not LEAST_EVERY_S <= seconds <= MOST_EVERY_S:
        raise ValueError(
            f"manifest.json: decide_every_s is {seconds!r}; it must be a whole number of seconds from {LEAST_EVERY_S} "
            f"to {MOST_EVERY_S}"
        )


def check_promises(release: Any) -> None:
    """Raise ValueError unless the promises of a release are a short list of risks with settings."""
    promises = release.get("promises", []) if isinstance(release, dict) else []
    if not isinstance(promises, list) or len(promises) > MAX_PROMISES:
        raise ValueError(f"manifest.json: release.promises must be a list of at most {MAX_PROMISES}")
    for promise in promises:
        risk, setting = (promise.get(name) if isinstance(promise, dict) else None for name in ("risk", "next_setting"))
        is_risk = isinstance(risk, float) and 0.0 < risk < 1.0
        is_setting = setting is None or (isinstance(setting, (int, float)) and abs(setting) <= MAX_NUMBER)
        if not is_risk or not is_setting or not isinstance(promise.get("is_next_promised"), bool):
            raise ValueError(
                "manifest.json: each of release.promises needs a risk between 0 and 1, a next_setting (a number or "
                "null) and is_next_promised (true or false)"
            )
