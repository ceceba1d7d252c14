"""Raw logs that lack something, as an operator would drop them in: name -> files, settings, in a folder."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from traces.clusters import ClusterSettings
from traces.generate.logs import generate_philly

NAME = "odd"
HEAD = "JobID|User|Account|Partition|Submit|Eligible|Start|End|State|AllocNodes|AllocTRES|TimelimitRaw|ExitCode"
Odd = tuple[list[Path], ClusterSettings]


def row(
    number: int, submit: datetime, *, wait_s: int = 60, run_s: int = 3600, state: str = "COMPLETED",
    partition: str = "gpu", gpus: int | None = 4, nodes: int = 1, user: str = "ann", code: str = "0:0",
) -> str:  # fmt: skip
    """One line of sacct under HEAD; run_s under 0: cancelled in the queue."""
    start, ran = submit + timedelta(seconds=wait_s), run_s >= 0
    end = start + timedelta(seconds=max(run_s, 0))
    tres = "" if not ran else f"cpu=8,node={nodes}" + (f",gres/gpu={gpus}" if gpus is not None else "")
    cells = (
        number, user, "lab", partition, _time(submit), _time(submit), _time(start) if ran else "None", _time(end),
        state, nodes if ran else 0, tres, 1440, code,
    )  # fmt: skip
    return "|".join(map(str, cells))


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


DAY = datetime(2023, 2, 6)


def sacct(folder: Path, rows: list[str], head: str = HEAD) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "sacct.txt"
    path.write_text("\n".join([head, *rows]) + "\n", encoding="utf-8")
    return [path]


def no_gpu_column(folder: Path) -> Odd:
    """Neither TRES nor node counts of GPUs, and settings that do not know them."""
    head = "JobID|User|Partition|Submit|Start|End|State|AllocNodes|ExitCode"
    rows = [
        f"{i}|ann|p{i % 2}|{_time(DAY + timedelta(hours=i))}|{_time(DAY + timedelta(hours=i, minutes=5))}|"
        f"{_time(DAY + timedelta(hours=i + 2))}|{'FAILED' if i % 3 else 'COMPLETED'}|{1 + i % 2}|{i % 3}:0"
        for i in range(1, 30)
    ]
    return sacct(folder, rows, head), ClusterSettings(NAME)


def no_samples(folder: Path) -> Odd:
    """Philly's job log and machine list without the three utilization files."""
    generate_philly(folder, jobs=80, weeks=1, utilization_days=1, machines=4, seed=5, compress=False)
    for path in folder.glob("cluster_*_util*"):
        path.unlink()
    return [folder], ClusterSettings(NAME, timezone="America/Los_Angeles")


def one_job(folder: Path) -> Odd:
    return sacct(folder, [row(1, DAY)]), ClusterSettings(NAME)


def one_day(folder: Path) -> Odd:
    rows = [row(i, DAY + timedelta(minutes=20 * i), gpus=1 + i % 8, partition=f"p{i % 2}") for i in range(1, 60)]
    return sacct(folder, rows), ClusterSettings(NAME, nodes=12, gpus_per_node=8)


def all_cancelled(folder: Path) -> Odd:
    rows = [row(i, DAY + timedelta(hours=i), run_s=-1, state="CANCELLED by 1000") for i in range(1, 20)]
    return sacct(folder, rows), ClusterSettings(NAME, nodes=4, gpus_per_node=8)


def no_quota(folder: Path) -> Odd:
    """Of two partitions one has a given quota; the other's is inferred."""
    rows = [
        row(i, DAY + timedelta(minutes=10 * i), wait_s=900, gpus=4, partition="given" if i % 2 else "free")
        for i in range(1, 40)
    ]
    return sacct(folder, rows), ClusterSettings(NAME, nodes=4, gpus_per_node=8, quotas={"given": 8})


def gap_of_weeks(folder: Path) -> Odd:
    rows = [
        row(100 * week + i, DAY + timedelta(weeks=week, hours=i), run_s=1800 * (1 + week), gpus=2)
        for week in (0, 1, 9)
        for i in range(20)
    ]
    return sacct(folder, rows), ClusterSettings(NAME, nodes=2, gpus_per_node=8)


def one_name_for_two(folder: Path) -> Odd:
    """A Slurm log and a Philly log under one cluster name."""
    generate_philly(folder / "philly", jobs=60, weeks=1, utilization_days=1, machines=3, seed=4, compress=False)
    rows = [row(i, datetime(2017, 11, 4), state="FAILED", code="1:0") for i in range(1, 9)]
    return [folder / "philly", *sacct(folder / "slurm", rows)], ClusterSettings(NAME)


ODD: dict[str, Callable[[Path], Odd]] = {
    f.__name__: f
    for f in (
        no_gpu_column, no_samples, one_job, one_day, all_cancelled, no_quota, gap_of_weeks, one_name_for_two,
    )
}  # fmt: skip
