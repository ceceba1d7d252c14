"""Generate a log of pods in the format of Alibaba's openb trace, with invented distributions.

The format is that of cluster-trace-gpu-v2023 in the public repository alibaba/clusterdata. That trace names no jobs;
here the pods of a job are created in the same second with the same request. Every number below is invented: no row
records a real cluster.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from traces import generated
from traces.generate.text import open_text
from traces.units import DAY_S, WEEK_S

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
NODES = "sn,cpu_milli,memory_mib,gpu,model"
GPUS_OF_A_POD, THEIR_SHARES = (1, 2, 4, 8), (0.6, 0.15, 0.1, 0.15)
PODS_OF_A_JOB, SHARES = (1, 2, 4, 8), (0.55, 0.2, 0.15, 0.1)
PART_SHARE, PARTS = 0.3, (250, 500)  # share of single-pod, single-GPU jobs that take only these thousandths of a GPU
MEDIAN_RUN_S, SPREAD = 1800.0, 1.5  # lognormal run time: median, and sigma of its natural logarithm


def generate_openb(out: Path, *, weeks: int, nodes: int, load: float, seed: int) -> list[Path]:
    """Write a pod list and a node list into the folder `out`, and return their paths.

    Every fourth node has 4 GPUs, the others 8. The jobs cover `weeks` weeks and request `load` times the nodes' GPU
    time. No job is wider than half of the cluster.
    """
    rng = np.random.default_rng(seed)
    gpus = [4 if node % 4 == 3 else 8 for node in range(nodes)]
    left, jobs = load * sum(gpus) * weeks * WEEK_S, []
    while left > 0.0:
        pods, of_pod = int(rng.choice(PODS_OF_A_JOB, p=SHARES)), int(rng.choice(GPUS_OF_A_POD, p=THEIR_SHARES))
        if pods * of_pod * 2 > sum(gpus):
            continue
        run_s = int(np.clip(rng.lognormal(np.log(MEDIAN_RUN_S), SPREAD), 60, 2 * DAY_S))
        is_part = pods == of_pod == 1 and rng.random() < PART_SHARE
        jobs.append((pods, of_pod, int(rng.choice(PARTS)) if is_part else 1000, run_s))
        left -= pods * of_pod * run_s
    at_s = np.sort(rng.integers(0, weeks * WEEK_S, len(jobs))).tolist()
    paths = [out / f"openb_pod_list_generated{seed}.csv", out / f"openb_node_list_generated{seed}.csv"]
    with open_text(paths[0], compress=False) as text:
        text.write(PODS + "\n")
        number = 0
        for at, (pods, of_pod, part, run_s) in zip(at_s, jobs, strict=True):
            for _ in range(pods):
                request = f"{6000 * of_pod},{24_576 * of_pod},{of_pod},{part},,LS"
                text.write(f"openb-pod-{number:06d},{request},Succeeded,{at},{at + run_s},{at}\n")
                number += 1
    with open_text(paths[1], compress=False) as text:
        text.write(NODES + "\n")
        text.writelines(f"openb-node-{n:04d},96000,393216,{own},T4\n" for n, own in enumerate(gpus))
    generated.write_list(paths)
    return paths
