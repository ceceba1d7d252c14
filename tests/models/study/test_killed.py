"""A training or a build of pairs that is killed loses only what it was at; of two at once, the second finds it done."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.pairs import injected as pairs
from models.provisioning.protocol import PairTable
from models.provisioning.training.train import train
from models.study.cluster import Study
from models.study.fits import fit
from models.tracking import training_runs
from tests.conftest import REPOSITORY
from tests.models.pair_tables import random_pairs
from tests.models.toy_study import POLICIES, THREE, WINDOW, toy_study
from traces.files.locks import locked
from traces.store import stamps


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    monkeypatch.setattr(training_runs, "MlflowTracker", lambda data: None)
    return toy_study(tmp_path)


def kill(study: Study, what: str) -> None:
    command = [sys.executable, "-m", "tests.models.toy_study", str(study.data.root), what]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == -9, done.stderr


def same(one: PairTable, other: PairTable) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in PairTable.__dataclass_fields__)


def test_after_a_kill_in_training_only_the_rest_is_fitted(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    kill(study, "fits")
    kept = {str(path): path.stat().st_mtime_ns for path in study.data.artifacts.glob("policies/**/arrays.npz")}
    assert len(kept) == THREE
    fitted: list[tuple[str, int]] = []

    def noting(*arguments: Any, keep: Callable[[Any], None], **named: Any) -> Any:
        def note(one: Any) -> None:
            fitted.append((one.name, one.seed))
            keep(one)

        return train(*arguments, keep=note, **named)

    monkeypatch.setattr("models.study.fits.train", noting)
    fits, reused = fit(study, POLICIES, WINDOW)
    assert len(fits) == 5 and len(fitted) == 5 - THREE and {name for name, _ in fitted} == {"forest"}
    assert reused == ["reactive", "average-wait"]
    assert {path: Path(path).stat().st_mtime_ns for path in kept} == kept, "what was kept is as it was"
    assert not list(study.data.artifacts.rglob("*.part"))
    undisturbed, _ = fit(toy_study(study.data.root / "other"), POLICIES, WINDOW)
    assert [content_digest(one.artifact) for one in fits] == [content_digest(one.artifact) for one in undisturbed]


def test_after_a_kill_over_pairs_they_are_built_whole(study: Study) -> None:
    kill(study, "pairs")
    folder = study.data.artifacts / "pairs" / "toy"
    (left,) = folder.iterdir()
    assert left.name.startswith(".") and left.name.endswith(".part")
    built = study.pairs(WINDOW)
    assert [path.suffix for path in folder.iterdir()] == [".npz"], "and what was left is gone"
    assert same(built, toy_study(study.data.root / "other").pairs(WINDOW)) and same(built, study.pairs(WINDOW))


def turned(whole: bytes) -> bytes:
    """With another byte in the middle."""
    return whole[: len(whole) // 2] + b"?" + whole[len(whole) // 2 + 1 :]


def encrypted(whole: bytes) -> bytes:
    """With the flag of every entry that says that it takes a password."""
    parts = whole.split(b"PK\x01\x02")
    return b"PK\x01\x02".join([parts[0], *(part[:4] + bytes([part[4] | 1]) + part[5:] for part in parts[1:])])


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda _: b"\x80\x04garbage", lambda _: b"PK\x03\x04garbage", turned, encrypted]
)
def test_damaged_pairs_are_built_again_and_it_is_said(
    study: Study, damage: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    built = study.pairs(WINDOW)
    (path,) = (study.data.artifacts / "pairs" / "toy").iterdir()
    path.write_bytes(damage(path.read_bytes()))
    assert same(study.pairs(WINDOW), built)
    assert f"{path} is damaged" in caplog.text and "building these pairs again" in caplog.text
    assert same(pairs.load(path), built)


@pytest.mark.parametrize("content", ["", "[]", '{"left": 7, "fingerprint": "x"}', "[" * 200_000, "\x00\udcff"])
def test_a_damaged_stamp_is_none(study: Study, content: str) -> None:
    stamps.write_stamp(study.data, "step", "toy", "f", {"a": 1})
    assert stamps.read_stamp(study.data, "step", "toy", "f") == {"a": 1}
    stamps.stamp_path(study.data, "step", "toy").write_bytes(content.encode("utf-8", "surrogateescape"))
    assert stamps.read_stamp(study.data, "step", "toy") is None


def at_once(work: Callable[[], object], until_second_waits: threading.Event) -> None:
    """Twice the same in two threads, which lock each other out as processes do."""
    both = [threading.Thread(target=work) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert until_second_waits.is_set() and not any(one.is_alive() for one in both)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once somebody waits for a lock of trainings or of pairs."""
    event = threading.Event()

    def lock(root: Path, purpose: str) -> AbstractContextManager[None]:
        return locked(root, purpose, say=lambda _: event.set())

    monkeypatch.setattr("models.study.pair_tables.locked", lock)
    monkeypatch.setattr("models.study.fits.locked", lock)
    return event


def test_two_that_want_the_same_pairs_build_them_once(
    study: Study, waits: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds, got = [], []

    def build(*arguments: Any) -> PairTable:
        builds.append(arguments)
        assert waits.wait(30)
        table = random_pairs(len(builds), 3)
        pairs.save(table, arguments[-1])
        return table

    monkeypatch.setattr("models.study.pair_tables._build", build)
    at_once(lambda: got.append(study.pairs(WINDOW)), waits)
    assert len(builds) == 1 and len(got) == 2 and same(*got)


def test_two_that_want_the_same_training_fit_it_once(
    study: Study, waits: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    study.fit_pairs(WINDOW)
    fitted, got = [], []

    def training(*arguments: Any, **named: Any) -> Any:
        fitted.append(arguments)
        assert waits.wait(30)
        return train(*arguments, **named)

    monkeypatch.setattr("models.study.fits.train", training)
    at_once(lambda: got.append(fit(study, ["reactive"], WINDOW)), waits)
    assert len(fitted) == 1 and sorted(reused for _, reused in got) == [[], ["reactive"]]
