"""`baton lake`: compare the local lake with the shared one, exchange files, publish the warehouse, vacuum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from pipelines import options
from pipelines.options import Cluster, Data, Json
from traces.counted import counted
from traces.errors import InputError
from traces.visible import visible

lake = typer.Typer(no_args_is_help=True, help="The lake that several machines share (deployment.toml, [lake]).")
_DAY_S = 86_400


def register(app: typer.Typer) -> None:
    """Add `baton lake` with its subcommands."""
    for command in (status, pull, push, publish, fetch, vacuum):
        lake.command()(command)
    app.add_typer(lake, name="lake")


def status(context: typer.Context, data: Data = None, json: Json = False) -> None:
    """Print versions, and how many files are to be pulled and pushed."""
    with options.output(json) as stream:
        folder, shared = _shared(context, data)
        from traces.lake.status import status as compared

        found = compared(shared, folder)
        if json:
            options.write_json(stream, found)
            return
        stream.write(f"{found['url']}: version {found['version']}, schema version {found['schema_version']}\n")
        for name, one in found["clusters"].items():
            here = "never pulled" if one["local_version"] is None else f"here version {one['local_version']}"
            stream.write(
                f"{name}: {counted(one['files'], 'file')}, {one['retired']} retired; {one['to_pull']} to pull, "
                f"{one['to_push']} to push; {here}\n"
            )
        if found["tables"]:
            stream.write(f"tables: {', '.join(f'{name} {n}' for name, n in found['tables'].items())}\n")
        if (warehouse := found["warehouse"]) is not None:
            stream.write(
                f"warehouse: {warehouse['path']}, {warehouse['bytes']:,} bytes, version {warehouse['version']}\n"
            )


def pull(context: typer.Context, cluster: Cluster = None, data: Data = None, json: Json = False) -> None:
    """Make the local files those that the shared lake lists. `baton ingest`, `analyze` and `run` do this themselves."""
    from traces.lake.pull import pull as exchange

    _exchange(
        exchange, lambda done: f"{counted(done.fetched, 'file')} fetched, {done.retired} retired", context, cluster,
        data, json,
    )  # fmt: skip


def push(context: typer.Context, cluster: Cluster = None, data: Data = None, json: Json = False) -> None:
    """Push local files that the shared lake never had, for example of a data folder that is older than it."""
    from traces.lake.push import push as exchange

    _exchange(exchange, lambda done: f"{counted(done.sent, 'file')} sent", context, cluster, data, json)


def publish(context: typer.Context, data: Data = None, json: Json = False) -> None:
    """Build the warehouse if needed, and publish it in the shared lake."""
    with options.output(json) as stream:
        folder, shared = _shared(context, data)
        folder.ensure_writable()
        from traces.lake.warehouses import publish_warehouse

        _write_warehouse(stream, shared, publish_warehouse(shared, folder), json)


def fetch(context: typer.Context, data: Data = None, json: Json = False) -> None:
    """Fetch the published warehouse in place of building one. The next build here replaces it."""
    with options.output(json) as stream:
        folder, shared = _shared(context, data)
        from traces.lake.warehouses import fetch_warehouse

        _write_warehouse(stream, shared, fetch_warehouse(shared, folder), json)


def vacuum(
    context: typer.Context,
    keep: Annotated[str | None, typer.Option("--keep", help="Keep what is younger, in place of lake.keep: 7d.")] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Remove versions, and files of killed pushes, that are older than lake.keep."""
    with options.output(json) as stream:
        _, shared = _shared(context, data)
        from traces.lake.vacuum import vacuum as removed

        keep_days = None if keep is None else options.duration_s(keep) / _DAY_S
        if keep_days is not None and keep_days < 1:
            raise InputError(f"--keep {keep!r:.40} is shorter than a day: a push may still be running")
        done = removed(shared, keep_days)
        if json:
            options.write_json(stream, done._asdict())
        else:
            stream.write(f"{counted(done.partitions, 'partition')} and {counted(done.files, 'file')} removed\n")


def _exchange(
    exchange: Callable[..., Any],
    words: Callable[[Any], str],
    context: typer.Context,
    cluster: Any,
    data: Any,
    json: bool,
) -> None:
    """Push or pull the files of one cluster, or of all if `cluster` is None, and print the result."""
    with options.output(json) as stream:
        folder, shared = _shared(context, data)
        folder.ensure_writable()
        done = exchange(shared, folder, None if cluster is None else {cluster})
        if json:
            options.write_json(stream, done._asdict())
        else:
            stream.write(f"version {done.version}: {words(done)}\n")


def _shared(context: typer.Context, data: Any) -> tuple[Any, Any]:
    """Return the data folder and its shared lake. Raises InputError without one."""
    from assets.shared.lake import shared_lake

    folder = options.data_folder(context, data)
    shared = shared_lake(folder)
    if shared is None:
        raise InputError("no shared lake is declared: set url in [lake] of deployment.toml (docs/lake.md)")
    return folder, shared


def _write_warehouse(stream: Any, shared: Any, found: Any, json: bool) -> None:
    if json:
        options.write_json(stream, {name: getattr(found, name) for name in ("path", "sha256", "bytes", "version")})
    else:
        stream.write(f"{visible(shared.options.url)}/{found.path}: {found.bytes:,} bytes, version {found.version}\n")
