"""Submit, cancel and look up the links of a chain at Slurm.

A look-up asks squeue for jobs that slurmctld still remembers, and accounting for the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from agent.chains.chain import Chain, JobSignal, option
from agent.chains.links import ChainRules, outcome
from agent.chains.look import LookedUpJob
from agent.chains.state import ChainState, Folder, LinkAttempt
from agent.slurm.commands import Commands, SlurmError, answer_lines
from agent.slurm.numbers import MOST_STATUS, exit_status, time_s, whole_number
from traces.counted import counted

SQUEUE_FIELDS = ("JobID", "State", "exit_code", "SubmitTime", "StartTime", "EndTime")
SACCT_FIELDS = ("JobIDRaw", "State", "ExitCode", "Submit", "Start", "End")
MARGIN_S = 86_400  # accounting is searched from this long before the intended submission: clocks may differ
_ANSWER = re.compile(r"(\d{1,10})(?:;[^\n]*)?\n")  # without its end of line, a truncated id of another job


def arguments(chain: Chain, attempt: LinkAttempt) -> list[str]:
    """Build the argument vector that submits an attempt. The agent's options come first, so no word can end them."""
    own = [f"--job-name={attempt.name}"]
    if attempt.limit_s is not None:
        own.append(f"--time={-(-attempt.limit_s // 60)}")  # minutes, as Slurm counts
    least_s = attempt.least_s
    if least_s is None and chain.is_free and chain.least_limit_s is not None:
        least_s = attempt.limit_s  # the script's would let the link get less than planned
    if least_s is not None:
        own.append(f"--time-min={-(-least_s // 60)}")
    if attempt.nodes is not None:
        own.append(f"--nodes={attempt.nodes}")
    if attempt.qos:
        own.append(f"--qos={attempt.qos}")
    if attempt.after:
        own.append(f"--dependency={attempt.after}")
    if option(chain.submitted_options, "--chdir", "-D") is None:
        own.append(f"--chdir={chain.script.parent}")
    return ["sbatch", "--parsable", *own, *chain.options, str(chain.script)]


def variables(chain: Chain, folder: Folder, attempt: LinkAttempt, predecessor: str) -> dict[str, str]:
    """Build the environment variables that a link gets."""
    return {
        "BATON_CHAIN_DIR": str(folder.for_jobs.absolute()),
        "BATON_LINK": str(attempt.link),
        "BATON_LINKS": str(chain.links),
        "BATON_PREDECESSOR": predecessor,
    }


def submit(
    commands: Commands,
    chain: Chain,
    folder: Folder,
    attempt: LinkAttempt,
    predecessor: str,
    environment: Mapping[str, str],
) -> str:
    """Submit an attempt and return its job id. sbatch inherits the chain's lock. Raises SlurmError."""
    answer = commands.run(
        *arguments(chain, attempt),
        pass_fds=() if folder.lock_fd is None else (folder.lock_fd,),
        environment={**environment, **variables(chain, folder, attempt, predecessor)},
    )
    match = _ANSWER.fullmatch(answer)
    if match is None:
        raise SlurmError("nonsense", "sbatch", f"its answer {answer[:80]!r} is not a job id")
    return match[1]


def try_only(commands: Commands, script: Path, options: Sequence[str]) -> None:
    """Let Slurm check a script and its options without submitting. Raises SlurmError."""
    commands.run("sbatch", "--test-only", *options, str(script))


def cancel(commands: Commands, job_id: str, signal: JobSignal | None = None) -> None:
    """Cancel a job, or only send it a signal. Raises SlurmError, but not for a job that no longer exists."""
    sends = [] if signal is None else [f"--signal={signal.name}", *(["--batch"] if signal.to_batch else [])]
    try:
        commands.run("scancel", *sends, "--", job_id)
    except SlurmError as error:
        if "invalid job id" not in error.detail.lower():
            raise


def look_up(commands: Commands, attempt: LinkAttempt, first: str = "") -> LookedUpJob | None:
    """Look up an attempt's job, ended or not; None if no source knows it. Raises SlurmError.

    first: the id of the job that became link 1 without being submitted by the agent; "" if there is none. It has a name
    of its own. All others are selected by name, and by id if known: the name keeps out a job of that id on another
    cluster.
    If squeue's answer cannot be read, accounting alone can find the job, but cannot prove that there is none. A job
    that was renamed (`scontrol update JobName`) is found by its id and the time of its submission.
    """
    named = [] if attempt.job_id and attempt.job_id == first else [f"--name={attempt.name}"]
    by_id = [f"--jobs={attempt.job_id}"] if attempt.job_id else []
    found = _found(commands, attempt, [*named, *by_id])
    if found is None and named and by_id and attempt.submit_s is not None:
        renamed = _found(commands, attempt, by_id)
        return renamed if renamed and renamed.submit_s == attempt.submit_s else None
    return found


def _found(commands: Commands, attempt: LinkAttempt, which: Sequence[str]) -> LookedUpJob | None:
    try:
        found = _in_squeue(commands, which)
    except SlurmError as error:
        found = None if error.kind == "away" else _in_accounting(commands, attempt, which)
        if found is None:
            raise
    return found or _in_accounting(commands, attempt, which)


def _in_squeue(commands: Commands, which: Sequence[str]) -> LookedUpJob | None:
    layout = ",".join(f"{field}:0|" for field in SQUEUE_FIELDS)
    try:
        text = commands.run("squeue", "--noheader", "--states=all", "--me", *which, f"--Format={layout}")
    except SlurmError as error:
        if error.kind == "refused" and "invalid job id" in error.detail.lower():
            return None
        raise
    return _newest("squeue", [line.split("|")[: len(SQUEUE_FIELDS)] for line in answer_lines("squeue", text)])


def _in_accounting(commands: Commands, attempt: LinkAttempt, which: Sequence[str]) -> LookedUpJob | None:
    """Look up the job in accounting; None if it is unknown, or if there is no accounting."""
    since = datetime.fromtimestamp(attempt.intended_s - MARGIN_S, UTC)
    try:
        text = commands.run(
            "sacct", "--noheader", "--parsable2", "--allocations", *which,
            f"--starttime={since:%Y-%m-%dT%H:%M:%S}", "--endtime=now", f"--user={os.getuid()}",
            f"--format={','.join(SACCT_FIELDS)}",
        )  # fmt: skip
    except SlurmError as error:
        if error.kind == "refused":
            return None
        raise
    return _newest("sacct", [line.split("|") for line in answer_lines("sacct", text)])


def ignored_nodes(commands: Commands, rules: ChainRules, state: ChainState, report: Callable[[str], object]) -> str:
    """Return why a chain's script seems to ignore the number of nodes of its links; "" if it does not, or unknown.

    report: is called with a line if accounting does not answer.
    """
    fixed, narrow = state.fixed_nodes, [a for a in state.attempts if a.nodes and a.ran]
    for attempt in [a for a in narrow if outcome(rules, a) == "failed" or a is narrow[-1]]:
        try:
            fixed = fixed or _ignores_nodes(commands, rules, attempt)
        except SlurmError as error:
            report(f"link {attempt.link}: the nodes of its steps are not known: {error}")
    return fixed


def _ignores_nodes(commands: Commands, rules: ChainRules, attempt: LinkAttempt) -> str:
    """Return why a script seems to ignore the nodes that a link got; "" if its steps (srun) use them, or it has none.

    A link that failed counts as one that cannot run on so few. Raises SlurmError.
    """
    had = f"link {attempt.link} ({counted(attempt.nodes or 0, 'node')})"
    if outcome(rules, attempt) == "failed":
        return f"{had} failed"
    text = commands.run("sacct", "--noheader", "--parsable2", f"--jobs={attempt.job_id}", "--format=JobIDRaw,NNodes")
    rows = [line.split("|") for line in answer_lines("sacct", text)]
    try:
        used = max((whole_number(nodes) for step, nodes in rows if step.partition(".")[2].isdigit()), default=None)
    except ValueError as error:
        raise SlurmError("nonsense", "sacct", str(error)) from error
    return "" if used in (None, attempt.nodes) else f"the steps of {had} used {counted(used or 0, 'node')}"


def _newest(program: str, rows: Sequence[Sequence[str]]) -> LookedUpJob | None:
    """Return the row with the highest job id. Raises SlurmError for malformed rows."""
    found = []
    for row in rows:
        try:
            job_id, state, status, submit_s, start_s, end_s = (field.strip() for field in row)
            found.append(
                LookedUpJob(str(whole_number(job_id)), state, _exit(status), *map(time_s, (submit_s, start_s, end_s)))
            )
        except ValueError as error:
            raise SlurmError("nonsense", program, f"malformed row {'|'.join(row)[:120]!r}") from error
    return max(found, key=lambda one: int(one.job_id), default=None)


def _exit(text: str) -> int | None:
    """Parse `code:signal`, or the wait status that squeue prints; None for a job ended by a signal."""
    if text.isascii() and text.isdigit():
        status = int(text) if int(text) <= MOST_STATUS else 1
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    code, number = exit_status(text)
    return None if number and not code else code
