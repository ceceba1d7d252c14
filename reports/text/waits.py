"""Queue-time predictions for a terminal: the scores of methods as a table, and the answer about one job."""

from __future__ import annotations

from typing import Any

from traces.counted import counted


def scores_text(result: dict[str, Any]) -> str:
    """Format the table of `baton wait --from --to`, one line per method, best first."""
    lines = [
        f"{result['cluster']}: {counted(result['jobs'], 'job')} submitted from {result['from_utc']} to "
        f"{result['to_utc']} that "
        f"started ({result['never_started']:,} did not), mean wait {result['mean_wait_h']:.2f} h, "
        f"{result['short_share']:.0%} under ten minutes; fitted on {counted(result['fitted_on'], 'job')} "
        f"known at {(result['refitted_utc'] or [result['known_utc']])[-1]}"
        + (f", the last of {len(result['refitted_utc']) + 1} fits" if result["refitted_utc"] else "")
    ]
    if result["request_only"]:
        lines.append(
            f"uses only requests and past waits, because the queue cannot be rebuilt: {result['request_only']}"
        )
    rows = sorted(result["results"], key=lambda row: row["crps_h"])
    width = max([18, *(len(row["method"]) + 2 for row in rows)])
    if rows and rows[0]["indicative"]:
        lines.append(f"{counted(rows[0]['blocks'], 'block')} of 7 days: intervals are indicative")
    lines.append(
        f"{'method':<{width}}{'CRPS h':>8}{'minus best naive, 95 %':>26}{'bal.acc.':>9}{'Brier':>7}{'med.err h':>10}"
        f"{'in x2':>7}{'rho':>7}{'50 %':>7}{'80 %':>7}{'95 %':>7}{'width h':>9}"
    )
    for row in rows:
        difference = row["difference_to_best_naive"]
        shown = "" if difference is None else _signed(difference["crps_h"], difference["ci95"])
        coverage = "".join(f"{_figure(row['coverage'][name]):>7}" for name in ("0.5", "0.8", "0.95"))
        lines.append(
            f"{row['method'] + ('*' if row['is_naive'] else ''):<{width}}{_figure(row['crps_h']):>8}{shown:>26}"
            f"{_figure(row['balanced_accuracy']):>9}{_figure(row['brier']):>7}{_figure(row['median_ae_h'], 2):>10}"
            f"{_figure(row['within_factor_2']):>7}{_figure(row['spearman']):>7}{coverage}"
            f"{_figure(row['width_h'], 1):>9}"
        )
    lines.append("* naive; med.err and in x2 (share within a factor of two) cover only waits over ten minutes")
    return "\n".join(lines) + "\n"


def _figure(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _signed(value: float | None, ends: list[float] | None) -> str:
    if value is None:
        return "-"
    return f"{value:+.3f}" + ("" if ends is None else f" [{ends[0]:+.2f}, {ends[1]:+.2f}]")


def answer_text(result: dict[str, Any]) -> str:
    """Format the answer about one job."""
    request = result["request"]
    lines = [
        f"{result['cluster']}, {request['nodes']:,} {result['unit']} for {_span(request['limit_s'])}, submitted at "
        f"{result['submitted_utc']} UTC, {'now' if result['live'] else 'at the end of the log'}"
    ]
    if result["never"]:
        lines.append(f"    {result['never']}")
    else:
        quantiles = result["quantiles_s"]
        lines += [
            f"    50 %: within {_span(quantiles['0.5'])}, 90 %: within {_span(quantiles['0.9'])}; under ten minutes: "
            f"{result['p_under_600s']:.0%}",
            "    because " + "\n            ".join(result["reasons"]),
        ]
        lines += [f"    sooner {one['change']}: 50 % within {_span(one['median_s'])}" for one in result["sooner"][:3]]
    lines += [f"    {note}" for note in result["notes"]]
    return "\n".join(lines) + "\n"


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.3g} h"
