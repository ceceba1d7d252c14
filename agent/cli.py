"""`baton-agent`: `run` keeps a chain of jobs going, `status` shows chains, `check` tests what the agent can observe.

Exit status of `run`: 0 the chain is done; 1 it failed or Slurm could not be reached; 2 an argument is wrong (one line
on standard error, nothing submitted); 3 the user cancelled the chain; 4 the agent was stopped and the chain can resume;
5 the chain's files cannot be read or written (at the start, or for a day), and the chain can resume.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import math
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

from agent.chains import chain as chains
from agent.chains import status, submission
from agent.chains.bound import BOUND_FILE, read_bound
from agent.chains.chain import Chain, asked_limit, nodes_of, option
from agent.chains.decide import ReleasedPolicy
from agent.chains.loop import EXIT, FAILED, STOPPED, UNWRITTEN, Agent, AgentServices
from agent.chains.options import chain_options
from agent.chains.planner import limits_to_ask, plan_text, request_of
from agent.chains.state import GOING, Busy, ChainState, Folder, LinkAttempt, new_chain_state
from agent.check import GOOD, PROBLEM, Finding, check_agent, qos_choice, wrong_first, wrong_partition, wrong_size
from agent.eyes import Eyes
from agent.sight import SlurmRequest, asked_partitions
from agent.slurm.commands import Commands, SlurmError
from agent.slurm.queue import read_queue
from agent.slurm.settings import Partition, read_partitions
from agent.slurm_time import SlurmTime
from agent.streams import reader_gone
from traces.slurm.text import MOST_NODES
from traces.visible import visible

USAGE = 2
GRACE_S = 0.8  # after Ctrl-C; an agent that ends at any instant can resume from there
INTERRUPTED = 130
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)  # there is no such file, as far as the system can tell
RESUME = "interrupted; run again to resume"
NO_RELEASE = (
    "a policy released from this cluster's own log (`baton run`, then --artifact) states the risk of an interruption "
    "and chooses by it"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own, has_dashes, of_sbatch = _split(given)
    options = parser().parse_args(own)
    if has_dashes and options.command == "status":
        return _wrong("status takes no sbatch options: remove everything from -- on")
    try:
        code: int = options.do(options, of_sbatch)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return reader_gone()
    except KeyboardInterrupt:
        sys.stderr.write(f"\nbaton-agent: {RESUME}\n")
        return INTERRUPTED
    except (ValueError, Busy, OSError) as error:
        return _wrong(_text(error))
    except SlurmError as error:
        sys.stderr.write(f"baton-agent: {visible(str(error))}\n")
        return FAILED


def _wrong(text: str) -> int:
    sys.stderr.write(f"baton-agent: {visible(' '.join(text.split()))}\n")
    return USAGE


def _text(error: Exception) -> str:
    return f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)


def _split(given: list[str]) -> tuple[list[str], bool, list[str]]:
    """Split the arguments at the first `--`; return (before, whether there is one, after)."""
    if "--" not in given:
        return given, False, []
    place = given.index("--")
    return given[:place], True, given[place + 1 :]


# -- run --------------------------------------------------------------------------------------------------------------


def run(options: argparse.Namespace, of_sbatch: list[str]) -> int:
    """Keep a chain going until it is over."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: _interrupt(stop))
    commands = Commands()
    world = AgentServices(
        commands, SlurmTime(commands), stop.wait, say, partial(Eyes, commands), os.environ, stop.is_set
    )  # fmt: skip
    folder = None
    try:
        values = _values(options, of_sbatch)
        folder = _folder(values)
        chain = chains.make(values)
        return keep(chain, folder, world, dry_run=options.dry_run, take_over=options.take_over, metrics=options.metrics)
    except (OSError, ValueError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError) or not (folder.may_hold_chain if folder else cause.errno not in ABSENT):
            raise
        _wrong(f"{_text(error)}; run again to resume the chain")
        return UNWRITTEN


def _interrupt(stop: threading.Event) -> None:
    """Handle Ctrl-C: end orderly, or after GRACE_S even in the middle of a call to Slurm."""
    stop.set()
    say(RESUME)
    timer = threading.Timer(GRACE_S, os._exit, (STOPPED,))
    timer.daemon = True
    timer.start()


def keep(
    chain: Chain,
    folder: Folder,
    world: AgentServices,
    *,
    dry_run: bool = False,
    take_over: bool = False,
    metrics: Path | None = None,
) -> int:
    """Keep a chain going; return the exit status. Raises ValueError, Busy, OSError, SlurmError."""
    known = folder.load() if folder.may_hold_chain else None
    policy = ReleasedPolicy(chain.artifact, chain.setting, must_load=known is None or not known.attempts)
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
        elif why := _another_chain(folder, state, chain):
            raise ValueError(why)
        elif state.status != GOING and not any(a.is_alive and a.withdrawn for a in state.attempts):
            world.say(
                f"the chain is {state.status}: {state.why}; for a new one give another --state, or remove {folder.path}"
            )
            return EXIT[state.status]
        state = replace(state, links=chain.links)
        decides = plan_text(chain) or (policy.name if policy.path else f"{policy.name}; {NO_RELEASE}")
        world.say(f"chain {state.name} ({state.chain}) in {folder.path}, {decides}")
        if policy.problem:
            world.say(f"the policy cannot be loaded; the start estimate decides until it can be: {policy.problem}")
        return Agent(chain, folder, policy, world, state, dry_run=dry_run, metrics=metrics).run()
    finally:
        folder.unlock()


def _another_chain(folder: Folder, state: ChainState | None, chain: Chain) -> str:
    """Explain why the folder's state belongs to another chain; "" if it does not, or there is no state."""
    if state is None or state.script == str(chain.script):
        return ""
    return f"{folder.path} holds the chain of {state.script}; give another --state for {chain.script}"


def check_with_slurm(chain: Chain, policy: ReleasedPolicy, commands: Commands) -> None:
    """Check the chain's request against the cluster. Raises ValueError, and SlurmError if Slurm does not answer."""
    try:
        partitions = read_partitions(commands)
    except SlurmError as error:
        if not error.is_denied:
            raise
    else:
        _check_partitions(chain, policy, partitions)
        asked = request_of(chain.submitted_options, _me(), chain.limit_s)
        if why := wrong_partition(commands, partitions, asked):
            raise ValueError(why)
        if chain.qos_choice:
            qos_choice(commands, partitions, asked, chain.qos_choice)
    try:
        submission.try_only(commands, chain.script, chain.options)
    except SlurmError as error:
        if error.kind != "refused":
            raise
        raise ValueError(f"{chain.script}: Slurm would reject this job: {error.detail}") from error


def _check_partitions(chain: Chain, policy: ReleasedPolicy, partitions: dict[str, Partition]) -> None:
    """Raise ValueError if the request exceeds its partition's limit or the policy is of a cluster of another size."""
    names = option(chain.submitted_options, "--partition", "-p") or ""
    longest = max(asked_partitions(partitions, names), key=lambda partition: partition.limit_s)
    if chain.limit_s > longest.limit_s:
        hours = chain.limit_s / 3600, longest.limit_s / 3600
        raise ValueError(
            f"the time limit is {hours[0]:g} h, but partition {longest.name} allows at most {hours[1]:g} h: "
            "lower --time or choose another partition"
        )
    if chain.is_planned:
        limits_to_ask(chain, chain.limit_s, longest.limit_s)  # raises ValueError if there is none
    if why := wrong_size(policy.artifact, partitions, names):
        raise ValueError(f"{policy.path}: {why}")


def _first_state(chain: Chain, world: AgentServices) -> ChainState:
    """Return the state of a new chain; with `first`, that job is its first link."""
    state = new_chain_state(chain.name, str(chain.script), chain.links)
    if not chain.first:
        return state
    now_s = world.time.now_s()
    jobs = read_queue(world.commands, now_s).jobs
    if why := wrong_first(chain.first, jobs, _me()):
        raise ValueError(why)
    found = next(job for job in jobs if job.id == chain.first)
    attempt = LinkAttempt(1, 1, state.job_name(1, 1), now_s, job_id=chain.first, submit_s=found.submit_s)
    return replace(state, attempts=(attempt,))


def _me() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _values(options: argparse.Namespace, of_sbatch: list[str]) -> dict[str, Any]:
    """Merge the values of the chain file with those of the command line, which win."""
    values = chains.from_file(options.chain) if options.chain else {}
    given = {key: getattr(options, key) for key in (*chains.KINDS, "state") if getattr(options, key, None) is not None}
    values |= given
    if of_sbatch:
        values["options"] = [*values.get("options", []), *of_sbatch]
    return values


def _folder(values: dict[str, Any]) -> Folder:
    """Return the folder of the state of the chain with these values."""
    return Folder(Path(values["state"]) if values.get("state") else _default_state(chains.name_of(values)))


def _default_state(name: str) -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "baton-agent" / name


def say(text: str) -> None:
    """Write a log line to standard error. A failed write does not stop the chain."""
    with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed
        sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {visible(text)}\n")
        sys.stderr.flush()


# -- the other commands -----------------------------------------------------------------------------------------------


def show(options: argparse.Namespace, of_sbatch: list[str]) -> int:
    """Print the table and timeline of each chain."""
    paths = [options.state] if options.state else sorted(_default_state("x").parent.glob("*/"))
    shown = 0
    for path in paths:
        state = Folder(path).load()
        if state is not None:
            print(("\n" if shown else "") + status.table(state, int(time.time())))
            shown += 1
    if not shown:
        raise ValueError(f"no chain in {options.state or _default_state('x').parent}")
    if bound := read_bound(BOUND_FILE).text:
        print(f"\n{bound} ({BOUND_FILE})")
    return 0


def look(options: argparse.Namespace, of_sbatch: list[str]) -> int:
    """Report what the agent can observe on this Slurm and what `run` would reject; return 1 if no chain can run."""
    values = _values(options, of_sbatch)
    policy = ReleasedPolicy(Path(values["artifact"]) if "artifact" in values else None, values.get("setting"))
    chain = None
    found = [Finding(GOOD, "policy", policy.name if policy.path else f"{policy.name}; {NO_RELEASE}")]
    if bound := read_bound(BOUND_FILE).text:
        found.append(Finding(GOOD, "bound", f"{bound} ({BOUND_FILE})"))
    if "script" in values:
        folder, chain = _folder(values), chains.make({"links": 1, **values})
        if why := _another_chain(folder, folder.load(), chain):
            found.append(Finding(PROBLEM, "state", why))
        found.append(Finding(GOOD, "plan" if plan_text(chain) else "overlap", plan_text(chain) or _overlap(chain)))
    commands = Commands()
    trial = None if chain is None else partial(submission.try_only, commands, chain.script, chain.options)
    first, qos = ("", ()) if chain is None else (chain.first, chain.qos_choice)
    request = _request(chain, values.get("options", []))
    limits = partial(limits_to_ask, chain, chain.limit_s) if chain is not None and chain.is_planned else None
    seen = check_agent(
        commands, request, now_s=time.time, trial=trial, artifact=policy.artifact, first=first, qos=qos, limits=limits
    )
    found = seen if len(seen) == 1 else [*seen, *found]  # a single finding means that Slurm cannot be read
    for finding in found:
        print(f"{finding.level:8} {finding.subject}: {visible(finding.text)}")
    return FAILED if any(finding.level == PROBLEM for finding in found) else 0


def _overlap(chain: Chain) -> str:
    if chain.most_overlap_h == math.inf:
        return "no successor is cancelled for starting early (--most-overlap UNLIMITED)"
    return f"a successor that starts more than {chain.most_overlap_h:g} h early is cancelled (--most-overlap)"


def _request(chain: Chain | None, of_sbatch: list[str]) -> SlurmRequest:
    """Build the request of a link; without a chain, one node for 1 h and the sbatch options. Raises ValueError."""
    asked = of_sbatch if chain is None else chain.submitted_options
    limit_s = asked_limit(asked) or 3600
    if nodes_of(asked) is None:
        nodes = option(asked, "--nodes", "-N")
        raise ValueError(f"invalid --nodes {nodes!r} in the sbatch options; allowed: 1 to {MOST_NODES}")
    return request_of(asked, _me(), limit_s)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="baton-agent",
        description="Keep a chain of time-limited jobs running on Slurm.",
    )
    commands = root.add_subparsers(dest="command", required=True)
    of_chain = chain_options()
    running = commands.add_parser("run", parents=[of_chain], help="keep a chain going; run again to resume it")
    running.set_defaults(do=run)
    running.add_argument("--metrics", type=Path, metavar="FILE", help="write metrics for Prometheus (textfile format)")
    running.add_argument("--dry-run", action="store_true", help="print what would be done; submit and write nothing")
    running.add_argument(
        "--take-over", action="store_true", help="stop the agent on this host that keeps the chain, and continue it"
    )
    showing = commands.add_parser("status", help="show a chain's jobs as a table and a timeline")
    showing.set_defaults(do=show)
    showing.add_argument(
        "--state", type=Path, metavar="DIR", help="the chain's folder (default: all in ~/.local/state/baton-agent)"
    )
    looking = commands.add_parser(
        "check", parents=[of_chain], help="report what the agent can observe here, and whether `run` would fail"
    )
    looking.set_defaults(do=look)
    return root


if __name__ == "__main__":
    sys.exit(main())
