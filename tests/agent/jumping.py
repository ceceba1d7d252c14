"""An agent whose host's clock really jumps, under libfaketime: `python -m tests.agent.jumping FOLDER`.

Slurm is a fake whose time goes on with the monotonic clock, as that of another host. The agent looks every 0.2 s, where
it asks for a pause of 10 s. At each submission the host's clock is set by an offset in FAKETIME_TIMESTAMP_FILE.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agent import cli
from agent.chains.loop import AgentServices
from agent.eyes import Eyes
from agent.slurm_time import SlurmTime
from tests.agent.fake_slurm import FakeCommands, Plan
from tests.agent.faults import WholeSlurm
from tests.agent.lab import Lab

OFFSETS_S = (0, 3600, 0, -1_700_000_000)  # of the host's clock, by link: an hour forward, an hour back, to the 1970s
LINK_S = 2.0
QUICKER = 50.0  # than the agent asks for


@dataclass
class Host:
    """The host's clock, and what was seen of it and of the agent's pauses."""

    file: Path
    clocks_s: list[float] = field(default_factory=list)  # when each link was submitted
    pauses_s: list[float] = field(default_factory=list)
    begun_s: float = field(default_factory=time.time)
    begun: float = field(default_factory=time.monotonic)

    def plan(self, name: str) -> Plan:
        """A link that runs for LINK_S and asks for another; the clock jumps as it is submitted."""
        self.file.write_text(f"{OFFSETS_S[len(self.clocks_s)]:+d}\n")
        self.clocks_s.append(time.time() - self.begun_s - (time.monotonic() - self.begun))
        return Plan(LINK_S, "FAILED", 85)

    def pause(self, slurm: WholeSlurm, seconds: float) -> None:
        """Wait as the agent does."""
        self.pauses_s.append(seconds)
        threading.Event().wait(seconds / QUICKER)
        slurm.advance(int(self.begun_s + time.monotonic() - self.begun) - slurm.now_s)


def main(folder: Path) -> None:
    """Keep the chain to its end, and print what became of it."""
    host = Host(Path(os.environ["FAKETIME_TIMESTAMP_FILE"]))
    slurm = WholeSlurm(now_s=int(host.begun_s), plan=host.plan)
    lab = Lab(folder, slurm, {"links": len(OFFSETS_S), "cycle_s": 10.0})
    commands = FakeCommands(slurm)
    world = AgentServices(
        commands, SlurmTime(commands), partial(host.pause, slurm), lab.log.append, partial(Eyes, commands), {},
        lambda: False,
    )  # fmt: skip
    code = cli.keep(lab.chain, lab.folder, world)
    jobs = [(job.name.rpartition("-")[2], job.submit_s - host.begun_s, job.end_s) for job in slurm.jobs]
    lasted_s = time.monotonic() - host.begun
    found = {"code": code, "jobs": jobs, "clocks_s": host.clocks_s, "pauses_s": host.pauses_s, "lasted_s": lasted_s,
             "begun_s": host.begun_s, "log": lab.log, "journal": lab.journal()}  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
