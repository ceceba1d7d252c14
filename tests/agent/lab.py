"""An agent on a fake Slurm: what the tests of the loop share."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from agent import cli
from agent.artifact import Artifact
from agent.chains.chain import Chain
from agent.chains.decide import ReleasedPolicy
from agent.chains.loop import Agent, AgentServices
from agent.chains.state import ChainState, Folder, new_chain_state
from agent.futures import Site
from agent.sight import ClusterObservation, LinkStarts, SlurmRequest
from agent.slurm.limits import QosTable, UserLimits
from agent.slurm.queue import Queue, SqueueJob, read_queue
from agent.slurm_time import SlurmTime
from features.observe import FEATURES, VERSION
from features.snapshot import Snapshot
from tests.agent.fake_slurm import START_S, FakeCommands, FakeJob, FakeSlurm, Plan
from traces.units import HOUR_S

LEAD_H = 0.5
SCRIPT = "#!/bin/sh\n#SBATCH --time=2:00:00\n#SBATCH --nodes=1\nsleep 7200\n"


class Killed(BaseException):
    """Stands for SIGKILL: nothing of the agent runs after it."""


def artifact(folder: Path, lead_h: float = LEAD_H, **changes: Any) -> Path:
    """A released policy that submits `lead_h` hours before the end."""
    manifest = {
        "policy": "lead", "kind": "constant-lead", "knob": "lead, h", "settings": [0.0, 4.0], "default_setting": lead_h,
        "features": list(FEATURES), "observe_version": VERSION, "format_version": 1, "requirements": ["numpy"],
        "fills": dict.fromkeys([name for name in FEATURES if name != "remaining_h"], 0.0), **changes,
    }  # fmt: skip
    Artifact(manifest).save(folder)
    return folder


def chain_of(folder: Path, **values: Any) -> Chain:
    """A chain of a script of two hours, in the folder."""
    script = folder / "job.sh"
    script.write_text(SCRIPT)
    released = folder / "released"
    if not released.exists():
        artifact(released)
    given: dict[str, Any] = {"script": script, "links": 3, "artifact": released, "name": "train"}
    return Chain(**(given | values))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit status of `baton-agent` with the arguments, and what it wrote to standard error."""
    code = cli.main(list(arguments))
    err = capsys.readouterr().err
    return code, err


@dataclass
class FakeEyes:
    """Sees the queue and the time left, and what the test adds."""

    commands: FakeCommands
    request: SlurmRequest
    extra: Mapping[str, float] = field(default_factory=dict)
    site: Site | None = None
    waits_h: Callable[[float], float] = lambda limit_h: 0.0
    limits: UserLimits = field(default_factory=UserLimits)
    is_blind: bool = False
    ages_held: bool = False
    node_waits_h: Mapping[int, float] = field(default_factory=dict)  # by nodes, in place of those by limit
    qos: QosTable = field(default_factory=QosTable)
    qos_waits_h: Mapping[str, float] = field(default_factory=dict)  # by QOS, in place of those by limit

    def look(self, now_s: int) -> Queue:
        """The queue of now."""
        return read_queue(self.commands, now_s)

    def sight(self, predecessor: SqueueJob, decides_alike: object) -> ClusterObservation:
        """The time left of the predecessor."""
        assert predecessor.start_s is not None
        left_h = (predecessor.start_s + predecessor.limit_s - self.commands.slurm.now_s) / 3600
        return ClusterObservation(cast(Snapshot, None), {"remaining_h": left_h, **self.extra}, {})

    def starts(
        self,
        predecessor: SqueueJob | None,
        like: SqueueJob | None,
        limit_s: int,
        horizon_s: int,
        budget_s: float,
        queued: SqueueJob | None,
        nodes: int | None = None,
        qos: str = "",
        delay_s: int = 0,
    ) -> LinkStarts:
        """Two futures: a link waits for `waits_h` of its limit, or 0 h; a queued one starts at its dependency's end."""
        wait_h = self.node_waits_h.get(nodes or 0, self.qos_waits_h.get(qos, self.waits_h(limit_s / HOUR_S)))
        seen = ClusterObservation(cast(Snapshot, None), {"start_estimate_h": wait_h, **self.extra}, {})
        at_s = self.commands.slurm.now_s + delay_s + round(HOUR_S * wait_h)
        return LinkStarts(seen, [] if self.is_blind else [at_s, at_s])

    def allowed(self, qos: str = "") -> tuple[int, UserLimits]:
        """The partition of the fake, and what the test sets."""
        limits = self.qos.by_name[qos].limits if qos else self.limits
        return min(12 * HOUR_S, limits.wall_s), limits


@dataclass
class Lab:
    """One chain, its folder, and the fake Slurm; agents come and go."""

    path: Path
    slurm: FakeSlurm = field(default_factory=FakeSlurm)
    chain_values: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, float] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    waits_h: Callable[[float], float] = lambda limit_h: 0.0  # predicted for a link of that limit
    limits: UserLimits = field(default_factory=UserLimits)
    is_blind: bool = False  # no futures can be simulated
    ages_held: bool = False  # a held job gains priority
    node_waits_h: dict[int, float] = field(default_factory=dict)
    qos: QosTable = field(default_factory=QosTable)
    qos_waits_h: dict[str, float] = field(default_factory=dict)
    jump_s: float = 0.0  # of the machine's clock against Slurm's
    end_s: int = 0  # after which a test has gone on for too long

    def __post_init__(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self.chain = chain_of(self.path, **self.chain_values)
        self.folder = Folder(self.path / "state")
        self.commands = FakeCommands(self.slurm)
        self.end_s = self.slurm.now_s + 14 * 86400
        self.stop = False

    @property
    def released(self) -> Path:
        """Folder of the policy that the chain was given."""
        assert self.chain.artifact is not None
        return self.chain.artifact

    def world(self) -> AgentServices:
        """The fake, and time that passes when the agent waits."""
        return AgentServices(
            self.commands, self.time(), self.pause, self.log.append,
            lambda request, site: FakeEyes(
                self.commands, request, self.extra, site, lambda limit_h: self.waits_h(limit_h), self.limits,
                self.is_blind, self.ages_held, self.node_waits_h, self.qos, self.qos_waits_h,
            ),
            {"HOME": "/root"}, lambda: self.stop, self.path / "agent.toml",
        )  # fmt: skip

    def time(self) -> SlurmTime:
        """Slurm's time as the agent keeps it."""
        return SlurmTime(self.commands, lambda: self.slurm.now_s + self.jump_s, lambda: float(self.slurm.now_s))

    def pause(self, seconds: float) -> None:
        """Let so many seconds pass."""
        assert seconds >= 1, "a busy loop"
        assert self.slurm.now_s < self.end_s, f"goes on and on: {self.log[-20:]}"
        self.slurm.advance(seconds)

    def agent(self, **options: Any) -> Agent:
        """An agent that takes up the chain as it lies on disk."""
        if not options.get("dry_run"):
            self.folder.make()
            self.folder.hold()
        state = self.folder.load() or self.begin()
        return Agent(
            self.chain,
            self.folder,
            ReleasedPolicy(self.chain.artifact, self.chain.setting),
            self.world(),
            state,
            **options,
        )

    def begin(self) -> ChainState:
        """A new chain, on disk."""
        state = new_chain_state(self.chain.name, str(self.chain.script), self.chain.links)
        if self.folder.path.exists():
            self.folder.save(state)
        return state

    def run(self) -> int:
        """One agent until the end; its exit status."""
        return self.agent().run()

    @property
    def state(self) -> ChainState:
        """What lies on disk."""
        state = self.folder.load()
        assert state is not None
        return state

    def journal(self, event: str = "") -> list[dict[str, Any]]:
        """The lines of the journal, of one kind if wanted."""
        lines = [json.loads(line) for line in (self.folder.path / "decisions.jsonl").read_text().splitlines() if line]
        return [line for line in lines if event in ("", line["event"])]

    def links(self) -> list[tuple[str, str]]:
        """(link.attempt, state) of every job of the chain, in order of submission."""
        return [(job.name.rpartition("-")[2], job.state) for job in self.slurm.jobs if job.name.startswith("train-")]


def plans(**by_link: Plan) -> Callable[[str], Plan]:
    """A plan by link: link_1=..., or link_1_1=... for one attempt; others run into their limit."""

    def plan(name: str) -> Plan:
        link, _, attempt = name.rpartition("-")[2].partition(".")
        return by_link.get(f"link_{link}_{attempt}", by_link.get(f"link_{link}", Plan()))

    return plan


def lab_of(path: Path, slurm: FakeSlurm | None = None, **values: Any) -> Lab:
    """A lab of a chain with these values."""
    return Lab(path, slurm or FakeSlurm(), values)


def job(lab: Lab, name: str) -> FakeJob:
    """The chain's job of that link and attempt."""
    return next(one for one in lab.slurm.jobs if one.name.endswith(f"-{name}"))


def print_times(lab: Lab, resumed_s: int, saved_s: int) -> None:
    """Let each job of the lab print when it has resumed, and how long it saved."""

    def output(job: FakeJob) -> str:
        file = lab.path / f"slurm-{job.id}.out"
        file.write_text(f"baton: job {job.id} saved in {saved_s} s\nbaton: job {job.id} resumed after {resumed_s} s\n")
        return str(file)

    lab.slurm.output = output


def advance_until(lab: Lab, agent: Agent, hours: float) -> None:
    """Cycles until so many hours have passed since the start."""
    while lab.slurm.now_s < START_S + hours * HOUR_S:
        lab.pause(agent.cycle())


def raise_at(program: str, error: BaseException) -> Callable[[tuple[str, ...]], None]:
    """For `FakeCommands.before` or `after`: this program fails so."""

    def act(argv: tuple[str, ...]) -> None:
        if argv[0] == program:
            raise error

    return act
