"""The job script of the chain's example: it waits for its predecessor, resumes, and never leaves half a checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from agent.chains import chain as chains
from tests.conftest import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "chain"
ENOUGH_S = 30.0


def link(folder: Path, number: int, steps: int = 100000) -> subprocess.Popen[str]:
    """A link of the chain, running."""
    environment = {
        **os.environ, "BATON_CHAIN_DIR": str(folder), "BATON_LINK": str(number), "BATON_LINKS": "9",
        "STEPS": str(steps), "STEP_S": "0.01", "SAVE_EVERY": "5",
    }  # fmt: skip
    return subprocess.Popen(
        ["/bin/sh", str(EXAMPLE / "train.sh")], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip


def saved(folder: Path) -> int:
    try:
        return int((folder / "checkpoint").read_text())
    except FileNotFoundError:
        return 0


def wait_for(step: int, folder: Path) -> None:
    end = time.monotonic() + ENOUGH_S
    while saved(folder) < step:
        assert time.monotonic() < end, f"no step {step} within {ENOUGH_S:g} s"
        time.sleep(0.01)


def test_a_link_that_is_told_to_end_saves_and_asks_for_more(tmp_path: Path) -> None:
    first = link(tmp_path, 1)
    wait_for(5, tmp_path)
    first.send_signal(signal.SIGUSR1)
    assert first.wait(ENOUGH_S) == chains.Chain.more_status == 85
    reached = saved(tmp_path)
    second = link(tmp_path, 2, steps=reached + 7)
    out, _ = second.communicate(timeout=ENOUGH_S)
    assert second.returncode == 0 and saved(tmp_path) == reached + 7
    assert out.startswith(f"link 2 of 9 resumes at step {reached}\n")


def test_a_link_waits_until_its_predecessor_has_ended_and_then_goes_on(tmp_path: Path) -> None:
    first = link(tmp_path, 1)
    wait_for(5, tmp_path)
    second = link(tmp_path, 2, steps=10)
    time.sleep(0.3)
    assert second.poll() is None
    first.kill()  # as Slurm does at the limit
    first.wait()
    out, _ = second.communicate(timeout=ENOUGH_S)
    assert second.returncode == 0
    at = int(out.split()[-1])
    assert at >= 5, "it began before its predecessor had ended"


def test_killed_at_any_time_the_checkpoint_is_whole(tmp_path: Path) -> None:
    reached = 0
    for number in range(8):
        running = link(tmp_path, number)
        wait_for(reached + 5, tmp_path)
        time.sleep(0.013 * number)
        running.kill()
        running.wait()
        assert saved(tmp_path) % 5 == 0 and saved(tmp_path) > reached
        reached = saved(tmp_path)


def test_the_chain_file_is_one() -> None:
    chain = chains.make(chains.from_file(EXAMPLE / "chain.toml"))
    assert (chain.links, chain.limit_s, chain.options, chain.name) == (5, 12 * 3600, ("--partition=gpu",), "train")


def test_without_a_chain_it_says_what_is_missing() -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("BATON_")}
    command = ["/bin/sh", str(EXAMPLE / "train.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "is set by baton-agent run" in done.stderr


pytestmark = pytest.mark.skipif(not Path("/usr/bin/flock").exists(), reason="no flock (util-linux)")
