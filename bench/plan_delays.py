"""What a plan gains by simulating the wait after a delay, on the (generated) load that live chains compete with.

    python -m bench.plan_delays

Chains of one-node links with a day of work each begin every twelve hours on 16 nodes, under each flat scheduler. One
player is `plan`. The other takes the wait after a delay to be that of now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bench.results import Benchmark, BenchmarkRun
from models.provisioning.futures.injected import Owners
from models.provisioning.service.chain import Move, ServiceView
from models.provisioning.service.figures import service_figures
from models.provisioning.service.injected import FlatChainCluster
from models.provisioning.service.plan import Plan
from models.provisioning.service.play import ROOM, Service, play_injected
from simulator.cluster import plain
from simulator.names import SCHEDULERS
from simulator.workload import Workload
from tests.live.background import NODES, USERS, Load, submissions
from traces.arrays import Int64s
from traces.units import DAY_S, HOUR_S

ABOUT = Benchmark(
    "plan_delays",
    "Simulating the wait after a delay",
    "policies",
    "Hours that planned chains lose for a day of work, on the generated load of the live tests (16 nodes, links of one "
    "node and 2 to 12 h), if the wait after a delay is simulated, and if it is taken to be that of now.",
)
OWN_S, SERVICE = 6 * HOUR_S, Service(DAY_S, 600, 600, tuple(hours * HOUR_S for hours in (2, 4, 6, 8, 12)))
BEGINS_S = np.arange(20 * DAY_S, 56 * DAY_S, DAY_S // 2)
SIMULATED, AS_NOW = "simulated", "as now"


@dataclass(frozen=True)
class PlanAsNow:
    """Plans as if the wait after a delay were that of now."""

    plan: Plan

    def act(self, view: ServiceView) -> Move:
        """As `plan`."""
        now = view.futures
        assert now is not None

        def futures(limits_s: tuple[int, ...], horizon_s: int, delay_s: int = 0) -> Int64s:
            starts_s: Int64s = now(limits_s, horizon_s) + delay_s
            return starts_s

        return self.plan.act(replace(view, futures=futures))


def background(seed: int) -> tuple[Workload, Owners]:
    """The load of a seed, and who its jobs are of."""
    jobs = submissions(Load(seed=seed))
    columns = [(k + 1, job.submit_s, job.nodes, job.run_s, 60 * job.limit_min, -1) for k, job in enumerate(jobs)]
    workload = Workload(*(np.array(column, np.int64) for column in zip(*columns, strict=True)))
    users = np.array([USERS.index(job.user) for job in jobs])
    run_s = np.minimum(workload.run_s, workload.limit_s)
    return replace(workload, run_s=run_s), Owners(users, np.zeros(len(jobs), np.int64))


def main() -> None:
    """Play all chains; print and record what they lose."""
    run = BenchmarkRun(ABOUT)
    for scheduler in SCHEDULERS:
        for seed in (1, 2, 3):
            workload, owners = background(seed)
            build = plain(workload, scheduler=scheduler, capacity=NODES)
            rows = 4 * (SERVICE.wanted_s // SERVICE.limits_s[0] + ROOM)
            cluster = FlatChainCluster(build, 1, OWN_S, SERVICE.limits_s[-1], rows, workload, owners)
            plan = Plan(0.5, SERVICE.decision_s)
            simulated, as_now = play_injected(cluster, BEGINS_S, [plan, PlanAsNow(plan)], SERVICE)
            played = {AS_NOW: [as_now], SIMULATED: [simulated]}
            for row in service_figures(played, [AS_NOW], BEGINS_S, SERVICE, plan.weight):
                name, what, n = f"{scheduler}, seed {seed}", row["policy"], row["n"]
                run.add(name, what, row["lost_h_per_day"], "h", n=n, interval=row["ci95"])
                run.add(name, f"overlap, {what}", row["overlap_h_per_day"], "h", n=n)
                if what == SIMULATED:
                    gain = row["difference_to_best_timing"]
                    run.add(name, "difference", gain["lost_h_per_day"], "h", n=n, interval=gain["ci95"])
            print(name, *(f"{one.what} {one.value}" for one in run.rows[-5:]), flush=True)
    run.write()


if __name__ == "__main__":
    main()
