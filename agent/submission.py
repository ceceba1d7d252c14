"""The links of a chain at Slurm: submit, cancel, and look up by name what became of one.

The looking up asks squeue for what slurmctld still remembers, and accounting for the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from agent.chain import Chain, option
from agent.keeper import LookedUpJob
from agent.slurm.commands import Commands, SlurmError
from agent.state import Folder, LinkAttempt
from traces.slurm.text import NO_TIME, parse_exit_code

SQUEUE_FIELDS = ("JobID", "State", "exit_code", "SubmitTime", "StartTime", "EndTime")
SACCT_FIELDS = ("JobIDRaw", "State", "ExitCode", "Submit", "Start", "End")
MARGIN_S = 86_400  # before the intent, from which accounting is searched: clocks may differ
_ANSWER = re.compile(r"(\d{1,10})(?:;[^\n]*)?\n?")


def arguments(chain: Chain, attempt: LinkAttempt) -> list[str]:
    """The argument vector that submits an attempt; what the agent needs stands first, where no word can end options."""
    made = [f"--job-name={attempt.name}"]
    if attempt.after:
        made.append(f"--dependency={attempt.after}")
    if option(chain.submitted_options, "--chdir", "-D") is None:
        made.append(f"--chdir={chain.script.parent}")
    return ["sbatch", "--parsable", *made, *chain.options, str(chain.script)]


def variables(chain: Chain, folder: Folder, attempt: LinkAttempt, predecessor: str) -> dict[str, str]:
    """What a link finds in its environment."""
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
    """Submit an attempt; the id of its job. The chain's lock is held by sbatch too. Raises SlurmError."""
    answer = commands.run(
        *arguments(chain, attempt),
        pass_fds=() if folder.lock_fd is None else (folder.lock_fd,),
        environment={**environment, **variables(chain, folder, attempt, predecessor)},
    )
    match = _ANSWER.fullmatch(answer)
    if match is None:
        raise SlurmError("nonsense", "sbatch", f"its answer is {answer[:80]!r}, no job id")
    return match[1]


def try_only(commands: Commands, script: Path, options: Sequence[str]) -> None:
    """Let Slurm check what a script and options ask for, without a submission. Raises SlurmError."""
    commands.run("sbatch", "--test-only", *options, str(script))


def cancel(commands: Commands, job_id: str) -> None:
    """Cancel a job. Raises SlurmError; one that has gone is no error."""
    try:
        commands.run("scancel", job_id)
    except SlurmError as error:
        if "invalid job id" not in error.detail.lower():
            raise


def look_up(commands: Commands, attempt: LinkAttempt) -> LookedUpJob | None:
    """What Slurm knows of an attempt's job, ended or not; None where no source knows it. Raises SlurmError.

    Where squeue answers what cannot be read, accounting alone may say what the job is, but not that there is none.
    """
    try:
        found = _in_squeue(commands, attempt)
    except SlurmError as error:
        found = None if error.kind == "away" else _in_accounting(commands, attempt)
        if found is None:
            raise
    return found or _in_accounting(commands, attempt)


def _in_squeue(commands: Commands, attempt: LinkAttempt) -> LookedUpJob | None:
    which = f"--jobs={attempt.job_id}" if attempt.job_id else f"--name={attempt.name}"
    layout = ",".join(f"{field}:0|" for field in SQUEUE_FIELDS)
    try:
        text = commands.run("squeue", "--noheader", "--states=all", "--me", which, f"--Format={layout}")
    except SlurmError as error:
        if error.kind == "refused" and "invalid job id" in error.detail.lower():
            return None
        raise
    return _newest("squeue", [line.split("|")[: len(SQUEUE_FIELDS)] for line in text.splitlines()])


def _in_accounting(commands: Commands, attempt: LinkAttempt) -> LookedUpJob | None:
    """None also where there is no accounting: then slurmctld's own memory has to do."""
    which = f"--jobs={attempt.job_id}" if attempt.job_id else f"--name={attempt.name}"
    since = datetime.fromtimestamp(attempt.intended_s - MARGIN_S, UTC)
    try:
        text = commands.run(
            "sacct", "--noheader", "--parsable2", "--allocations", which, f"--starttime={since:%Y-%m-%dT%H:%M:%S}",
            "--endtime=now", f"--user={os.getuid()}", f"--format={','.join(SACCT_FIELDS)}",
        )  # fmt: skip
    except SlurmError as error:
        if error.kind == "refused":
            return None
        raise
    return _newest("sacct", [line.split("|") for line in text.splitlines()])


def _newest(program: str, rows: Sequence[Sequence[str]]) -> LookedUpJob | None:
    """The row of the highest job id. Raises SlurmError for rows of another form."""
    found = []
    for row in rows:
        try:
            job_id, state, status, submit_s, start_s, end_s = (field.strip() for field in row)
            found.append(LookedUpJob(str(int(job_id)), state, _exit(status), *map(_time, (submit_s, start_s, end_s))))
        except ValueError as error:
            raise SlurmError("nonsense", program, f"row {'|'.join(row)[:120]!r}") from error
    return max(found, key=lambda one: int(one.job_id), default=None)


def _exit(text: str) -> int | None:
    """Exit status of `code:signal`, or of the wait status that squeue prints; None for a job that a signal ended."""
    if text.isascii() and text.isdigit():
        status = int(text) if int(text) < 1 << 16 else 1
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
    code, number = parse_exit_code(text)
    return None if number and not code else code


def _time(text: str) -> int | None:
    return None if text in NO_TIME else int(text)
