"""Draws of what a trace does not say: the model of a job, whether it is elastic, how busy inference servers are.

All of it is generated, by the rules stated here and a seed, and is called so wherever it is used. Each job's draw
depends on the seed and the job's number alone, so a job that is left out changes nobody else's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.gpu.profiles.table import MIX, MODELS
from traces.errors import InputError

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

DAY_S = 86_400
_MODEL, _ELASTIC, _INFERENCE = range(3)  # streams of one seed


def _uniform(numbers: Int64s, seed: int, stream: int) -> Floats:
    """One draw in [0, 1) a job, from `numbers` (n,) alone: splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        key = np.random.SeedSequence([seed, stream]).generate_state(1, np.uint64)[0]
        mixed = np.asarray(numbers, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + key
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return np.asarray((mixed >> np.uint64(11)) / 2.0**53, dtype=np.float64)


def check_mix(mix: dict[str, float]) -> None:
    """Raises InputError where a model has no profile, a share is negative, or the shares do not add to 1."""
    for name, share in mix.items():
        if name not in MODELS:
            raise InputError(f"unknown model {name!r} in the mix: known are {', '.join(MODELS)}")
        if not share >= 0.0:
            raise InputError(f"share {share} of model {name!r} in the mix: it must be at least 0")
    if abs(sum(mix.values()) - 1.0) > 1e-6:
        raise InputError(f"the shares of the mix add to {sum(mix.values()):g}: they must add to 1")


def models(numbers: Int64s, seed: int = 0, mix: dict[str, float] | None = None) -> list[str]:
    """Name of the model of each job in `numbers` (n,), drawn from `mix` (that of the table). Errors: `check_mix`."""
    mix = MIX if mix is None else mix
    check_mix(mix)
    names = list(mix)
    edges = np.cumsum(list(mix.values()))[:-1]
    return [names[index] for index in np.searchsorted(edges, _uniform(numbers, seed, _MODEL), side="right")]


def elastic(numbers: Int64s, gpus: Int64s, share: float = 0.2, seed: int = 0) -> Bools:
    """Which jobs may run on more GPUs than they asked for, (n,): `share` of those that asked for at least two.

    A job of one GPU never is: nothing in a trace says that its code can talk to another. InputError for a share outside
    [0, 1].
    """
    if not 0.0 <= share <= 1.0:
        raise InputError(f"elastic share {share}: it must be in [0, 1]")
    return np.asarray((np.asarray(gpus) >= 2) & (_uniform(numbers, seed, _ELASTIC) < share), dtype=np.bool_)


def inference_servers(times_s: Floats, servers: int, seed: int = 0, low: float = 0.35, high: float = 0.95) -> Int64s:
    """Inference servers that are in use at each of `times_s` (n,), epoch s: (n,), at least 0, at most `servers`.

    The rule: a wave of one day between the shares `low` and `high` of the servers, highest at 14:00 UTC, plus a normal
    error of 3 % of the servers for each five minutes. InputError unless 0 <= low <= high <= 1.
    """
    if not 0.0 <= low <= high <= 1.0:
        raise InputError(f"inference load from {low} to {high}: it must be 0 <= low <= high <= 1")
    times = np.asarray(times_s, dtype=np.float64)
    wave = 0.5 + 0.5 * np.cos(2.0 * np.pi * (times % DAY_S - 14 * 3600) / DAY_S)
    slot = (times // 300).astype(np.int64)
    first = np.maximum(_uniform(2 * slot, seed, _INFERENCE), 1e-300)
    error = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * np.pi * _uniform(2 * slot + 1, seed, _INFERENCE))
    used = servers * (low + (high - low) * wave + 0.03 * error)
    return np.asarray(np.clip(np.rint(used), 0, servers), dtype=np.int64)
