"""How many nodes have room for one shape of job, compiled: one pass over what is given out and given back.

Arrays in, arrays out. `features.pools` lays them out; a loop in plain Python in the tests gives the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.compiled import kernel

Int32s = NDArray[np.int32]
Int64s = NDArray[np.int64]


@kernel
def nodes_with_room(
    node: Int32s,
    gpus: Int32s,
    cpus: Int32s,
    free_gpus: Int64s,
    free_cpus: Int64s,
    need_gpus: int,
    need_cpus: int,
    count: Int64s,
) -> None:
    """Nodes on which `need_gpus` GPUs and `need_cpus` CPUs are free at once, after each of k changes.

    node, gpus, cpus (k,): changes in order of time, what is taken (negative: given back) on that node.
    free_gpus, free_cpus (nodes,): what is free before the first change; overwritten.
    count (k + 1,): out, the number of such nodes before the first change and after each.
    """
    fitting = 0
    for place in range(len(free_gpus)):
        fitting += free_gpus[place] >= need_gpus and free_cpus[place] >= need_cpus
    count[0] = fitting
    for i in range(len(node)):
        place = node[i]
        fitting -= free_gpus[place] >= need_gpus and free_cpus[place] >= need_cpus
        free_gpus[place] -= gpus[i]
        free_cpus[place] -= cpus[i]
        fitting += free_gpus[place] >= need_gpus and free_cpus[place] >= need_cpus
        count[i + 1] = fitting
