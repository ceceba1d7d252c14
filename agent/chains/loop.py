"""Keep a chain going: look at Slurm every cycle, let the keeper decide, execute its actions, and survive failures.

The state is saved before every action at Slurm, and Slurm's answer after it. So an agent killed at any time can resume.

A running agent ends for three reasons: the chain is over, it is asked to stop, or its state could not be written for
MOST_UNWRITTEN_S. Everything else that fails is one line in the log, a fallback and another try. Before each save and
each action the agent checks that it still holds the chain's lock.
"""

from __future__ import annotations

import os
import pwd
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agent.chains import keeper, submission
from agent.chains.bound import BOUND_FILE, UNBOUNDED, QueueBound, read_bound
from agent.chains.chain import Chain, JobSignal, nodes_of
from agent.chains.decide import ReleasedPolicy, SubmitDecision
from agent.chains.journal import Journal, event_text, journal_events
from agent.chains.links import ChainRules, measured_restart_s, next_link
from agent.chains.look import ChainView, LookedUpJob, absorb, in_queue, missing
from agent.chains.metrics import exposition
from agent.chains.plan import AHEAD
from agent.chains.planner import Decider, Seeing, described, request_of
from agent.chains.state import Busy, ChainState, Folder, LinkAttempt
from agent.files import replace_file
from agent.futures import Site
from agent.sight import SlurmRequest
from agent.slurm.commands import Commands, SlurmError
from agent.slurm.output import JobOutputs
from agent.slurm.queue import SqueueJob
from agent.slurm_time import SlurmTime
from traces.units import DAY_S, HOUR_S

MOST_PAUSE_S = 600.0  # longest pause between looks at a Slurm that does not answer
MOST_UNWRITTEN_S = float(DAY_S)  # an agent whose state cannot be written for longer ends
DONE, FAILED, CANCELLED, STOPPED, UNWRITTEN = 0, 1, 3, 4, 5  # exit statuses
EXIT = {"done": DONE, "failed": FAILED, "cancelled": CANCELLED}


@dataclass
class AgentServices:
    """The services that an agent uses. pause: waits that many seconds, or less once the agent is asked to stop."""

    commands: Commands
    time: SlurmTime
    pause: Callable[[float], object]
    say: Callable[[str], None]
    eyes: Callable[[SlurmRequest, Site | None], Seeing]  # Site: the rules for simulating futures
    environment: Mapping[str, str]
    stopping: Callable[[], bool]
    bound_file: Path = BOUND_FILE


class Agent:
    """The agent of one chain."""

    def __init__(
        self,
        chain: Chain,
        folder: Folder,
        policy: ReleasedPolicy,
        world: AgentServices,
        state: ChainState,
        *,
        dry_run: bool = False,
        metrics: Path | None = None,
    ) -> None:
        self.chain, self.folder, self.policy, self.world = chain, folder, policy, world
        self.state = state
        self._dry_run = dry_run
        self._metrics = metrics
        self._journal = Journal(None if dry_run else folder.path / "decisions.jsonl")
        self._user = pwd.getpwuid(os.getuid()).pw_name
        self._limit_s, self._options, self._signal = chain.limit_s, chain.submitted_options, chain.signal
        self._decider = Decider(chain, policy, world.eyes, request_of(self._options, self._user, self._limit_s))
        self._outputs = JobOutputs(world.commands)
        self._failures_in_a_row = 0
        self._failures = 0
        self._last_look_s = world.time.now_s()
        self._reported: set[str] = set()  # lasting problems, each reported once
        self._form = ""  # `Queue.form` of the last look
        self._unsaved: list[dict[str, object]] = []  # events that were reported and whose state is not written yet
        self._is_unwritten = False  # the state could not be written in this cycle ...
        self._unwritten_s = 0.0  # ... nor for so long before
        self._bound = QueueBound()  # the administrator's
        self._room = UNBOUNDED  # links that may be queued now

    @property
    def rules(self) -> ChainRules:
        """The keeper's settings, from the chain and from the policy that is currently in use."""
        chain, signal = self.chain, self._signal
        return ChainRules(
            chain.links, self._limit_s, chain.most_overlap_h * HOUR_S, chain.retries, chain.more_status, chain.cycle_s,
            self.policy.artifact.decide_every_s,
            ahead=min(AHEAD if chain.hands_over else 1, self._bound.chain),
            room=self._room,
            hands_over=chain.hands_over,
            signals=signal is not None,
            save_s=signal.lead_s if signal else 0,
            wanted_s=None if chain.work_h is None else round(chain.work_h * HOUR_S),
            restart_s=chain.restart_s if (measured_s := measured_restart_s(self.state)) is None else measured_s,
            nodes=nodes_of(self._options) or 1,
            scaling=chain.scaling,
        )  # fmt: skip

    def run(self) -> int:
        """Cycle until the chain is over or the agent is asked to stop; return the exit status."""
        while not self.world.stopping():
            pause_s = self.cycle()
            if keeper.is_over(self.state) or (self._dry_run and not any(a.is_alive for a in self.state.attempts)):
                return EXIT.get(self.state.status, DONE)
            self._unwritten_s = self._unwritten_s + pause_s if self._is_unwritten else 0.0
            if self._unwritten_s > MOST_UNWRITTEN_S:
                self.world.say(f"stopped: the state could not be written for {MOST_UNWRITTEN_S / HOUR_S:g} h")
                return UNWRITTEN
            self.world.pause(pause_s)
        self.world.say("stopped; the jobs stay as they are, and `run` resumes the chain")
        return STOPPED

    def cycle(self) -> float:
        """Look once and act on it; return the seconds until the next look. Whatever fails is one line in the log."""
        self._is_unwritten = False
        try:
            return self._cycle()
        except Exception as error:
            self._report_once(f"this cycle failed, trying again: {described(error)}")
            return self.chain.cycle_s

    def _cycle(self) -> float:
        if not self._holds():
            return self.chain.cycle_s
        jumped = self.world.time.check()
        if jumped:
            self._note(jumped)
        now_s = self.world.time.now_s()
        self._read_script()
        try:
            queue = self._decider.eyes.look(now_s)
            jobs = tuple(job for job in queue.jobs if job.user == self._user)
            sight = ChainView(now_s, jobs, self._look_up(jobs), self._more(), self.chain.cycle_s)
        except Exception as error:
            return self._no_look(error, now_s)
        if self._failures_in_a_row:
            self._note(f"Slurm answers again after {(now_s - self._last_look_s) / 60:.0f} min")
        self._failures_in_a_row, self._last_look_s = 0, now_s
        if queue.form != self._form:
            self._form = queue.form
            self._note(queue.form or "Slurm is read from text again")
        self._measure_room(jobs)
        self._cycle_with(sight)
        self._write_metrics()
        return self.chain.cycle_s

    def _cycle_with(self, sight: ChainView) -> None:
        seen = self._measured(absorb(self.state, sight))
        if not self._keep(seen):
            return
        running = keeper.question(self.rules, seen, sight.now_s)
        advice = None
        if running is not None or (self.chain.is_planned and keeper.begins(self.rules, seen, sight.now_s)):
            self._check_nodes()
            seen, decision = self.state, self._decide(running, sight)
            advice = keeper.Advice(decision.submit, decision.for_end, decision.ask)
        self._do(*keeper.act(self.rules, seen, sight.now_s, advice))

    def _do(self, state: ChainState, actions: tuple[keeper.Action, ...]) -> None:
        """Save the state, and only then execute the actions."""
        if self._dry_run:
            self._print_only(state, actions)
        elif self._keep(state):
            for action in actions:
                attempt = next(a for a in state.attempts if a.name == action.name)
                if not self._holds():
                    return
                if isinstance(action, keeper.Submit):
                    self._submit(attempt)
                else:
                    self._end(attempt, self._signal if isinstance(action, keeper.Signal) else None)

    def _submit(self, attempt: LinkAttempt) -> None:
        world = self.world
        ids = [a.job_id for a in self.state.attempts if a.link < attempt.link and a.job_id and not a.never_was]
        try:
            job_id = submission.submit(
                world.commands, self.chain, self.folder, attempt, ids[-1] if ids else "", world.environment
            )
        except (SlurmError, ValueError) as error:  # ValueError: the script cannot be read, so nothing was submitted
            if isinstance(error, SlurmError) and error.kind != "refused":
                self._note(f"link {attempt.link}: not known yet whether it was submitted, looking it up: {error}")
                return
            self._note(f"link {attempt.link}: Slurm refused the job, trying again later: {error}")
            known = replace(attempt, how="REFUSED")
        else:
            known = replace(attempt, job_id=job_id)
        self._learn(known)

    def _end(self, attempt: LinkAttempt, signal: JobSignal | None) -> None:
        """Cancel a job; with `signal`, ask it to save and end."""
        try:
            submission.cancel(self.world.commands, attempt.job_id, signal)
        except SlurmError as error:
            what = "cancelled" if signal is None else f"sent {signal.name}"
            self._note(f"link {attempt.link}: job {attempt.job_id} could not be {what}, trying again: {error}")
        else:
            if attempt.handed_to and attempt.signalled_s is None:
                self._learn(replace(attempt, signalled_s=self.world.time.now_s()))

    # -- saving -------------------------------------------------------------------------------------------------------

    def _keep(self, state: ChainState) -> bool:
        """Journal the changes, save the state and adopt it; return False if it cannot be written."""
        if state == self.state:
            return True
        if not self._dry_run:
            if not self._holds():
                return False
            news = [event for event in journal_events(self.state, state) if event not in self._unsaved]
            self._report(news)
            self._unsaved += news
            try:
                self.folder.save(state)
            except OSError as error:
                return self._unwritten(f"{self.folder.file}: {error.strerror}")
        self._reported.clear()
        self._unsaved.clear()
        self._unwritten_s = 0.0
        self.state = state
        return True

    def _holds(self) -> bool:
        """Check that the chain's lock is still held; return False, and report why, if it is not or had to be retaken.

        A retaken lock may have been another agent's in between, so the next cycle begins with the state on disk.
        """
        if self._dry_run:
            return True
        try:
            if self.folder.hold():
                return True
            self._report_once(f"{self.folder.path}: its lock was removed or replaced; locked again")
            self.state = self.folder.load() or self.state
        except ValueError as error:
            self.folder.unlock()  # so that the next cycle loads the state before it relies on the lock
            return self._unwritten(str(error))
        except (Busy, OSError) as error:
            return self._unwritten(described(error))
        return False

    def _unwritten(self, why: str) -> bool:
        """Report that the state cannot be written now; return False."""
        self._is_unwritten = True
        self._report_once(f"{why}; nothing is submitted until the state can be written")
        return False

    def _learn(self, attempt: LinkAttempt) -> None:
        """Adopt Slurm's answer even if it cannot be written now; then it is written with the next state."""
        if not self._keep(self._with(attempt)):
            self.state = self._with(attempt)

    def _with(self, attempt: LinkAttempt) -> ChainState:
        return replace(
            self.state, attempts=tuple(attempt if a.name == attempt.name else a for a in self.state.attempts)
        )

    # -- observing ----------------------------------------------------------------------------------------------------

    def _look_up(self, jobs: tuple[SqueueJob, ...]) -> dict[str, LookedUpJob | None]:
        found: dict[str, LookedUpJob | None] = {}
        for attempt in missing(self.state, jobs):
            try:
                found[attempt.name] = submission.look_up(self.world.commands, attempt, self.chain.first)
            except SlurmError as error:
                self._report_once(f"link {attempt.link}: its job could not be looked up: {error}")
        return found

    def _measured(self, state: ChainState) -> ChainState:
        """Read what the last two links printed about their restarts, if a plan uses it."""
        ran = [a for a in state.attempts if a.ran and self.chain.hands_over][-2:]
        found: dict[str, dict[str, Any]] = {
            a.name: self._outputs.restart_times(a.job_id, is_alive=a.is_alive) for a in ran
        }
        return replace(state, attempts=tuple(replace(a, **found.get(a.name, {})) for a in state.attempts))

    def _more(self) -> frozenset[int]:
        links = {attempt.link for attempt in self.state.attempts if attempt.is_alive}
        return frozenset(link for link in links if (self.folder.for_jobs / f"more-{link}").exists())

    def _read_script(self) -> None:
        """Read the options of the script again; keep the last ones while it cannot be read."""
        try:
            chain = self.chain
            self._limit_s, self._options, self._signal = chain.limit_s, chain.submitted_options, chain.signal
        except ValueError as error:
            self._report_once(f"{error}; the options read before stay in use")

    def _measure_room(self, jobs: tuple[SqueueJob, ...]) -> None:
        """Read the administrator's bound, and count how many links it and MaxSubmitJobs leave to this chain."""
        try:
            bound = read_bound(self.world.bound_file)
        except ValueError as error:
            bound = QueueBound(chain=1)
            self._report_once(f"{error}; no more than one link is queued until it can be read")
        if bound != self._bound:
            self._note(f"{bound.text or 'queued links: not bounded any more'} ({self.world.bound_file})")
            self._bound = bound
        own = {a.job_id for a in self.state.attempts if a.is_queued}
        self._room = bound.room(jobs, own)
        if self.chain.is_planned:
            self._room = min(self._room, self._decider.room(jobs, self.state))

    def _check_nodes(self) -> None:
        """Fix the number of nodes once a script ignores that of a link."""
        fixed = submission.ignored_nodes(self.world.commands, self.rules, self.state, self._report_once)
        if fixed != self.state.fixed_nodes:
            self._note(f"{fixed}; from now on links ask for as many nodes as the script")
            self._keep(replace(self.state, fixed_nodes=fixed))
        self._decider.is_elastic = self.chain.least_nodes is not None and not fixed

    def _no_look(self, error: Exception, now_s: int) -> float:
        """Handle a failed look: act without one if due, and return the seconds until the next look."""
        self._failures += 1
        self._failures_in_a_row += 1
        pause_s = min(self.chain.cycle_s * (1 << min(self._failures_in_a_row - 1, 10)), MOST_PAUSE_S)
        kind = error.kind if isinstance(error, SlurmError) else "nonsense"
        self._note(f"look at Slurm failed ({kind}): {described(error)}; next look in about {pause_s:.0f} s")
        if kind != "away":
            self._do(*keeper.act_blind(self.rules, self.state, now_s, now_s - self._last_look_s))
        self._write_metrics()
        return pause_s * (0.75 + random.random() / 2)  # jitter, so that agents that failed together retry apart

    def _decide(self, running: LinkAttempt | None, sight: ChainView) -> SubmitDecision:
        """Let the policy or the plan decide on the link after `running`; None: no link runs."""
        news = self.policy.refresh()
        if news:
            self._note(news)
        job = None if running is None else in_queue(running, sight.jobs)
        request, like = request_of(self._options, self._user, self._limit_s), job or self._decider.like
        if like is not None:  # a successor requests what its predecessor has
            partition = request.partition or like.partition
            nodes = like.nodes if self.chain.least_nodes is None else request.nodes
            qos = request.qos if self.chain.qos_choice else like.qos
            request = SlurmRequest(nodes, self._limit_s, self._user, partition, like.account, qos)
        queued = [(found, a.least_s) for a in self.state.attempts if a.is_queued and (found := in_queue(a, sight.jobs))]
        self._decider.measured_s = measured_restart_s(self.state)
        decision, fields = self._decider.decide(request, sight.now_s, job, queued)
        link = next_link(self.rules, self.state) or 1
        about = {"link": link - 1, "job_id": job.id if job else ""}
        self._journal_lines(sight.now_s, [{"event": "decision", **about, **fields}])
        self.world.say(f"decision, link {link - 1}: {decision.reason}")
        return decision

    # -- reporting ----------------------------------------------------------------------------------------------------

    def _report(self, found: list[dict[str, object]]) -> None:
        for event in found:
            self.world.say(event_text(event))
        self._journal_lines(self.world.time.now_s(), found)

    def _note(self, text: str) -> None:
        self.world.say(text)
        self._journal_lines(self.world.time.now_s(), [{"event": "note", "text": text}])

    def _journal_lines(self, time_s: int, found: list[dict[str, object]]) -> None:
        problem = self._journal.write(time_s, self.state.chain, found)
        if problem:
            self._report_once(problem)

    def _report_once(self, text: str) -> None:
        """Report a problem once, until the next state is written."""
        if text not in self._reported:
            self._reported.add(text)
            self.world.say(text)

    def _print_only(self, state: ChainState, actions: tuple[keeper.Action, ...]) -> None:
        for action in actions:
            attempt = next(a for a in state.attempts if a.name == action.name)
            if isinstance(action, keeper.Submit):
                argv = " ".join(submission.arguments(self.chain, attempt))
                self.world.say(f"dry run: would submit link {attempt.link}: {argv}")
            else:
                why = attempt.withdrawn or f"{attempt.handed_to} runs"
                self.world.say(f"dry run: would end job {attempt.job_id}: {why}")
        self.state = replace(self.state, decided=state.decided)

    def _write_metrics(self) -> None:
        if self._metrics is None or self._dry_run:
            return
        is_blind = self._failures_in_a_row > 0
        text = exposition(self.state, self.world.commands.calls, self._failures, self._last_look_s, is_blind)
        try:
            replace_file(self._metrics, text)
        except OSError as error:
            self._report_once(f"{self._metrics}: {error.strerror}")
