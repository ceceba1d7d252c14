"""A command of Slurm, or `baton-agent`, on a fast clock: `python -m tests.live.fast_command PROGRAM ARGUMENTS`.

FAST_PYTHON in the environment names the clock. `fast_commands` writes a folder for the PATH in which each name leads
here. Jobs that are submitted so find it in their PATH too, and their Python is on the clock (`tests.fast_python`).
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from tests.conftest import REPOSITORY
from tests.live.clock import FastClock

NAMES = ("baton-agent", "sbatch", "squeue", "sinfo", "sacct", "scancel", "scontrol", "sdiag")


def fast_commands(folder: Path) -> None:
    """Make the folder."""
    folder.mkdir()
    for name in NAMES:
        command = shlex.join([sys.executable, "-m", "tests.live.fast_command", name])
        (folder / name).write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(REPOSITORY))} exec {command} "$@"\n')
        (folder / name).chmod(0o755)


def main(program: str, arguments: list[str]) -> int:
    """Run the program; returns the exit status of `baton-agent`, and else does not return."""
    clock = FastClock(*map(float, os.environ["FAST_PYTHON"].split()))
    if program == "baton-agent":
        return _agent(clock, arguments)
    folders = [folder for folder in os.environ["PATH"].split(":") if not Path(folder, "baton-agent").exists()]
    real = shutil.which(program, path=":".join(folders))
    assert real is not None, f"no {program}"
    env = clock.python_env() if program == "sbatch" else clock.env()
    os.execve(real, [program, *arguments], os.environ | env)


def _agent(clock: FastClock, arguments: list[str]) -> int:
    from agent import cli
    from agent.chains.loop import AgentServices
    from agent.slurm.commands import Commands
    from agent.slurm_time import SlurmTime

    def services(commands: Commands, slurm_time: SlurmTime, wait: Callable[[float], bool], *rest: Any) -> AgentServices:
        return AgentServices(commands, slurm_time, lambda seconds: wait(seconds / clock.rate), *rest)

    with patch.multiple(
        cli,
        Commands=lambda: Commands(os.environ, clock=clock.now),
        SlurmTime=lambda commands: SlurmTime(commands, clock.now, clock.now),
        AgentServices=services,
        time=SimpleNamespace(time=clock.now),
    ):
        return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
