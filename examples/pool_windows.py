"""Test whether a policy beats the best rule that learns nothing, by pooling several windows.

    .venv/bin/baton ingest data/sample/slurm --cluster sample
    .venv/bin/python examples/pool_windows.py [--data data] [--cluster sample] [--policies lightgbm] [--windows 3]

We use the newest windows of the trace in turn. Each is preceded by a select window, which chooses the settings and the
best rule. The policies are fitted on data known before that select window. Then we pool the paired differences of all
windows.
"""

import argparse
from pathlib import Path

from models.provisioning.comparison.differences import pool
from models.provisioning.training.train import train
from models.study.cluster import open_study
from models.study.comparisons import compare_on
from models.study.windows import Window
from traces import clusters
from traces.store.folder import DataFolder
from traces.units import DAY_S

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--data", default="data")
options.add_argument("--cluster", default="sample")
options.add_argument("--policies", default="lightgbm")
options.add_argument("--world", default="plain", help="plain or calibrated (pairs are then jobs cut by their limit)")
options.add_argument("--windows", type=int, default=3)
options.add_argument("--days", type=int, default=7, help="length of each window and of its select window")
options.add_argument("--every", type=int, default=4, help="hours between the starts of pairs in the plain world")
options.add_argument("--seeds", type=int, default=2)
given = options.parse_args()

data = DataFolder(Path(given.data))
cluster = clusters.resolve(data, cluster=given.cluster)
names = given.policies.split(",")
study = open_study(data, cluster, world=given.world, every_s=given.every * 3600).seeing(names)
windows = []
for number in reversed(range(given.windows)):
    until_s = study.usable.until_s - number * given.days * DAY_S
    report = Window(until_s - given.days * DAY_S, until_s)
    select = Window(report.from_s - given.days * DAY_S, report.from_s)
    fit = study.fit_window(select.from_s)
    context = study.context(fit.until_s)
    trained = train(study.fit_pairs(fit), names, context=context, seeds=range(given.seeds))
    windows.append(compare_on(study, trained, report, select).differences)

for row in pool(windows):
    ends, verdict = (
        row["ci95"]["cost_w1"],
        {True: "beats it", False: "does not beat it", None: "cannot tell"}[row["beats"]],
    )
    interval = "no interval" if ends is None else f"95 % [{ends[0]:+.2f}, {ends[1]:+.2f}]"
    print(
        f"{row['size']:>6} nodes  {row['policy']:24} {row['cost_w1']:+6.2f} h per pair, {interval}; "
        f"n {row['n']} in {row['windows']} windows; the best rules were {', '.join(row['rules'])}: {verdict}"
    )
