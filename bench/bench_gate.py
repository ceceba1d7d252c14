"""How often the gate passes a worse candidate: `python bench/bench_gate.py [--windows 1000] [--pairs FILE ...]`.

Differences of cost are simulated, two pairs (1 and 8 nodes) every 4 hours, with a true mean of +0.1 h: a candidate at
the edge of what may pass, which at most one window in twenty should let through. They resemble their neighbours in time
in several ways:

- `steady T`: Gaussian, half of the variance with a correlation time of T days, the load independent of it;
- `worse in spells A/B`: the candidate loses in congested spells of A days in the mean, B days apart, and gains a
  little between them: a window without a spell flatters it;
- `better in spells A/B`: the other way round;
- `either A/B`: in each spell it wins or loses, by chance;
- `worse in hidden spells A/B`: it loses in spells that reactive's own losses do not show. No rule on a few weeks is
  safe against rare losses that the window may lack; this kind measures the risk that remains.

For comparison it prints the percentile bootstrap over 7-day blocks on the same windows, and the share of windows that
pass a candidate that is truly 1 h better. `--pairs`: the autocorrelation of the gate's differences on
pair tables that a study keeps (`artifacts/pairs`), start-estimate minus reactive, by the mean over starts of 4 hours.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from traces.arrays import Float64s
from traces.units import DAY_S

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.results import Benchmark, BenchmarkRun
from features.bootstrap import interval, resampled_means, seed_weights, start_weights
from models.release.policies.gate import judge

ABOUT = Benchmark(
    "gate",
    "How often the release gate passes a worse candidate",
    "policies",
    "Share of simulated windows that pass the gate, of candidates that are truly 0.1 h worse or 1 h better, by how "
    "differences resemble their neighbours (days); target at most 0.05 of the worse ones.",
)
EVERY_S = 14_400
STARTS_A_DAY = DAY_S // EVERY_S
DAYS = (7.5, 28.0, 42.0, 56.0, 84.0)
EDGE_H, BETTER_H = 0.1, -1.0
BUSY = 0.6  # deviations above the mean, from which a load that has nothing to do with the difference is heavy
SEVERITY_H, SCATTER_H = 4.0, 2.0  # mean loss in a spell, and deviation of a steady difference
KINDS = (
    ("steady", 0.5, 0.0), ("steady", 1.0, 0.0), ("steady", 2.0, 0.0), ("steady", 4.0, 0.0),
    ("worse in spells", 1.0, 3.0), ("worse in spells", 2.0, 5.0), ("worse in spells", 3.0, 11.0),
    ("better in spells", 1.0, 3.0), ("better in spells", 2.0, 5.0), ("better in spells", 3.0, 11.0),
    ("either", 1.0, 3.0), ("either", 2.0, 5.0), ("either", 3.0, 11.0),
    ("worse in hidden spells", 1.0, 3.0), ("worse in hidden spells", 2.0, 5.0),
)  # fmt: skip


def main() -> None:
    """Simulate each kind of difference; print and record the share of windows of each length that pass."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=1000, help="simulated windows a cell")
    parser.add_argument("--pairs", type=Path, nargs="*", default=[], help="pair tables, for their autocorrelation")
    options = parser.parse_args()
    for path in options.pairs:
        print(f"{path.name}: {autocorrelation(path)}")
    record = BenchmarkRun(ABOUT)
    weights = {days: start_weights(_submit_s(days)) for days in DAYS}
    lengths = " | ".join(f"{days:g} d" for days in DAYS)
    print(f"n {options.windows} windows a cell, two pairs every 4 h; share that passes")
    print(f"| differences | {lengths} | bootstrap, 7.5 d | bootstrap, 28 d | 1 h better, 28 d | 56 d | 84 d |")
    for name, on_days, off_days in KINDS:
        rng = np.random.default_rng(0)
        edge = [_share(rng, name, on_days, off_days, days, EDGE_H, options.windows) for days in DAYS]
        old = [
            _bootstrap_share(rng, name, on_days, off_days, weights[days], EDGE_H, options.windows) for days in DAYS[:2]
        ]
        better = [_share(rng, name, on_days, off_days, days, BETTER_H, options.windows) for days in (28.0, 56.0, 84.0)]
        label = f"{name} {on_days:g}" + (f"/{off_days:g}" if off_days else "")
        print("| " + " | ".join([label, *(f"{share:.3f}" for share in (*edge, *old, *better))]) + " |", flush=True)
        for days, share in zip(DAYS, edge, strict=True):
            record.add(label, f"0.1 h worse passes, {days:g} d", share, n=options.windows)
        for days, share in zip(DAYS[:2], old, strict=True):
            record.add(label, f"bootstrap lets it pass, {days:g} d", share, n=options.windows)
        for days, share in zip((28, 56, 84), better, strict=True):
            record.add(label, f"1 h better passes, {days} d", share, n=options.windows)
    record.write()


def _submit_s(days: float) -> NDArray[np.int64]:
    """(p,) starts of two pairs every 4 hours."""
    return np.repeat(np.arange(round(days * STARTS_A_DAY), dtype=np.int64) * EVERY_S, 2)


def _share(
    rng: np.random.Generator, name: str, on_days: float, off_days: float, days: float, mean_h: float, windows: int
) -> float:
    """Share of simulated windows that the gate lets pass."""
    submit_s, passed = _submit_s(days), 0
    for _ in range(windows):
        difference_h, reactive_gap_h = simulated(rng, name, on_days, off_days, len(submit_s) // 2)
        parts = {"losing": reactive_gap_h > 2.0, "rest": reactive_gap_h <= 2.0}
        passed += judge(difference_h + mean_h, submit_s, reactive_gap_h, parts).passed
    return passed / windows


def _bootstrap_share(
    rng: np.random.Generator,
    name: str,
    on_days: float,
    off_days: float,
    starts: Float64s | None,
    mean_h: float,
    windows: int,
) -> float:
    """Share of simulated windows on which the percentile bootstrap's upper end is at most 0.1 h."""
    assert starts is not None
    passed = 0
    for _ in range(windows):
        difference_h, _ = simulated(rng, name, on_days, off_days, starts.shape[1] // 2)
        ends = interval(resampled_means((difference_h + mean_h)[None, None], starts, seed_weights(1))[:, 0])
        passed += ends is not None and ends[1] <= EDGE_H
    return passed / windows


def simulated(
    rng: np.random.Generator, name: str, on_days: float, off_days: float, starts: int
) -> tuple[Float64s, Float64s]:
    """(2 x starts,) differences of cost with a true mean of 0, and reactive's gaps, hours; two pairs a start."""
    unrelated_h = np.repeat(np.where(autoregressive(rng, starts, 1.0) > BUSY, 4.0, 0.5), 2)
    if name == "steady":
        own = np.repeat(autoregressive(rng, starts, on_days), 2) + rng.normal(size=2 * starts)
        return SCATTER_H * own, unrelated_h
    severity, sign = spells(rng, starts, on_days, off_days)
    sign = sign if name == "either" else np.full(starts, -1.0 if name == "better in spells" else 1.0)
    mean = 0.0 if name == "either" else SEVERITY_H * on_days / (on_days + off_days) * sign[0]
    scatter = rng.normal(size=2 * starts)
    lost = np.repeat(SEVERITY_H * severity * sign, 2) * (1.0 + 0.6 * scatter) - mean + 0.2 * rng.normal(size=2 * starts)
    if "hidden" in name:
        return lost, unrelated_h
    return lost, np.repeat(np.where(severity > 0.0, 2.0 + SEVERITY_H * severity, 0.5), 2)


def autoregressive(rng: np.random.Generator, starts: int, days: float) -> Float64s:
    """(starts,) Gaussian of deviation 1 whose correlation falls by e in so many days."""
    share = float(np.exp(-1.0 / (STARTS_A_DAY * days)))
    steps = rng.normal(size=starts) * np.sqrt(1.0 - share**2)
    values = np.empty(starts)
    level = rng.normal()
    for place, step in enumerate(steps):
        values[place] = level = share * level + step
    return values


def spells(rng: np.random.Generator, starts: int, on_days: float, off_days: float) -> tuple[Float64s, Float64s]:
    """(starts,) severity, 0 outside spells and 1 in the mean of them, and the sign drawn for each spell."""
    severity, sign = np.zeros(starts), np.ones(starts)
    at = -40.0 * (on_days + off_days) * STARTS_A_DAY  # long before, so that the window begins anywhere in a spell
    while at < starts:
        begin = at + rng.exponential(off_days * STARTS_A_DAY)
        at = begin + rng.exponential(on_days * STARTS_A_DAY)
        inside = slice(max(0, int(begin)), max(0, int(at)))
        severity[inside], sign[inside] = rng.gamma(2.0, 0.5), rng.choice([-1.0, 1.0])
    return severity, sign


def autocorrelation(path: Path) -> str:
    """Of the differences start-estimate minus reactive, means over 4 hours of starts, at lags of hours to days."""
    from models.provisioning.comparison.outcomes import cost_h
    from models.provisioning.pairs import injected as pairs
    from models.provisioning.registry import make_policy

    table = pairs.load(path)
    artifact, _ = make_policy("start-estimate").fit(table, 0)
    difference_h = cost_h(table, artifact) - cost_h(table, None)
    slot, of = np.unique(table.submit_s // EVERY_S, return_inverse=True)
    means = np.full(int(slot[-1] - slot[0]) + 1, np.nan)
    means[slot - slot[0]] = np.bincount(of, weights=difference_h) / np.bincount(of)
    centred = means - np.nanmean(means)
    lags = {"4 h": 1, "12 h": 3, "1 d": 6, "2 d": 12, "4 d": 24, "7 d": 42}
    known = {
        name: np.nanmean(centred[lag:] * centred[:-lag]) / np.nanmean(centred**2)
        for name, lag in lags.items()
        if lag < len(centred) // 2
    }
    listed = ", ".join(f"{name} {value:.2f}" for name, value in known.items())
    return f"n {len(table)} pairs, deviation {difference_h.std():.1f} h, autocorrelation {listed}"


if __name__ == "__main__":
    main()
