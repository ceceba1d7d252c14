"""The command line `baton`: the root command, its errors and exit codes; subcommands are in `pipelines.commands`."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from models.deployment import VARIABLE as DEPLOYMENT
from pipelines.commands import (
    advise,
    calibrate,
    emulate,
    explain,
    export,
    plan,
    profile_template,
    release,
    report,
    run,
    simulate,
    traces,
    wait,
    whatif,
)
from pipelines.commands.policies import models, tune
from pipelines.lake import commands as lake
from pipelines.process.terminal import safe_streams
from traces.errors import BatonError, WorkError, of_system
from traces.store.folder import SHARED
from traces.visible import visible

app = typer.Typer(
    name="baton",
    help="Turn raw cluster logs into a report, compared provisioning policies and a released artifact.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
_COMMANDS = (
    run, explain, wait, plan, calibrate, traces, simulate, export, models, release, report, whatif, advise,
    profile_template, emulate, tune, lake,
)  # fmt: skip
for module in _COMMANDS:
    module.register(app)


def _version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"baton {version('baton')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    data: Annotated[Path | None, typer.Option("--data", help="Data folder, for every command.")] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Let other users read the data folder.")] = False,
    deployment: Annotated[
        Path | None, typer.Option("--deployment", help="File that says where the work runs (deployment.toml).")
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Turn raw cluster logs into a report, compared provisioning policies and a released artifact."""
    context.obj = data
    if shared:
        os.environ[SHARED] = "1"
    if deployment is not None:
        os.environ[DEPLOYMENT] = str(deployment.absolute())


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 the work failed, 2 wrong usage or unreadable input.

    typer itself ends quietly on Ctrl-C (130) and on a closed pipe. Telemetry of Dagster and MLflow is switched off
    before either is imported, because nothing here needs a network.
    """
    os.environ.setdefault("DAGSTER_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("DO_NOT_TRACK", "1")
    with safe_streams():
        logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(name)s: %(message)s")
        try:
            app(args=arguments, prog_name="baton", standalone_mode=True)
        except BatonError as error:
            _refuse(str(error), error.exit_code)
        except OSError as error:
            known = of_system(error)
            _refuse(str(known), known.exit_code)
        except MemoryError:
            _refuse("this machine ran out of memory; finished work is kept", WorkError.exit_code)


def _refuse(why: str, code: int) -> None:
    """End with one line on standard error."""
    sys.stderr.write(f"baton: {visible(' '.join(why.split()))}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
