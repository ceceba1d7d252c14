"""Replay a log of the Standard Workload Format under EASY backfill and plot its queue.

    .venv/bin/python examples/replay_swf.py [LOG.swf] [QUEUE.png]

Use any log of the Parallel Workloads Archive, compressed with gzip or not. The default is a small generated log.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from simulator.flat.replay import replay
from simulator.metrics import mean_level, schedule_summary
from simulator.workload import from_swf, peak_in_use
from traces.readers.published.swf import read_swf

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("log", nargs="?", type=Path, default=Path(__file__).with_name("generated.swf"))
options.add_argument("plot", nargs="?", type=Path, default=Path("queue.png"))
given = options.parse_args()

# 1. The log. Jobs that cannot be replayed (no run time, no processors, ...) are counted by reason, never lost silently.
log = read_swf(given.log)
jobs, left_out = from_swf(log)
capacity = log.max_procs or peak_in_use(jobs)
print(f"{given.log.name}: {len(jobs):,} jobs on {capacity:,} processors; left out: {left_out or 'none'}")

# 2. The replay: first come, first served; a job that fits now may overtake if it does not delay the first in the queue.
fits = jobs.take(jobs.size <= capacity)
easy = replay(fits, scheduler="easy", capacity=capacity)
figures = schedule_summary(fits, easy.starts, capacity, run_s=easy.run_s)
print(f"mean wait {figures['mean_wait_s'] / 3600:.2f} h, 95th percentile {figures['p95_wait_s'] / 3600:.2f} h")
print(f"mean bounded slowdown {figures['mean_bounded_slowdown']:.1f}, utilization {figures['utilization']:.1%}")

# 3. The queue: +1 at each submission, -1 at each start; the mean of that step function in 300 slices of time.
first, last = fits.submit_s.min(), (easy.starts + easy.run_s).max()
edges = np.linspace(first, last, 301)
change = np.concatenate([np.ones(len(fits), int), -np.ones(len(fits), int)])
queue = mean_level(np.concatenate([fits.submit_s, easy.starts]), change, edges)
deepest, days = int(queue.argmax()), (edges - first) / 86400
print(f"mean queue {queue.mean():.2f} jobs; deepest {queue[deepest]:.0f}, on day {days[deepest]:.1f}")

# 4. Little's law, as a check: the mean queue is the arrival rate times the mean wait.
assert np.isclose(queue.mean(), figures["mean_queue_jobs"]), "the plotted queue is not the one of the schedule"

figure = Figure(figsize=(9, 3.5), layout="constrained")
axes = figure.subplots()
axes.stairs(queue, days, fill=True)
axes.set(xlabel="days since the first submission", ylabel="jobs in the queue", xlim=(0, days[-1]))
axes.set_title(f"{given.log.name} under EASY", parse_math=False)
figure.savefig(given.plot, dpi=120)
print(f"plot: {given.plot}")
