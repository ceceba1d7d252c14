"""The names of schedulers, run-time estimates and pass times that a replay accepts. Imports no kernel.

A wrong name is refused here before anything is read or compiled.
"""

from __future__ import annotations

from collections.abc import Sequence

from traces.errors import InputError

# Name -> module of the flat schedulers. A module's docstring is its page in docs/schedulers.
SCHEDULERS: dict[str, str] = {
    "fifo": "simulator.flat.schedulers.fifo",
    "easy": "simulator.flat.schedulers.easy",
    "conservative": "simulator.flat.schedulers.conservative",
    "mirage": "simulator.flat.schedulers.mirage",
    "sjf": "simulator.flat.schedulers.sjf",
}
SLURM = "slurm"  # has a separate kernel, `simulator.slurm`
RECORDED = "recorded"  # the rules that the log shows, `models.what_if.recorded`
ESTIMATES = ("limit", "exact")
PASSES = ("event", "instant")


def gpu_schedulers() -> tuple[str, ...]:
    """Return the names of the schedulers that share GPUs (`simulator.gpu`)."""
    from simulator.gpu.registry import SCHEDULERS as OF_GPUS

    return tuple(OF_GPUS)


def check_together(wanted: Sequence[str]) -> None:
    """Raise InputError if no single simulator replays all of these schedulers.

    Some schedulers allocate whole nodes, some share GPUs; `fifo` and `sjf` do both. RECORDED is the base of those that
    can run in the machine of the record.
    """
    of_gpus = gpu_schedulers()
    if RECORDED in wanted:
        _check_recorded(wanted)
        return
    for name in wanted:
        if name == SLURM:
            raise InputError("`baton whatif` does not replay 'slurm': use `baton simulate --compare slurm,easy`")
        if name not in SCHEDULERS and name not in of_gpus:
            raise InputError(
                f"unknown scheduler {name!r}: known are {', '.join(of_gpus)}, which share GPUs, and "
                f"{', '.join(SCHEDULERS)}, which allocate whole nodes; {RECORDED} is the cluster's own"
            )
    nodes_only = [name for name in wanted if name not in of_gpus]
    gpus_only = [name for name in wanted if name not in SCHEDULERS]
    if nodes_only and gpus_only:
        raise InputError(
            f"{nodes_only[0]} allocates whole nodes and {gpus_only[0]} shares GPUs: choose one kind at a time"
        )


def _check_recorded(wanted: Sequence[str]) -> None:
    """Raise InputError for schedulers that cannot be compared with the cluster's own."""
    from simulator.gpu.registry import IN_RECORDED_MACHINE, NOT_IN_RECORDED_MACHINE

    if wanted[0] != RECORDED:
        raise InputError(f"{RECORDED!r} is the base of every comparison: write it first, as in {RECORDED},tiresias")
    for name in wanted[1:]:
        if name not in IN_RECORDED_MACHINE:
            why = NOT_IN_RECORDED_MACHINE.get(name, "it does not run in the machine of the record")
            raise InputError(
                f"{name!r} cannot be compared with {RECORDED!r}: {why}; {', '.join(IN_RECORDED_MACHINE)} can"
            )
    if len(wanted) < 2:
        raise InputError(
            f"{RECORDED!r} alone has nothing to compare: add schedulers, as in {RECORDED},tiresias, or leave "
            "--schedulers out"
        )


def check_names(*, scheduler: str, estimate: str = "limit", pass_: str = "event", slurm: bool = False) -> None:
    """Raise InputError for an unknown name, listing the known ones, and for names that cannot be combined.

    `slurm` says whether the scheduler `slurm` is allowed.
    """
    for what, value, allowed in (
        ("scheduler", scheduler, (*SCHEDULERS, SLURM) if slurm else tuple(SCHEDULERS)),
        ("estimate", estimate, ESTIMATES),
        ("pass", pass_, PASSES),
    ):
        if what == "scheduler" and value not in allowed and value in gpu_schedulers():
            raise InputError(
                f"scheduler {value!r} shares GPUs: use `baton whatif --schedulers {value}`, or here one of "
                f"{', '.join(allowed)}"
            )
        if value not in allowed:
            raise InputError(f"unknown {what} {value!r}: known are {', '.join(allowed)}")
    if scheduler in ("mirage", SLURM) and estimate == "exact":
        raise InputError(
            f"scheduler {scheduler!r} plans with time limits only: use estimate 'limit', or another scheduler"
        )
