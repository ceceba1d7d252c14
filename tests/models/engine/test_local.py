"""The engine of this machine: where short, compiled and other work runs, and what stops it."""

from __future__ import annotations

import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from models.engine.local import each_here
from models.engine.work import SHORT_S, Task, Work
from traces.errors import InputError

two = partial(each_here, processes=2)


def place(_shared: object, argument: int) -> tuple[int, int, int]:
    time.sleep(0.05)
    return argument, os.getpid(), threading.get_ident()


def refused(_shared: object, argument: int) -> int:
    if argument == 1:
        raise InputError("one is refused")
    return argument


def noted(folder: Path, argument: int) -> int:
    (folder / str(argument)).touch()
    time.sleep(0.2 * argument)
    return argument


def tasks(count: int) -> list[Task]:
    return [Task(f"task {one}", one, "task") for one in range(count)]


@pytest.mark.parametrize(
    ("about_s", "is_compiled", "processes", "threads"),
    [(SHORT_S / 2, False, 1, 1), (SHORT_S, False, 2, 2), (SHORT_S / 2, True, 1, 2), (SHORT_S, True, 1, 2)],
)
def test_short_work_stays_in_this_thread_and_compiled_work_in_this_process(
    about_s: float, is_compiled: bool, processes: int, threads: int
) -> None:
    work = Work(place, tasks(4), is_compiled=is_compiled, about_s=about_s)
    found = dict(two(work, 9))
    assert {at: value[0] for at, value in found.items()} == {at: at for at in range(4)}
    pids = {pid for _value, pid, _thread in found.values()}
    assert len(pids) == processes and (os.getpid() in pids) == (processes == 1)
    assert len({(pid, thread) for _value, pid, thread in found.values()}) == threads


@pytest.mark.parametrize("is_compiled", [False, True])
def test_what_a_task_raises_is_raised_wherever_it_runs(is_compiled: bool) -> None:
    work = Work(refused, tasks(3), is_compiled=is_compiled, about_s=0.0)
    with pytest.raises(InputError, match="one is refused"):
        list(two(work, 9))


def test_who_stops_listening_leaves_the_rest_undone(tmp_path: Path) -> None:
    results = two(Work(noted, tasks(9), tmp_path, is_compiled=True), 9)
    assert next(results) == (0, 0)
    results.close()  # type: ignore[attr-defined]  # waits for the tasks that run
    assert len(list(tmp_path.iterdir())) < 9


def test_compiled_work_is_compiled_once_before_threads_begin() -> None:
    seen: list[int] = []
    work = Work(place, tasks(2), 7, prepare=lambda _shared: seen.append(threading.get_ident()), is_compiled=True)
    list(two(work, 9))
    assert seen == [threading.get_ident()]
    list(each_here(work, 1))  # one thread compiles as it goes
    assert len(seen) == 1
