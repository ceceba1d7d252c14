"""`baton analyze` makes a report from raw logs; `baton run` also trains policies. Dagster runs in this process.

`baton doctor` checks where the work would run.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from assets.shared.lake import pull_shared
from models.tracking.address import tracking_label
from pipelines import options
from pipelines.options import (
    Cluster,
    CpusPerNode,
    Data,
    Delimiter,
    Fields,
    Format,
    GpusPerNode,
    Json,
    Nodes,
    Resource,
    Timezone,
)
from pipelines.whole_runs import last_run, raw_logs
from pipelines.whole_runs.raw_logs import RawLogs, Reading
from traces.errors import BatonError, InputError, WorkError
from traces.store.folder import DataFolder

Raw = Annotated[
    list[Path] | None,
    typer.Argument(help="Raw logs: files, folders, or - for standard input.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add `baton analyze`, `baton run` and `baton doctor`."""
    app.command()(analyze)
    app.command()(run)
    app.command()(doctor)


def analyze(
    context: typer.Context,
    raw: Raw = None,
    cluster: Cluster = None,
    timezone: Timezone = None,
    fields: Fields = None,
    delimiter: Delimiter = None,
    format_: Format = "auto",
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    cpus_per_node: CpusPerNode = None,
    resource: Resource = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a report from raw logs: who waits and why, what is wasted and what fails. Trains no policies.

    Without RAW it uses the logs that the data folder holds. The last line printed is the report's path.
    """
    folder = options.data_folder(context, data)
    reading = Reading(cluster, timezone, nodes, gpus_per_node, cpus_per_node, resource, format_, fields, delimiter)
    with options.output(json) as out:
        folder.ensure_writable()
        reading.check(raw or [])
        began = time.perf_counter()
        logs = _to_analyze(folder, raw or [], reading)
        made_from = last_run.made_from(logs, reading)
        result = last_run.result_of(folder, "analyze", made_from)
        if result is None:
            _analyse(folder, logs, reading)
            result = {**described(folder, logs), "findings": _findings(folder, logs)}
            last_run.remember(folder, "analyze", made_from, result)
        result["seconds"] = time.perf_counter() - began
        if json:
            options.write_json(out, result)
        else:
            out.write(f"{_sentences(result)}{result['report']}\n")


def run(
    context: typer.Context,
    raw: Raw = None,
    raw_folder: Annotated[
        Path | None, typer.Option("--raw", help="Folder of raw logs, same as RAW (default: the bundled sample).")
    ] = None,
    cluster: Cluster = None,
    timezone: Timezone = None,
    fields: Fields = None,
    delimiter: Delimiter = None,
    format_: Format = "auto",
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    cpus_per_node: CpusPerNode = None,
    resource: Resource = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Run the whole pipeline: `analyze`, simulation, training, comparison, release, and the report again."""
    folder = options.data_folder(context, data)
    reading = Reading(cluster, timezone, nodes, gpus_per_node, cpus_per_node, resource, format_, fields, delimiter)
    with options.output(json) as out:
        folder.ensure_writable()
        paths = [*(raw or []), *([raw_folder] if raw_folder else [])]
        reading.check(paths)
        options.check_tracking(folder)
        began = time.perf_counter()
        logs = _to_run(folder, paths, reading)
        pull_shared(folder, {log.settings.name for log in logs})
        # What a server holds is not in the data folder, so a result there is never taken from the record.
        made_from = None if tracking_label(folder) else last_run.made_from(logs, reading)
        result = last_run.result_of(folder, "run", made_from)
        if result is None:
            _analyse(folder, logs, reading)
            result = {"failed": _learn(folder, logs, reading)}
            result |= {**described(folder, logs), **compared(folder, logs)}
            if not result["failed"]:
                last_run.remember(folder, "run", made_from, result)
        result["seconds"] = time.perf_counter() - began
        if json:
            options.write_json(out, result)
        else:
            out.write(_text(result))
    if result["failed"]:
        raise WorkError("; ".join(f"policies of cluster {name}: {why}" for name, why in result["failed"].items()))


def _to_analyze(folder: DataFolder, raw: list[Path], reading: Reading) -> list[RawLogs]:
    """Return the named raw logs, else those of the data folder, after a pull of their clusters from a shared lake."""
    if raw:
        logs = raw_logs.of_paths(folder, raw, reading)
        pull_shared(folder, {log.settings.name for log in logs})
        return logs
    pull_shared(folder, None if reading.cluster is None else {reading.cluster})
    return raw_logs.in_the_lake(folder, reading)


def _to_run(folder: DataFolder, raw: list[Path], reading: Reading) -> list[RawLogs]:
    """Return the named raw logs, else the bundled sample. Raises InputError for options without raw logs."""
    if raw:
        return raw_logs.of_paths(folder, raw, reading)
    if reading != Reading():
        raise InputError(
            "--cluster and its settings apply to raw logs, and none are given: name them, or leave the options out to "
            "run the bundled sample"
        )
    return raw_logs.sample(folder)


def _analyse(folder: DataFolder, logs: list[RawLogs], reading: Reading) -> None:
    from pipelines.whole_runs.materialize import materialize

    for _, error in materialize(folder, logs, reading, "analytics"):
        if error is not None:
            raise error


def _learn(folder: DataFolder, logs: list[RawLogs], reading: Reading) -> dict[str, str]:
    """Train policies of each cluster; return the errors by cluster. After an error the analytics report stays valid."""
    from pipelines.whole_runs.materialize import materialize

    failed: dict[str, str] = {}
    for name, error in materialize(folder, logs, reading, "whole_pipeline"):
        if error is not None:
            why = " ".join(str(error).split()) or type(error).__name__
            failed[name] = why if isinstance(error, BatonError) else f"{type(error).__name__}: {why}"
            options.say(f"policies of cluster {name} failed: {failed[name]}")
    return failed


def described(folder: DataFolder, logs: list[RawLogs]) -> dict[str, Any]:
    """Return the files read of those clusters, and the path of the report."""
    from traces.store.raw_files import lake_files

    names = [log.settings.name for log in logs]
    files = [f["result"] for name in names for f in lake_files(folder, name)]
    return {"clusters": names, "files": files, "report": str(folder.reports / "report.html")}


def compared(folder: DataFolder, logs: list[RawLogs]) -> dict[str, Any]:
    """Return each cluster's comparison, or the reason why it has none, and its champion with the gate's reason."""
    from models.study.comparisons import COMPARISON
    from models.study.support import Refusal, headline_study
    from traces.store.stamps import read_stamp

    studies = {log.settings.name: headline_study(folder, log.settings) for log in logs}
    reasons = {name: study.why if isinstance(study, Refusal) else None for name, study in studies.items()}
    stamps = [read_stamp(folder, COMPARISON, name) for name, why in reasons.items() if why is None]
    decisions = {name: _last_decision(folder, name) for name, why in reasons.items() if why is None}
    return {
        "without_policies": {name: why for name, why in reasons.items() if why is not None},
        "comparison": [row for stamp in stamps if stamp is not None for row in stamp.get("results", [])],
        "champions": {name: _champion(folder, name) for name, why in reasons.items() if why is None},
        "decisions": {name: made for name, made in decisions.items() if made is not None},
    }


def _champion(folder: DataFolder, cluster: str) -> dict[str, Any]:
    """Return the cluster's model, its champion with the reason, and the folder from which an agent reads it."""
    from models.tracking import registered
    from models.tracking import versions as tracking
    from reports.advice.champion import why
    from reports.source import Source

    champion = tracking.champion(folder, cluster)
    where = registered.folder(folder, cluster) / registered.CHAMPION
    return {
        "model": tracking.model_name(cluster),
        "version": None if champion is None else champion.version,
        "folder": str(where) if where.exists() else None,
        "why": why(Source(folder, cluster)),
    }


def _last_decision(folder: DataFolder, cluster: str) -> dict[str, Any] | None:
    """Return the newest row of the cluster's `release_log`."""
    from models.tables import RELEASE_LOG
    from traces.store import derived

    if derived.made_from(folder, RELEASE_LOG.name, cluster) is None:
        return None
    log = derived.read(folder, RELEASE_LOG.name, cluster)
    return log.row(-1, named=True) if len(log) else None


def _findings(folder: DataFolder, logs: list[RawLogs]) -> list[dict[str, str]]:
    """Return the report's main findings for each cluster: who waits, why, and what to do about it."""
    from reports.advice.findings import findings
    from traces.store import warehouse

    names = [log.settings.name for log in logs]
    with warehouse.published(folder):  # one open connection, so that all findings read the same warehouse
        return [{"cluster": name, **finding} for name in names for finding in findings(folder, name)]


def _sentences(result: dict[str, Any]) -> str:
    """Format the result of each file and the main findings, one per line."""
    from pipelines.commands.traces import sentence
    from reports.format import text

    lines = [text(sentence(file)) for file in result["files"]]
    lines += [f"{finding['cluster']}: {text(finding['sentence'])}" for finding in result["findings"]]
    return "".join(f"{line}\n" for line in lines)


def _text(result: dict[str, Any]) -> str:
    """Format the champions and their reasons, the comparison, missing policies, the report and the decisions."""
    from features.conventions import GATE_SAID
    from reports.text.comparison import format_table

    lines = [f"{name}: {champion['why']}" for name, champion in result["champions"].items() if champion["why"]]
    lines += [f"\n{format_table(result['comparison'])}\n"] if result["comparison"] else [""]
    lines += [f"{name}: no policies: {why}" for name, why in result["without_policies"].items()]
    lines += [f"{name}: no policies: training or comparison failed: {why}" for name, why in result["failed"].items()]
    lines.append(f"report: {result['report']}")
    for name, made in result["decisions"].items():
        lines.append(f"{name}: {made['policy']} {GATE_SAID[made['verdict']]}: {made['reason']}")
    for name, champion in result["champions"].items():
        version = champion["version"]
        status = "no champion" if version is None else f"version {version} is champion, in {champion['folder']}"
        lines.append(f"{name}: {champion['model']}: {status}")
    return "\n".join(lines) + "\n"


def doctor(context: typer.Context, data: Data = None, json: Json = False) -> None:
    """Check the deployment: versions, one task on a node, each server and its clock.

    Exits with 1 if a check failed.
    """
    from pipelines.runs.doctor import deployment_checks

    folder = options.data_folder(context, data)
    with options.output(json) as stream:
        found = []
        for one in deployment_checks(folder):
            found.append(one)
            if not json:
                stream.write(f"{'FAILED' if one.mend else 'ok':6}  {one.name}: {one.finding}\n")
                stream.write(f"        {one.mend}\n" if one.mend else "")
                stream.flush()
        if json:
            options.write_json(stream, {"checks": [one._asdict() for one in found]})
    if any(one.mend for one in found):
        raise typer.Exit(1)
