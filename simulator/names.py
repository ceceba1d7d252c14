"""Names that a replay is asked for by: schedulers, what they plan with, when they look. Imports no kernel.

A name that is wrong is refused here before anything is read or compiled.
"""

from __future__ import annotations

from traces.errors import InputError

# Name -> module of the flat schedulers; a module's docstring is its page in docs/schedulers.
SCHEDULERS: dict[str, str] = {
    "fifo": "simulator.flat.schedulers.fifo",
    "easy": "simulator.flat.schedulers.easy",
    "conservative": "simulator.flat.schedulers.conservative",
    "mirage": "simulator.flat.schedulers.mirage",
    "sjf": "simulator.flat.schedulers.sjf",
}
SLURM = "slurm"  # a kernel of its own, `simulator.slurm`
ESTIMATES = ("limit", "exact")
PASSES = ("event", "instant")


def check_names(*, scheduler: str, estimate: str = "limit", pass_: str = "event", slurm: bool = False) -> None:
    """Raises InputError for a name that is not known, listing those that are, and for names that do not go together.

    `slurm` says whether the scheduler of that name is among those allowed.
    """
    for what, value, allowed in (
        ("scheduler", scheduler, (*SCHEDULERS, SLURM) if slurm else tuple(SCHEDULERS)),
        ("estimate", estimate, ESTIMATES),
        ("pass", pass_, PASSES),
    ):
        if value not in allowed:
            raise InputError(f"unknown {what} {value!r}: known are {', '.join(allowed)}")
    if scheduler in ("mirage", SLURM) and estimate == "exact":
        raise InputError(
            f"scheduler {scheduler!r} plans with time limits only: use estimate 'limit', or another scheduler"
        )
