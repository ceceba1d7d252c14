"""The process of an agent that keeps one chain on a Slurm with a fast clock, as an ordinary user."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.chains.state import Folder
from tests.conftest import REPOSITORY
from tests.live.slurm import Slurm

JUMP = "jump"  # a file in the agents' folder
USER = "games"  # Debian's own, so that none has to be made on the machine


def workplace(slurm: Slurm, name: str, script: str, user: str = USER) -> Path:
    """A folder of the user's own with the job script, beside the daemons' files; the user may submit from then on."""
    folder = slurm.folder / name
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "job.sh").write_text(script)
    for path in (folder, folder / "job.sh"):
        shutil.chown(path, user, user)
    slurm.run("sacctmgr", "-i", "add", "user", user, "Account=science", "Cluster=live")
    return folder


def tell_jump(folder: Path, seconds: float) -> None:
    """Put the clock of the agents' host that many seconds ahead of the fast clock; their monotonic clock stays."""
    part = folder / "jump.part"
    part.write_text(str(seconds))
    part.rename(folder / JUMP)


def jump_s(folder: Path) -> float:
    """How far the clock of the agents' host is ahead, s."""
    try:
        return float((folder / JUMP).read_text())
    except FileNotFoundError:
        return 0.0


@dataclass
class Kept:
    """One chain and the process that keeps it, which has the rights of `user` and no others."""

    slurm: Slurm
    folder: Path
    name: str
    links: int
    cycle_s: float
    released: str = "released"
    user: str = USER
    kills: int = 0
    more: dict[str, Any] = field(default_factory=dict)  # values of `Chain`
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def state(self) -> Path:
        """The folder of the chain's state."""
        return self.folder / "state" / self.name

    def start(self) -> None:
        """Begin to keep the chain, or go on."""
        clock = self.slurm.clock
        assert clock is not None
        values = {
            "rate": clock.rate, "epoch": clock.epoch, "started": clock._started, "folder": str(self.folder),
            "name": self.name, "links": self.links, "cycle_s": self.cycle_s, "released": self.released,
            "more": self.more,
        }  # fmt: skip
        with (self.folder / f"{self.name}.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    "setpriv", "--reuid", self.user, "--regid", self.user, "--clear-groups", "--no-new-privs",
                    "--inh-caps=-all", sys.executable, "-m", "tests.live.agent_runner", json.dumps(values),
                ],
                cwd=REPOSITORY, env=self.slurm.real_env, stderr=log,
            )  # fmt: skip

    def has_begun(self) -> bool:
        """Whether the chain has a state: from then on its agent goes on whatever Slurm answers."""
        return Folder(self.state).load() is not None

    def kill(self) -> None:
        """End the agent as a crash would, and start another at once."""
        self.end()
        self.kills += 1
        self.start()

    def end(self) -> None:
        """End the agent as a crash would, where it runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def status(self) -> int | None:
        """The agent's exit status; None while it runs. One that found the lock taken is started again."""
        assert self.process is not None
        status = self.process.poll()
        if status == 2:
            self.start()
            return None
        return status

    def log(self) -> str:
        """The end of what the agent said."""
        return (self.folder / f"{self.name}.log").read_text()[-6000:]
