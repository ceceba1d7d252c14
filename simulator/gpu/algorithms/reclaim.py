"""Which loaned servers to give back, so that few jobs are preempted: Lyra's greedy choice by server preemption cost.

Li et al., "Lyra: Elastic scheduling for deep learning clusters" (EuroSys 2023; "Aryl", arXiv 2202.07896). The
cost of a server is the sum, over the jobs on it, of the fraction of the job's servers that it is: a job on k servers
costs each of them 1/k. That fraction counts servers and not GPUs: our reading. Choosing the cheapest set is a
knapsack problem with dependent items, and NP-hard; the paper picks greedily and computes the costs again after each
pick.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def choose_servers(servers_of: Mapping[int, Collection[int]], loaned: Collection[int], wanted: int) -> list[int]:
    """`wanted` of the `loaned` servers in the order of their picks; all of them where that is no more than there are.

    `servers_of` gives for every job that would be preempted the servers it is on, loaned or not. A job whose workers
    there can be taken away without preempting it is left out of it. Of equal costs the lowest number.
    """
    alive = {job: set(servers) for job, servers in servers_of.items() if set(servers) & set(loaned)}
    left, picked = set(loaned), []
    for _ in range(min(wanted, len(left))):
        cost = dict.fromkeys(left, 0.0)
        for servers in alive.values():
            for server in servers & left:
                cost[server] += 1.0 / len(servers)
        server = min(left, key=lambda number: (cost[number], number))
        picked.append(server)
        left.remove(server)
        alive = {job: servers for job, servers in alive.items() if server not in servers}
    return picked
