"""What learning adds to `plan`: the differential loss of each candidate and the advantage of waiting, from outcomes.

`models.provisioning.service.candidates` says what is predicted, and `models.provisioning.service.rows` on what it is
fitted. Both policies start from what `plan` expects and fit LightGBM's trees to the rest:

- `plan-regret`: the true loss of each candidate; and, at each decision, the true loss of what `plan` does if it waits
  now less that of the best candidate now. That difference is the regret of submitting. Both outcomes come from the same
  record, so most of their noise cancels.
- `plan-fitted-q`: the same, then BACKUPS of fitted Q-iteration (Ernst, Geurts & Wehenkel, "Tree-based batch mode
  reinforcement learning", JMLR 6 (2005)): the value of waiting is that of the better of submitting and waiting at the
  next decision. It learns when to stop waiting instead of what `plan` loses if it does.

A month has few lives of links and they share one queue. So trees are small, and predictions may only rise with a wait
relative to the time left (monotone constraints). A calm month must not teach that long estimates mean nothing. For the
same reason the advantage of waiting does not see the time left or the limit, and counts at most CLIP_H.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from models.provisioning.learning.manifest import new_manifest
from models.provisioning.learning.trees import flatten
from models.provisioning.policies.lightgbm import boosting_options, lightgbm_trees
from models.provisioning.protocol import PairTable
from models.provisioning.service.candidates import EXPECTED, INPUTS, KIND, PlanArtifact
from models.provisioning.service.rows import ADDED, AT, FIRST, LIFE, LOST
from traces.arrays import Float64s, Int64s
from traces.errors import InputError

BACKUPS = 3
CLIP_H = 12.0  # a larger regret counts as this
RISES = INPUTS.index("late_share") + 1  # so many inputs, the first, rise with the waits; the advantage sees these
LEFT = INPUTS.index("left_h")


@dataclass
class PlanRegret:
    """Trees on top of `plan`.

    Metrics: `wait_rmse_h`, of the decisions fitted, first without and then after each backup.
    """

    name: str = "plan-regret"
    knob: str = "none"
    settings: tuple[float, ...] = (0.0,)
    is_learned: bool = True
    backups: int = 0
    rounds: int = 30
    leaves: int = 7  # per tree, at most
    learning_rate: float = 0.02  # share of each tree that counts
    min_data_in_leaf: int = 60  # rows, at least
    feature_fraction: float = 0.6  # share of the inputs that a tree sees
    bagging_fraction: float = 0.6  # share of the rows that a tree sees, drawn anew for each

    def fit(self, pairs: PairTable, seed: int) -> tuple[PlanArtifact, dict[str, list[float]]]:
        """Fit the policy on the table's rows of chains. Raises InputError if no link's life is known to its end."""
        if not len(pairs.candidates):
            raise InputError(f"{self.name}: no link of a chain began and ended in the fit window; fit on a longer one")
        lives = _Lives(pairs.candidates)
        loss = self._boost(lives.inputs, lives.true_h, lives.expected_h, lives.row_weight, seed)
        best = lives.least(lives.expected_h + loss.predict(lives.inputs))
        inputs, start_h, choice = lives.inputs[best][:, :RISES], lives.planned_advantage_h, ~lives.is_last
        now_h, next_h = lives.loss_h(best), lives.loss_h(best[lives.following])
        target_h = lives.loss_h(lives.planned[lives.followed]) - now_h
        errors_h, waits = list[float](), cast(Any, None)
        for step in range(self.backups + 1):
            if step:
                later_h = np.where(lives.is_last, 0.0, np.minimum(start_h + waits.predict(inputs), 0.0))
                target_h = next_h + later_h[lives.following] - now_h
            target_h = np.clip(target_h, -CLIP_H, CLIP_H)
            waits = self._boost(inputs[choice], target_h[choice], start_h[choice], lives.weight[choice], seed)
            errors_h.append(float(np.sqrt(np.mean((start_h + waits.predict(inputs) - target_h)[choice] ** 2))))
        return self._artifact(loss, waits), {"wait_rmse_h": errors_h}

    def _boost(self, inputs: Float64s, target_h: Float64s, start_h: Float64s, weight: Float64s, seed: int) -> Any:
        """Fit trees to the targets (n,), on top of `start_h` (n,)."""
        import lightgbm

        options = {
            "objective": "regression",
            "boost_from_average": False,
            "monotone_constraints": [1] * RISES + [0] * (inputs.shape[1] - RISES),
        } | boosting_options(self, seed)
        data = lightgbm.Dataset(inputs.astype(np.float32), target_h, weight=weight, init_score=start_h)
        return lightgbm.train(options, data, self.rounds)

    def _artifact(self, loss: Any, waits: Any) -> PlanArtifact:
        groups = [lightgbm_trees(loss), lightgbm_trees(waits)]
        arrays = flatten([tree for group in groups for tree in group])
        arrays["group"] = np.repeat([0, 1], [len(group) for group in groups]).astype(np.int16)
        return PlanArtifact(new_manifest(self, KIND, 0.0, {"inputs": list(INPUTS)}), arrays)


def plan_fitted_q() -> PlanRegret:
    """`plan-regret` with BACKUPS."""
    return PlanRegret("plan-fitted-q", backups=BACKUPS)


class _Lives:
    """Rows of candidates, (n,), and the decisions that they belong to, (d,), in order of life and time."""

    def __init__(self, rows: Float64s) -> None:
        known = rows[:, FIRST:]
        life_and_time = rows[:, [LIFE, AT]]
        self.begins = np.flatnonzero(np.r_[True, (life_and_time[1:] != life_and_time[:-1]).any(axis=1)])
        self.decision = np.repeat(np.arange(len(self.begins)), np.diff(np.r_[self.begins, len(rows)]))
        life = rows[self.begins, LIFE]
        self.is_last = np.r_[life[1:] != life[:-1], True]
        place = np.arange(len(life))
        self.following = np.where(self.is_last, place, place + 1)
        self.inputs = np.ascontiguousarray(known[:, len(EXPECTED) :])
        rate = known[:, EXPECTED.index("rate")]
        self.planned = self.least(rate)  # row of the candidate that `plan` takes
        submits = (self.inputs[self.planned, INPUTS.index("delay_share")] <= 0.0) | self.is_last
        stops = np.where(submits, place, len(life))
        self.followed = np.minimum.accumulate(stops[::-1])[::-1][self.following]  # decision at which `plan` submits
        self.rate = rate[self.planned]  # J*
        self.lost_h, self.added_h = rows[:, LOST], rows[:, ADDED]
        self.true_h = self.lost_h - self.rate[self.decision] * self.added_h
        self.expected_h = known[:, 0] - self.rate[self.decision] * known[:, 1]
        self.planned_advantage_h = -np.minimum.reduceat(self.expected_h, self.begins)
        self.row_weight = 1.0 / (1.0 + np.expm1(self.inputs[:, LEFT]))
        self.weight = self.row_weight[self.begins]

    def loss_h(self, row: Int64s) -> Float64s:
        """(d,) true differential loss of a row for each decision, at that decision's J*."""
        found: Float64s = self.lost_h[row] - self.rate * self.added_h[row]
        return found

    def least(self, value: Float64s) -> Int64s:
        """(d,) row of least value in each decision; the first of equal ones."""
        order = np.lexsort((value, self.decision))
        found: Int64s = order[self.begins]
        return found
