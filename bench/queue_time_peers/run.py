"""Score published queue-time methods and Baton's on the same jobs, with differences from named methods of Baton.

    .venv/bin/python -m bench.queue_time_peers.run --data DIR --cluster ls6 --from 2023-02-01 --to 2023-02-21

DIR holds the ingested log. Every method is fitted on what was known at `--from` (with `--refit`, again at that
interval) and calibrated in the same way, as by `baton wait --from --to`. Peers are those of `registry.PEERS`;
`--methods` and `--against` name methods of Baton.

A line a method: CRPS in hours, balanced accuracy of "under ten minutes", and coverage of the central 95 % interval. A
line a method and rival: CRPS and accuracy of the method less the rival's, paired, and CRPS divided by the rival's.
Intervals are 95 % over 7-day blocks; a window of one block has none.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.queue_time_peers.registry import PEERS, make_method
from bench.results import Benchmark, BenchmarkRun
from features.bootstrap import interval
from models.queue_time import scores
from models.queue_time.study import Judgement, judge_window
from traces import clusters
from traces.arrays import Float64s
from traces.errors import InputError
from traces.instants import epoch_s, parse
from traces.store.folder import DataFolder
from traces.units import DAY_S

AGAINST = ("limits", "boosting", "trout-boosting")
ABOUT = Benchmark(
    "queue_time_peers",
    "Published queue-time methods",
    "queue-time",
    "Predicted waits of the jobs of one window by published methods and by Baton's, fitted and calibrated alike.",
)


def rows(found: Judgement, against: Sequence[str], run: BenchmarkRun) -> list[str]:
    """The lines to print; their figures are added to `run`."""
    lines = []
    for name, forecast in found.forecasts.items():
        figures = scores.figures(found.judged, forecast)
        ends, n = figures["ci95"], figures["n"]
        accuracy, covers = figures["balanced_accuracy"], figures["coverage"]["0.95"]
        lines.append(
            f"{name}: CRPS {figures['crps_h']:.3g} h{shown(ends.get('crps_h'))}, balanced accuracy "
            f"{figure(accuracy)}{shown(ends.get('balanced_accuracy'))}, 95 % interval covers {covers:.3f}"
            f"{shown(ends.get('coverage_0.95'))}, n {n:,}"
        )
        for what, value, unit, key in (
            ("CRPS", figures["crps_h"], "h", "crps_h"),
            ("balanced accuracy", accuracy, "", "balanced_accuracy"),
            ("95 % interval covers", covers, "", "coverage_0.95"),
        ):
            run.add(name, what, value, unit, n=n, interval=ends.get(key))
    for name in found.forecasts:
        lines += [_compared(found, name, rival, run) for rival in against if rival != name]
    return lines


def _compared(found: Judgement, name: str, rival: str, run: BenchmarkRun) -> str:
    own, other, judged = found.forecasts[name], found.forecasts[rival], found.judged
    less = scores.difference(judged, own, other)
    crps_h = [scores.crps_h(forecast, judged.wait_s) for forecast in (own, other)]
    ratio = float(crps_h[0].mean() / crps_h[1].mean())
    ends = None if judged.weights is None else interval(_ratios(crps_h[0], crps_h[1], judged.weights))
    n = len(judged.wait_s)
    for what, value, unit, of_it in (
        (f"CRPS less {rival}'s", less["crps_h"], "h", less["ci95"]),
        (f"CRPS / {rival}'s", ratio, "", ends),
        (f"accuracy less {rival}'s", less["balanced_accuracy"], "", less["balanced_accuracy_ci95"]),
    ):
        run.add(name, what, value, unit, n=n, interval=of_it)
    return (
        f"{name} against {rival}: CRPS {less['crps_h']:+.3g} h{shown(less['ci95'])}, ratio {ratio:.3f}{shown(ends)}, "
        f"balanced accuracy {figure(less['balanced_accuracy'], '+')}{shown(less['balanced_accuracy_ci95'])}, n {n:,}"
    )


def _ratios(own: Float64s, other: Float64s, weights: Float64s) -> Float64s:
    """(draws,) ratios of the mean scores."""
    return (weights @ own) / (weights @ other)


def figure(value: float | None, sign: str = "") -> str:
    """A figure with three decimals; a dash without one."""
    return "-" if value is None else f"{value:{sign}.3f}"


def shown(ends: Sequence[float] | None) -> str:
    """An interval after its figure; empty without one."""
    return "" if ends is None else f" [{ends[0]:.3g}, {ends[1]:.3g}]"


def judge(data: Path, cluster: str, bounds_s: tuple[int, int], names: Sequence[str], **options: Any) -> Judgement:
    """Fit the named methods and forecast the jobs of the window. Raises InputError as `judge_window` does."""
    folder = DataFolder(data)
    settings = clusters.resolve(folder, cluster=cluster)
    return judge_window(folder, settings, *bounds_s, [make_method(name) for name in names], **options)


def main() -> None:
    """Parse the command line, score every method, print and record the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--from", dest="from_", required=True, help="first submission judged, date (UTC)")
    parser.add_argument("--to", required=True, help="end of the window, date (UTC)")
    parser.add_argument("--refit", type=float, help="days between refits; default: never")
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--methods", nargs="*", default=[], help="more methods of Baton to score")
    parser.add_argument("--against", nargs="+", default=list(AGAINST), help="methods of Baton to compare with")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    names = list(dict.fromkeys([*asked.against, *asked.methods, *asked.peers]))
    bounds_s = epoch_s(parse(asked.from_)), epoch_s(parse(asked.to))
    refit_s = None if asked.refit is None else round(asked.refit * DAY_S)
    try:
        found = judge(asked.data, asked.cluster, bounds_s, names, refit_s=refit_s, seed=asked.seed)
    except InputError as error:
        parser.error(str(error))
    run = BenchmarkRun(ABOUT)
    print(f"{asked.cluster}, {asked.from_} to {asked.to}: {len(found.rows):,} jobs, {found.judged.blocks} blocks")
    print("\n".join(rows(found, asked.against, run)))
    run.write()


if __name__ == "__main__":
    main()
