"""Repeated looks at a Slurm for one chain: some data is read at every look, the rest once an hour."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from agent.futures import PAST_S, Numbers, Site, look_ahead, scene_of, starts_within, watching
from agent.memory import Memory, holds_nodes
from agent.sight import (
    ClusterObservation,
    LinkStarts,
    SlurmContext,
    SlurmRequest,
    asked_partitions,
    hides_futures,
    live_of,
    sharing_partitions,
    sight_of,
)
from agent.slurm import json_form
from agent.slurm.accounting import PastJob, read_named_past, read_past
from agent.slurm.commands import Commands, SlurmError
from agent.slurm.limits import QosTable, UserLimits, read_limits
from agent.slurm.nodes import SinfoStates, read_nodes
from agent.slurm.numbers import UNLIMITED_S
from agent.slurm.queue import JOBS, Queue, SqueueJob, read_queue
from agent.slurm.settings import Partition, hidden_partitions, read_partitions, read_settings
from features.futures.summary import AHEAD, FUTURES
from traces.units import DAY_S

REFRESH_S = 3600  # interval for settings, partitions and limits, and for accounting until it has answered
CALLS_A_LOOK = 2  # squeue, sinfo; one more of each if its text, or its JSON, proves unreadable in this look
CALLS_A_REFRESH = 8  # scontrol twice, sacctmgr twice (four times for several associations), sacct up to twice

Answer = TypeVar("Answer")
Observation = Mapping[str, float]


class Eyes:
    """The observer of one chain: `look` calls Slurm, `sight` returns the observation.

    queue, context: from the last look. A look makes CALLS_A_LOOK calls, and every REFRESH_S at most CALLS_A_REFRESH
    more. If a program's text is refused or unreadable we ask it for JSON, and keep to JSON while that is readable.
    site: the rules of a policy that looks ahead; each sight then simulates futures from weeks of accounting.
    """

    def __init__(self, commands: Commands, request: SlurmRequest, site: Site | None = None) -> None:
        self.request = request
        self.site = site
        self.queue: Queue | None = None
        self.context: SlurmContext | None = None
        self._commands = commands
        self._memory = Memory(DAY_S if site is None else PAST_S)
        self._refreshed_s = 0
        self._as_json: dict[str, str] = {}  # by program, what was wrong with its text

    def look(self, now_s: int) -> Queue:
        """Read the queue at `now_s` (epoch s). Raises SlurmError if queue, nodes or partitions cannot be read.

        Nodes and partitions that this user may not see (PrivateData) are no error: the features that need them are
        hidden.

        Raises ValueError for a request whose partition does not exist.
        """
        queue = self._either(
            "squeue", lambda: read_queue(self._commands, now_s), lambda: json_form.read_queue(self._commands, now_s)
        )
        if self.context is None or now_s - self._refreshed_s >= REFRESH_S:
            self.context = self._refreshed(queue)
            self._refreshed_s = now_s
        nodes = self._nodes()
        settings = self.context.settings
        if (settings is None or JOBS in settings.private) and not self._others(queue.jobs):
            queue = replace(queue, hidden=frozenset({JOBS}))
        self._memory.follow(queue)
        past_why = "" if self._memory.knows_past(now_s) else self.context.past_why
        self.context = replace(self.context, nodes=nodes if nodes.states else None, past_why=past_why)
        self.queue = replace(queue, form="; ".join(self._as_json.values()))
        return self.queue

    def sight(
        self, predecessor: SqueueJob, decides_alike: Callable[[Sequence[Observation]], bool] = lambda _: False
    ) -> ClusterObservation:
        """Return what a policy may know at the last look. Raises ValueError if the predecessor is not running.

        decides_alike: `agent.chains.decide.ReleasedPolicy.decides_alike`; it ends the simulation of futures once the
        decision is certain.
        """
        if self.queue is None or self.context is None:
            raise ValueError("call look before sight")
        sight = sight_of(self.queue, self.context, self._memory, predecessor, self.request)
        if self.site is None:
            return sight
        if why := hides_futures(self.queue, self.context):
            return replace(sight, hidden=sight.hidden | dict.fromkeys(AHEAD, why), ahead=f"no futures: {why}")
        live = live_of(self.queue, self.context, self._memory, predecessor, self.request)
        scene, end_s = scene_of(live, sight.snapshot, predecessor, self.site), sight.snapshot.predecessor_end_s

        def settles(numbers: Sequence[Numbers]) -> bool:
            return decides_alike([sight.observation | dict(each) for each in numbers])

        found = look_ahead(scene, end_s, settles=settles)
        hidden = {} if found.numbers else dict.fromkeys(AHEAD, found.why)
        observation = sight.observation | dict(found.numbers)
        return replace(sight, observation=observation, hidden=sight.hidden | hidden, ahead=found.text)

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
        """Return when a link of that limit would start if submitted now, or the queued one, at the last look.

        nodes, qos: of a new link; None and "": as requested. delay_s: from now to its submission. predecessor: the
        running link, if one runs. like: a link, also an ended one, whose name and priority a new one has; None for the
        first link, which enters the queue as `newcomer` assumes. The simulation takes at most about `budget_s` s and
        ends `horizon_s` after the look. Raises ValueError as `sight` does.
        """
        if self.queue is None or self.context is None:
            raise ValueError("call look before starts")
        qos = qos if queued is None else queued.qos
        request = replace(self.request, limit_s=limit_s, nodes=nodes or self.request.nodes, qos=qos or self.request.qos)
        seen = sight_of(self.queue, self.context, self._memory, predecessor, request)
        why = hides_futures(self.queue, self.context)
        if self.site is None or why:
            return LinkStarts(seen, [], why or "no rules for simulating futures")
        live = live_of(self.queue, self.context, self._memory, like, request)
        scene = replace(scene_of(live, seen.snapshot, like, self.site, delay_s), horizon_s=horizon_s)
        found = starts_within(scene if queued is None else watching(scene, queued.id, limit_s, horizon_s), budget_s)
        return LinkStarts(seen, found, "" if found else f"too few of {FUTURES} could be simulated in {budget_s:.1f} s")

    def allowed(self, qos: str = "") -> tuple[int, UserLimits]:
        """Return the longest time limit that the request's partitions allow, s, and the user's limits, as last read.

        qos: "" for the request's own, else one of `qos`.
        """
        if self.context is None:
            return UNLIMITED_S, UserLimits()
        limits = self.context.qos.by_name[qos].limits if qos else self.context.limits or UserLimits()
        asked = asked_partitions(self.context.partitions, self.request.partition)
        of_all = self.context.settings is not None and self.context.settings.needs_all
        return min((min if of_all else max)(one.limit_s for one in asked), limits.wall_s), limits

    @property
    def qos(self) -> QosTable:
        """The QOS that the user may use, as last read."""
        return QosTable() if self.context is None else self.context.qos

    @property
    def ages_held(self) -> bool:
        """Whether a link gains priority while a dependency holds it, as last read."""
        settings = None if self.context is None else self.context.settings
        return settings is not None and settings.ages_held

    def newcomer(self) -> ClusterObservation:
        """Return the observation for a job without predecessor at the last look."""
        if self.queue is None or self.context is None:
            raise ValueError("call look before newcomer")
        return sight_of(self.queue, self.context, self._memory, None, self.request)

    def _either(self, program: str, text: Callable[[], Answer], as_json: Callable[[], Answer]) -> Answer:
        """Read a program's text, or its JSON if the text is unusable. Raises the text's SlurmError."""
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
            self._as_json[program] = f"{program} is read as JSON because its text cannot be read: {error.detail}"
            return answer

    def _nodes(self) -> SinfoStates:
        """Read the nodes; none if this user may not see them."""
        try:
            return self._either(
                "sinfo", lambda: read_nodes(self._commands), lambda: json_form.read_nodes(self._commands)
            )
        except SlurmError as error:
            if not error.is_denied:
                raise
            return SinfoStates({})

    def _refreshed(self, queue: Queue) -> SlurmContext:
        """Read everything except the nodes. Limits that cannot be read keep their last known values."""
        partitions_why = ""
        try:
            partitions = read_partitions(self._commands)
        except SlurmError as error:
            if not error.is_denied:
                raise
            partitions = hidden_partitions(self.request.partition, self.request.nodes)
            partitions_why = "partitions are not shown (slurm.conf: PrivateData)"
        asked = asked_partitions(partitions, self.request.partition)[0]
        settings, limits_why, qos = None, "", self.qos
        limits = None if self.context is None else self.context.limits
        try:
            settings = read_settings(self._commands)
            limits, qos = read_limits(
                self._commands, settings, asked,
                user=self.request.user, account=self.request.account, qos=self.request.qos,
            )  # fmt: skip
        except SlurmError as error:
            limits_why = str(error)
        past_why = self._past_why(queue, partitions)
        return SlurmContext(partitions, None, settings, limits, limits_why, past_why, partitions_why, qos)

    def _past_why(self, queue: Queue, partitions: dict[str, Partition]) -> str:
        """Ask accounting until it has answered; return why it has not, or ""."""
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
        """Whether any of these jobs belongs to another user."""
        return any(job.user != self.request.user for job in jobs)
