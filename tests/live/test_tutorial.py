"""The tutorial on chains works word by word: its commands are taken from its text and run on a real Slurm.

The clock is 30 times as fast, so that its minutes are seconds.
"""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.live.clock import FastClock
from tests.live.fast_command import fast_commands
from tests.live.slurm import Cluster, Slurm

pytestmark = [pytest.mark.live, pytest.mark.slow]

TEXT = (REPOSITORY / "docs" / "tutorial-chain.md").read_text(encoding="utf-8")
SETTINGS = {  # seconds of the fast clock: none may end before a process has had its time
    "SlurmctldTimeout": "3600", "SlurmdTimeout": "3600", "MessageTimeout": "600", "TCPTimeout": "600",
    "BatchStartTimeout": "600", "KillWait": "30",
}  # fmt: skip


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


def lines(text: str) -> set[str]:
    """Lines without their numbers and blanks: they differ from run to run."""
    return {re.sub(r"\d+", "0", "".join(line.split())) for line in text.splitlines()}


def test_the_code_is_that_of_the_example() -> None:
    assert blocks("python") == [(REPOSITORY / "examples/chain/train.py").read_text(encoding="utf-8")]
    known = [*blocks("sh"), *blocks("python"), *blocks("text")]
    assert TEXT.count("\n```") == 2 * len(known), "a block in no language that is tested"


def test_the_commands_do_what_the_text_says() -> None:
    clock = FastClock(30, epoch=time.time() + 86400)
    with Slurm.running(Cluster(nodes=1, settings=SETTINGS), clock) as slurm:
        home = slurm.folder / "home"
        home.mkdir()
        fast_commands(slurm.folder / "fast")
        env = slurm.real_env | clock.python_env()
        env |= {"HOME": str(home), "BATON": str(REPOSITORY), "PATH": f"{slurm.folder}/fast:{env['PATH']}"}
        script = "".join(f"{block}echo block $?\n" for block in blocks("sh"))
        done = subprocess.run(
            "sh", cwd=home, env=env, input=script, capture_output=True, text=True, timeout=300, check=False
        )
        said = f"{done.stdout}\n{done.stderr}\n{_outputs(home)}"
        assert done.stdout.count("block 0\n") == len(blocks("sh")), said
        assert not set().union(*map(lines, blocks("text"))) - lines(done.stdout + done.stderr), said
        states = slurm.run("sacct", "-a", "-X", "-n", "-P", "--format=State,ExitCode").split()
    assert states[0] == "TIMEOUT|0:0" and states[-1] == "COMPLETED|0:0" and "FAILED|85:0" in states, said
    printed = re.findall(r"^(slurm-\d+).out:step (\d+)", done.stdout, re.MULTILINE)
    assert {int(step) for _, step in printed} == set(range(10, 101, 10)), said
    assert len(printed) < 20 and len({job for job, _ in printed}) > 1, "each link began anew"


def _outputs(home: Path) -> str:
    return "\n".join(f"{path.name}\n{path.read_text()}" for path in sorted(home.rglob("slurm-*.out")))
