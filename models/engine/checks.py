"""Check the engine: each check has a finding, and a mend if it failed."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from models.deployment import DeploymentCheck, EngineOptions
from models.engine.engines import engine_on
from models.engine.scratch import Scratch
from models.engine.work import Task, Work
from traces.counted import counted
from traces.errors import BatonError

PATIENCE_S = 30  # of a command of Slurm


def engine_checks(options: EngineOptions) -> Iterator[DeploymentCheck]:
    """Yield the checks of an engine in order; stops at the first that fails, because the others need it."""
    if options.kind == "local":
        yield DeploymentCheck("engine", f"local: processes of this machine, Python {platform.python_version()}")
        return
    yield DeploymentCheck("engine", f"slurm, {counted(options.at_once, 'job')} at once")
    for check in (_submitit, _scratch, _slurm, _accounting, _partition, _task):
        found = check(options)
        yield found
        if found.mend:
            return


def _submitit(_options: EngineOptions) -> DeploymentCheck:
    if find_spec("submitit") is None:
        return DeploymentCheck("submitit", "not installed", "pip install '.[slurm]'")
    return DeploymentCheck("submitit", version("submitit"))


def _scratch(options: EngineOptions) -> DeploymentCheck:
    try:
        return DeploymentCheck("scratch", str(Scratch(Path(options.scratch)).root))
    except BatonError as error:
        return DeploymentCheck("scratch", str(error), "set engine.scratch to a folder of your own that all nodes see")


def _slurm(_options: EngineOptions) -> DeploymentCheck:
    return _command("Slurm", ["sinfo", "--version"], "run Baton where sinfo and sbatch work: on a login node")


def _accounting(_options: EngineOptions) -> DeploymentCheck:
    mend = "the engine finds lost jobs through sacct: ask for accounting (slurmdbd)"
    found = _command("accounting", ["sacct", "--noheader", "--allocations", "--format=JobID"], mend)
    return found if found.mend else found._replace(finding="sacct answers")


def _partition(options: EngineOptions) -> DeploymentCheck:
    known = _command("partition", ["sinfo", "--noheader", "--format=%R"], "ask Slurm's administrator")
    names = sorted(set(known.finding.split()))
    if known.mend or not options.partition:
        return known if known.mend else DeploymentCheck("partition", "Slurm's default")
    if options.partition not in names:
        return DeploymentCheck("partition", f"{options.partition!r} does not exist", f"take one of {', '.join(names)}")
    return DeploymentCheck("partition", options.partition)


def _task(options: EngineOptions) -> DeploymentCheck:
    """Run one task as a job; the worker compares its code with that of this machine before it runs the task."""
    name = "a task on a node"
    try:
        work = Work(node_name, [Task("the task of the check", 0, "check")], platform.node())
        ((_at, node),) = engine_on(options)(work, 1)
    except BatonError as error:
        return DeploymentCheck(name, str(error), "read the output that the line names, or install the same Baton there")
    return DeploymentCheck(name, f"ran on {node} with the same code")


def node_name(_shared: object, _argument: int) -> str:
    """Return the name of the machine, as the task of the check."""
    return platform.node()


def _command(name: str, command: list[str], mend: str) -> DeploymentCheck:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines() or [f"exit status {error.returncode}"]
        return DeploymentCheck(name, f"{command[0]}: {lines[-1]}", mend)
    except (OSError, subprocess.TimeoutExpired) as error:
        return DeploymentCheck(name, f"{command[0]}: {getattr(error, 'strerror', None) or error}", mend)
    return DeploymentCheck(name, done.stdout.strip())
