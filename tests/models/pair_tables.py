"""Small pair tables and artifacts of the simplest kinds, for tests of comparison and release."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agent.artifact import FORMAT_VERSION, Artifact
from features.observe import FEATURES
from models.provisioning.protocol import NONE, PairTable, TrainedPolicy, concatenate
from models.provisioning.scenario import Context, Scenario

STEP_S = 600
INSTANTS = ("submit_s", "predecessor_start_s", "predecessor_end_s", "decision_s", "successor_start_s")
FIRST_S = 1_672_531_200  # 2023-01-01


def random_pairs(
    seed: int = 0, starts: int = 48, *, sizes: tuple[int, ...] = (1, 8), steps: int = 18, every_s: int = 14_400
) -> PairTable:
    """`starts` pairs of each size, every 4 h, with `steps` decisions of 10 minutes and P's exact end.

    Waits wander between starts (so neighbours resemble each other) and jump within a pair; about a third are zero and
    some are long, so that every load occurs. Pairs differ in their number of decisions.
    """
    rng = np.random.default_rng(seed)
    level = np.cumsum(rng.normal(0, 1.0, starts))
    nodes, limit, submit, begin, decision, start, observed, offset = [], [], [], [], [], [], [], [0]
    for size in sizes:
        for place in range(starts):
            count = steps + 1 + int(rng.integers(0, 4))
            run_s = (count - 1) * STEP_S
            at = FIRST_S + place * every_s
            instants = at + 300 + np.arange(count, dtype=np.int64) * STEP_S
            wait_h = np.maximum(level[place] + rng.normal(0, 1.0, count) + (1.0 if size > 1 else 0.0), 0.0)
            wait_h *= np.where(rng.random() < 0.1, 8.0, 1.0)
            row = rng.normal(size=(count, len(FEATURES))).astype(np.float32)
            remaining_h = (run_s - np.arange(count) * STEP_S) / 3600
            row[:, FEATURES.index("remaining_h")] = remaining_h
            row[:, FEATURES.index("start_estimate_h")] = wait_h * rng.lognormal(0, 0.3, count)
            row[:, FEATURES.index("recent_wait_mean_h")] = wait_h.mean()
            nodes.append(size)
            limit.append(48 * 3600)
            submit.append(at)
            begin.append(at + 300)
            decision.append(instants)
            start.append(instants + np.rint(wait_h * 3600).astype(np.int64))
            observed.append(row)
            offset.append(offset[-1] + count)
    offsets = np.asarray(offset, np.int64)
    instants = np.concatenate(decision)
    return PairTable(
        pair_nodes=np.asarray(nodes, np.int64),
        limit_s=np.asarray(limit, np.int64),
        submit_s=np.asarray(submit, np.int64),
        predecessor_start_s=np.asarray(begin, np.int64),
        predecessor_end_s=instants[offsets[1:] - 1],
        user_start_s=np.full(len(nodes), NONE),
        offset=offsets,
        decision_s=instants,
        successor_start_s=np.concatenate(start),
        observations=np.concatenate(observed),
    )


def unlike_days(seed: int, days: int) -> PairTable:
    """`random_pairs` of that many days, each with waits of its own: weeks of them resemble each other."""
    parts = [random_pairs(1000 * seed + day, 6) for day in range(days)]
    moved = [
        replace(part, **{name: getattr(part, name) + day * 86_400 for name in INSTANTS})
        for day, part in enumerate(parts)
    ]
    return concatenate(moved)


def quiet(pairs: PairTable, most_h: float) -> PairTable:
    """The same with no wait above `most_h`."""
    wait_s = np.minimum(pairs.successor_start_s - pairs.decision_s, round(3600 * most_h))
    return replace(pairs, successor_start_s=pairs.decision_s + wait_s)


def mean_cost(pairs: PairTable, one: Artifact, setting: float, size: int) -> float:
    """Cost of weight 1, one pair at a time."""
    costs = []
    for i in np.flatnonzero(pairs.pair_nodes == size):
        rows = np.arange(pairs.offset[i], pairs.offset[i + 1])
        yes = np.flatnonzero(one.decide(pairs.observations[rows], setting))
        costs.append(abs(pairs.gap_h[rows[yes[0]]]))
    return float(np.mean(costs))


def artifact(
    kind: str = "estimate-ratio",
    settings: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0),
    default: float = 1.0,
    feature: str = "start_estimate_h",
    policy: str = "start-estimate",
    until_s: int | None = None,
) -> Artifact:
    """A baseline's artifact; `until_s` says that it was fitted on outcomes of cluster `toy` before then."""
    manifest = {
        "policy": policy,
        "kind": kind,
        "knob": "factor",
        "settings": list(settings),
        "default_setting": default,
        "features": list(FEATURES),
        "format_version": FORMAT_VERSION,
        "requirements": [f"numpy=={np.__version__}"],
        "parameters": {"feature": feature} if kind == "estimate-ratio" else {},
    }
    if until_s is not None:
        manifest["trained_on"] = {"cluster": "toy", "until_s": until_s, "until_utc": "2023-01-01T00:00:00"}
    return Artifact(manifest)


def reactive(until_s: int | None = None) -> Artifact:
    """Submits at P's end."""
    return artifact("constant-lead", (0.0,), 0.0, policy="reactive", until_s=until_s)


def trained(name: str, *artifacts: Artifact) -> list[TrainedPolicy]:
    """One fit a seed."""
    return [TrainedPolicy(name, seed, one, f"run-{name}-{seed}", 0.0) for seed, one in enumerate(artifacts)]


def context(until_s: int = FIRST_S) -> Context:
    return Context(
        scenario=Scenario("toy", capacity=80),
        trace_digest="0" * 64,
        until_s=until_s,
        fit_capacities=(80, 72),
        code_version="test",
    )
