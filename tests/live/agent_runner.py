"""One agent of one chain on a fast clock, as a process that a test can kill: `python -m tests.live.agent_runner JSON`.

The agent's own clock, its pauses and the commands that it calls run on the fast clock; sbatch does not, because the job
inherits its environment (`tests.live.clock`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from agent import cli
from agent.chains.chain import Chain
from agent.chains.loop import AgentServices
from agent.chains.state import Busy, Folder
from agent.eyes import Eyes
from agent.slurm.commands import Commands
from agent.slurm_time import SlurmTime
from tests.live.clock import FastClock
from tests.live.keeping import jump_s


class FastCommands(Commands):
    """Commands on a fast clock, but for sbatch."""

    def __init__(self, fast: FastClock) -> None:
        super().__init__(os.environ, clock=fast.now)
        self._fast = fast

    def run(
        self,
        *argv: str,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """As `Commands.run`."""
        if argv[0] != "sbatch":
            environment = {**os.environ, **self._fast.env()}
        return super().run(*argv, pass_fds=pass_fds, environment=environment)


def main(given: str) -> int:
    """Keep the chain; returns the exit status."""
    values = json.loads(given)
    fast = FastClock(values["rate"], values["epoch"], values["started"])
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    commands = FastCommands(fast)
    folder = Path(values["folder"])

    def host_s() -> float:
        return fast.now() + jump_s(folder)

    world = AgentServices(
        commands, SlurmTime(commands, host_s, fast.now), lambda seconds: stop.wait(seconds / fast.rate), cli.say,
        partial(Eyes, commands), os.environ, stop.is_set,
    )  # fmt: skip
    chain = Chain(
        script=folder / "job.sh", links=values["links"], artifact=folder / values["released"], name=values["name"],
        cycle_s=values["cycle_s"], **values["more"],
    )  # fmt: skip
    try:
        return cli.keep(chain, Folder(folder / "state" / chain.name), world)
    except Busy as error:
        cli.say(str(error))
        return cli.USAGE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
