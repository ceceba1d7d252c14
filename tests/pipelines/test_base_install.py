"""The installation without the extra: numpy alone loads a release and decides; `baton` says what to install."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from agent.artifact import Artifact
from tests.conftest import REPOSITORY
from tests.models.pair_tables import artifact, random_pairs


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a fresh environment with this project's wheel and numpy, nothing else.

    The wheel is built from a copy, as building leaves files behind. numpy is this environment's own, by links: nothing
    is downloaded.
    """
    folder = tmp_path_factory.mktemp("base")
    left_out = shutil.ignore_patterns(".*", "data", "tests", "docs", "bench", "examples", "build", "*.egg-info")
    shutil.copytree(REPOSITORY, folder / "source", ignore=left_out)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "-w", str(folder), str(folder / "source")], check=True, capture_output=True)
    (wheel,) = folder.glob("baton-*.whl")
    venv.create(folder / "venv", with_pip=False)
    programs = folder / "venv" / "bin"
    install = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "-q", "--no-deps"]
    subprocess.run([*install, "--no-index", str(wheel)], check=True, capture_output=True)
    ours, theirs = Path(sysconfig.get_path("purelib")), Path(next((folder / "venv").glob("lib/python*/site-packages")))
    for path in ours.glob("numpy*"):
        (theirs / path.name).symlink_to(path)
    return programs


def test_baton_says_what_to_install(base: Path) -> None:
    for command in ([str(base / "baton"), "run"], [str(base / "baton")], [str(base / "baton"), "--version"]):
        done = subprocess.run(command, capture_output=True, text=True, cwd=base)
        assert done.returncode == 2 and done.stdout == ""
        assert done.stderr.startswith("baton: ") and done.stderr.count("\n") == 1
        assert "pip install '.[pipeline]'" in done.stderr and "typer" in done.stderr


def exported(folder: Path) -> Artifact:
    """A released policy as a release leaves it: a folder a version, with checks, and the link of the champion."""
    released = artifact().with_checks(random_pairs(0, 3).observations[:48])
    released.save(folder / "1")
    (folder / "champion").unlink(missing_ok=True)
    (folder / "champion").symlink_to("1")
    return released


@pytest.mark.timed
def test_the_champion_loads_and_decides_within_a_second(base: Path) -> None:
    """Processor time of the whole process: start, numpy, the artifact, its checks, one decision."""
    released = exported(base.parent / "timed")
    observation = json.dumps(dict.fromkeys(released.manifest["features"], 0))
    command = [str(base / "python"), "-m", "agent", str(base.parent / "timed" / "champion"), "--decide"]
    took_s = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, capture_output=True, text=True, cwd=base, input=observation, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took_s.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(took_s) < 1.0


def test_the_loader_needs_numpy_alone(base: Path) -> None:
    released = exported(base.parent / "release")
    command = [str(base / "python"), "-m", "agent", str(base.parent / "release" / "champion")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=base, check=True)
    assert json.loads(done.stdout)["features"] == released.manifest["features"]
    observation = json.dumps(dict.fromkeys(released.manifest["features"], 0))
    decided = subprocess.run(
        [*command, "--decide"], capture_output=True, text=True, cwd=base, input=observation, check=True
    )
    assert json.loads(decided.stdout)["submit"] is True
    listed = subprocess.run(
        [str(base / "python"), "-c", "from importlib.metadata import distributions as d; print([x.name for x in d()])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(eval(listed.stdout)) == ["baton", "numpy"]
