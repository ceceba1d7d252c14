"""The loader of policy artifacts for training, evaluation and live use. Needs only numpy.

An artifact is a folder with `manifest.json`, `arrays.npz` (no pickles) and, if released, `checks.json`: observations
with the answers that the policy must give wherever it is loaded. It decides on a batch of observations whether to
submit the successor now or wait. Forests and boosted trees are stored as arrays too. Their libraries' own model files
would require those libraries on every agent, and XGBoost ends the process on a malformed one.

This file imports nothing of Baton, because a released model carries a copy of it.

Over 400 lines: a released policy carries only this file, so reading, checking and deciding must stay together. It
holds the folder format and a short section for each kind of model.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FORMAT_VERSION = 1
ARRAYS, CHECKS = "arrays.npz", "checks.json"

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]

# Time between the decisions on a predecessor, s: the default of an artifact, and the bounds of any.
DECIDE_EVERY_S, LEAST_EVERY_S, MOST_EVERY_S = 600, 60, 21_600
REMAINING = "remaining_h"  # the feature that every kind needs: hours until the predecessor's end
# An artifact may be untrusted, and the agent runs on a shared login node. We reject an artifact before it takes more
# time or memory than these bounds allow. Each comment ends with the most that a fit of Baton has needed so far.
MAX_MANIFEST_BYTES = 1 << 20  # 2 kB
MAX_ARRAY_BYTES = 1 << 28  # of arrays.npz, both packed and unpacked; 360 kB
MAX_CHECKS_BYTES = 1 << 20  # 30 kB
MAX_CHECKS = 1024  # observations in checks.json; 48
MAX_DIRECTORY_BYTES = 1 << 14  # of the list of files in arrays.npz, at about 60 bytes per file; 12 files
MAX_FEATURES = 1024  # also for the inputs of a model; 46
MAX_PROMISES = 16  # 3
MAX_SETTINGS = 100  # also the most that a policy may declare for a comparison; 15
MAX_NODES = 1 << 22  # of all trees together; 20,000
MAX_TREES = 4096  # every row walks all of them at once; 121
MAX_DEPTH = 1024  # steps of a walk; 23
MAX_WIDTH = 2048  # of a network's layer; 64
MAX_LAYERS = 16  # 3
# Bound for weights, leaf values and settings; 11. Within it no score overflows: a network's score is at most
# (width x bound) to the power of layers, under 1e154. An overflowing sum would be NaN, and NaN never means "submit".
MAX_NUMBER = 1e6
MAX_LOG_WAIT = 300.0  # cap of the logarithm of a predicted wait in hours; its exponential is still finite
BLOCK_ROWS = 1024  # rows processed at once, so that intermediate arrays stay in the cache
CHECK_TOLERANCE = 1e-6  # relative to a score, or to 1; differences between processors are far smaller
LEAVE_EVERY = 4  # tree levels after which rows that have reached a leaf are dropped from the walk
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
        rows = np.ascontiguousarray(observations, np.float32)
        names = self.manifest["features"]
        if rows.ndim != 2 or rows.shape[1] != len(names):
            raise ValueError(f"observations of shape {rows.shape}; the artifact needs (n, {len(names)})")
        finite = np.isfinite(rows)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise ValueError(f"observation {row}: {names[column]} is {rows[row, column]}, not a finite number")
        return rows

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

    @cached_property
    def depth(self) -> int:
        """Steps from the roots of the trees to their deepest leaf. Raises ValueError above MAX_DEPTH.

        No node has two parents (`check_trees`), so all levels together hold at most all nodes.
        """
        child = self.arrays["child"]
        level, steps = self.arrays["root"], 0
        while len(inner := level[child[level] != level]):
            if steps == MAX_DEPTH:
                raise ValueError(f"a tree of the artifact is deeper than {MAX_DEPTH} levels")
            level, steps = np.concatenate([child[inner], child[inner] + 1]), steps + 1
        return steps

    # -- the folder -------------------------------------------------------------------------------------------------

    def save(self, folder: Path | str) -> None:
        """Write the folder, replacing an older one as a whole. The same artifact gives the same bytes."""
        files = {ARRAYS: pack_arrays(self.arrays)}
        if self.checks is not None:
            files[CHECKS] = (json.dumps(self.checks, sort_keys=True, allow_nan=False) + "\n").encode()
        stated = {**self.manifest, "sha256": digests(files)}
        manifest = json.dumps(stated, indent=1, sort_keys=True, allow_nan=False)
        write_folder(Path(folder), {**files, "manifest.json": (manifest + "\n").encode()})

    @classmethod
    def load(cls, folder: Path | str, features: Sequence[str] | None = None) -> Artifact:
        """Read a folder. features: the names that the caller will observe, in order; the artifact must match them.

        Raises ValueError, one line, for anything that is not a complete artifact of this format.
        """
        folder = Path(folder)
        with one_line(f"{folder}: unreadable artifact"):
            manifest = json_object("manifest.json", read_file(folder / "manifest.json", MAX_MANIFEST_BYTES))
            check_manifest(manifest)
            stated = manifest.pop("sha256", None)
            stated = stated if isinstance(stated, dict) else {}
            files = {ARRAYS: read_file(folder / ARRAYS, MAX_ARRAY_BYTES)}
            if CHECKS in stated:
                files[CHECKS] = read_file(folder / CHECKS, MAX_CHECKS_BYTES)
            found = digests(files)
            for name in (*found, *stated):
                if stated.get(name) != found.get(name):
                    raise ValueError(f"{name} is damaged or truncated (sha256 differs from manifest.json)")
            if features is not None and list(features) != manifest["features"]:
                raise ValueError(difference(list(features), manifest["features"]))
            checks = json_object(CHECKS, files[CHECKS]) if CHECKS in files else None
            loaded = cls(manifest, unpack_arrays(files[ARRAYS]), checks)
            loaded.replay()
            return loaded


def difference(observed: list[str], needed: list[str]) -> str:
    """Describe in one line how two lists of features differ."""
    missing, unknown = [n for n in needed if n not in observed], [n for n in observed if n not in needed]
    detail = f"missing {missing}, unknown {unknown}" if missing or unknown else "the same names in another order"
    return f"made for other features ({detail}); train again, or use a matching release"


# -- reading and writing ------------------------------------------------------------------------------------------


@contextlib.contextmanager
def one_line(where: str) -> Iterator[None]:
    """Turn any error from a hostile or truncated file into a ValueError of one line."""
    try:
        yield
    except Exception as error:  # zip, zlib, JSON and numpy each raise their own types
        text = " ".join(str(error).split())[:300]
        raise ValueError(f"{where}: {text or type(error).__name__}") from error


def read_file(path: Path, most: int) -> bytes:
    """Read a whole regular file of at most `most` bytes. Devices, blocked pipes and endless files are refused.

    Raises OSError, and ValueError for a larger file before the rest of it is read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError(f"{path.name} is not a regular file")
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        size = os.fstat(file.fileno()).st_size  # the file may still grow
        if size > most or len(content := file.read(most + 1)) > most:
            raise ValueError(f"{path.name} is larger than {most} bytes")
    return content


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder of these files (content by name), replacing an older one as a whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        temporary.chmod(0o755)
        for name, content in files.items():
            (temporary / name).write_bytes(content)
        if folder.exists():
            aside = temporary.with_name(temporary.name + ".old")
            os.rename(folder, aside)
            os.rename(temporary, folder)
            shutil.rmtree(aside)
        else:
            os.rename(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """Compute the SHA-256 of each file's content."""
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


def json_object(name: str, content: bytes) -> dict[str, Any]:
    """Parse the JSON object in a file of that name. Raises ValueError, also for NaN and infinities."""

    def refuse(constant: str) -> float:
        raise ValueError(f"{name} holds {constant}, which JSON does not allow")

    found = json.loads(content, parse_constant=refuse)
    if not isinstance(found, dict):
        raise ValueError(f"{name} does not hold a JSON object")
    return found


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


def pack_arrays(arrays: dict[str, NDArray[Any]]) -> bytes:
    """Pack the arrays as .npz; the same arrays give the same bytes (numpy's savez stores the time of day)."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(arrays):
            content = io.BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(arrays[name]), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), content.getvalue(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def unpack_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """Unpack the arrays of an .npz without pickles. Raises ValueError before unpacking over MAX_ARRAY_BYTES."""
    check_directory(content)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > MAX_ARRAY_BYTES:
            raise ValueError(f"arrays.npz unpacks to more than {MAX_ARRAY_BYTES} bytes")
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in archive.infolist()):
            raise ValueError("arrays.npz is not packed with deflate")  # LZMA could take any amount of memory
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def check_directory(content: bytes) -> None:
    """Raise ValueError unless the zip file's list of files is short, because zipfile makes an object of each entry.

    The last 22 bytes of a zip file without a comment hold the length of the list. A ZIP64 record, 20 bytes before them,
    would override it (PKWARE APPNOTE 4.3.15, 4.3.16). We never write comments or ZIP64.
    """
    end = content[-22:]
    if not end.startswith(b"PK\5\6") or not end.endswith(b"\0\0") or content[-42:-38] == b"PK\6\7":
        raise ValueError("arrays.npz does not end like a plain zip file")
    if int.from_bytes(end[12:16], "little") > MAX_DIRECTORY_BYTES:
        raise ValueError(f"the list of files in arrays.npz is longer than {MAX_DIRECTORY_BYTES} bytes")


def within_bound(numbers: NDArray[Any]) -> bool:
    """Whether all numbers are within +-MAX_NUMBER."""
    return bool(((numbers >= -MAX_NUMBER) & (numbers <= MAX_NUMBER)).all())


# -- kinds --------------------------------------------------------------------------------------------------------


def nothing(artifact: Artifact) -> None:
    """Accept an artifact without further checks."""


def no_arrays(artifact: Artifact) -> tuple[str, ...]:
    """Return no names, for a kind without arrays."""
    return ()


@dataclass(frozen=True)
class ArtifactKind:
    """The functions of one kind of artifact: its scores, the names of its arrays, and its checks."""

    scores: Callable[[Artifact, Float32s, Float64s], Float64s]  # (n, F), (k,) -> (k, n)
    arrays: Callable[[Artifact], tuple[str, ...]] = no_arrays
    check: Callable[[Artifact], None] = nothing


def constant_lead(artifact: Artifact, rows: Float32s, settings: Float64s) -> Float64s:
    """Submit `setting` hours before the predecessor's end; 0 is the reactive policy."""
    return settings[:, None] - rows[:, artifact.column(REMAINING)].astype(np.float64)


def estimate_ratio(artifact: Artifact, rows: Float32s, settings: Float64s) -> Float64s:
    """Submit when setting x estimated wait (a feature, in hours) >= remaining time."""
    estimate = rows[:, artifact.column(artifact.parameters.get("feature"))].astype(np.float64)
    return settings[:, None] * estimate - rows[:, artifact.column(REMAINING)].astype(np.float64)


def check_estimate(artifact: Artifact) -> None:
    """Raise ValueError unless the feature of the estimate exists."""
    artifact.column(artifact.parameters.get("feature"))


def trees(artifact: Artifact, rows: Float32s, settings: Float64s) -> Float64s:
    """Submit when setting x (1 h + predicted wait) - 1 h >= remaining time.

    Parameters: `base`, a feature that estimates the wait in hours, and `inputs`, the names of the trees' features. The
    sum of the trees is the logarithm of (1 + wait) / (1 + base). The error of a predicted wait grows with the wait, so
    the setting is a factor. The added hour lets the factor move predictions of zero too.
    """
    base = rows[:, artifact.column(artifact.parameters["base"])].astype(np.float64)
    log_wait = np.log1p(np.maximum(base, 0.0)) + sum_of_trees(artifact, rows[:, artifact.inputs])
    due = rows[:, artifact.column(REMAINING)].astype(np.float64) + 1.0
    return settings[:, None] * np.exp(np.clip(log_wait, 0.0, MAX_LOG_WAIT)) - due


def check_inputs(artifact: Artifact) -> None:
    """Raise ValueError unless `base` is a feature of the artifact and `inputs` a list of bounded length."""
    artifact.column(artifact.parameters.get("base"))
    inputs = artifact.parameters.get("inputs")
    if not isinstance(inputs, list) or not 1 <= len(inputs) <= MAX_FEATURES:
        raise ValueError(f"manifest.json: parameters.inputs must be a list of 1 to {MAX_FEATURES} features")


def sum_of_trees(artifact: Artifact, rows: Float32s) -> Float64s:
    """Return the sum over trees (n,) for rows (n, inputs)."""
    sums: Float64s = leaves_of_trees(artifact, rows).sum(axis=1)
    return sums


def leaves_of_trees(artifact: Artifact, rows: Float32s) -> Float64s:
    """Return (n, trees): the value of the leaf that each row reaches in each tree; rows: (n, inputs).

    Each step moves all rows down one level in all trees; a leaf is its own child. The walk goes right if input >
    threshold. All trees share one numbering of nodes: `child` is the left child, and the right one follows it. `root`
    has shape (trees,).
    """
    feature, threshold = artifact.arrays["feature"], artifact.arrays["threshold"]
    child, root = artifact.arrays["child"], artifact.arrays["root"]
    flat = np.ascontiguousarray(rows).ravel()
    current = np.broadcast_to(root, (len(rows), len(root))).astype(np.int64).ravel()  # node of each row in each tree
    walking = np.arange(current.size)
    node, first = current, np.repeat(np.arange(len(rows), dtype=np.int64) * rows.shape[1], len(root))
    leaf = child == np.arange(len(child))
    for level in range(artifact.depth):
        node = child.take(node) + (flat.take(first + feature.take(node)) > threshold.take(node))
        if level % LEAVE_EVERY == LEAVE_EVERY - 1:  # most walks are far shorter than the longest
            current[walking] = node
            inner = np.flatnonzero(~leaf.take(node))
            walking, node, first = walking[inner], node[inner], first[inner]
    current[walking] = node
    leaves: Float64s = artifact.arrays["value"].take(current).reshape(len(rows), len(root))
    return leaves


def stopping_trees(artifact: Artifact, rows: Float32s, settings: Float64s) -> Float64s:
    """Compute the log-odds that submitting now costs less than waiting; the setting is the price of overlap.

    The price is in hours per hour of overlap. Parameters: `inputs`, features in hours (the trees take the signed
    logarithm of each, minus that of the remaining time); `base`, one of the inputs; `sharpness`; `prices`, rising.
    `group` (trees,) assigns each tree to a sum. Sum 0 models the chance that a successor submitted now starts too late;
    sum i is its correction for price i.
    score = sharpness x base + sum 0 - log(setting) + the correction, interpolated linearly in the logarithm of the
    price between the prices on either side of the setting, and constant beyond the last price.
    """
    normal = relative_to_remaining(artifact, rows, artifact.inputs).astype(np.float32)
    leaves, group = leaves_of_trees(artifact, normal), artifact.arrays["group"]
    prices = np.log(np.asarray(artifact.parameters["prices"], np.float64))
    sums = np.stack([leaves[:, group == i].sum(axis=1) for i in range(len(prices) + 1)])
    base = relative_to_remaining(artifact, rows, np.asarray([artifact.column(artifact.parameters["base"])]))[:, 0]
    log_price = np.log(np.maximum(settings, 1e-6))
    place = np.interp(log_price, prices, np.arange(1.0, len(prices) + 1))  # position in `sums`
    before = np.minimum(place.astype(np.int64), max(len(prices) - 1, 1))
    share = (place - before)[:, None]
    changes = (1.0 - share) * sums[before] + share * sums[np.minimum(before + 1, len(prices))]
    scores: Float64s = float(artifact.parameters["sharpness"]) * base + sums[0] - log_price[:, None] + changes
    return scores


def relative_to_remaining(artifact: Artifact, rows: Float32s, columns: NDArray[np.int64]) -> Float64s:
    """Return (n, columns): the signed logarithm of those features (hours), minus that of the remaining time."""
    return signed_log(rows[:, columns]) - signed_log(rows[:, [artifact.column(REMAINING)]])


def check_stopping_trees(artifact: Artifact) -> None:
    """Raise ValueError unless `check_trees` passes and prices and groups are consistent."""
    check_trees(artifact)
    prices, sharpness = artifact.parameters.get("prices"), artifact.parameters.get("sharpness")
    if (
        not isinstance(prices, list)
        or not 1 <= len(prices) <= MAX_SETTINGS
        or not all(is_positive(price) for price in prices)
        or sorted(set(prices)) != prices
    ):
        raise ValueError(f"manifest.json: prices must be 1 to {MAX_SETTINGS} rising positive numbers")
    if not is_positive(sharpness):
        raise ValueError("manifest.json: sharpness must be a positive number")
    group = artifact.arrays["group"]
    if group.dtype.kind not in "iu" or group.shape != artifact.arrays["root"].shape:
        raise ValueError("the trees' group must be one integer per tree")
    if (group < 0).any() or (group > len(prices)).any():
        raise ValueError(f"a tree's group is not within 0 to {len(prices)}")


def is_positive(number: Any) -> bool:
    """Whether it is a number from 1 / MAX_NUMBER to MAX_NUMBER."""
    return isinstance(number, (int, float)) and not isinstance(number, bool) and 1 / MAX_NUMBER <= number <= MAX_NUMBER


def check_trees(artifact: Artifact) -> None:
    """Raise ValueError unless every node is in range, each child follows its single parent, and depth is bounded.

    So every walk ends within MAX_DEPTH steps.
    """
    check_inputs(artifact)
    feature, threshold = artifact.arrays["feature"], artifact.arrays["threshold"]
    child, value, root = (artifact.arrays[name] for name in ("child", "value", "root"))
    if any(a.ndim != 1 for a in artifact.arrays.values()) or not len(root):
        raise ValueError("the trees' arrays must have one dimension and hold at least one tree")
    nodes = len(child)
    if nodes > MAX_NODES or len(root) > MAX_TREES:
        raise ValueError(f"{len(root)} trees with {nodes} nodes; allowed: {MAX_TREES} trees with {MAX_NODES} nodes")
    if not len(feature) == len(threshold) == len(value) == nodes:
        raise ValueError("the trees' feature, threshold, child and value must have the same length")
    if any(a.dtype.kind not in "iu" for a in (feature, child, root)):
        raise ValueError("the trees' feature, child and root must be integers")
    child, root = child.astype(np.int64), root.astype(np.int64)  # child + 1 may overflow a narrow type
    leaf = child == np.arange(nodes)
    if (child < np.arange(nodes)).any() or (child + ~leaf >= nodes).any() or (root < 0).any() or (root >= nodes).any():
        raise ValueError("the trees' child or root points outside them or backwards")
    if (np.bincount(np.concatenate([child[~leaf], child[~leaf] + 1, root])) > 1).any():
        raise ValueError("a node of the trees has two parents")
    if (feature < 0).any() or (feature >= len(artifact.inputs)).any():
        raise ValueError(f"a tree splits on a feature outside 0 to {len(artifact.inputs) - 1}")
    if not (threshold[leaf] == np.inf).all() or not within_bound(value) or np.isnan(threshold).any():
        raise ValueError(
            f"the trees' thresholds must be numbers (infinity for leaves), and their values within +-{MAX_NUMBER:g}"
        )
    _ = artifact.depth


def mlp(artifact: Artifact, rows: Float32s, settings: Float64s) -> Float64s:
    """Evaluate a ReLU network with a linear skip path; the last input is log(setting), the weight of overlap.

    Head `q`: two outputs, the values of waiting and of submitting; the score is their difference. Head `logit`: one
    output. Products are in float64; they differ between processors, but far too little to change a decision.
    """
    arrays = {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in artifact.arrays.items()}
    held = artifact.arrays
    normal = network_inputs(rows, held["column"], held["minus"], held["mean"], held["scale"]).astype(np.float64)
    first = normal @ arrays["weight_0"][:, :-1].T + arrays["bias_0"]
    past = normal @ arrays["skip"][:, :-1].T
    conditions = np.log(np.maximum(settings, 1e-6)) / arrays["condition_scale"][0]
    out = np.empty((len(settings), len(rows)), np.float64)
    for i, condition in enumerate(conditions):
        hidden = first + condition * arrays["weight_0"][:, -1]
        for layer in range(1, artifact.parameters["layers"]):
            hidden = np.maximum(hidden, 0.0) @ arrays[f"weight_{layer}"].T + arrays[f"bias_{layer}"]
        hidden = hidden + past + condition * arrays["skip"][:, -1]
        out[i] = hidden[:, 1] - hidden[:, 0] if artifact.parameters["head"] == "q" else hidden[:, 0]
    return out


def network_inputs(
    rows: Float32s,
    column: NDArray[Any],
    minus: NDArray[Any],
    mean: NDArray[Any],
    scale: NDArray[Any],
    bound: float = 5.0,
) -> Float32s:
    """Return inputs (n, i) as float32, standardised and clipped to +-bound (no network was trained outside it).

    Input i is the signed log(1 + |x|) of feature column[i], minus that of feature minus[i] unless it is -1. So an
    input can be the ratio of an estimated wait to the remaining time, which means the same at any load.
    """
    taken = signed_log(rows[:, column]) - np.where(minus >= 0, signed_log(rows[:, minus]), 0.0)
    inputs: Float32s = np.clip((taken - mean) / scale, -bound, bound).astype(np.float32)
    return inputs


def signed_log(numbers: Float32s) -> Float64s:
    """Compute sign(x) log(1 + |x|) in float64, because numpy's float32 logarithm differs between processors."""
    wide = numbers.astype(np.float64)
    logarithm: Float64s = np.sign(wide) * np.log1p(np.abs(wide))
    return logarithm


def mlp_arrays(artifact: Artifact) -> tuple[str, ...]:
    """Return the names of the arrays of a network with `layers` layers."""
    layers = artifact.parameters.get("layers")
    if not isinstance(layers, int) or not 1 <= layers <= MAX_LAYERS:
        raise ValueError(f"manifest.json: parameters.layers is {layers!r}; allowed: 1 to {MAX_LAYERS}")
    names = [f"{part}_{layer}" for layer in range(layers) for part in ("weight", "bias")]
    return ("column", "minus", "mean", "scale", "condition_scale", "skip", *names)


def check_mlp(artifact: Artifact) -> None:
    """Raise ValueError unless the layers' shapes chain from the features and the condition to the head."""
    arrays, features = artifact.arrays, len(artifact.manifest["features"])
    column, minus, width = arrays["column"], arrays["minus"], arrays["column"].size
    outputs = {"q": 2, "logit": 1}.get(str(artifact.parameters.get("head")))
    if max(max(array.shape, default=0) for array in arrays.values()) > MAX_WIDTH:
        raise ValueError(f"a network's layers must be at most {MAX_WIDTH} wide")
    if not all(within_bound(array) for array in arrays.values()):
        raise ValueError(f"a network's numbers must lie within +-{MAX_NUMBER:g}")
    if any(arrays[name].shape != (width,) for name in ("column", "minus", "mean", "scale")):
        raise ValueError("a network's column, minus, mean and scale must have the same length")
    if column.dtype.kind not in "iu" or minus.dtype.kind != "i" or arrays["condition_scale"].shape != (1,):
        raise ValueError("a network's column and minus must be integers and condition_scale one number")
    if not width or column.min() < 0 or minus.min() < -1 or max(column.max(), minus.max()) >= features:
        raise ValueError(f"a network's inputs must be features from 0 to {features - 1}")
    if min(arrays["scale"].min(), arrays["condition_scale"][0]) < 1 / MAX_NUMBER:
        raise ValueError(f"a network's scales must be at least {1 / MAX_NUMBER:g}")
    if arrays["skip"].shape != (outputs, width + 1):
        raise ValueError(f"the network's skip has shape {arrays['skip'].shape}, not ({outputs}, {width + 1})")
    width += 1
    for layer in range(artifact.parameters["layers"]):
        weight, bias = arrays[f"weight_{layer}"], arrays[f"bias_{layer}"]
        if weight.ndim != 2 or weight.shape[1] != width or bias.shape != weight.shape[:1]:
            raise ValueError(f"layer {layer} of the network has shape {weight.shape}, {bias.shape}; input is {width}")
        width = weight.shape[0]
    if width != outputs:
        raise ValueError(f"the network has {width} outputs; head {artifact.parameters.get('head')!r} needs {outputs}")


TREES = ("feature", "threshold", "child", "value", "root")
KINDS: dict[str, ArtifactKind] = {
    "constant-lead": ArtifactKind(constant_lead),
    "estimate-ratio": ArtifactKind(estimate_ratio, check=check_estimate),
    "trees": ArtifactKind(trees, lambda artifact: TREES, check_trees),
    "stopping-trees": ArtifactKind(stopping_trees, lambda artifact: (*TREES, "group"), check_stopping_trees),
    "mlp": ArtifactKind(mlp, mlp_arrays, check_mlp),
}
