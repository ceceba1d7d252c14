"""Advice of `baton advise`, and its verification, as text for a terminal."""

from __future__ import annotations

from typing import Any, TextIO

from reports.format import duration, number, percent, text
from traces.counted import counted


def _points(share: float) -> str:
    return f"{100 * share:.2f} percentage points"


UNITS = {"slowdown": (number, number), "utilization": (percent, _points)}  # of a value and a difference; else durations


def write_advice(out: TextIO, result: dict[str, Any]) -> None:
    """Write the base, the best candidates on the later weeks, and the one recommended with what to type."""
    (shown, apart), base = UNITS.get(result["objective"], (duration, duration)), result["base"]
    out.write(
        f"{text(result['cluster'])}: {result['minimised']}, searched on {result['searched_from_utc']} to "
        f"{result['from_utc']} ({counted(result['tried'], 'candidate')}), judged on {result['from_utc']} to "
        f"{result['until_utc']} (UTC, {counted(base['jobs'], 'job')})\n"
        f"as it is: {shown(base['value'])}, off the record by {apart(base['error'])}; {base['trust']['why']}\n"
        f"{percent(base['held_share'])} of the jobs were held; no change moves them\n"
    )
    if not result["candidates"]:
        out.write("\nno candidate that spares every group was better than the cluster as it is\n")
    for place, one in enumerate(result["candidates"], 1):
        out.write(f"\n{place}. {' and '.join(text(change) for change in one['changes'])}\n")
        words = "less" if one["difference"] < 0 else "more"
        ends = one["ci95"]
        between = "" if ends is None else f" (95 % interval of the difference {apart(ends[0])} to {apart(ends[1])})"
        out.write(f"   {shown(one['value'])}: {apart(abs(one['difference']))} {words}{between}; {one['verdict']}\n")
        whole = one["whole_difference"]
        out.write(
            f"   in one piece: {apart(abs(whole))} {'less' if whole < 0 else 'more'}; the base's own error is "
            f"{percent(one['error_share'])} of the difference\n"
        )
        for part in one["parts"] if len(one["parts"]) > 1 else ():
            out.write(f"   without {text(part['change'])}: {apart(part['difference_without'])} to the base\n")
        for lost in one["losers"]:
            out.write(
                f"   {text(lost['name'])} waits {duration(lost['changed_mean_wait_s'])} in place of "
                f"{duration(lost['mean_wait_s'])} ({counted(lost['jobs'], 'job')})\n"
            )
        out.write(f"   {'recommended' if one['why_not'] is None else 'not recommended: ' + text(one['why_not'])}\n")
    out.write(_conclusion(result))


def _conclusion(result: dict[str, Any]) -> str:
    if result["recommended"] is None:
        return "\nchange nothing: no candidate is recommended\n"
    lines = ["\nto make the recommended change (nothing is applied):"]
    lines += [f"  {line}" for line in result["slurm_conf"]]
    lines += [f"  {line}" for line in result["commands"]]
    if result["declared"] is not None:
        mean = next(row for row in result["declared"]["results"] if row["figure"] == "mean_wait_s")
        lines.append(
            f"under the declared slurm.conf the mean wait is {duration(mean['value'])} in place of "
            f"{duration(mean['before'])} ({mean['verdict']}; {result['declared']['base']['trust']['why']})"
        )
    lines.append(f"afterwards: baton advise --cluster {text(result['cluster'])} --verify DATE")
    return "\n".join(lines) + "\n"


def write_verified(out: TextIO, result: dict[str, Any]) -> None:
    """Write what was predicted, what the log shows, and whether to keep the changes."""
    shown, apart = UNITS.get(result["objective"], (duration, duration))

    def between(ends: list[float] | None) -> str:
        return "interval unknown: too few weeks" if ends is None else f"95 % {apart(ends[0])} to {apart(ends[1])}"

    out.write(
        f"{text(result['cluster'])}: {text(result['changes'])}, made {result['applied_utc']} (UTC)\n"
        f"recorded {result['minimised']} before: {shown(result['recorded_before'])} "
        f"({counted(result['jobs_before'], 'job')}); since: {shown(result['recorded_since'])} "
        f"({counted(result['jobs_since'], 'job')})\n"
        f"under the old rules the jobs since would have had {shown(result['replayed_since'])}; before the change that "
        f"replay differs from the record by {apart(result['replay_error'])}\n"
        f"predicted: {apart(result['predicted'])} ({between(result['predicted_ci95'])})\n"
        f"observed, adjusted for the load: {apart(result['observed'])} ({between(result['observed_ci95'])})\n"
        f"{result['verdict']}\n"
    )
