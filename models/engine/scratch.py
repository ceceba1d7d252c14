"""The folder that a driver and its workers share: arguments and answers of tasks, found by the digest of their content.

Values are pickled, and unpickling runs code. So a folder that another user owns or may use is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from models.engine.work import ESTIMATE_S, Work
from traces.cache.digests import digest
from traces.errors import InputError, WorkError
from traces.files.whole import whole_file, write_text

FOLDERS = ("values", "answers", "claims", "jobs", "compiled")
SHARED_WITH = stat.S_IRWXG | stat.S_IRWXO
KEPT_S = 30 * 86400  # files that were not written again for so long are deleted


class Answer(NamedTuple):
    """The answer of a worker to a task: its result, or the exception that it raised."""

    result: Any = None
    error: Exception | None = None
    wall_s: float = 0.0


class StoredWork(NamedTuple):
    """A work whose shared value, code and arguments are in the scratch folder."""

    function: str  # module:name
    prepare: str  # likewise; empty if there is none
    code: str  # name of the value of `Work.code`
    shared: str
    arguments: tuple[str, ...]  # one a task
    keys: tuple[str, ...]  # digest of all that the result depends on, one a task


@dataclass(frozen=True)
class Scratch:
    """The folder. Raises InputError if it cannot be made, or if others may use it."""

    root: Path

    def __post_init__(self) -> None:
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            for name in FOLDERS:
                (self.root / name).mkdir(exist_ok=True)
            found = self.root.stat()
        except OSError as error:
            raise InputError(f"scratch folder {self.root}: {error.strerror}") from error
        if found.st_uid != os.geteuid() or found.st_mode & SHARED_WITH:
            raise InputError(f"scratch folder {self.root}: others may use it; make it yours alone (chmod 700)")

    def put(self, value: Any) -> str:
        """Keep a value; returns the digest that names it."""
        data = pickle.dumps(value, protocol=5)
        path = self.root / "values" / hashlib.sha256(data).hexdigest()
        if path.exists():
            os.utime(path)
        else:
            with whole_file(path) as part:
                part.write_bytes(data)
        return path.name

    def get(self, name: str) -> Any:
        """Return a kept value. Raises WorkError if it is missing or damaged."""
        path = self.root / "values" / name
        try:
            data = path.read_bytes()
        except OSError as error:
            raise WorkError(f"{path}: {error.strerror}; does this node see the scratch folder?") from error
        if hashlib.sha256(data).hexdigest() != name:
            raise WorkError(f"{path}: damaged; delete it and run again")
        return pickle.loads(data)  # noqa: S301 - our own folder

    def keep(self, key: str, answer: Answer) -> None:
        """Keep the answer of a task, whole or not at all."""
        with whole_file(self.root / "answers" / key) as part:
            part.write_bytes(pickled(answer))

    def answer(self, key: str) -> Answer:
        """Return the answer of a task. Raises WorkError if it is damaged."""
        path = self.root / "answers" / key
        try:
            found = pickle.loads(path.read_bytes())  # noqa: S301 - our own folder
        except (OSError, EOFError, pickle.UnpicklingError) as error:
            raise WorkError(f"{path}: {error}; delete it and run again") from error
        if not isinstance(found, Answer):
            raise WorkError(f"{path}: no answer of a task; delete it and run again")
        return found

    def answered(self) -> set[str]:
        """Return the keys of the tasks that have an answer. Listing the folder also refreshes the view that NFS has."""
        return {name for name in os.listdir(self.root / "answers") if not name.startswith(".")}

    def forget_errors(self, keys: tuple[str, ...]) -> None:
        """Delete the answers that are exceptions, so that a new driver tries these tasks again."""
        for key in self.answered().intersection(keys):
            if self.answer(key).error is not None:
                self._delete(self.root / "answers" / key)

    def store(self, work: Work) -> StoredWork:
        """Keep the values that the tasks need."""
        code, shared = work.code, self.put(work.shared)
        arguments = tuple(self.put(task.argument) for task in work.tasks)
        function, prepare = importable_name(work.function), importable_name(work.prepare)
        keys = tuple(digest(function, code, shared, argument, work.settings) for argument in arguments)
        return StoredWork(function, prepare, self.put(code), shared, arguments, keys)

    def claim(self, job: str, keys: list[str]) -> None:
        """Remember the tasks of a submitted job, so that a driver that starts anew waits for it."""
        write_text(self.root / "claims" / job, json.dumps(keys))

    def claims(self) -> Iterator[tuple[str, list[str]]]:
        """Yield each remembered job with the keys of its tasks."""
        for path in sorted((self.root / "claims").glob("[0-9]*")):
            with suppress(FileNotFoundError):
                yield path.name, json.loads(path.read_bytes())

    def unclaim(self, job: str) -> None:
        """Forget a job that ended or was cancelled."""
        self._delete(self.root / "claims" / job)

    def estimates_s(self, function: str) -> dict[str, float]:
        """Return the seconds that a task of each kind took at its latest run."""
        try:
            found = json.loads((self.root / f"times-{digest(function)[:12]}.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return {str(kind): float(seconds) for kind, seconds in found.items()}

    def remember_times(self, function: str, seconds: Mapping[str, float]) -> None:
        """Keep the seconds of these kinds of tasks."""
        times = self.estimates_s(function) | dict(seconds)
        write_text(self.root / f"times-{digest(function)[:12]}.json", json.dumps(times))

    def sweep(self) -> None:
        """Delete the files that were not written for KEPT_S."""
        oldest_s = time.time() - KEPT_S
        for name in FOLDERS:
            for path in (self.root / name).iterdir():
                with suppress(FileNotFoundError):
                    if path.is_file() and path.stat().st_mtime < oldest_s:
                        self._delete(path)

    def _delete(self, path: Path) -> None:
        with suppress(FileNotFoundError):
            path.unlink()


def pickled(answer: Answer) -> bytes:
    """Return the answer as bytes. An exception or a result that cannot be pickled becomes a WorkError."""
    try:
        data = pickle.dumps(answer, protocol=5)
        pickle.loads(data)  # noqa: S301 - some exceptions are pickled and cannot be read
    except Exception as error:
        data = pickle.dumps(Answer(error=WorkError(f"{answer.error or answer.result!r}: {error}")), protocol=5)
    return data


def importable_name(function: Callable[..., Any] | None) -> str:
    """Return `module:name`; empty for None."""
    return "" if function is None else f"{function.__module__}:{function.__qualname__}"


def chunks(estimates_s: Mapping[int, float], about_s: float) -> list[list[int]]:
    """Group tasks (position -> estimate, s) into chunks of at most about_s; a longer task is alone. Longest first."""
    found: list[list[int]] = []
    length_s = about_s
    for at, estimate_s in sorted(estimates_s.items(), key=lambda one: (-one[1], one[0])):
        if length_s + estimate_s > about_s:
            found.append([])
            length_s = 0.0
        found[-1].append(at)
        length_s += estimate_s
    return found


def estimate_s(times: Mapping[str, float], kind: str) -> float:
    """Return the estimate for a kind of task; ESTIMATE_S for one that was never measured."""
    return max(times.get(kind, ESTIMATE_S), 0.001)
