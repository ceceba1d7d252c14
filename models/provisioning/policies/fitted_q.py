"""Optimal stopping on the full table: fitted Q-iteration with boosted trees.

Submitting the successor is stopping, and the table holds the cost of stopping at every decision. The cost of waiting
under any rule can therefore be looked up: follow the rule from the next decision on (Longstaff & Schwartz, "Valuing
American options by simulation", Review of Financial Studies 14 (2001): a regression of realised continuation values;
Ernst, Geurts & Wehenkel, "Tree-based batch mode reinforcement learning", JMLR 6 (2005)).

1. *Look ahead one step.* Waiting a moment costs a moment of interruption if the successor would start too late, and
   saves price x a moment of overlap if not. So submit once P(too late) >= price / (1 + price). Boosting fits that
   chance, and the price only moves the threshold.
2. *Improve.* For each of a few prices, the loss of waiting and then following the rule of step 1 is looked up at each
   decision, less the loss of submitting. Boosting fits its sign, weighted by its size. The log-odds are 0 exactly where
   the two expectations are equal, so trees of logistic loss find the boundary of the better rule (Lazaric,
   Ghavamzadeh & Munos, "Analysis of a classification-based policy iteration algorithm", ICML 2010).

Differences from the papers, and their reasons:
- The rule followed at a decision comes from trees fitted on other stretches of time. A rule that has seen the outcomes
  makes waiting look better than it is.
- Scores may only rise with an estimate relative to the remaining time (monotone constraints): a calm month must not
  teach that long estimates mean nothing.
- There is one rule for all decisions instead of one per decision: the remaining time is in every input.
- Sizes are divided by 1 h + remaining time, which is known at the decision, so that no expectation is biased.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.artifact import Artifact
from features.conventions import interruption_h, overlap_h
from models.provisioning.batched_pairs import rewards
from models.provisioning.learning.manifest import new_artifact
from models.provisioning.learning.stopping_rows import (
    BASE,
    INPUTS,
    REMAINING,
    folds_in_time,
    relative_inputs,
    rows_to_fit,
)
from models.provisioning.learning.trees import Tree, flatten
from models.provisioning.policies.lightgbm import boosting_options, lightgbm_trees
from models.provisioning.protocol import PairTable
from models.provisioning.stopping import following_rows, stopping_rows
from traces.arrays import Float32s, Float64s, Int64s
from traces.counted import counted
from traces.errors import InputError

SETTINGS = (40.0, 20.0, 10.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3, 0.15, 0.06, 0.02)
KNOB = "price: what an hour of overlap costs, in hours of interruption"
DEFAULT_PRICE = 1.0


@dataclass
class FittedQ:
    """Two steps of fitted Q-iteration with LightGBM.

    Metrics: `look_ahead_log_loss` and `improvement_log_loss` (the mean over the prices) of the rows fitted, a value per
    round. `crossed_cost_h`: losses of the untrained rule and then of the rule of step 1 on the pairs fitted, if trees
    of other stretches of time decide; hours a pair, the mean over the prices.
    """

    name: str = "fitted-q"
    knob: str = KNOB
    settings: tuple[float, ...] = SETTINGS
    is_learned: bool = True
    sharpness: float = 4.0  # of the untrained rule: log-odds an e-fold of the estimate relative to the remaining time
    prices: tuple[float, ...] = (0.02, 0.15, 0.7, 2.0, 8.0, 40.0)  # improved at these; interpolated between them
    folds: int = 3  # stretches of time, each decided by trees of the others
    rounds: int = 50  # trees of the look-ahead
    improvement_rounds: int = 50  # trees of each price
    leaves: int = 7  # per tree, at most
    learning_rate: float = 0.06  # share of each tree that counts
    min_data_in_leaf: int = 60  # rows, at least
    feature_fraction: float = 0.6  # share of the inputs that a tree sees
    bagging_fraction: float = 0.6  # share of the rows that a tree sees, drawn anew for each
    base: str = BASE  # estimate in hours that the untrained rule follows
    inputs: tuple[str, ...] = INPUTS  # hours each: of the observation, and of its futures
    looks_ahead: bool = False

    def fit(self, pairs: PairTable, seed: int) -> tuple[Artifact, dict[str, list[float]]]:
        """Fit the policy. Raises InputError if no pair has a decision before its predecessor's end."""
        stopping = Stopping(self, pairs, seed)
        ahead = stopping.boost(stopping.base, stopping.is_late, None, stopping.rows, self.rounds)
        crossed = stopping.crossed()
        groups = [ahead.trees]
        losses = []
        for price in self.prices:
            gain, size = stopping.gain(crossed - np.log(price) >= 0.0, price)
            start = stopping.base + ahead.raw(stopping.inputs) - np.log(price)
            made = stopping.boost(start, gain > 0.0, size, stopping.rows, self.improvement_rounds)
            groups.append(made.trees)
            losses.append(made.losses)
        costs = [stopping.mean_cost(score) for score in (stopping.base, crossed)]
        arrays = flatten([tree for group in groups for tree in group])
        arrays["group"] = np.repeat(np.arange(len(groups)), [len(group) for group in groups]).astype(np.int16)
        return self._artifact(arrays), {
            "look_ahead_log_loss": ahead.losses,
            "improvement_log_loss": np.mean(losses, axis=0).tolist(),
            "crossed_cost_h": costs,
        }

    def untrained(self, artifact: Artifact, seed: int) -> Artifact:
        """No tree: submit once sharpness x log of (1 h + start estimate) / (1 h + remaining) reaches the log price."""
        leaf = Tree(np.zeros(1, np.int64), np.zeros(1, np.float32), np.full(1, -1), np.full(1, -1), np.zeros(1))
        return replace(artifact, arrays={**flatten([leaf]), "group": np.zeros(1, np.int16)})

    def _artifact(self, arrays: dict[str, NDArray[Any]]) -> Artifact:
        parameters = {
            "inputs": list(self.inputs),
            "base": self.base,
            "sharpness": self.sharpness,
            "prices": list(self.prices),
        }
        return new_artifact(
            self, "stopping-trees", DEFAULT_PRICE, parameters=parameters, arrays=arrays, looks_ahead=self.looks_ahead
        )


@dataclass(frozen=True)
class BoostedScore:
    """Boosted trees whose sum is added to a score."""

    booster: Any
    trees: list[Tree]
    losses: list[float]  # log loss of the rows fitted, a value per round

    def raw(self, inputs: Float32s) -> Float64s:
        """(n,) the sum of the trees at inputs (n, i)."""
        sums: Float64s = self.booster.predict(inputs, raw_score=True)
        return sums


class Stopping:
    """A pair table as an optimal stopping problem."""

    def __init__(self, policy: FittedQ, pairs: PairTable, seed: int) -> None:
        self.policy, self.pairs, self.seed = policy, pairs, seed
        self.rows = rows_to_fit(pairs)
        if not len(self.rows):
            raise InputError(
                f"{policy.name}: none of the {counted(len(pairs), 'pair')} has a decision before its predecessor's "
                "end; fit on pairs of a longer limit, or decide more often"
            )
        seen = pairs.seen(policy.looks_ahead)
        self.inputs = relative_inputs(seen, policy.inputs).astype(np.float32)  # (d, i), as the artifact sees them
        self.base = policy.sharpness * relative_inputs(seen, (policy.base,))[:, 0]  # (d,)
        self.is_late = pairs.gap_h > 0.0  # (d,)
        self.fold = folds_in_time(pairs, min(policy.folds, len(pairs)))  # (d,)

    def crossed(self) -> Float64s:
        """(d,) score of step 1 at price 1; each decision is scored by trees of other stretches of time."""
        score = self.base.copy()
        for number in np.unique(self.fold):
            rows = self.rows[self.fold[self.rows] != number]
            if len(rows):
                made = self.boost(self.base, self.is_late, None, rows, self.policy.rounds)
                here = self.fold == number
                score[here] += made.raw(self.inputs[here])
        return score

    def gain(self, submit: NDArray[np.bool_], price: float) -> tuple[Float64s, Float64s]:
        """(d,) hours that submitting saves over waiting and then following `submit`, and the weight of each row."""
        gap = self.pairs.gap_h
        loss = -rewards(interruption_h(gap), overlap_h(gap), price)
        gain = loss[following_rows(self.pairs, submit)] - loss
        remaining_h = np.maximum(self.pairs.observations[:, REMAINING].astype(np.float64), 0.0)
        return gain, np.abs(gain) / (1.0 + remaining_h)

    def mean_cost(self, score: Float64s) -> float:
        """Mean loss of the rule "submit once score >= log price", hours a pair, over the prices."""
        costs = []
        for price in self.policy.prices:
            gap = self.pairs.gap_h[stopping_rows(self.pairs, score >= np.log(price))]
            costs.append(-rewards(interruption_h(gap), overlap_h(gap), price).mean())
        return float(np.mean(costs))

    def boost(
        self, start: Float64s, label: NDArray[np.bool_], size: Float64s | None, rows: Int64s, rounds: int
    ) -> BoostedScore:
        """Fit trees of logistic loss on `rows`, on top of `start` (d,), for labels (d,) weighted by `size` (d,)."""
        import lightgbm

        policy = self.policy
        options = {
            "objective": "binary",
            "metric": "binary_logloss",
            "monotone_constraints": [1] * len(policy.inputs),
        } | boosting_options(policy, self.seed)
        weight = None if size is None or not size[rows].any() else size[rows] / size[rows].mean()
        data = lightgbm.Dataset(
            self.inputs[rows], label[rows].astype(np.float64), weight=weight, init_score=start[rows]
        )
        history: dict[str, dict[str, list[float]]] = {}
        booster = lightgbm.train(
            options,
            data,
            rounds,
            valid_sets=[data],
            valid_names=["fit"],
            callbacks=[lightgbm.record_evaluation(history)],
        )
        losses = [float(loss) for loss in history["fit"]["binary_logloss"]]
        return BoostedScore(booster, lightgbm_trees(booster), losses)


def fitted_q_ahead() -> FittedQ:
    """The recipe of `fitted-q` with the lower quartile and the median of the waits in simulated futures.

    The untrained rule follows their median in place of the start estimate.
    """
    inputs = (*INPUTS, "ahead_wait_p25_h", "ahead_wait_p50_h")
    return FittedQ("fitted-q-ahead", base="ahead_wait_p50_h", inputs=inputs, looks_ahead=True)
