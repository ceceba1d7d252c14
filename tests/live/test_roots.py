"""The roots of newer versions of Slurm: made whole or not at all, and nothing that runs in one outlives the tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.check import TESTED
from tests.conftest import REPOSITORY, skip_or_fail
from tests.live.slurm import OWN, missing

pytestmark = pytest.mark.live

INSTALL = REPOSITORY / "tests/live/install-packages"
FAILS = "#!/bin/sh\nexit 4\n"
STOPS = '#!/bin/sh\nfor part; do case $part in *.part) touch "$part/half" ;; esac; done\necho "E: disk full"\nexit 1\n'
LIVES = """
import sys, time
from pathlib import Path
from tests.live.root import ROOTS, Root
root = Root(ROOTS / sys.argv[1])
root.enter(Path(sys.argv[2]))
import subprocess
subprocess.run(root.inside("sh", "-c", "sleep 4321 > /dev/null 2>&1 &"), check=True)
print("up", flush=True)
time.sleep(600)
"""


def install(folder: Path, versions: str, **programs: str) -> subprocess.CompletedProcess[str]:
    """The result of `install-packages --slurm` with a folder of roots, and programs that replace the machine's."""
    (folder / "bin").mkdir(exist_ok=True)
    for name, text in programs.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    env = os.environ | {"PATH": f"{folder}/bin:{os.environ['PATH']}", "BATON_SLURM_ROOTS": str(folder / "roots")}
    return subprocess.run([INSTALL, "--slurm", versions], env=env, capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="packages are installed by root")
def test_a_root_that_cannot_be_made_is_one_line_and_no_error(tmp_path: Path) -> None:
    away = install(tmp_path, "24.11,26.05", wget=FAILS)
    assert (away.returncode, away.stdout) == (0, "")
    assert [line.partition(": ")[0] for line in away.stderr.splitlines()] == [
        f"Slurm {version} not installed" for version in ("24.11", "26.05")
    ]
    assert "has no trixie, or cannot be reached" in away.stderr
    (tmp_path / "roots/24.11").mkdir()
    kept = install(tmp_path, "24.11")
    assert (kept.returncode, kept.stdout, kept.stderr) == (0, "", "")
    assert install(tmp_path, "19.05").returncode == 2


@pytest.mark.skipif(os.geteuid() != 0, reason="packages are installed by root")
def test_a_root_that_was_begun_has_not_its_name(tmp_path: Path) -> None:
    stopped = install(tmp_path, "24.11", wget="#!/bin/sh\n", debootstrap=STOPS, **{"apt-get": "#!/bin/sh\n"})
    if "mount namespaces" in stopped.stderr:
        pytest.skip(stopped.stderr)
    assert (stopped.returncode, "E: disk full" in stopped.stderr) == (0, True)
    assert not (tmp_path / "roots/24.11").exists() and (tmp_path / "roots/24.11.part/half").exists()


@pytest.mark.parametrize("newer", [version for version in TESTED if version != OWN])
def test_nothing_in_a_root_outlives_a_killed_test_run(tmp_path: Path, newer: str) -> None:
    if reason := missing(version=newer):
        skip_or_fail(f"slurm-{newer}", reason)
    with subprocess.Popen(
        [sys.executable, "-c", LIVES, newer, str(tmp_path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout is not None and run.stdout.readline() == "up\n"
        assert within_10_s(sleeping)  # a background job may start after its shell has ended
        run.send_signal(signal.SIGKILL)
    assert within_10_s(lambda: not sleeping())
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def within_10_s(holds: Callable[[], object]) -> bool:
    """Poll a condition for up to 10 seconds; return whether it came true."""
    end = time.monotonic() + 10
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.1)
    return bool(held)


def sleeping() -> list[int]:
    """The processes of LIVES that run in a root."""
    found = []
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if command.read_bytes() == b"sleep\x004321\x00":
                found.append(int(command.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
