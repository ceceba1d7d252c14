"""`baton calibrate`: infer what a trace hides about its scheduler, and compare calibrated with recorded waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines import completion, options
from pipelines.options import Data, Json
from traces import instants
from traces.counted import counted
from traces.errors import InputError

if TYPE_CHECKING:
    from simulator.recorded.calibration.judge import Month
    from simulator.recorded.parameters import Parameters
    from simulator.recorded.record import RecordedTrace
    from traces.clusters import ClusterSettings
    from traces.store.folder import DataFolder


def register(app: typer.Typer) -> None:
    """Add `baton calibrate`."""
    app.command()(calibrate)


def calibrate(
    context: typer.Context,
    cluster: Annotated[
        str, typer.Option("--cluster", autocompletion=completion.clusters, help="Cluster name, as in clusters.toml.")
    ],
    until: Annotated[
        str | None, typer.Option("--until", help="Print parameters inferred from data before this date (UTC).")
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", help="Evaluate jobs submitted from this date (UTC).")] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="Evaluate jobs submitted before this date (UTC); default: every month.")
    ] = None,
    mechanisms: Annotated[bool, typer.Option("--mechanisms", help="Print each mechanism's contribution.")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Infer limits, priorities, usable nodes and holds from the record, and evaluate them on later months.

    We simulate the waits of each month with parameters fitted before it, in four forms. frozen: a free-running replay
    of the trace. causal: the same, but usable nodes follow the record. forked: each job is simulated from the recorded
    queue at its submission. informed: as forked, but with the other jobs known up to each instant. For details see
    docs/calibration.md.
    """
    from traces import clusters
    from traces.store import contents

    folder = options.data_folder(context, data)
    if (from_ is None) != (to is None):
        raise InputError("--from and --to go together: give both, or neither for every month")
    for date in (until, from_, to):
        if date is not None:
            options.utc_s(date)
    with options.output(json) as out:
        settings = clusters.resolve(folder, cluster=cluster)
        contents.check_clusters(folder, [cluster])
        from simulator.recorded.calibration.study import study, unexplained
        from simulator.recorded.parameters import infer_parameters

        record, judged = _judged(folder, settings, from_, to)
        until_s = options.utc_s(until) if until else (judged[0].from_s if from_ else int(record.submit_s[-1]) + 1)
        if until_s <= record.submit_s[0]:
            raise InputError(
                f"cluster {cluster!r}: no data to fit on before {until or from_}; its first job was submitted at "
                f"{instants.text(int(record.submit_s[0]))}: give a later {'--until' if until else '--from'}"
            )
        fitted = infer_parameters(record, until_s)
        result = study(record, cluster, judged, mechanisms_every=int(mechanisms))
        tables = {
            "figures": result.figures,
            "parameters": result.parameters,
            "unexplained": unexplained(result.starts),
        }
        if json:
            rows = {name: frame.to_dicts() for name, frame in tables.items()}
            options.write_json(out, {"cluster": cluster, "jobs": len(record), "fitted": _fitted(fitted), **rows})
        else:
            out.write(_text(fitted, result.figures.to_dicts(), tables["unexplained"].to_dicts()))


def _judged(
    folder: DataFolder, settings: ClusterSettings, from_: str | None, to: str | None
) -> tuple[RecordedTrace, list[Month]]:
    """Return the record and the months to evaluate: --from to --to, else every possible month (the newest ones)."""
    from models.study.calibrations import months_to_judge
    from models.study.inputs import read_record
    from simulator.recorded.calibration.judge import Month

    is_asked = from_ is not None and to is not None
    record, judged = (read_record(folder, settings.name), []) if is_asked else months_to_judge(folder, settings)
    if not record.ran.any():
        raise InputError(
            f"cluster {settings.name!r}: cannot calibrate, because none of its {counted(len(record), 'job')} ran"
        )
    if from_ is not None and to is not None:
        judged = [Month(options.utc_s(from_), options.utc_s(to))]
        if not judged[0].of(record).any():
            raise InputError(
                f"cluster {settings.name!r}: no job submitted from {from_} to {to} ran; give another window"
            )
    return record, judged


def _fitted(parameters: Parameters) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(parameters), "until_utc": instants.text(parameters.until_s)}


def _text(fitted: Parameters, figures: list[dict[str, Any]], unexplained: list[dict[str, Any]]) -> str:
    growth = (
        "first come, first served"
        if fitted.points_per_hour is None
        else f"priority grows by {fitted.points_per_hour:.1f} points per hour"
    )
    lines = [
        f"inferred before {instants.text(fitted.until_s)}: at most {counted(fitted.nodes, 'node')} in use over three "
        f"days; jobs per user: {fitted.max_jobs or 'no limit found'}; "
        f"nodes per user: {fitted.max_nodes or 'no limit found'}; "
        f"{growth} (orders {fitted.concordance:.3f} of {counted(fitted.pairs, 'overtaking pair')} correctly, "
        f"first come, first served {fitted.concordance_fcfs:.3f})",
        f"{'month':<11}{'form':<10}{'mechanisms':<24}{'jobs':>6}{'mean h':>8}{'rec.':>7}{'p90 h':>8}{'rec.':>7}"
        f"{'MAE h':>7}{'/mean':>7}{'rho':>7}{'>10min':>7}{'ceil.':>7}",
    ]
    for row in figures:
        hours = {name[:-2]: value / 3600 for name, value in row.items() if name.endswith("_s")}
        error, recorded = hours["mean_absolute_error"], hours["recorded_mean_wait"]
        names = ("spearman", "spearman_waited", "spearman_ceiling")
        rho = [float("nan") if row[name] is None else row[name] for name in names]
        lines.append(
            f"{row['from_utc']:%Y-%m-%d} {row['form']:<10}{(row['change'] + ' ' + row['mechanism']).strip():<24}"
            f"{row['jobs']:>6}{hours['simulated_mean_wait']:>8.2f}{recorded:>7.2f}"
            f"{hours['simulated_p90_wait']:>8.1f}{hours['recorded_p90_wait']:>7.1f}"
            f"{error:>7.2f}{error / recorded if recorded else float('nan'):>7.2f}"
            f"{''.join(f'{value:>7.3f}' for value in rho)}"
        )
    lines += [
        f"{row['from_utc']:%Y-%m-%d} forked, {row['class']}: {counted(row['jobs'], 'job')} "
        f"({row['share_of_jobs']:.0%}), {row['share_of_error']:.0%} of the error"
        for row in unexplained
    ]
    if not figures:
        lines.append("no month was evaluated: none has four weeks of record before it and 100 jobs in it")
    return "\n".join(lines) + "\n"
