"""Run tasks in processes of this machine, or in threads of this process if they are compiled.

`python -m models.engine.local FD` is such a process. It reads a function and what all tasks share from the connection
FD, then one argument after the other, and answers each with the result or the exception.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from models.child import end_with_parent
from models.engine.work import Task, Work, environment
from traces.errors import WorkError


def each_here(work: Work, most: int, processes: int | None = None) -> Iterator[tuple[int, Any]]:
    """Yield (position of the task, result), each as soon as it is ready, from at most `most` processes or threads.

    By default there are as many as processors. Short work, and compiled work for one thread, is done in this thread.
    Raises what a task raised, and WorkError if a process ended early.
    """
    here = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    count = min(processes or here, len(work.tasks), most)
    if count <= 1 if work.is_compiled else work.is_short:
        for at, task in enumerate(work.tasks):
            yield at, work.function(work.shared, task.argument)
        return
    if work.prepare is not None:  # all processes find what this compiles in the cache
        work.prepare(work.shared)
    yield from _in_threads(work, count) if work.is_compiled else _in_processes(work, count)


def _in_threads(work: Work, count: int) -> Iterator[tuple[int, Any]]:
    pool = ThreadPoolExecutor(count)
    try:
        places = {pool.submit(work.function, work.shared, task.argument): at for at, task in enumerate(work.tasks)}
        for done in as_completed(places):
            yield places.pop(done), done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _in_processes(work: Work, count: int) -> Iterator[tuple[int, Any]]:
    waiting = iter(enumerate(work.tasks))
    working: dict[Connection[Any, Any], _Process] = {}
    try:
        for _ in range(count):
            process = _Process(work)
            working[process.connection] = process
        for process in working.values():  # while all of them import
            process.send((work.function, work.shared))
            process.begin(*next(waiting))
        for _ in work.tasks:
            ready = wait(list(working))[0]
            process = working[ready]  # type: ignore[index]
            yield process.result()
            following = next(waiting, None)
            if following is None:
                working.pop(process.connection).end()
            else:
                process.begin(*following)
    finally:
        for process in working.values():
            process.end()


class _Process:
    """A process, and its latest task."""

    def __init__(self, work: Work) -> None:
        self.connection, other_end = Pipe()
        self.task: tuple[int, Task] | None = None
        with other_end:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "models.engine.local", str(other_end.fileno())],  # -P: not from the cwd
                env=environment(work),
                pass_fds=[other_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # libraries print: standard output belongs to the result of the command
            )

    def begin(self, at: int, task: Task) -> None:
        self.task = at, task
        self.send(task.argument)

    def result(self) -> tuple[int, Any]:
        """Wait for the result."""
        assert self.task is not None
        try:
            answer = self.connection.recv()
        except (EOFError, OSError):
            self._died()
        if isinstance(answer, Exception):
            raise answer
        return self.task[0], answer

    def end(self) -> None:
        """End it at once, whatever it is doing."""
        self.connection.close()
        self.process.kill()
        self.process.wait()

    def send(self, what: Any) -> None:
        """Send what the other side reads next."""
        try:
            self.connection.send(what)
        except OSError:
            self._died()

    def _died(self) -> NoReturn:
        status = self.process.wait()
        how = f"signal {-status}: out of memory?" if status < 0 else f"exit status {status}"
        when = "before its first task" if self.task is None else f"during {self.task[1].name}"
        raise WorkError(f"a process ended early ({how}) {when}")


def _serve(descriptor: int) -> None:
    """Run the other side: do the requested tasks until the connection closes."""
    end_with_parent()
    with Connection(descriptor) as connection:
        try:
            function, shared = connection.recv()
            while True:
                argument = connection.recv()
                try:
                    answer: object = function(shared, argument)
                except Exception as error:
                    answer = error
                connection.send(answer)
        except (EOFError, OSError):
            return


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
