"""Answers of `baton whatif` as text for a terminal: GPU schedulers, and the cluster as recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TextIO

from reports.advice.advice import AS_IT_IS
from reports.format import FORMATS, duration, percent, text
from traces.counted import counted

_SHOWN = {
    "mean_jct_s": ("mean completion time", "duration"),
    "p50_jct_s": ("median completion time", "duration"),
    "p99_jct_s": ("99th percentile of completion times", "duration"),
    "mean_queueing_s": ("mean time without GPUs", "duration"),
    "makespan_s": ("first submission to last end", "duration"),
    "utilization": ("GPUs in use", "percent"),
    "fragmentation": ("GPUs free while jobs wait", "percent"),
    "worst_rho": ("largest finish-time fairness rho", "number"),
    "mean_rho": ("mean finish-time fairness rho", "number"),
    "preemptions": ("preemptions", "count"),
    "lost_gpu_h": ("GPU hours lost to restarts", "number"),
}  # figure -> (heading, format)


def write_schedulers(out: TextIO, result: dict[str, Any]) -> None:
    """Print each replay: figures, differences from the first replay, intervals; then the groups that gain or lose."""
    machine = counted(result["nodes"], "node") if result["gpus"] is None else counted(result["gpus"], "GPU")
    out.write(f"{text(result['cluster'])}: {counted(result['jobs'], 'job')} on {machine}\n")
    if result["results"]:
        first = result["results"][0]
        out.write(f"baseline: {first['scheduler']}, {text(first['change'])}\n")
    out.write("".join(f"{line}\n" for line in _beside_record(result["base"])))
    last = None
    for row in result["results"]:
        title = (row["scheduler"], row["change"])
        if title != last:
            out.write(f"\n{row['scheduler']}, {text(row['change'])}\n")
            last = title
        name, unit = _SHOWN[row["figure"]]
        kind = FORMATS[unit]
        line = f"  {name:<36}{kind(row['value']):>16}"
        if row["difference_ci95"] is not None:
            low, high = row["difference_ci95"]
            words = ("shorter", "longer") if unit == "duration" else ("less", "more")
            amount = f"{kind(abs(row['difference']))} {words[row['difference'] > 0]}"
            line += f"   {amount} than the baseline (95 % interval of the difference {kind(low)} to {kind(high)})"
        if result["draws"] > 1:
            line += f"   [{kind(row['draws'][0])} to {kind(row['draws'][1])} over {result['draws']} random draws]"
        out.write(line + "\n")
    sure = [row for row in result["groups"] if row["difference_ci95"] and 0 not in _signs(row["difference_ci95"])]
    for word, sign in (("sooner", -1), ("later", 1)):
        parts = [row for row in sure if _signs(row["difference_ci95"]) == {sign}]
        parts.sort(key=lambda row: -abs(row["difference_s"] * row["jobs"]))
        out.write(f"\ngroups whose jobs complete {word} (the 95 % interval excludes 0){'' if parts else ': none'}\n")
        for row in parts[:10]:
            out.write(
                f"  {row['dimension']} {text(row['name'])}: {FORMATS['duration'](row['difference_s'])} per job, "
                f"{counted(row['jobs'], 'job')} ({row['scheduler']}, {text(row['change'])})\n"
            )


def _beside_record(base: dict[str, Any]) -> list[str]:
    """Describe in sentences how far the waits of the base are from the recorded ones."""
    if not base["jobs"]:
        return ["the log has no starts, so the error of the baseline is unknown"]
    shown = FORMATS["duration"]

    def waits(of: dict[str, float]) -> str:
        return f"{shown(of['mean_wait_s'])} (median {shown(of['median_wait_s'])}, p90 {shown(of['p90_wait_s'])})"

    rho = "" if base["spearman"] is None else f"; Spearman's correlation job by job: {base['spearman']:.2f}"
    error_s = abs(base["recorded"]["mean_wait_s"] - base["replayed"]["mean_wait_s"])
    return [
        f"mean wait recorded: {waits(base['recorded'])}; replayed under {base['scheduler']}: "
        f"{waits(base['replayed'])}; n = {counted(base['jobs'], 'job')}{rho}",
        f"the baseline is off by {shown(error_s)} in the mean: do not trust a smaller difference",
        *(["read as a direction only: " + base["trust"]["why"]] if base["trust"]["level"] == "direction" else []),
    ]


def _signs(ends: list[float]) -> set[int]:
    """Return {1} or {-1} for an interval that excludes 0, else {0}."""
    return {1} if ends[0] > 0 else {-1} if ends[1] < 0 else {0}


_WAITS = (
    ("mean_wait_s", "mean wait"),
    ("median_wait_s", "median"),
    ("p90_wait_s", "90th percentile"),
    ("p95_wait_s", "95th percentile"),
)
_FIGURES = {
    **{name: (words, "duration") for name, words in _WAITS},
    "mean_bounded_slowdown": ("mean bounded slowdown", "number"),
    "cut_node_h": ("node hours cut by limits", "count"),
    "utilization": ("nodes in use", "percent"),
    "gpu_h": ("GPU hours held", "count"),
}
_HORIZONS = {"daily": "anew every day", "whole": "in one piece"}
_BOTH_HORIZONS = ("mean_wait_s", "utilization", "gpu_h")  # shown of a replay in one piece beside a daily one
_SHOWN_GROUPS = 5  # that gain most, and that lose most


def write_recorded(out: TextIO, result: dict[str, Any]) -> None:
    """Write the record beside the base, then each change: its figures, and who gains and loses."""
    out.write(
        f"{text(result['cluster'])}, as recorded: {counted(result['jobs'], 'job')} submitted from "
        f"{result['from_utc']} to {result['until_utc']} (UTC), up to {counted(result['nodes'], 'node')}\n"
    )
    out.write("".join(f"{line}\n" for line in _base(result)))
    stops = {run["scheduler"]: run for run in result.get("runs", ())}
    base = result["results"][0]["scheduler"]
    for scheduler, change in dict.fromkeys((row["scheduler"], row["change"]) for row in result["results"]):
        mine = [row for row in result["results"] if (row["scheduler"], row["change"]) == (scheduler, change)]
        if (scheduler, change) == (base, AS_IT_IS):
            continue
        out.write(f"\n{text(change) if scheduler == base else scheduler}\n")
        if all(row["difference"] == 0 for row in mine):
            out.write("  no change in the recorded cluster\n")
        else:
            groups = [row for row in result["groups"] if (row["scheduler"], row["change"]) == (scheduler, change)]
            out.write("".join(f"{line}\n" for line in (*_change(mine), *_gains(groups))))
        if scheduler in stops and stops[scheduler]["preemptions"]:
            lost = FORMATS["number"](stops[scheduler]["lost_gpu_h"])
            out.write(f"  it stops jobs {stops[scheduler]['preemptions']:,} times; restarts take {lost} GPU hours\n")
        for one in result["declared"]:
            if one["change"] == change:
                out.write("".join(f"{line}\n" for line in _declared(one)))


def _base(result: dict[str, Any]) -> Iterator[str]:
    base, first = result["base"], result["results"][0]["horizon"]
    replayed = {first: base, **({"whole": result["base_whole"]} if result["base_whole"] else {})}
    titles = {"daily": "replayed daily", "whole": "in one piece"}
    columns = [("recorded", base["recorded"]), *((titles[name], of["replayed"]) for name, of in replayed.items())]
    yield "  " + " " * 24 + "".join(f"{name:>18}" for name, _figures in columns)
    for figure, words in _WAITS:
        yield f"  {words:<24}" + "".join(f"{duration(figures[figure]):>18}" for _name, figures in columns)
    for name, of in replayed.items():
        if in_use := of["utilization"]:
            yield f"nodes in use: recorded {percent(in_use['recorded'])}, {titles[name]} {percent(in_use['replayed'])}"
        level = "read differences as a direction only" if of["trust"]["level"] == "direction" else "trust the figures"
        yield f"replayed {_HORIZONS[name]}: {level}: {of['trust']['why']}"
    yield (
        f"{percent(base['held_share'])} of the jobs were held by something that the log does not name; they start when "
        "they did in every replay"
    )


def _change(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line per figure; of a replay in one piece beside a daily one, those of _BOTH_HORIZONS."""
    is_also_daily = rows[0]["horizon"] == "daily"
    for horizon, title in _HORIZONS.items():
        mine = [row for row in rows if row["horizon"] == horizon]
        if mine:
            yield f"  {title}"
        for row in mine:
            name, kind = _FIGURES[row["figure"]]
            if row["verdict"] == "no change" and row["figure"] == "cut_node_h":
                continue
            if horizon == "whole" and is_also_daily and row["figure"] not in _BOTH_HORIZONS:
                continue
            yield f"    {name:<26}{FORMATS[kind](row['value']):>14}   {_difference(row, kind)}"


def _difference(row: dict[str, Any], kind: str) -> str:
    """Describe the difference from the base, with its interval; a difference within chance or error says why."""
    shown = FORMATS[kind]
    words = ("shorter", "longer") if kind == "duration" else ("less", "more")
    if row["verdict"] == "no change":
        return "no change"
    amount = f"{shown(abs(row['difference']))} {words[row['difference'] > 0]}"
    if row["difference_ci95"] is not None:
        low, high = row["difference_ci95"]
        amount += f" (95 % interval of the difference {shown(low)} to {shown(high)})"
    if row["parts"] is not None and row["figure"] == "mean_wait_s":
        amount += ", by thirds of the window " + ", ".join(shown(part) for part in row["parts"])
    if row["verdict"] == "cannot tell":
        is_small = abs(row["difference"]) < row["base_error"]
        why = f"the base is off by {shown(row['base_error'])}" if is_small else "the interval includes 0 or is unknown"
        return f"cannot tell: {amount}; {why}"
    return amount


def _declared(one: dict[str, Any]) -> Iterator[str]:
    """Yield the effect under the cluster's own slurm.conf, and what to type."""
    if one["declared"] is not None:
        mean = next(row for row in one["declared"]["results"] if row["figure"] == "mean_wait_s")
        yield (
            f"  under the declared slurm.conf: mean wait {duration(mean['value'])} in place of "
            f"{duration(mean['before'])} ({mean['verdict']}; {one['declared']['base']['trust']['why']})"
        )
        yield from (f"  {text(line)}" for line in one["declared"]["said"])
    yield "  to make it (nothing is applied):"
    yield from (f"    {text(line)}" for line in (*one["slurm_conf"], *one["commands"]))


def _gains(groups: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the parts of the jobs that wait less and more, those with most waiting time first."""
    sure = [row for row in groups if row["difference_ci95"] and 0 not in _signs(row["difference_ci95"])]
    for word, sign in (("less", -1), ("more", 1)):
        parts = [row for row in sure if _signs(row["difference_ci95"]) == {sign}]
        parts.sort(key=lambda row: -abs(row["difference_s"] * row["jobs"]))
        yield f"  who waits {word} (the 95 % interval excludes 0){'' if parts else ': none'}"
        for row in parts[:_SHOWN_GROUPS]:
            yield (
                f"    {row['dimension']} {text(row['name'])}: {duration(abs(row['difference_s']))} per job, "
                f"{counted(row['jobs'], 'job')}"
            )
