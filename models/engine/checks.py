"""Check the engine: each check has a finding, and a mend if it failed."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from models.deployment import DeploymentCheck, EngineOptions
from models.engine.engines import LIBRARIES, engine_on
from models.engine.scratch import Scratch
from models.engine.work import Task, Work
from traces.counted import counted
from traces.errors import BatonError

PATIENCE_S = 30  # of a command of Slurm
TASK_S = 60.0  # for a task on a node of Ray that may be busy


def engine_checks(options: EngineOptions) -> Iterator[DeploymentCheck]:
    """Yield the checks of an engine in order; stops at the first that fails, because the others need it."""
    if options.kind == "local":
        yield DeploymentCheck("engine", f"local: processes of this machine, Python {platform.python_version()}")
        return
    unit = "job" if options.kind == "slurm" else "task"
    yield DeploymentCheck("engine", f"{options.kind}, {counted(options.at_once, unit)} at once")
    for check in CHECKS[options.kind]:
        found = check(options)
        yield found
        if found.mend:
            return


def _library(options: EngineOptions) -> DeploymentCheck:
    library = LIBRARIES[options.kind]
    if find_spec(library) is None:
        return DeploymentCheck(library, "not installed", f"pip install '.[{options.kind}]'")
    return DeploymentCheck(library, version(library))


def _scratch(options: EngineOptions) -> DeploymentCheck:
    if not options.scratch:
        return DeploymentCheck("scratch", "none: a run that is killed begins anew")
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


def _ray_cluster(options: EngineOptions) -> DeploymentCheck:
    from models.engine.ray import ray_nodes

    name = "cluster"
    try:
        nodes = ray_nodes(options)
    except BatonError as error:
        return DeploymentCheck(name, str(error), "start Baton on a node of the cluster, with the Ray that it runs")
    cpus = counted(round(sum(node.cpus for node in nodes)), "CPU")
    return DeploymentCheck(name, f"{options.address}, {counted(len(nodes), 'node')}, {cpus}")


def _ray_tasks(options: EngineOptions) -> DeploymentCheck:
    """Run one task on each node; the worker compares its code with that of this machine first."""
    from models.engine.ray import each_on_ray, ray_nodes

    name = "a task on each node"
    try:
        nodes = ray_nodes(options)
        work = Work(node_name, [Task(f"the task on node {node.name}", 0, "check") for node in nodes])
        ran = sorted(set(dict(each_on_ray(work, options, nodes=nodes, wait_s=TASK_S)).values()))
    except BatonError as error:
        return DeploymentCheck(name, str(error), "install the same Baton on the node; if none is free, wait for one")
    return DeploymentCheck(name, f"ran on {', '.join(ran)} with the same code")


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


CHECKS = {
    "slurm": (_library, _scratch, _slurm, _accounting, _partition, _task),
    "ray": (_library, _scratch, _ray_cluster, _ray_tasks),
}
