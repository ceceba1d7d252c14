"""The image of deploy/Containerfile, built by buildah on a Debian that debootstrap makes: no registry is needed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY

FOLDER = REPOSITORY / "deploy"
PYTHON = "ca-certificates,python3,python3-venv,python3-pip,libgomp1"
Buildah = Callable[..., str]


@pytest.fixture(scope="module")
def buildah(tmp_path_factory: pytest.TempPathFactory) -> Buildah:
    """Run buildah with a store of its own; returns what it prints."""
    if os.environ.get("BATON_LIVE") != "full":
        pytest.skip("builds an image, 10 minutes: BATON_LIVE=full")
    if os.geteuid() != 0 or not (shutil.which("buildah") and shutil.which("debootstrap")):
        pytest.skip("needs root, buildah and debootstrap (apt-get install buildah debootstrap)")
    store = tmp_path_factory.mktemp("store")
    at = ["buildah", "--root", str(store / "root"), "--runroot", str(store / "run"), "--storage-driver", "vfs"]

    def run(*words: str) -> str:
        done = subprocess.run([*at, *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=3600)
        assert done.returncode == 0, f"{words}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        return done.stdout.strip()

    return run


@pytest.fixture(scope="module")
def image(buildah: Buildah, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A container of the image."""
    root = tmp_path_factory.mktemp("base") / "root"
    made = ["debootstrap", "--variant=minbase", f"--include={PYTHON}", "bookworm", str(root)]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, timeout=1800)
    next(root.glob("usr/lib/python3.*/EXTERNALLY-MANAGED")).unlink()  # Debian's word that pip is not to install
    (root / "usr/bin/python").symlink_to("python3")
    base = buildah("from", "scratch")
    buildah("add", base, str(root), "/")
    buildah("commit", base, "localhost/base")
    shutil.rmtree(root)
    buildah(
        "build", "--isolation", "chroot", "--network", "host", "--pull-never", *volumes(),
        "--build-arg", "BASE=localhost/base", "--build-arg", "TORCH_INDEX=",
        "-f", "deploy/Containerfile", "-t", "localhost/baton", ".",
    )  # fmt: skip
    return buildah("from", "--pull-never", "localhost/baton")


def volumes() -> list[str]:
    """The folders of this machine's own settings of pip, and what they name, as volumes."""
    settings = {one for one in (Path.home() / ".config/pip", Path("/etc/xdg/pip")) if one.is_dir()}
    for line in subprocess.run(["pip", "config", "list"], capture_output=True, text=True, check=True).stdout.split():
        word = Path(line.split("=")[-1].strip("'").removeprefix("file://"))
        word = word.parent if word.name == "simple" else word  # an index, whose files lie beside it
        if word.is_absolute() and word.exists() and not settings.intersection(word.parents):
            settings.add(word)
    return [word for one in sorted(settings) for word in ("-v", f"{one}:{one}:ro")]


def test_the_image_runs_the_services_without_rights_and_holds_only_baton(buildah: Buildah, image: str) -> None:
    def inside(*words: str) -> str:
        return buildah("run", "--isolation", "chroot", image, "--", *words)

    assert inside("id", "-u") == "10001"
    services = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    for program in {one["command"][0] for one in services.values() if "localhost/" in one["image"]}:
        assert inside("which", program)
    assert "baton" in inside("baton", "--version")
    assert inside("python", "-c", "import dagster_postgres, psycopg2, torch; print(torch.version.cuda)") == "None"
    assert not set(inside("ls", "-A", "/opt/baton").split()) & {".git", ".venv", "data", "tests", "deploy/baton.env"}
    described = json.loads(buildah("inspect", image))["OCIv1"]["config"]
    assert described["User"] == "baton"
    assert not [one for one in described["Env"] if "PASSWORD" in one or "SECRET" in one or "TOKEN" in one]
    loads = "import pipelines.definitions as d; print(len(list(d.defs.resolve_all_asset_specs())))"
    assert int(inside("python", "-c", loads)) > 10
