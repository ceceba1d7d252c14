"""What `baton plan` expects of chains, to compare with what `baton evaluate --chains` plays from the same predecessors.

    python -m bench.plan_expected --data DIR --cluster ls6 --from 2023-01-01 --to 2023-02-01

Each predecessor of the window, at most one in 12 h, is asked about half-way through its limit, with its user, nodes and
limit. Prints the means of the three plans over all of them.
"""

from __future__ import annotations

import numpy as np

from agent.artifact import DECIDE_EVERY_S
from agent.chains.chain import RESTART_COST_S, USUAL_S
from agent.chains.plan import AHEAD, PlanTerms
from bench.asked_window import opened, parser
from models.provisioning.service.moment import recorded_waits
from models.provisioning.service.outlook import ChainWish, outlooks
from models.study.pair_tables import apart, predecessors_in
from traces.units import DAY_S, HOUR_S

WORK_S = 10 * DAY_S
EVERY_S = 12 * HOUR_S  # between two predecessors
MEASURES = ("lost_h_per_day", "overlap_h_per_day", "restarts_per_day")


def main() -> None:
    """The command line."""
    given = parser(__doc__).parse_args()
    study, window = opened(given)
    record, predecessors = predecessors_in(study.data, study.scenario, window)
    plans = []
    for row in apart(record, predecessors, EVERY_S).row:
        own_s, nodes = int(record.limit_s[row]), int(record.size[row])
        now_s = int(record.start_s[row]) + own_s // 2
        waits = recorded_waits(record, now_s, nodes, sorted({*USUAL_S, own_s}), int(record.user[row]), None)
        terms = PlanTerms(USUAL_S, int(RESTART_COST_S), 0.5, DECIDE_EVERY_S)
        wish = ChainWish(terms, {nodes: waits}.__getitem__, WORK_S, (own_s,), AHEAD, (nodes,))
        plans.append(outlooks([wish])["plans"])
    for place, first in enumerate(plans[0]):
        means = {name: float(np.mean([rows[place][name] for rows in plans])) for name in MEASURES}
        print(f"{first['plan']}, n {len(plans)}:", ", ".join(f"{name} {mean:.2f}" for name, mean in means.items()))


if __name__ == "__main__":
    main()
