"""Lyra (first published as Aryl): training borrows idle inference servers, and elastic jobs use the remaining GPUs.

Li et al., "Lyra: Elastic scheduling for deep learning clusters" (EuroSys 2023; "Aryl", arXiv 2202.07896). Every
`round_s` seconds (five minutes; the paper's interval as we recall it) the inference cluster reports its number of idle
servers, which are loaned. If it needs some back, elastic jobs first give up their extra workers there. Then the servers
whose jobs lose least are returned (`algorithms.reclaim`). Then jobs start, shortest first, with the GPUs they asked
for. No job is preempted for another job. Remaining free GPUs go to elastic jobs by a multiple-choice knapsack. A group
is a job, and an item is a number of extra GPUs. Its value is the time by which the job ends sooner.

The machine of the replay is the training cluster. The inference cluster comes in addition. It has `inference_nodes`
nodes for each training node, copies of the training nodes in their order. Utilization counts a loaned node as capacity
for as long as the loan lasts. To compare with the same cluster without loans: `--change lyra.loans=0`.

Our reading: the load of the inference servers is generated. The size of the inference cluster is our choice; the
paper's is about as large as its training cluster, as we recall it. Loaned GPUs are as fast as those for training, where
the paper's are slower. An elastic job may grow to `most_times` times its request, in quarters of its request. A change
of its extra workers costs a restart, which the value includes. Extra workers go to loaned servers first, all other
workers to training servers first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from simulator.gpu.algorithms.knapsack import choose
from simulator.gpu.algorithms.placement import has_free, packed, summed, take
from simulator.gpu.algorithms.reclaim import choose_servers
from simulator.gpu.profiles.draw import inference_servers
from simulator.gpu.round_policy import NOBODY, GpuJob, GpuMachine, Placed, View, speed
from simulator.gpu.scheduler import RoundScheduler, check_seconds
from traces.arrays import Int64s
from traces.counted import counted
from traces.errors import InputError

MOST_INFERENCE = 10.0  # inference nodes per training node


class Lyra:
    """Training that borrows idle inference servers, and elastic jobs that grow into the remaining GPUs.

    There are `inference_nodes` inference servers for each node of the machine. `in_use` maps a time, s, to the number
    of them that inference needs; by default a generated load (`profiles.draw.inference_servers`, with `seed`). `loans`
    and `grows` switch off the two halves of the scheduler; with both off it is shortest job first.
    """

    guests = NOBODY

    def __init__(
        self,
        inference_nodes: float = 0.25,
        in_use: Callable[[float], int] | None = None,
        round_s: float = 300.0,
        most_times: float = 2.0,
        loans: bool = True,
        grows: bool = True,
        seed: int = 0,
        pause_s: float | None = None,
    ) -> None:
        if not 0.0 <= inference_nodes <= MOST_INFERENCE:
            raise InputError(f"lyra: inference_nodes of {inference_nodes:g}: it must be from 0 to {MOST_INFERENCE:g}")
        check_seconds("lyra", round_s=round_s, pause_s=pause_s)
        self.pause_s = pause_s
        self.inference_nodes, self.in_use, self.round_s, self.seed = inference_nodes, in_use, round_s, seed
        self.training_nodes = self.servers = 0
        self.most_times, self.loans, self.grows = most_times, loans, grows
        self.loaned: list[int] = []
        self.loaned_gpus = 0  # of the last decision
        self.reclaimed_jobs = 0  # jobs preempted because inference needed their server
        self._base: dict[int, Placed] = {}
        self._extra: dict[int, Placed] = {}

    def extended(self, machine: GpuMachine) -> GpuMachine:
        """Return the training machine with the inference servers behind its nodes."""
        self.training_nodes = len(machine.gpus)
        self.servers = round(self.inference_nodes * self.training_nodes)
        nodes = np.arange(self.training_nodes + self.servers) % self.training_nodes
        return replace(
            machine,
            gpus=machine.gpus[nodes],
            types=[machine.types[node] for node in nodes],
            others=None if machine.others is None else machine.others[nodes],
            labels=tuple(machine.labels[node] for node in nodes) if machine.labels else (),
        )

    def decide(self, view: View) -> dict[int, Placed]:
        """As `simulator.gpu.round_policy.RoundPolicy`, on the machine that `extended` returned."""
        there = {job.number: job for job in view.jobs}
        self._base = {number: placed for number, placed in self._base.items() if number in there}
        self._extra = {number: placed for number, placed in self._extra.items() if number in there}
        self._lend_and_reclaim(view)
        self.loaned_gpus = int(view.machine.gpus[self.loaned].sum())
        free = view.machine.gpus.copy()
        closed = np.ones(len(free), dtype=np.bool_)
        closed[: self.training_nodes] = closed[self.loaned] = False
        free[closed] = 0
        for placed in self._base.values():
            take(free, placed)
        pending = [job for job in view.jobs if job.number not in self._base]
        left = int(free.sum())
        for job in sorted(pending, key=lambda job: (job.left_s, job.number)):
            if left < job.gpus:
                continue
            found = self._placed(free, job.gpus, training_first=True)
            if found is not None:
                self._base[job.number] = found
                take(free, found)
                left -= job.gpus
        if self.grows:
            self._grow([there[number] for number in self._base if there[number].elastic], free, view)
        return {number: summed([placed, self._extra.get(number, {})]) for number, placed in self._base.items()}

    def said(self) -> list[str]:
        """Return the assumptions and counts of the run as sentences for the user."""
        return [
            f"lyra: an inference cluster of {counted(self.servers, 'node')} comes in addition to the "
            f"{counted(self.training_nodes, 'training node')}; utilization counts its nodes while they are on loan",
            "lyra: the inference load and the elastic jobs are generated",
            f"lyra: jobs were preempted {counted(self.reclaimed_jobs, 'time')} because inference needed their server",
        ]

    def _lend_and_reclaim(self, view: View) -> None:
        servers = range(self.training_nodes, len(view.machine.gpus))
        idle = len(servers) - self._in_use(view.now_s, len(servers)) if self.loans else 0
        if len(self.loaned) > idle:
            preempted = {number: placed.keys() for number, placed in self._base.items()}
            back = set(choose_servers(preempted, self.loaned, len(self.loaned) - idle))
            self.loaned = [server for server in self.loaned if server not in back]
            hit = [number for number, placed in self._base.items() if back & placed.keys()]
            self.reclaimed_jobs += len(hit)
            for number in hit:
                del self._base[number]
                self._extra.pop(number, None)
            self._extra = {number: placed for number, placed in self._extra.items() if not back & placed.keys()}
        else:
            more = [server for server in servers if server not in self.loaned]
            self.loaned = sorted(self.loaned + more[: idle - len(self.loaned)])

    def _in_use(self, now_s: float, servers: int) -> int:
        if self.in_use is not None:
            return self.in_use(now_s)
        return int(inference_servers(np.array([now_s]), servers, self.seed)[0])

    def _placed(self, free: Int64s, gpus: int, *, training_first: bool) -> Placed | None:
        """Place a gang on one kind of server if it fits there, else on both."""
        training = np.arange(len(free)) < self.training_nodes
        for kind in (training, ~training) if training_first else (~training, training):
            found = packed(np.where(kind, free, 0), gpus)
            if found is not None:
                return found
        return packed(free, gpus)

    def _grow(self, jobs: list[GpuJob], free: Int64s, view: View) -> None:
        self._drop_taken(free.copy())
        groups, extras = [], []
        for job in jobs:
            base_s = job.left_s / speed(job, self._base[job.number], view.machine)
            now = sum(self._extra.get(job.number, {}).values())
            restart_s = self._restart_s(job)
            keeps = summed([self._base[job.number], self._extra.get(job.number, {})]) == job.placed
            charge = {gpus: 0.0 if keeps and gpus == now else restart_s for gpus in (0, *self._sizes(job))}
            sizes = [gpus for gpus in charge if gpus > 0]
            groups.append([(gpus, base_s + charge[0] - self._end_s(job, gpus, view) - charge[gpus]) for gpus in sizes])
            extras.append(sizes)
        chosen = choose(groups, int(free.sum()))
        kept: dict[int, Placed] = {}
        wanted = {
            job.number: sizes[index] if index >= 0 else 0
            for job, sizes, index in zip(jobs, extras, chosen, strict=True)
        }
        for number, placed in self._extra.items():
            if wanted.get(number, 0) == sum(placed.values()):
                kept[number] = placed
                take(free, placed)
        for number, gpus in wanted.items():
            found = self._placed(free, gpus, training_first=False) if gpus and number not in kept else None
            if found is not None:
                kept[number] = found
                take(free, found)
        self._extra = kept

    def _drop_taken(self, free: Int64s) -> None:
        """Drop extra GPUs that other jobs hold by now; of extra GPUs that do not fit together, drop the later ones."""
        for number, placed in list(self._extra.items()):
            if has_free(free, placed):
                take(free, placed)
            else:
                del self._extra[number]

    def _restart_s(self, job: GpuJob) -> float:
        if self.pause_s is not None:
            return self.pause_s
        return job.restart_cost_s

    def _sizes(self, job: GpuJob) -> list[int]:
        most = int(job.gpus * (self.most_times - 1.0))
        return sorted({quarter * most // 4 for quarter in (1, 2, 3, 4)} - {0})

    def _end_s(self, job: GpuJob, extra: int, view: View) -> float:
        """Return the seconds to the end with `extra` more GPUs, placed on separate nodes from the front."""
        grown, left = dict(self._base[job.number]), extra
        for node in range(len(view.machine.gpus)):
            if left > 0 and node not in grown:
                grown[node] = min(left, int(view.machine.gpus[node]))
                left -= grown[node]
        return job.left_s / speed(job, grown, view.machine)


SCHEDULER = RoundScheduler(Lyra)
