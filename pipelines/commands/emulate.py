"""`baton emulate`: run a training script with emulated GPUs, which take the time and memory of a profiled model."""

from __future__ import annotations

import math
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from pipelines import options
from traces.errors import InputError
from traces.visible import visible

MOST_SPEED = 1e6
MOST_GIB = 1e6
MOST_BATCH = 1e9


def register(app: typer.Typer) -> None:
    """Add `baton emulate`."""
    app.command(context_settings={"allow_interspersed_args": False})(emulate)


def emulate(
    command: Annotated[list[str], typer.Argument(help="After --: the program to run and its arguments.")],
    model: Annotated[str, typer.Option("--model", help="Model, as the profiles name it.")],
    gpu_type: Annotated[str, typer.Option("--gpu-type", help="GPU type on which the model was measured.")],
    gpus: Annotated[int, typer.Option("--gpus", min=1, max=options.MOST_GPUS, help="GPUs of the job.")] = 1,
    nodes: Annotated[int, typer.Option("--nodes", min=1, max=options.MOST_GPUS, help="Nodes that hold them.")] = 1,
    profiles: Annotated[
        str, typer.Option("--profiles", help="published, a file, a folder, or GPEmu's folder profiled_data.")
    ] = "published",
    local_batch: Annotated[
        float | None,
        typer.Option("--local-batch", min=1e-6, max=MOST_BATCH, help="Samples per GPU, where the script names none."),
    ] = None,
    gpu_memory_gib: Annotated[
        float | None,
        typer.Option("--gpu-memory-gib", min=1e-6, max=MOST_GIB, help="Memory of each GPU; default: by its name."),
    ] = None,
    speed: Annotated[
        float, typer.Option("--speed", min=1e-3, max=MOST_SPEED, help="How many times as fast as the GPUs.")
    ] = 1.0,
    share: Annotated[
        Path | None, typer.Option("--share", help="Folder of the processes that share these GPUs.")
    ] = None,
    meet: Annotated[
        Path | None, typer.Option("--meet", help="New folder of the workers of this run, which wait for each other.")
    ] = None,
) -> None:
    """Run a training script with emulated GPUs: `baton emulate --model bert --gpu-type A100 -- python train.py`.

    The script asks `emulated_gpu.EmulatedGpu` for its steps. Its exit status is the one of this command.
    """
    from simulator.gpu.emulation.describe import EmulatedPlacement, describe, emulation_summary

    numbers = {"--speed": speed, "--local-batch": local_batch, "--gpu-memory-gib": gpu_memory_gib}
    for option, value in numbers.items():
        if value is not None and math.isnan(value):  # the bounds of the options let it pass
            raise InputError(f"{option} nan: give a number")
    if shutil.which(command[0]) is None:
        raise InputError(f"cannot run '{visible(command[0])[:200]}': no such program, or no right to run it")
    place = EmulatedPlacement(model, gpu_type, gpus, nodes, local_batch, gpu_memory_gib)
    emulation = describe(profiles, place) | {
        "speed": speed,
        "share": str(share.absolute()) if share else None,
        "meet": str(meet.absolute()) if meet else None,
    }
    options.say(emulation_summary(emulation))
    _become(command, emulation)


def _become(command: list[str], emulation: dict[str, object]) -> NoReturn:
    """Replace this process by the command, which so receives every signal and ends with its own status.

    Raises InputError if the command cannot be run.
    """
    import json

    from simulator.gpu.emulation.script import emulated_gpu

    path = [part for part in (os.environ.get("PYTHONPATH"), str(Path(emulated_gpu.__file__).parent)) if part]
    environment = os.environ | {emulated_gpu.VARIABLE: json.dumps(emulation), "PYTHONPATH": os.pathsep.join(path)}
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and a new program would inherit that
        signal.signal(ignored, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(f"cannot run '{visible(command[0])[:200]}': {reason}") from None
