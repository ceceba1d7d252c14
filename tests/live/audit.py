"""Whether agents lost a chain or submitted a link twice, told by Slurm's accounting and not by the agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.chains.state import ChainState, Folder
from tests.live.keeping import Kept
from tests.live.slurm import Slurm

Row = tuple[str, str, str, str]  # job id, name, user, state


@dataclass(frozen=True)
class Audit:
    """What is wrong with some chains, a line each; none of both where all is well.

    lost: links that never ran to their limit, jobs that no agent knows, chains that are not done. doubled: names that
    were submitted twice, links that ran twice, jobs that nobody withdrew and that are not a link's one run. strangers:
    jobs of another user than the agents'.
    """

    lost: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()
    strangers: tuple[str, ...] = ()


def audit(slurm: Slurm, kept: Sequence[Kept]) -> Audit:
    """Hold the chains, all ended, against the accounting."""
    rows = _accounted(slurm)
    found = [of_chain(one, [row for row in rows if row[1].startswith(f"{one.name}-")]) for one in kept]
    return Audit(*(tuple(line for of_one in found for line in of_one[which]) for which in range(3)))


def last_line(policy: Mapping[str, float], reactive: Mapping[str, float], kills: int, wrong: Audit) -> str:
    """What a whole run came to, all counted in it. The figures: `tests.live.chains.figures`."""
    return (
        f"agent: {policy['chains'] + reactive['chains']:.0f} chains, interruption {policy['interruption_h']:.2f} h "
        f"(reactive {reactive['interruption_h']:.2f} h), overlap {policy['overlap_h']:.2f} h, {kills} kills, "
        f"{len(wrong.lost)} lost, {len(wrong.doubled)} doubled"
    )


def of_chain(one: Kept, rows: list[Row]) -> tuple[list[str], list[str], list[str]]:
    """The three lists of one chain, from its jobs as accounting has them."""
    state = Folder(one.state).load()
    if state is None:
        return [f"{one.name}: no state"], [], []
    return (
        _lost(one, state, rows),
        _doubled(one, state, rows),
        [f"{one.name}: job {row[0]} is {row[2]}'s" for row in rows if row[2] != one.user],
    )


def _lost(one: Kept, state: ChainState, rows: list[Row]) -> list[str]:
    known = {attempt.job_id: attempt.link for attempt in state.attempts if attempt.job_id}
    ran = {known[job_id] for job_id, _, _, how in rows if how == "TIMEOUT" and job_id in known}
    return [
        *(f"{one.name}: job {row[0]} is known to no agent" for row in rows if row[0] not in known),
        *(f"{one.name}: link {link} never ran to its limit" for link in range(1, one.links + 1) if link not in ran),
        *([f"{one.name}: the chain is {state.status}"] if state.status != "done" else []),
    ]


def _doubled(one: Kept, state: ChainState, rows: list[Row]) -> list[str]:
    known = {attempt.job_id: attempt for attempt in state.attempts if attempt.job_id}
    names = Counter(name for _, name, _, _ in rows)
    runs = Counter(known[job_id].link for job_id, _, _, how in rows if how == "TIMEOUT" and job_id in known)
    return [
        *(f"{one.name}: {name} was submitted {count} times" for name, count in names.items() if count > 1),
        *(f"{one.name}: link {link} ran {count} times" for link, count in runs.items() if count > 1),
        *(
            f"{one.name}: job {job_id} ended {how} and nobody withdrew it"
            for job_id, _, _, how in rows
            if how != "TIMEOUT" and job_id in known and not known[job_id].withdrawn
        ),
    ]


def _accounted(slurm: Slurm) -> list[Row]:
    """Every job but those of the background."""
    fields, from_to = "JobIDRaw,JobName,User,State", ("-S", "2026-12-01", "-E", "2027-12-01")
    command = ("sacct", "-a", "-n", "-P", "-X", "-o", fields, *from_to)
    rows: list[Row] = []

    def settled() -> bool:
        lines = (line.split("|") for line in slurm.run(*command).splitlines())
        rows[:] = [(a, b, c, how.split()[0]) for a, b, c, how in lines if b != "background"]
        return all(row[3] not in ("RUNNING", "PENDING") for row in rows)

    slurm.wait(30, settled, "the accounting to catch up", every=0.5)
    return rows
