"""The scratch folder and a worker's chunk, without a Slurm: answers, refusals, chunks and the sweep."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from models.engine import scratch as module
from models.engine.chunk import Chunk, run_chunk
from models.engine.scratch import Answer, Scratch, StoredWork, chunks
from models.engine.slurm import chunk_s
from models.engine.work import Task, Work
from traces.errors import InputError, WorkError


def halved(shared: int, argument: int) -> int:
    if argument % 2:
        raise ValueError(f"{argument} is odd")
    return argument // 2 + shared


def signalled(_shared: int, argument: int) -> int:
    os.kill(os.getpid(), signal.SIGUSR2)
    time.sleep(0.01)
    return argument


def noted(shared: Any) -> None:
    with Path(os.environ["NOTES"]).open("a") as notes:
        notes.write(f"{shared}\n")


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return Scratch(tmp_path / "scratch")


def work(*arguments: int, shared: int = 0) -> Work:
    return Work(halved, [Task(f"half of {one}", one, "half") for one in arguments], shared)


def chunk(scratch: Scratch, stored: StoredWork) -> Chunk:
    tasks = tuple(zip(stored.keys, stored.arguments, strict=True))
    return Chunk(str(scratch.root), stored.function, stored.prepare, (), stored.code, stored.shared, tasks)


def test_a_chunk_answers_each_task_once_with_its_result_or_its_exception(scratch: Scratch) -> None:
    stored = scratch.store(work(4, 3))
    assert run_chunk(chunk(scratch, stored)) == 2 and run_chunk(chunk(scratch, stored)) == 0
    good, bad = map(scratch.answer, stored.keys)
    assert (good.result, good.error) == (2, None) and repr(bad.error) == "ValueError('3 is odd')"
    scratch.forget_errors(stored.keys)
    assert scratch.answered() == {stored.keys[0]}


def test_the_signal_before_the_limit_of_a_job_does_not_become_the_answer_of_a_task(scratch: Scratch) -> None:
    """submitit handles it by an exception, wherever the task is."""
    before = signal.signal(signal.SIGUSR2, lambda *_: 1 / 0)
    try:
        base = work(2)
        stored = scratch.store(Work(signalled, base.tasks))
        run_chunk(chunk(scratch, stored))
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert scratch.answer(stored.keys[0]).result == 2


def test_the_key_depends_on_all_that_the_result_depends_on(scratch: Scratch) -> None:
    def key(one: Work) -> str:
        return scratch.store(one).keys[0]

    base = work(4)
    others = [work(2), work(4, shared=1), Work(base.function, base.tasks, base.shared, is_exact=True)]
    more = Work(base.function, base.tasks, base.shared, ["models.provisioning.policies.forest"])
    assert len({key(base), key(more), *map(key, others)}) == 5
    assert key(base) == key(work(4))


def test_a_worker_with_other_code_refuses_and_names_it(scratch: Scratch) -> None:
    stored = scratch.store(work(4))
    there = {**scratch.get(stored.code), "numpy": "1.0", __name__: "0" * 64}
    run_chunk(chunk(scratch, stored._replace(code=scratch.put(there))))
    error = scratch.answer(stored.keys[0]).error
    assert isinstance(error, WorkError)
    assert "other code than the driver: numpy (1.0; here absent), " in str(error)
    assert f"{__name__} (000000000000; here " in str(error)


def test_workers_of_one_processor_type_prepare_once(scratch: Scratch, monkeypatch: pytest.MonkeyPatch) -> None:
    notes = scratch.root / "notes"
    monkeypatch.setenv("NOTES", str(notes))
    base = work(2, 4, shared=5)
    stored = scratch.store(Work(base.function, base.tasks, base.shared, prepare=noted))
    for key, argument in zip(stored.keys, stored.arguments, strict=True):
        run_chunk(chunk(scratch, stored)._replace(tasks=((key, argument),)))
    assert notes.read_text() == "5\n" and scratch.answer(stored.keys[1]).result == 7


def test_what_cannot_be_pickled_is_an_error_and_damage_is_named(scratch: Scratch) -> None:
    scratch.keep("1", Answer(lambda: None))
    assert isinstance(scratch.answer("1").error, WorkError)
    (scratch.root / "answers/2").write_bytes(b"half")
    with pytest.raises(WorkError, match=r"answers/2: .*; delete it and run again"):
        scratch.answer("2")
    name = scratch.put([1])
    (scratch.root / "values" / name).write_bytes(b"other")
    with pytest.raises(WorkError, match="damaged; delete it"):
        scratch.get(name)


def test_a_folder_that_others_may_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(InputError, match=r"open: others may use it; make it yours alone \(chmod 700\)"):
        Scratch(tmp_path / "open")
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file: File exists"):
        Scratch(tmp_path / "file")


def test_old_files_are_swept_and_others_stay(scratch: Scratch) -> None:
    old, new = scratch.put("old"), scratch.put("new")
    os.utime(scratch.root / "values" / old, times=(0, time.time() - module.KEPT_S - 60))
    scratch.sweep()
    assert [path.name for path in (scratch.root / "values").iterdir()] == [new]


def test_tasks_are_chunked_by_their_estimates_the_longest_first() -> None:
    assert chunks({0: 10.0, 1: 100.0, 2: 30.0, 3: 30.0}, 60.0) == [[1], [2, 3], [0]]
    assert chunks(dict.fromkeys(range(1000), 0.05), 60.0) == [list(range(1000))]
    assert chunks({}, 60.0) == []


@pytest.mark.parametrize(
    ("total_s", "at_once", "length_s"),
    [
        (5.0, 64, 10.0),
        (40.0, 2, 20.0),
        (3600.0, 64, 56.25),
        (7200.0, 64, 60.0),
        (60_000.0, 64, 120.0),
        (60_000.0, 250, 120.0),
    ],
)
def test_a_chunk_is_about_a_minute_unless_jobs_would_be_idle_or_too_many(
    total_s: float, at_once: int, length_s: float
) -> None:
    assert chunk_s(total_s, at_once) == pytest.approx(length_s, rel=0.01)


def test_the_times_of_one_run_are_the_estimates_of_the_next(scratch: Scratch) -> None:
    assert scratch.estimates_s("a:b") == {}
    scratch.remember_times("a:b", {"dqn": 9.0, "forest": 1.0})
    scratch.remember_times("a:b", {"dqn": 8.0})
    assert scratch.estimates_s("a:b") == {"dqn": 8.0, "forest": 1.0} and scratch.estimates_s("a:c") == {}
