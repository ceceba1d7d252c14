"""Looks at a Slurm again and again for one chain: what is read at every look, and what once an hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from agent.ahead import PAST_S, Numbers, Site, look_ahead, scene_of
from agent.memory import Memory, holds_nodes
from agent.sight import (
    ClusterObservation,
    SlurmContext,
    SlurmRequest,
    asked_partitions,
    hides_futures,
    live_of,
    sharing_partitions,
    sight_of,
)
from agent.slurm import json_form
from agent.slurm.accounting import DAY_S, PastJob, read_named_past, read_past
from agent.slurm.commands import Commands, SlurmError
from agent.slurm.limits import read_limits
from agent.slurm.nodes import read_nodes
from agent.slurm.queue import JOBS, Queue, SqueueJob, read_queue
from agent.slurm.settings import Partition, read_partitions, read_settings
from features.ahead.summary import AHEAD

REFRESH_S = 3600  # settings, partitions and limits are read again; the accounting, until it has answered
CALLS_A_LOOK = 2  # squeue, sinfo; one more of each in the look that finds its text, or its JSON, unreadable
CALLS_A_REFRESH = 6  # scontrol twice, sacctmgr twice, sacct up to twice

Answer = TypeVar("Answer")
Observation = Mapping[str, float]


class Eyes:
    """What one chain sees. `look` calls Slurm and `sight` says what was seen; `queue` and `scene` are the last look's.

    CALLS_A_LOOK calls a look, and once in REFRESH_S at most CALLS_A_REFRESH more. A program whose text is refused or
    cannot be read is asked for JSON instead, and goes on to be as long as that can be read. site: the rules of a policy
    that looks ahead; then futures are played at each sight, from weeks of accounting.
    """

    def __init__(self, commands: Commands, request: SlurmRequest, site: Site | None = None) -> None:
        self.request = request
        self.site = site
        self.queue: Queue | None = None
        self.scene: SlurmContext | None = None
        self._commands = commands
        self._memory = Memory(DAY_S if site is None else PAST_S)
        self._refreshed_s = 0
        self._as_json: dict[str, str] = {}  # by program, what was wrong with its text

    def look(self, now_s: int) -> Queue:
        """The queue of now (epoch s). Raises SlurmError where queue, nodes or partitions cannot be read.

        Raises ValueError for a request whose partition is not there.
        """
        queue = self._either(
            "squeue", lambda: read_queue(self._commands, now_s), lambda: json_form.read_queue(self._commands, now_s)
        )
        if self.scene is None or now_s - self._refreshed_s >= REFRESH_S:
            self.scene = self._refreshed(queue)
            self._refreshed_s = now_s
        nodes = self._either("sinfo", lambda: read_nodes(self._commands), lambda: json_form.read_nodes(self._commands))
        settings = self.scene.settings
        if (settings is None or JOBS in settings.private) and not self._others(queue.jobs):
            queue = replace(queue, hidden=frozenset({JOBS}))
        self._memory.follow(queue)
        past_why = "" if self._memory.knows_past(now_s) else self.scene.past_why
        self.scene = replace(self.scene, nodes=nodes if nodes.states else None, past_why=past_why)
        self.queue = replace(queue, form="; ".join(self._as_json.values()))
        return self.queue

    def sight(
        self, predecessor: SqueueJob, decides_alike: Callable[[Sequence[Observation]], bool] = lambda _: False
    ) -> ClusterObservation:
        """What a policy may know at the last look. Raises ValueError for a predecessor that does not run.

        decides_alike: `agent.decide.ReleasedPolicy.decides_alike`, so that no more futures are played than its decision needs.
        """
        if self.queue is None or self.scene is None:
            raise ValueError("nothing has been looked at")
        sight = sight_of(self.queue, self.scene, self._memory, predecessor, self.request)
        if self.site is None:
            return sight
        if why := hides_futures(self.queue, self.scene):
            return replace(sight, hidden=sight.hidden | dict.fromkeys(AHEAD, why), ahead=f"no futures: {why}")
        live = live_of(self.queue, self.scene, self._memory, predecessor, self.request)
        scene, end_s = scene_of(live, sight.snapshot, predecessor, self.site), sight.snapshot.predecessor_end_s

        def settles(numbers: Sequence[Numbers]) -> bool:
            return decides_alike([sight.observation | dict(each) for each in numbers])

        found = look_ahead(scene, end_s, settles=settles)
        hidden = {} if found.numbers else dict.fromkeys(AHEAD, found.why)
        observation = sight.observation | dict(found.numbers)
        return replace(sight, observation=observation, hidden=sight.hidden | hidden, ahead=found.text)

    def newcomer(self) -> ClusterObservation:
        """What a job that no other precedes would meet at the last look."""
        if self.queue is None or self.scene is None:
            raise ValueError("nothing has been looked at")
        return sight_of(self.queue, self.scene, self._memory, None, self.request)

    def _either(self, program: str, text: Callable[[], Answer], as_json: Callable[[], Answer]) -> Answer:
        """What a program shows, by its text or, where that is no use, by its JSON. Raises SlurmError, the text's."""
        was_json = program in self._as_json
        if was_json:
            try:
                return as_json()
            except SlurmError as error:
                if error.kind == "away":
                    raise
                del self._as_json[program]
        try:
            return text()
        except SlurmError as error:
            if error.kind == "away" or was_json:
                raise
            try:
                answer = as_json()
            except SlurmError:
                raise error from None
            self._as_json[program] = f"{program} is read as JSON, its text cannot be: {error.detail}"
            return answer

    def _refreshed(self, queue: Queue) -> SlurmContext:
        """All but the nodes. Limits that cannot be read stay those that were."""
        partitions = read_partitions(self._commands)
        asked = asked_partitions(partitions, self.request.partition)[0]
        settings, limits, limits_why = None, None if self.scene is None else self.scene.limits, ""
        try:
            settings = read_settings(self._commands)
            limits = read_limits(
                self._commands, settings, asked,
                user=self.request.user, account=self.request.account, qos=self.request.qos,
            )  # fmt: skip
        except SlurmError as error:
            limits_why = str(error)
        return SlurmContext(partitions, None, settings, limits, limits_why, self._past_why(queue, partitions))

    def _past_why(self, queue: Queue, partitions: dict[str, Partition]) -> str:
        """Ask the accounting until it has answered; why it has not, or ""."""
        if self._memory.knows_past(queue.now_s):
            return ""
        try:
            if self.site is None:
                past = read_past(self._commands, queue.now_s)
            else:
                names = sharing_partitions(partitions, self.request)
                past = read_named_past(self._commands, queue.now_s, PAST_S, names)
        except SlurmError as error:
            return str(error)
        if self._others([job for job in queue.jobs if holds_nodes(job)]) and not self._others(past.jobs):
            return "sacct shows no jobs of other users"
        self._memory.learn(past)
        return ""

    def _others(self, jobs: Sequence[SqueueJob | PastJob]) -> bool:
        """Whether another user's job is among these."""
        return any(job.user != self.request.user for job in jobs)
