"""`baton run`: the whole pipeline, through Dagster, in this process."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines import options
from pipelines.options import Cluster, Data, GpusPerNode, Json, Nodes, Timezone
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store import DataFolder

SAMPLE = options.REPOSITORY / "data" / "sample"


@dataclass(frozen=True)
class RawLogs:
    """A folder of raw logs and the cluster that they are from."""

    folder: Path
    settings: ClusterSettings


def register(app: typer.Typer) -> None:
    app.command()(run)


def run(
    context: typer.Context,
    raw: Annotated[Path | None, typer.Option("--raw", help="Folder of raw logs (default: the bundled sample).")] = None,
    cluster: Cluster = None,
    timezone: Timezone = None,
    nodes: Nodes = None,
    gpus_per_node: GpusPerNode = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """The whole pipeline: ingest, warehouse, features, simulation, training, comparison, release, report."""
    folder = options.data_folder(context, data)
    flags = {"timezone": timezone, "nodes": nodes, "gpus_per_node": gpus_per_node}
    with options.output(json) as out:
        folder.ensure_writable()
        logs = raw_logs(folder, raw, cluster, flags)
        began = time.perf_counter()
        for one in logs:
            options.say(f"cluster {one.settings.name}: {one.folder}")
            materialize(folder, one, flags, with_report=one is logs[-1])
        result = summary(folder, [one.settings.name for one in logs])
        result["seconds"] = time.perf_counter() - began
        if json:
            options.write_json(out, result)
        else:
            out.write(_for_a_person(result))


def raw_logs(folder: DataFolder, raw: Path | None, cluster: str | None, flags: dict[str, Any]) -> list[RawLogs]:
    """What to run on: the folder named, else the bundled sample. Raises InputError for a folder that is none."""
    from traces import clusters

    if raw is not None:
        if not raw.is_dir():
            raise InputError(f"--raw {raw}: no such folder; give the folder that holds the raw logs")
        return [RawLogs(raw.resolve(), clusters.resolve(folder, raw=raw, cluster=cluster, **flags))]
    if cluster is not None or any(value is not None for value in flags.values()):
        raise InputError("--cluster and its settings belong to --raw DIR; without it the bundled sample is run")
    folders = [SAMPLE / "philly", SAMPLE / "slurm"]
    return [RawLogs(path, clusters.resolve(folder, raw=path)) for path in folders]


def materialize(folder: DataFolder, logs: RawLogs, flags: dict[str, Any], *, with_report: bool = True) -> None:
    """Materialize every asset for one cluster. Raises what the failing asset raised.

    The report is about all clusters: where several are run one after the other, the last one's run makes it.
    """
    from dagster import AssetSelection, DagsterExecutionInterruptedError

    from assets.resources import CLUSTERS, Baton
    from pipelines.definitions import build_defs
    from pipelines.home import instance_of

    baton = Baton(data=str(folder.root), raw=str(logs.folder), **flags)
    defs = build_defs({"baton": baton})
    chosen = AssetSelection.all() if with_report else AssetSelection.all() - AssetSelection.groups("reports")
    try:
        with instance_of(folder) as instance:
            instance.add_dynamic_partitions(str(CLUSTERS.name), [logs.settings.name])
            defs.resolve_job_def("whole_pipeline").execute_in_process(
                instance=instance,
                asset_selection=list(chosen.resolve(defs.resolve_asset_graph())),
                partition_key=logs.settings.name,
                run_config={"loggers": {"progress": {}}},
            )
    except DagsterExecutionInterruptedError:
        # Dagster makes its own exception of Ctrl-C, which nobody above knows.
        raise KeyboardInterrupt from None


def summary(folder: DataFolder, names: list[str]) -> dict[str, Any]:
    """Where the report is, the comparison of the clusters that have one, and the champion."""
    from models import study, tracking
    from models.fingerprint import read_stamp

    stamps = [read_stamp(folder, study.COMPARISON, name) for name in names]
    champion = tracking.champion(folder)
    reasons = {name: study.why_no_policies(folder, name) for name in names}
    return {
        "clusters": names,
        "without_policies": {name: why for name, why in reasons.items() if why is not None},
        "report": str(folder.reports / "report.html"),
        "comparison": [row for stamp in stamps if stamp is not None for row in stamp["results"]],
        "model": tracking.MODEL_NAME,
        "registered_version": None if champion is None else champion.version,
    }


def _for_a_person(result: dict[str, Any]) -> str:
    from models.comparison_text import format_table

    version = result["registered_version"]
    blocks = [format_table(result["comparison"])] if result["comparison"] else []
    blocks += [f"{name}: no policies compared: {why}" for name, why in result["without_policies"].items()]
    comparison = "\n\n".join(blocks)
    champion = "no version registered" if version is None else f"version {version} is champion"
    return f"\n{comparison}\n\nreport: {result['report']}\n{result['model']}: {champion}\n"
