"""`baton-agent`: run keeps a chain of jobs going, status shows one, check says what this Slurm lets an agent see.

Exit status of run: 0 the chain is done, 1 it failed or Slurm could not be reached, 2 something given is wrong (one
line on standard error, nothing submitted), 3 its user cancelled it, 4 the agent was told to stop and the chain goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pwd
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from agent import chain as chains
from agent import status, submission
from agent.chain import Chain, option
from agent.check import PROBLEM, check
from agent.decide import Policy, trained_capacity
from agent.eyes import Eyes
from agent.loop import EXIT, FAILED, Agent, World
from agent.sight import Request, asked_partitions
from agent.slurm.commands import Commands, SlurmError
from agent.slurm.queue import read_queue
from agent.slurm.settings import read_partitions
from agent.slurm_time import SlurmTime
from agent.state import GOING, Attempt, Busy, Folder, State, new_state
from agent.streams import reader_gone
from traces.slurm.text import MOST_NODES, parse_limit_s
from traces.visible import visible

USAGE = 2
SIZE_SLACK = 0.2  # of the nodes that the policy was trained on


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    ours, dashes, of_sbatch = _split(given)
    options = parser().parse_args(ours)
    if dashes and options.command == "status":
        return _wrong("status takes no options of sbatch")
    try:
        code: int = options.do(options, of_sbatch)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return reader_gone()
    except (ValueError, Busy) as error:
        return _wrong(str(error))
    except OSError as error:
        return _wrong(f"{error.filename}: {error.strerror}")
    except SlurmError as error:
        sys.stderr.write(f"baton-agent: {visible(str(error))}\n")
        return FAILED


def _wrong(text: str) -> int:
    sys.stderr.write(f"baton-agent: {visible(' '.join(text.split()))}\n")
    return USAGE


def _split(given: list[str]) -> tuple[list[str], bool, list[str]]:
    """What stands before and after the first `--`."""
    if "--" not in given:
        return given, False, []
    at = given.index("--")
    return given[:at], True, given[at + 1 :]


# -- run --------------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace, of_sbatch: list[str]) -> int:
    """Keep a chain until it is over."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    commands = Commands()
    world = World(
        commands, SlurmTime(commands), stop.wait, say, partial(Eyes, commands), os.environ, stop.is_set
    )  # fmt: skip
    values = _values(options, of_sbatch)
    state_path = values.pop("state", None)
    chain = chains.make(values)
    folder = Folder(Path(state_path) if state_path else _default_state(chain.name))
    return keep(chain, folder, world, dry_run=options.dry_run, take_over=options.take_over, metrics=options.metrics)


def keep(
    chain: Chain,
    folder: Folder,
    world: World,
    *,
    dry_run: bool = False,
    take_over: bool = False,
    metrics: Path | None = None,
) -> int:
    """Keep a chain in a world; returns the exit status. Raises ValueError, Busy, OSError, SlurmError."""
    policy = Policy(chain.artifact, chain.setting)
    if not dry_run:
        folder.make()
        folder.end_holder() if take_over else folder.lock()
    try:
        state = folder.load()
        if state is None:
            check_with_slurm(chain, policy, world.commands)
            state = _first_state(chain, world)
            if not dry_run:
                folder.save(state)
        elif state.script != str(chain.script):
            raise ValueError(f"{folder.path} holds the chain of {state.script}; give {chain.script} another --state")
        elif state.status != GOING and not any(a.is_alive and a.withdrawn for a in state.attempts):
            world.say(f"the chain is {state.status}: {state.why}; a new one needs another --state, or this one removed")
            return EXIT[state.status]
        state = replace(state, links=chain.links)
        world.say(f"chain {state.name} ({state.chain}) in {folder.path}, {policy.name}")
        return Agent(chain, folder, policy, world, state, dry_run=dry_run, metrics=metrics).run()
    finally:
        folder.unlock()


def check_with_slurm(chain: Chain, policy: Policy, commands: Commands) -> None:
    """Hold what the chain asks for against the cluster. Raises ValueError, and SlurmError where it does not answer."""
    partitions = read_partitions(commands)
    asked = asked_partitions(partitions, option(chain.submitted_options, "--partition", "-p") or "")
    longest = max(asked, key=lambda partition: partition.limit_s)
    if chain.limit_s > longest.limit_s:
        hours = chain.limit_s / 3600, longest.limit_s / 3600
        raise ValueError(f"the time limit is {hours[0]:g} h; partition {longest.name} allows {hours[1]:g} h")
    trained = trained_capacity(policy.artifact)
    sizes = [len(frozenset().union(*(one.nodes for one in some))) for some in (asked, partitions.values())]
    if trained is not None and not any(abs(size - trained) <= SIZE_SLACK * trained for size in sizes):
        raise ValueError(
            f"{policy.path}: trained on a cluster of {trained} nodes; this one has {sizes[1]}, of them {sizes[0]} in "
            f"partition {asked[0].name} (allowed: {SIZE_SLACK:.0%} more or fewer)"
        )
    try:
        submission.try_only(commands, chain.script, chain.options)
    except SlurmError as error:
        if error.kind != "refused":
            raise
        raise ValueError(f"{chain.script}: Slurm would refuse it: {error.detail}") from error


def _first_state(chain: Chain, world: World) -> State:
    """The state of a new chain; with `first`, that job is its first link."""
    state = new_state(chain.name, str(chain.script), chain.links)
    if not chain.first:
        return state
    now_s = world.time.now_s()
    me = pwd.getpwuid(os.getuid()).pw_name
    found = [job for job in read_queue(world.commands, now_s).jobs if job.id == chain.first]
    if not found:
        raise ValueError(f"first is {chain.first}: no job of that id pends or runs")
    if found[0].user != me:
        raise ValueError(f"first is {chain.first}: that job is {found[0].user}'s; allowed: one of {me}")
    attempt = Attempt(1, 1, state.job_name(1, 1), now_s, job_id=chain.first, submit_s=found[0].submit_s)
    return replace(state, attempts=(attempt,))


def _values(options: argparse.Namespace, of_sbatch: list[str]) -> dict[str, Any]:
    """The chain file's values under those of the command line."""
    values = chains.from_file(options.chain) if options.chain else {}
    given = {key: getattr(options, key) for key in (*chains.KINDS, "state") if getattr(options, key, None) is not None}
    values |= given
    if of_sbatch:
        values["options"] = [*values.get("options", []), *of_sbatch]
    return values


def _default_state(name: str) -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "baton-agent" / name


def say(text: str) -> None:
    """A line of the log on standard error. Where nobody can read it the chain goes on."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {visible(text)}\n")
        sys.stderr.flush()


# -- the other commands -----------------------------------------------------------------------------------------------


def show(options: argparse.Namespace, of_sbatch: list[str]) -> int:
    """Print a chain's table and timeline."""
    paths = [options.state] if options.state else sorted(_default_state("x").parent.glob("*/"))
    shown = 0
    for path in paths:
        state = Folder(path).load()
        if state is not None:
            print(("\n" if shown else "") + status.table(state, int(time.time())))
            shown += 1
    if not shown:
        raise ValueError(f"no chain in {options.state or _default_state('x').parent}")
    return 0


def look(options: argparse.Namespace, of_sbatch: list[str]) -> int:
    """Say what this Slurm shows of what a chain needs; 1 where none can be kept."""
    script = None if options.script is None else Path(options.script)
    asked = (*(() if script is None else chains.script_options(script)), *of_sbatch)
    limit_s = parse_limit_s(option(asked, "--time", "-t") or "") or 3600
    nodes = (option(asked, "--nodes", "-N") or "1").partition("-")[0]
    if not (nodes.isascii() and nodes.isdigit() and 0 < int(nodes) <= MOST_NODES):
        raise ValueError(f"--nodes is {nodes!r}; allowed: 1 to {MOST_NODES}")
    names = [
        option(asked, long, short) or ""
        for long, short in (("--partition", "-p"), ("--account", "-A"), ("--qos", "-q"))
    ]
    request = Request(int(nodes), limit_s, pwd.getpwuid(os.getuid()).pw_name, *names)
    commands = Commands()
    trial = None if script is None else partial(submission.try_only, commands, script, of_sbatch)
    artifact = None if options.artifact is None else Policy(options.artifact).artifact
    found = check(commands, request, now_s=time.time, trial=trial, artifact=artifact)
    for finding in found:
        print(f"{finding.level:8} {finding.subject}: {visible(finding.text)}")
    return FAILED if any(finding.level == PROBLEM for finding in found) else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    whole = argparse.ArgumentParser(
        prog="baton-agent",
        description="Keeps a chain of time-limited jobs running on Slurm.",
    )
    commands = whole.add_subparsers(dest="command", required=True)
    keeping = commands.add_parser("run", help="keep a chain; run again, it goes on where it stood")
    keeping.set_defaults(do=run)
    keeping.add_argument("script", nargs="?", help="the job script; options of sbatch may follow after --")
    keeping.add_argument("--chain", type=Path, metavar="FILE", help="a TOML file with any of what follows")
    keeping.add_argument("--links", type=int, help="jobs in a row, at most")
    keeping.add_argument("--artifact", metavar="DIR", help="the released policy; may be a link that is replaced")
    keeping.add_argument("--setting", type=float, help="value of the policy's knob (default: the one released)")
    keeping.add_argument("--name", help="of the chain and its jobs (default: the script's)")
    keeping.add_argument("--state", metavar="DIR", help="default: ~/.local/state/baton-agent/NAME")
    keeping.add_argument("--first", metavar="JOBID", help="a job of yours that runs or pends and is link 1")
    keeping.add_argument(
        "--most-overlap", type=float, dest="most_overlap_h", metavar="HOURS",
        help="cancel a successor that starts earlier than that (default: keep it)",
    )  # fmt: skip
    keeping.add_argument("--retries", type=int, help="of links that failed, in a row (default: 1)")
    keeping.add_argument("--more-status", type=int, metavar="N", help="exit status that asks for more (default: 85)")
    keeping.add_argument("--cycle", type=float, dest="cycle_s", metavar="SECONDS", help="between looks (default: 60)")
    keeping.add_argument("--metrics", type=Path, metavar="FILE", help="figures for Prometheus' textfile collector")
    keeping.add_argument("--dry-run", action="store_true", help="say what would be done; submit and write nothing")
    keeping.add_argument("--take-over", action="store_true", help="end the agent of this host that keeps the chain")
    showing = commands.add_parser("status", help="a chain's jobs as a table and a timeline")
    showing.set_defaults(do=show)
    showing.add_argument("--state", type=Path, metavar="DIR", help="default: every chain in ~/.local/state/baton-agent")
    looking = commands.add_parser("check", help="what this Slurm shows, and what stands in for what it does not")
    looking.set_defaults(do=look)
    looking.add_argument("script", nargs="?", help="try its submission too; options of sbatch may follow after --")
    looking.add_argument(
        "--artifact", type=Path, metavar="DIR", help="the released policy: what it costs that something is hidden"
    )
    return whole


if __name__ == "__main__":
    sys.exit(main())
