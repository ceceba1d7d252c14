"""Artifacts from anybody: refused by name in bounded time and memory, before anything is read whole; never NaN."""

from __future__ import annotations

import hashlib
import io
import json
import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent import kinds
from agent import trees as forests
from agent.artifact import Artifact
from agent.model_folder import pack_arrays
from tests.agent.test_artifact import FEATURES, manifest, network, rewrite, sign, trees

MOST_S = 10.0  # of processor; each of these takes under one, and took minutes or all memory before there were bounds
MOST_BYTES = 3 << 30  # of address space, libraries included


def refused_in_bounds(folder: Path) -> str:
    """The one line with which `python -m agent FOLDER` refuses it, in a process that the bounds hold for."""

    def limits() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CPU, (int(MOST_S), int(MOST_S)))

    command = [sys.executable, "-m", "agent", str(folder)]
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, preexec_fn=limits, env=one_thread, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 2 and done.stdout == "", done
    assert done.stderr.startswith("agent: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def packed(entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(header: str, content: bytes = b"") -> bytes:
    """An .npy file of that header, whatever it claims."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + content


@pytest.mark.parametrize("name", ["arrays.npz", "manifest.json"])
@pytest.mark.parametrize("what", ["device", "endless", "pipe", "folder"])
def test_what_is_no_regular_file_is_not_read(tmp_path: Path, name: str, what: str) -> None:
    trees().save(tmp_path / "policy")
    path = tmp_path / "policy" / name
    path.unlink()
    match what:
        case "device":
            path.symlink_to("/dev/tty")
        case "endless":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
    with pytest.raises(ValueError, match=f"{name} is not a regular file"):
        Artifact.load(tmp_path / "policy")
    if name == "arrays.npz" and what in ("pipe", "endless"):
        assert "arrays.npz is not a regular file" in refused_in_bounds(tmp_path / "policy")


@pytest.mark.parametrize(("name", "most"), [("arrays.npz", 1 << 28), ("manifest.json", 1 << 20)])
def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path, name: str, most: int) -> None:
    trees().save(tmp_path / "policy")
    with (tmp_path / "policy" / name).open("r+b") as file:
        file.truncate(1 << 40)  # a hole of a terabyte
    assert f"{name} is larger than {most} bytes" in refused_in_bounds(tmp_path / "policy")


def many_entries() -> bytes:
    """As many files of nothing as a zip file without ZIP64 may have; with it, millions fit into the bytes allowed."""
    return packed({f"{number}.npy": b"" for number in range(65_000)}, zipfile.ZIP_STORED)


def with_zip64(content: bytes) -> bytes:
    """A ZIP64 end before the plain one, which overrules it: the list of files is then as long as it says."""
    body, end = content[:-22], content[-22:]
    record = b"PK\6\6" + (44).to_bytes(8, "little") + bytes(12) + (1 << 40).to_bytes(8, "little") * 4
    return body + record + b"PK\6\7" + bytes(4) + len(body).to_bytes(8, "little") + (1).to_bytes(4, "little") + end


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (lambda: packed({"value.npy": bytes((1 << 28) + 1)}), "unpacks to more"),
        (lambda: packed({f"{n}.npy": bytes(1 << 25) for n in range(9)}), "unpacks to more"),
        (many_entries, "the list of files"),
        (lambda: with_zip64(packed({"value.npy": b""})), "plain zip"),
        (lambda: packed({"value.npy": b""}) + b"a comment", "plain zip"),
        (lambda: packed({"value.npy": bytes(1000)}, zipfile.ZIP_LZMA), "deflate"),
        (lambda: packed({"value.npy": npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({1 << 45},)}}")}), ""),
        (lambda: packed({"value.npy": npy(f"{{'descr': '|S0', 'fortran_order': False, 'shape': ({1 << 45},)}}")}), ""),
        (lambda: packed({"value.npy": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}")}), ""),
        (lambda: packed({"value.npy": npy("(" * 9000)}), ""),
    ],
)
def test_a_hostile_npz_is_refused_in_bounds(tmp_path: Path, content: Any, message: str) -> None:
    trees().save(tmp_path / "policy")
    sign(tmp_path / "policy", "arrays.npz", content())
    text = refused_in_bounds(tmp_path / "policy")
    assert "unreadable artifact" in text and message in text


def chain(length: int) -> dict[str, Any]:
    """A tree in which every left child is a leaf and every right one goes on."""
    node = np.arange(2 * length + 1)
    inner = (node % 2 == 0) & (node < 2 * length)
    return {
        "feature": np.zeros(len(node), np.int16),
        "threshold": np.where(inner, 0.0, np.inf).astype(np.float32),
        "child": np.where(inner, node + 1, node).astype(np.int32),
        "value": np.zeros(len(node)),
    }


def test_a_tree_as_deep_as_allowed_is_walked_and_a_deeper_one_refused() -> None:
    whole = trees(**chain(forests.MAX_DEPTH))
    assert np.isfinite(whole.scores([[1.0, 5.0, 0.0]])).all()
    with pytest.raises(ValueError, match="deeper than"):
        trees(**chain(forests.MAX_DEPTH + 1))


def test_a_long_chain_that_every_node_is_a_root_of_is_refused_at_once(tmp_path: Path) -> None:
    """Level by level, such a thing takes time that grows with the square of its nodes."""
    arrays = {**chain(20_000), "root": np.arange(4_000, dtype=np.int32)}
    trees().save(tmp_path / "policy")
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    sign(tmp_path / "policy", "arrays.npz", buffer.getvalue())
    assert "two parents" in refused_in_bounds(tmp_path / "policy")
    sign(tmp_path / "policy", "arrays.npz", pack_arrays({**arrays, "root": np.zeros(1, np.int32)}))
    assert "deeper than" in refused_in_bounds(tmp_path / "policy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"child": np.asarray([2**64 - 1, 1, 2], np.uint64)}, "child of the artifact is uint64"),
        ({"child": np.asarray([1, 1, 2], np.uint64)}, "child of the artifact is uint64"),
        ({"root": np.asarray([0], np.uint64)}, "root of the artifact is uint64"),
        ({"feature": np.asarray([0, 0, 0], np.uint64)}, "feature of the artifact is uint64"),
        ({"value": np.zeros(3, np.longdouble)}, "wider than float64"),
        ({"value": np.asarray([0.0, 1e300, -1e300])}, "within"),
        ({"value": np.asarray([0, 2**63 - 1, 0])}, "within"),
        ({"root": np.zeros(2, np.int32)}, "two parents"),
        ({"root": np.asarray([0, 1], np.int32)}, "two parents"),
        ({"root": np.zeros(kinds.MAX_TREES + 1, np.int32)}, "allowed: 4096 trees"),
    ],
)
def test_trees_that_would_wrap_or_overflow_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trees(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_0": np.asarray([[1e300, -1e300]])}, "within"),
        ({"weight_0": np.asarray([[2**62, 1]])}, "within"),
        ({"condition_scale": np.asarray([1e-300])}, "at least"),
        ({"scale": np.asarray([1e-30], np.float32)}, "at least"),
        ({"weight_0": np.zeros((kinds.MAX_WIDTH + 1, 2), np.float32)}, "at most 2048 wide"),
    ],
)
def test_a_network_that_would_overflow_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        network(**changes)


@pytest.mark.parametrize("setting", [float("nan"), float("inf"), 1e300, 10**400], ids=["nan", "inf", "1e300", "10^400"])
def test_a_setting_out_of_bounds_is_refused(tmp_path: Path, setting: float) -> None:
    with pytest.raises(ValueError, match="settings"):
        Artifact(manifest("constant-lead", settings=[setting]))
    trees().save(tmp_path / "policy")
    rewrite(tmp_path / "policy", lambda m: m.update(default_setting=1e300))
    assert "settings must be" in refused_in_bounds(tmp_path / "policy")
    with pytest.raises(ValueError, match="not all within"):
        trees().decide([[1.0, 1.0, 1.0]], 1e300)


def test_too_many_features_inputs_or_settings_are_refused() -> None:
    names = [f"f{number}" for number in range(kinds.MAX_FEATURES)]
    with pytest.raises(ValueError, match="at most 1024"):
        Artifact(manifest("constant-lead", features=["remaining_h", *names]))
    with pytest.raises(ValueError, match="settings must be 1 to 100"):
        Artifact(manifest("constant-lead", settings=[1.0] * 101))
    inputs = {"base": "start_estimate_h", "inputs": ["free_nodes"] * 1025}
    with pytest.raises(ValueError, match="inputs must be a list"):
        Artifact(manifest("trees", parameters=inputs), trees().arrays)


def extreme(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers at both ends of what an artifact may hold, and zeros."""
    return rng.choice([-kinds.MAX_NUMBER, kinds.MAX_NUMBER, 0.0], shape)


@pytest.mark.parametrize("seed", range(20))
def test_no_artifact_that_is_accepted_scores_anything_but_a_number(seed: int) -> None:
    """The largest numbers, layers, settings and observations that there may be: NaN would silently mean "wait"."""
    rng = np.random.default_rng(seed)
    largest = np.finfo(np.float32).max
    observations = rng.choice(np.asarray([-largest, largest, 0.0, 1.0], np.float32), (50, 3))
    settings = [-kinds.MAX_NUMBER, 0.0, 1e-300, kinds.MAX_NUMBER]
    leaves = {"value": extreme(rng, (3,)), "threshold": np.asarray([largest, np.inf, np.inf], np.float32)}
    width, layers = 200, kinds.MAX_LAYERS
    shapes = [(width, 3), *[(width, width)] * (layers - 2), (2, width)]
    deep = {f"weight_{n}": extreme(rng, shape) for n, shape in enumerate(shapes)}
    deep |= {f"bias_{n}": extreme(rng, shape[:1]) for n, shape in enumerate(shapes)}
    arrays = {
        **{"column": np.asarray([0, 1]), "minus": np.asarray([2, -1]), "mean": extreme(rng, (2,))},
        **{"scale": rng.choice([1 / kinds.MAX_NUMBER, kinds.MAX_NUMBER], 2), "condition_scale": np.asarray([1e-6])},
        **{"skip": extreme(rng, (2, 3)), **deep},
    }
    made = [
        trees(**leaves),
        Artifact(manifest("mlp", parameters={"layers": layers, "head": "q"}), arrays),
        Artifact(manifest("estimate-ratio", parameters={"feature": "free_nodes"})),
        Artifact(manifest("constant-lead")),
    ]
    for artifact in made:
        assert np.isfinite(artifact.scores(observations, settings)).all(), artifact.manifest["kind"]


def test_a_name_of_control_characters_reaches_no_terminal(tmp_path: Path) -> None:
    folder = tmp_path / "policy"
    trees().save(folder)
    hostile = "a\x1b[2J\u202e"
    rewrite(folder, lambda m: m.update(parameters={"base": hostile, "inputs": [hostile]}))
    message = refused_in_bounds(folder)
    assert "\x1b" not in message and "\u202e" not in message and "\\x1b[2J" in message
    rewrite(folder, lambda m: m.update(parameters=[]))
    folder.rename(tmp_path / hostile)
    message = refused_in_bounds(tmp_path / hostile)
    assert "\x1b" not in message and "\u202e" not in message and "\\x1b[2J\\u202e" in message


def test_the_helpers_make_what_they_say(tmp_path: Path) -> None:
    """A signed folder that nothing is wrong with loads, so that what is refused above is refused for its own sake."""
    trees().save(tmp_path / "policy")
    content = packed({f"{n}.npy": npy_of(a) for n, a in trees().arrays.items()})
    sign(tmp_path / "policy", "arrays.npz", content)
    assert json.loads((tmp_path / "policy" / "manifest.json").read_text())["sha256"] == {
        "arrays.npz": hashlib.sha256(content).hexdigest()
    }
    assert Artifact.load(tmp_path / "policy", FEATURES).decide([[0.0, 1.0, 1.0]]).all()


def npy_of(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
