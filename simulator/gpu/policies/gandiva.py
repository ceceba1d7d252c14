"""Gandiva: jobs share GPUs in time slices and in pairs, migrate to better places, and grow into idle GPUs.

Xiao et al., "Gandiva: Introspective cluster scheduling for deep learning" (OSDI 2018).

- A new job gets a home on the fewest nodes: idle GPUs, else the servers with the least load. If the homes on a server
  need more GPUs than it has, its jobs take turns of `round_s`. The job whose last slice is longest ago is next.
  Suspending and resuming costs `pause_s` (migration takes one to two seconds there).
- If no GPU is left, a waiting job is packed with a running job of as many GPUs for a trial of one slice. The pair is
  kept if both together progressed more than `least_together` times as much as one alone. Else it is not packed again,
  and the next pair is tried. With `tries` 0, the progress of every pair is known without a trial.
- A job that finds no room at home moves to idle GPUs on the fewest nodes, which become its home.
- If no job waits, elastic jobs grow to twice their request, and shrink when a job arrives.

`slices`, `migrates` and `grows` switch these off one by one; `least_together` = 2 switches packing off.

`released` = 1 selects the form in which Gavel's authors compared with Gandiva (Narayanan et al., OSDI 2020; their
program, commit c4fa400). With `round_s` = 360, `pause_s` = 0 and `reset_s` = 1920 it is that program. Of the other
parameters it uses only `seed`.

| point | paper | Gavel's form | here, by default |
|---|---|---|---|
| time slices | per server, 60 s | equal fractions of time (`policies.gavel.share_rounds`) | as the paper |
| pairs | lowest use of the GPU first, tried | random, of equal GPUs, if GPUs are short | pairs kept, then tried |
| a pair ends | when both together are slower than one | if the sum over GPU types is below 1 | as `least_together` |
| migration | to fewer nodes or idle ones, and away from a bad pair | every round, free | to idle nodes |
| growth | into idle GPUs | no | into idle GPUs |

`per_server` = 0 slices the cluster as a whole. A job whose turn it is gets its previous GPUs if they are free, else the
fewest nodes that can hold it, else any. A job on more nodes than it needs moves as soon as fewer can hold it.

Our reading: the slices of all servers begin at the same second. A gang on several servers runs when it has its turn on
all of them. Without slices, jobs run to their end in order of arrival, and a job that does not fit lets others pass. A
job on another job's GPUs counts as waiting and is packed again every round. The pairs with the best trials come first,
then untried pairs in order of arrival, because profiles lack the use of the GPU. A trial measures the progress in the
profiles, for the two jobs on that GPU type. If a job ends during its trial, nothing is learned. Pairs that no profile
has are not tried. If no job waits, the last decision remains valid until a job arrives or ends.
"""

from __future__ import annotations

import numpy as np

from simulator.gpu.algorithms.packing import pairs
from simulator.gpu.algorithms.placement import fewest_nodes, give_back, has_free, packed, summed, take
from simulator.gpu.algorithms.random_pairs import RandomPairs
from simulator.gpu.algorithms.time_shares import SharedGpus, equal_shares
from simulator.gpu.policies.gavel.share_rounds import Members, ShareRounds, fastest_first
from simulator.gpu.profiles.scaling import packed_share
from simulator.gpu.round_policy import GpuJob, GpuMachine, Placed, View, first_that_fit
from simulator.gpu.scheduler import RoundScheduler, check_seconds
from traces.arrays import Float64s, Int64s
from traces.counted import counted
from traces.errors import InputError

TRIED = 30  # number of waiting jobs considered for packing per round


class Gandiva:
    """Time slices for all jobs, pairs of jobs on the same GPUs, migration, and growth into idle GPUs.

    Raises InputError for slices that are no longer than a restart, because no job would ever end.
    """

    def __init__(
        self,
        round_s: float = 60.0,
        pause_s: float | None = 2.0,
        least_together: float = 1.2,
        slices: bool = True,
        migrates: bool = True,
        grows: bool = True,
        released: bool = False,
        reset_s: float = 0.0,
        seed: int = 0,
        tries: bool = True,
        per_server: bool = True,
    ) -> None:
        check_seconds("gandiva", round_s=round_s, pause_s=pause_s, reset_s=reset_s)
        if slices and pause_s is not None and pause_s >= round_s:
            raise InputError(f"gandiva: slices of {round_s} s: they must be above {pause_s} s, the pause")
        self.round_s, self.pause_s, self.least_together = round_s, pause_s, least_together
        self.slices, self.migrates, self.grows = slices, migrates, grows
        self.packed_pairs = self.failed_trials = 0
        self.tries, self.per_server = tries, per_server
        self._measured: dict[tuple[int, int, str], float] = {}  # two jobs on a GPU type -> their progress in a trial
        self.settled = False  # no job waits: the decision remains valid until a job arrives or ends
        self.guests: dict[int, int] = {}
        self._shared = (ShareRounds(round_s, reset_s), RandomPairs(seed)) if released else None
        self._slice: dict[int, float] = {}  # job -> when it last had GPUs
        self._home: dict[int, Placed] = {}  # job -> its place then, without grown GPUs

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.round_policy.RoundPolicy`."""
        if self._shared is not None:
            return self._decide_shares(view, *self._shared)
        self._measure(view)
        self._slice = {job.number: self._slice.get(job.number, -1.0) for job in view.jobs}
        self._home = {job.number: self._home.get(job.number, {}) for job in view.jobs}
        order = sorted(view.jobs, key=self._turn)
        free = view.machine.gpus.copy()
        if self.per_server:
            self._assign(order, view.machine)
            placed = self._at_home(order, free, view.machine.widest)
            waiting = [job for job in order if job.number not in placed]
            running = [job for job in order if job.number in placed]
        else:
            running = first_that_fit(order, view.machine.total)
            placed = self._together(running, free, view.machine.widest)
            waiting = self._spread([job for job in order if job.number not in placed], free, placed)
            running = [job for job in running if job.number in placed]
        self.settled = not waiting
        self._pack(waiting, running, placed, view.machine.types)
        for number in placed:
            self._slice[number], self._home[number] = view.now_s, placed[number]
        if self.grows and not waiting:
            self._grow(order, free, placed)
        return placed

    def _turn(self, job: GpuJob) -> tuple[float, float, int]:
        """Rank a job: with slices by the time since its last slice, longest first; else jobs with own GPUs first."""
        has_own = bool(job.placed) and job.number not in self.guests
        return (self._slice[job.number] if self.slices else float(not has_own), job.submit_s, job.number)

    def _assign(self, jobs: list[GpuJob], machine: GpuMachine) -> None:
        """Give each new job a home on the fewest nodes: GPUs that are no job's home, else the nodes with least load."""
        load = np.zeros(len(machine.gpus), dtype=np.int64)  # GPUs of the homes on each node
        for home in self._home.values():
            give_back(load, home)
        for job in jobs:
            if self._home[job.number]:
                continue
            found = packed((machine.gpus - load).clip(0), job.gpus, fewest_nodes(job.gpus, machine.widest))
            self._home[job.number] = found = found or _least_loaded(load, machine, job.gpus)
            give_back(load, found)

    def _at_home(self, jobs: list[GpuJob], free: Int64s, widest: int) -> dict[int, Placed]:
        """Place jobs in order at their homes; with migration, others where the fewest nodes are free; subtract."""
        placed: dict[int, Placed] = {}
        for job in jobs:
            if has_free(free, self._home[job.number]):
                placed[job.number] = self._home[job.number]
                take(free, placed[job.number])
        for job in jobs if self.migrates else []:
            if job.number not in placed and job.gpus <= int(free.sum()):
                found = packed(free, job.gpus, fewest_nodes(job.gpus, widest))
                if found:
                    placed[job.number] = found
                    take(free, found)
        return placed

    def _together(self, chosen: list[GpuJob], free: Int64s, widest: int) -> dict[int, Placed]:
        """Place each job where it was, if that is free, else on the fewest nodes; subtract from `free`.

        GPUs that no other job reclaims are used first. With migration, a job that was on more nodes than it needs does
        not go back there.
        """
        fewest = {job.number: fewest_nodes(job.gpus, widest) for job in chosen}
        spare, back = free.copy(), {}
        for job in chosen:
            home = self._home[job.number]
            if home and (len(home) == fewest[job.number] or not self.migrates) and has_free(spare, home):
                back[job.number] = home
                take(spare, home)
        placed: dict[int, Placed] = {}
        for job in chosen:
            home = back.get(job.number, {})
            if home and has_free(free, home):
                found: Placed | None = home
            else:
                give_back(spare, home)
                found = packed(spare.clip(0), job.gpus, fewest[job.number]) or packed(
                    free, job.gpus, fewest[job.number]
                )
                take(spare, found or {})
            if found:
                placed[job.number] = found
                take(free, found)
        return placed

    def _spread(self, jobs: list[GpuJob], free: Int64s, placed: dict[int, Placed]) -> list[GpuJob]:
        """Place `jobs` in order on the remaining GPUs, where each was or else anywhere; return the jobs left over."""
        waiting, left = [], int(free.sum())
        for job in jobs:
            home = self._home[job.number]
            found = None if job.gpus > left else home if home and has_free(free, home) else packed(free, job.gpus)
            if found is None:
                waiting.append(job)
                continue
            placed[job.number] = found
            take(free, found)
            left -= job.gpus
        return waiting

    def _decide_shares(self, view: View, rounds: ShareRounds, pairs: RandomPairs) -> dict[int, Placed]:
        """Decide in the form of Gavel's comparison: equal fractions of time for single jobs and random pairs."""
        if rounds.is_due(view):
            jobs, types = {job.number: job for job in view.jobs}, sorted(set(view.machine.types))

            def kept(members: Members) -> Float64s:
                return kept_shares([jobs[number] for number in members], types)

            members = pairs.pair(
                {number: job.gpus for number, job in jobs.items()},
                int(rounds.capacity.sum()),
                lambda pair: float(kept(pair).sum()) if kept(pair).all() else 0.0,
            )
            speed = np.array([rounds.speeds[each[0]] * kept(each).min(axis=0) for each in members])
            gpus = np.array([float(jobs[each[0]].gpus) for each in members])
            shares = equal_shares(SharedGpus(speed, gpus, rounds.capacity))
            paired = [(number,) for number in jobs if (number,) not in members]  # these take GPUs that are left over
            alone = np.array([rounds.speeds[number] for (number,) in paired]).reshape(len(paired), len(types))
            rounds.reset([*members, *paired], np.vstack([speed, alone]), np.vstack([shares, 0.0 * alone]), view.now_s)
        placed = rounds.place(view, fastest_first(rounds.speeds))
        self.guests = rounds.guests
        self.packed_pairs += len(self.guests)
        return placed

    def said(self) -> list[str]:
        """Return the assumptions and counts of the run as sentences for the user."""
        return [
            f"gandiva: {counted(self.packed_pairs, 'pair')} of jobs were packed, based on the combined progress in "
            "their profiles",
            *(
                [f"gandiva: {counted(self.failed_trials, 'pair')} of jobs progressed too little in a trial"]
                if self.failed_trials
                else []
            ),
        ]

    def _measure(self, view: View) -> None:
        """Note how the pairs of the last decision progressed; forget jobs that ended."""
        jobs = {job.number: job for job in view.jobs}
        if not self._slice.keys() <= jobs.keys():
            self._measured = {key: both for key, both in self._measured.items() if key[0] in jobs and key[1] in jobs}
        for guest, host in self.guests.items():
            if guest in jobs and host in jobs:
                kind = view.machine.types[min(jobs[host].placed)]
                key = (min(guest, host), max(guest, host), kind)
                if key not in self._measured:
                    self._measured[key] = _both(jobs[guest], jobs[host], kind)
                    self.failed_trials += self._measured[key] <= self.least_together

    def _pack(self, waiting: list[GpuJob], running: list[GpuJob], placed: dict[int, Placed], types: list[str]) -> None:
        self.guests = {}
        tried = {job.number: job for job in waiting[:TRIED] if job.model is not None}
        sizes = {job.gpus for job in tried.values()}
        hosts = {job.number: job for job in running if job.model is not None and job.gpus in sizes}
        jobs = {**tried, **hosts}

        untried = min(2.0, np.nextafter(self.least_together, np.inf))  # comes after all pairs that are kept

        def together(a: int, b: int) -> float:
            if (a in tried) == (b in tried):
                return 0.0
            kind = types[min(placed[b if a in tried else a])]
            both = _both(jobs[a], jobs[b], kind)
            return self._measured.get((min(a, b), max(a, b), kind), untried) if self.tries and both else both

        for a, b in pairs([(number, job.gpus) for number, job in jobs.items()], together, self.least_together):
            guest, host = (a, b) if a in tried else (b, a)
            placed[guest], self.guests[guest] = dict(placed[host]), host
            self.packed_pairs += 1

    def _grow(self, jobs: list[GpuJob], free: Int64s, placed: dict[int, Placed]) -> None:
        for job in jobs:
            if not job.elastic or job.number not in placed:
                continue
            base = placed[job.number]
            goes_on = all(job.placed.get(node, 0) >= gpus for node, gpus in base.items())
            more = {node: gpus - base.get(node, 0) for node, gpus in job.placed.items()} if goes_on else {}
            extra: Placed | None = {node: gpus for node, gpus in more.items() if gpus > 0}
            if not extra or not has_free(free, extra):
                extra = packed(free, job.gpus)
            if extra is None:
                continue
            take(free, extra)
            placed[job.number] = summed([base, extra])


def kept_shares(jobs: list[GpuJob], types: list[str]) -> Float64s:
    """Return the share of its speed that each job keeps on GPUs of each of `types`, (jobs, types).

    1 for a single job. Two jobs share all GPUs; 0 if that was not measured or one job has no profile.
    """
    if len(jobs) == 1:
        return np.ones((1, len(types)))
    one, other = (job.model for job in jobs)
    if one is None or other is None:
        return np.zeros((2, len(types)))
    both = ((one, other), (other, one))
    return np.array([[packed_share(model, guest, kind, jobs[0].gpus) for kind in types] for model, guest in both])


def _both(job: GpuJob, other: GpuJob, kind: str) -> float:
    """Return the combined progress of two jobs that share GPUs of a type, relative to one alone; 0 if not measured."""
    if job.model is None or other.model is None:
        return 0.0
    return packed_share(job.model, other.model, kind, job.gpus) + packed_share(other.model, job.model, kind, job.gpus)


def _least_loaded(load: Int64s, machine: GpuMachine, gpus: int) -> Placed:
    """Return a home of `gpus` GPUs, at most the widest node's on each node, always on the node with the least load.

    `load` (nodes,) counts the GPUs of all homes. Ties by the node's number.
    """
    home: Placed = {}
    while gpus > 0:
        able = [node for node in range(len(load)) if node not in home]
        wanted = min(gpus, machine.widest, int(machine.gpus[able].max()))
        able = [node for node in able if machine.gpus[node] >= wanted]
        home[min(able, key=lambda node: (load[node] / machine.gpus[node], node))] = wanted
        gpus -= wanted
    return home


SCHEDULER = RoundScheduler(Gandiva)
