"""Learn when to submit the next job of a chain: the environment, a random policy and stable-baselines3's PPO.

    .venv/bin/baton ingest data/sample/slurm --cluster sample
    .venv/bin/python examples/train_policy.py [--data data] [--cluster sample] [--nodes 8] [--steps 30000]

A job is cut by its time limit. A successor submitted too late interrupts the work; one submitted too early holds nodes
twice (overlap). Once an hour the policy observes the cluster and decides: submit now, or wait.
"""

import argparse

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO

from models.provisioning.environment import SUBMIT, WAIT, ScaledObservation
from models.provisioning.scaling import Scaling

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("--data", default="data")
options.add_argument("--cluster", default="sample")
options.add_argument("--nodes", type=int, default=8)
options.add_argument("--steps", type=int, default=60_000)
given = options.parse_args()


def environment(window, every):
    """Make the environment with one predecessor per day; for other settings see `models.study.from_data.make_env`."""
    name = "models.provisioning.environment:Baton/Provisioning-v0"  # Gymnasium imports the module before the colon
    pairs = {"window": window, "every": every, "pair_nodes": (given.nodes,), "every_s": 24 * 3600}
    return gymnasium.make(name, data=given.data, cluster=given.cluster, **pairs)


def score(name, env, act):
    """Play every pair once and print the policy's cost; an hour of overlap counts as an hour of interruption."""
    ends = []
    for pair in range(len(env.unwrapped.table)):
        (observation, _), done = env.reset(options={"pair": pair}), False
        while not done:
            observation, _, done, _, info = env.step(act(observation))
        ends.append((info["interruption_h"], info["overlap_h"]))
    interruption_h, overlap_h = np.mean(ends, axis=0)
    total = interruption_h + overlap_h
    print(f"{name:10} interruption {interruption_h:5.2f} h + overlap {overlap_h:5.2f} h = {total:5.2f} h per pair")


fit = environment("fit", every=2)  # the earlier window; every second of its half-hourly decisions
report = environment("report", every=6)  # the later window, never fitted on; every sixth of its 10-minute decisions
print(f"{len(fit.unwrapped.table)} pairs to train on, {len(report.unwrapped.table)} to evaluate on")
rng = np.random.default_rng(0)
score("reactive", report, lambda _: WAIT)  # at the predecessor's end the environment submits the successor anyway
score("random", report, lambda _: SUBMIT if rng.random() < 0.05 else WAIT)

scaling = Scaling.of(fit.unwrapped.table.observations)  # statistics of the fit window only, also for the evaluation
torch.set_num_threads(1)  # a second thread does not speed up a network this small
settings = {"gamma": 1.0, "learning_rate": 1e-3, "n_steps": 1024, "seed": 0, "device": "cpu"}
learner = PPO("MlpPolicy", ScaledObservation(fit, scaling), **settings).learn(given.steps)
score("PPO", ScaledObservation(report, scaling), lambda seen: learner.predict(seen, deterministic=True)[0])
