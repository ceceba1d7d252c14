"""Baton's networks against published DQN and PPO, with equal processor time, on the same recorded pairs.

    .venv/bin/python -m bench.published_peers --data DIR --cluster NAME [--window report] [--seeds 5] [--times 4]

Peers are stable-baselines3's DQN and PPO with its own hyper-parameters and with those that CleanRL (Huang et al., JMLR
23 (2022)) publishes for its `dqn.py` and `ppo.py`; both pairs are run by stable-baselines3's code, since CleanRL is
single files to copy and not a library. They play `models.provisioning.environment` at weight 1, see the inputs that
Baton's networks see, do not discount (the reward comes at the end alone), and learn for `--times` the processor seconds
that Baton's learner of the same kind took with that seed. Baton's see the weight as an input and are asked at weight 1.

A line a learner: mean interruption, overlap and cost of weight 1, hours a pair, over seeds and pairs, and the cost less
that of Baton's learner of the kind, with 95 % by 7-day blocks and seeds. Stated beforehand: Baton's is no worse where
that difference is above -10 % of the peer's cost, and better where its interval lies above 0.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
from stable_baselines3.common.callbacks import BaseCallback

from bench.results import Benchmark, BenchmarkRun
from features.bootstrap import interval, resampled_means, seed_weights, start_weights
from models.provisioning.environment import ProvisioningEnv, ScaledObservation
from models.provisioning.learning import networks
from models.provisioning.learning.masking import hidden_at_random
from models.provisioning.protocol import PairTable
from models.provisioning.registry import make_policy
from models.provisioning.scaling import Scaling
from models.provisioning.stopping import stopping_rows
from models.study.cluster import open_study
from traces import clusters
from traces.arrays import Float64s
from traces.store.folder import DataFolder

ABOUT = Benchmark(
    "published_peers",
    "Baton's networks against published DQN and PPO",
    "policies",
    "Hours a pair with as much processor time for each learner; recorded pairs, weight 1.",
)
MARGIN = 0.1  # of the peer's cost
NO_END = 10**9  # steps: processor time ends a training


@dataclass(frozen=True)
class Peer:
    """A published learner: its class in stable-baselines3, the number of environments, and its options."""

    beside: str  # Baton's learner of the kind
    algorithm: str
    copies: int
    options: dict[str, Any]
    falls: bool = False  # the learning rate falls to nothing over the training


PEERS = {
    "sb3-dqn": Peer("dqn", "DQN", 1, {}),
    "cleanrl-dqn": Peer(
        "dqn",
        "DQN",
        1,
        {
            "learning_rate": 2.5e-4,
            "buffer_size": 10_000,
            "learning_starts": 10_000,
            "batch_size": 128,
            "train_freq": 10,
            "target_update_interval": 500,
            "exploration_fraction": 0.5,
            "exploration_final_eps": 0.05,
            "policy_kwargs": {"net_arch": [120, 84]},
        },
    ),
    "sb3-ppo": Peer("policy-gradient", "PPO", 1, {}),
    "cleanrl-ppo": Peer(
        "policy-gradient",
        "PPO",
        4,
        {
            "learning_rate": 2.5e-4,
            "n_steps": 128,
            "batch_size": 128,
            "n_epochs": 4,
            "gae_lambda": 0.95,
            "clip_range": 0.2,
            "ent_coef": 0.01,
            "vf_coef": 0.5,
            "max_grad_norm": 0.5,
        },
        falls=True,
    ),
}


class Clock(BaseCallback):
    """A callback that ends a training after a number of processor seconds."""

    def __init__(self, budget_s: float) -> None:
        super().__init__()
        self.budget_s, self.began = budget_s, time.process_time()

    @property
    def used(self) -> float:
        """Share of the time that is used, 0 to 1."""
        return min(1.0, (time.process_time() - self.began) / self.budget_s)

    def _on_step(self) -> bool:
        return self.used < 1.0


def environment(table: PairTable, scaling: Scaling) -> gymnasium.Env[Any, Any]:
    """One pair at a time at weight 1, seen as Baton's networks see it."""
    return ScaledObservation(ProvisioningEnv(table), scaling)


def peer_costs(peer: Peer, fit: PairTable, judged: PairTable, seed: int, budget_s: float) -> tuple[Float64s, int]:
    """(p,) gaps of a peer that learned for that time on `fit`, where it submits on `judged`; and its steps."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    scaling = Scaling.of(fit.observations, *networks.columns())
    envs = DummyVecEnv([lambda: environment(fit, scaling) for _ in range(peer.copies)])
    options, clock = dict(peer.options), Clock(budget_s)
    if peer.falls:
        rate = options["learning_rate"]
        options["learning_rate"] = lambda _: rate * (1.0 - clock.used)
    with networks.repeatable(seed):
        made = getattr(stable_baselines3, peer.algorithm)
        model = made("MlpPolicy", envs, gamma=1.0, seed=seed, device="cpu", **options)
        if peer.algorithm == "DQN":
            first, last, share = model.exploration_initial_eps, model.exploration_final_eps, model.exploration_fraction
            model.exploration_schedule = lambda _: first + (last - first) * min(1.0, clock.used / share)
        model.learn(NO_END, callback=clock)
        submit = model.predict(scaling(judged.observations), deterministic=True)[0] == 1
    return judged.gap_h[stopping_rows(judged, submit[None])[0]], int(model.num_timesteps)


def words(run: BenchmarkRun, name: str, gaps: Float64s, own: Float64s | None, judged: PairTable, note: str) -> str:
    """A line, recorded too: gaps (seeds, pairs) of a learner, and `own` of Baton's of the kind."""
    cost = np.abs(gaps)
    for what, hours in (("interruption", np.maximum(gaps, 0)), ("overlap", np.maximum(-gaps, 0)), ("cost", cost)):
        run.add(name, what, hours.mean(), "h", n=len(judged))
    line = f"| {name} | {np.maximum(gaps, 0).mean():.2f} | {np.maximum(-gaps, 0).mean():.2f} | {cost.mean():.2f} | "
    if own is None:
        return f"{line}| {note} |"
    less = cost - np.abs(own)
    weights = start_weights(judged.submit_s)
    ends = None
    if weights is not None:
        ends = interval(resampled_means(less[:, None], weights, seed_weights(len(less)))[:, 0])
    run.add(name, "cost less Baton's", less.mean(), "h", n=len(judged), interval=ends)
    shown = "no interval" if ends is None else f"[{ends[0]:+.2f}, {ends[1]:+.2f}]"
    verdict = "no worse" if less.mean() >= -MARGIN * cost.mean() else "worse"
    if ends is not None and ends[0] > 0:
        verdict = "better"
    return f"{line}{less.mean():+.2f} {shown}: Baton's is {verdict} | {note} |"


def main() -> None:
    """Fit, judge, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--world", default="calibrated")
    parser.add_argument("--window", choices=("select", "report"), default="report")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--times", type=float, default=1.0, help="processor seconds of a peer, in those of Baton's")
    given = parser.parse_args()

    data = DataFolder(given.data)
    study = open_study(data, clusters.resolve(data, cluster=given.cluster), world=given.world)
    window = study.windows.fit
    fit = study.known_before(window.until_s).fit_pairs(window).known_before(window.until_s)
    judged = study.pairs(getattr(study.windows, given.window))
    if not len(judged):
        raise SystemExit(f"no pair starts in the {given.window} window of {given.cluster}")
    blocks = len(np.unique((judged.submit_s - judged.submit_s.min()) // (7 * 86400)))
    print(f"fitted on {len(fit)} pairs, judged on {len(judged)} in {blocks} blocks, {given.seeds} seeds")
    print("| learner | I h | O h | cost | its cost less Baton's, 95 % | processor s, steps a seed |")
    print("|---|---|---|---|---|---|")

    run, reactive = BenchmarkRun(ABOUT), judged.gap_h[judged.last][None]
    print(words(run, "reactive", reactive, None, judged, ""), flush=True)
    own: dict[str, Float64s] = {}
    took: dict[str, list[float]] = {}
    for name in ("dqn", "policy-gradient"):
        gaps, took[name] = [], []
        for seed in range(given.seeds):
            began = time.process_time()
            artifact, _ = make_policy(name).fit(hidden_at_random(fit), seed)
            took[name].append(time.process_time() - began)
            submit = artifact.decisions(judged.observations, [1.0])
            gaps.append(judged.gap_h[stopping_rows(judged, submit)[0]])
        own[name] = np.stack(gaps)
        print(words(run, name, own[name], None, judged, f"{np.mean(took[name]):.0f} s"), flush=True)
    for name, peer in PEERS.items():
        gaps, steps = [], []
        for seed in range(given.seeds):
            gap, made = peer_costs(peer, fit, judged, seed, given.times * took[peer.beside][seed])
            gaps.append(gap)
            steps.append(made)
        note = f"{given.times * np.mean(took[peer.beside]):.0f} s, {np.mean(steps):,.0f} steps"
        print(words(run, name, np.stack(gaps), own[peer.beside], judged, note), flush=True)
    run.write()


if __name__ == "__main__":
    main()
