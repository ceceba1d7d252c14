"""`baton analyze`: raw logs to a report. `baton run`: that, then policies. Both through Dagster, in this process."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from features.conventions import GATE_SAID
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
    typer.Argument(help="Raw logs: files, folders of them, or - for standard input.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Adds `baton analyze` and `baton run`."""
    app.command()(analyze)
    app.command()(run)


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
    """Raw logs to a report of who waits and why, what is wasted and what fails: no training.

    Without RAW it is about the logs that the data folder holds. The last line is the report's path.
    """
    folder = options.data_folder(context, data)
    reading = Reading(cluster, timezone, nodes, gpus_per_node, cpus_per_node, resource, format_, fields, delimiter)
    with options.output(json) as out:
        folder.ensure_writable()
        reading.check(raw or [])
        began = time.perf_counter()
        logs = raw_logs.of_paths(folder, raw, reading) if raw else raw_logs.in_the_lake(folder, reading)
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
        Path | None, typer.Option("--raw", help="Folder of raw logs, as RAW (default: the bundled sample).")
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
    """The whole pipeline: `analyze`, then simulation, training, comparison, release, and the report again."""
    folder = options.data_folder(context, data)
    reading = Reading(cluster, timezone, nodes, gpus_per_node, cpus_per_node, resource, format_, fields, delimiter)
    with options.output(json) as out:
        folder.ensure_writable()
        paths = [*(raw or []), *([raw_folder] if raw_folder else [])]
        reading.check(paths)
        began = time.perf_counter()
        logs = _to_run(folder, paths, reading)
        made_from = last_run.made_from(logs, reading)
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
            out.write(_for_a_person(result))
    if result["failed"]:
        raise WorkError("; ".join(f"policies of cluster {name}: {why}" for name, why in result["failed"].items()))


def _to_run(folder: DataFolder, raw: list[Path], reading: Reading) -> list[RawLogs]:
    """The raw logs named, else the bundled sample. Raises InputError for options that are about no log."""
    if raw:
        return raw_logs.of_paths(folder, raw, reading)
    if reading != Reading():
        raise InputError("--cluster and its settings belong to raw logs: name them; without any the sample is run")
    return raw_logs.sample(folder)


def _analyse(folder: DataFolder, logs: list[RawLogs], reading: Reading) -> None:
    from pipelines.whole_runs import materialize

    for log in logs:
        options.say(f"cluster {log.settings.name}: {', '.join(map(str, log.paths)) or 'as read before'}")
        materialize.analyse(folder, log, reading, with_report=log is logs[-1])


def _learn(folder: DataFolder, logs: list[RawLogs], reading: Reading) -> dict[str, str]:
    """Policies of each cluster; what went wrong, by cluster: the report of the analytics stands all the same."""
    from pipelines.whole_runs import materialize

    failed: dict[str, str] = {}
    for log in logs:
        options.say(f"policies of cluster {log.settings.name}")
        try:
            materialize.learn(folder, log, reading, with_report=log is logs[-1])
        except Exception as error:
            why = " ".join(str(error).split()) or type(error).__name__
            failed[log.settings.name] = why if isinstance(error, BatonError) else f"{type(error).__name__}: {why}"
            options.say(f"policies of cluster {log.settings.name} failed: {failed[log.settings.name]}")
    return failed


def described(folder: DataFolder, logs: list[RawLogs]) -> dict[str, Any]:
    """What was read of those clusters, and where the report is."""
    from traces.store.raw_files import lake_files

    names = [log.settings.name for log in logs]
    files = [f["result"] for name in names for f in lake_files(folder, name)]
    return {"clusters": names, "files": files, "report": str(folder.reports / "report.html")}


def compared(folder: DataFolder, logs: list[RawLogs]) -> dict[str, Any]:
    """The comparison of the clusters that have one, why others have none, and the champion with the gate's reason."""
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
    """The cluster's registered model, its champion and why that is it, and the folder that an agent reads it from."""
    from models.release import export
    from models.tracking import versions as tracking
    from reports.champion import why
    from reports.source import Source

    champion = tracking.champion(folder, cluster)
    where = export.folder(folder, cluster) / tracking.CHAMPION
    return {
        "model": tracking.model_name(cluster),
        "version": None if champion is None else champion.version,
        "folder": str(where) if where.exists() else None,
        "why": why(Source(folder, cluster)),
    }


def _last_decision(folder: DataFolder, cluster: str) -> dict[str, Any] | None:
    """The newest row of the cluster's `release_log`."""
    from models.tables import RELEASE_LOG
    from traces.store import derived

    if derived.made_from(folder, RELEASE_LOG.name, cluster) is None:
        return None
    log = derived.read(folder, RELEASE_LOG.name, cluster)
    return log.row(-1, named=True) if len(log) else None


def _findings(folder: DataFolder, logs: list[RawLogs]) -> list[dict[str, str]]:
    """What the report says first of each cluster: who waits, why, and what to do about it."""
    from reports.findings import findings
    from traces.store import warehouse

    names = [log.settings.name for log in logs]
    with warehouse.published(folder):  # held open: of one warehouse, and opened once
        return [{"cluster": name, **finding} for name in names for finding in findings(folder, name)]


def _sentences(result: dict[str, Any]) -> str:
    """What became of each file, and what the report says first; each on a line of its own."""
    from pipelines.commands.traces import sentence
    from reports.format import text

    lines = [text(sentence(file)) for file in result["files"]]
    lines += [f"{finding['cluster']}: {text(finding['sentence'])}" for finding in result["findings"]]
    return "".join(f"{line}\n" for line in lines)


def _for_a_person(result: dict[str, Any]) -> str:
    """The champions and why, the comparison, the reasons, the report, and at the end the decisions."""
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
        told = "no champion" if version is None else f"version {version} is champion, in {champion['folder']}"
        lines.append(f"{name}: {champion['model']}: {told}")
    return "\n".join(lines) + "\n"
