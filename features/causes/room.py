"""Whether one shape of job has room in a pool of nodes, compiled: one pass over allocations and releases.

Arrays in, arrays out. `features.causes.pools` prepares the arrays; the tests compare with a loop in plain Python.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import kernel, kernel_inline
from traces.arrays import Int32s, Int64s


@kernel
def room_after_each(
    node: Int32s,
    taken: Int32s,
    is_left_out: NDArray[np.bool_],
    free: Int64s,
    is_large: NDArray[np.bool_],
    asked: Int64s,
    need: Int64s,
    nodes: int,
    room: NDArray[np.uint8],
) -> None:
    """Decide whether a demand has room after each of k changes.

    node (k,), taken (k, 3): changes in order of time, the GPUs, CPUs and MiB taken on that node (negative if released).
    is_left_out (k,): changes without effect. free (nodes, 3): free amounts before the first change; overwritten.
    is_large (nodes,): nodes whose free amounts add up to what must reach `asked` (3,). need (3,): amounts needed on
    each of `nodes` nodes. room (k + 1,): output, before the first change and after each change: 1 if the sum of the
    large nodes is enough, plus 2 if so many nodes have `need` free.
    """
    fitting = gpus = cpus = mem_mib = 0
    for place in range(len(free)):
        fitting += _has_room(free, place, need)
        if is_large[place]:
            gpus += free[place, 0]
            cpus += free[place, 1]
            mem_mib += free[place, 2]
    room[0] = (gpus >= asked[0] and cpus >= asked[1] and mem_mib >= asked[2]) + 2 * (fitting >= nodes)
    for i in range(len(node)):
        if not is_left_out[i]:
            place = node[i]
            fitting -= _has_room(free, place, need)
            for resource in range(3):
                free[place, resource] -= taken[i, resource]
            fitting += _has_room(free, place, need)
            if is_large[place]:
                gpus -= taken[i, 0]
                cpus -= taken[i, 1]
                mem_mib -= taken[i, 2]
        room[i + 1] = (gpus >= asked[0] and cpus >= asked[1] and mem_mib >= asked[2]) + 2 * (fitting >= nodes)


@kernel_inline
def _has_room(free: Int64s, place: int, need: Int64s) -> int:
    return int(free[place, 0] >= need[0] and free[place, 1] >= need[1] and free[place, 2] >= need[2])
