"""Run tasks on a Ray cluster that the site has started.

The driver of Ray is a process of its own, because Ray ends its process when it loses the cluster. When the driver ends,
Ray ends the tasks that it submitted. A task that is lost with its worker or node is submitted once more, with twice the
memory reserved; a task that is lost twice is named. With a scratch folder (`models.engine.scratch`) the results are
kept, and a new run finds them.
"""

from __future__ import annotations

import logging
import os
import pickle
import socket
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from models.child import end_with_parent
from models.deployment import EngineOptions
from models.engine.chunk import imported, other_code, prepare_once
from models.engine.scratch import Answer, Scratch, importable_name, pickled
from models.engine.work import CONTRARY, Work, python_path
from traces.cache.closure import ROOT
from traces.cache.digests import digest
from traces.errors import BatonError, InputError, WorkError
from traces.progress import say

CONNECT_S = 60.0  # patience with a cluster that does not answer
DRIVER = "import sys; from models.engine.ray import drive; drive(int(sys.argv[1]))"


class RayNode(NamedTuple):
    """A node of the cluster: its identifier, its name, and what Ray may use there."""

    node: str
    name: str
    cpus: float
    memory_bytes: float


class _Call(NamedTuple):
    """What all tasks of a work share. Hashable."""

    function: str  # module:name
    prepare: str  # likewise, or empty
    modules: tuple[str, ...]
    code: tuple[tuple[str, str], ...]  # of the driver, as `code_parts`
    folder: str  # for marks of what is compiled; empty: in the cache of the node
    shared: Any  # pickled; on its way to a worker Ray's reference to it


class _Request(NamedTuple):
    """What a driver is to do."""

    options: EngineOptions
    variables: dict[str, str]  # of the workers
    call: _Call
    tasks: list[tuple[int, str, bytes]]  # position, name, argument
    nodes: tuple[str, ...] = ()  # the node of each task; empty: Ray chooses


def each_on_ray(
    work: Work,
    options: EngineOptions,
    scratch: Scratch | None = None,
    nodes: Sequence[RayNode] = (),
    wait_s: float | None = None,
) -> Iterator[tuple[int, Any]]:
    """Yield (position of the task, result), each as soon as it is ready; on `nodes`, one a task, if they are named.

    Raises what a task raised, InputError for a cluster that cannot be used, and WorkError for a task that is lost
    twice or, with `wait_s`, if there is no result for so many seconds.
    """
    keys: Sequence[str] = ()
    waiting = list(range(len(work.tasks)))
    if scratch is not None:
        scratch.sweep()
        keys = scratch.store(work).keys
        there = scratch.answered()
        for at in [at for at in waiting if keys[at] in there]:
            answer = scratch.answer(keys[at])
            if answer.error is None:
                waiting.remove(at)
                yield at, answer.result
    if not waiting:
        return
    tasks = [(at, work.tasks[at].name, pickle.dumps(work.tasks[at].argument, protocol=5)) for at in waiting]
    call = _Call(
        importable_name(work.function), importable_name(work.prepare), tuple(work.modules), tuple(work.code.items()),
        str(scratch.root) if scratch else "", pickle.dumps(work.shared, protocol=5),
    )  # fmt: skip
    request = _Request(options, _variables(work, scratch), call, tasks, tuple(node.node for node in nodes))
    with _driver(request) as messages:
        _cluster(messages, options)
        for _ in waiting:
            at, data = _received(messages, wait_s, WorkError(f"Ray had no result within {wait_s} s"))
            answer = pickle.loads(data)  # noqa: S301 - of our own function; users of the cluster can run any code there
            if answer.error is not None:
                raise answer.error
            if scratch is not None:
                scratch.keep(keys[at], answer)
            yield at, answer.result


def ray_nodes(options: EngineOptions) -> list[RayNode]:
    """Return the nodes on which a task can run. Raises InputError for a cluster that cannot be used."""
    with _driver(_Request(options, {}, _Call("", "", (), (), "", b""), [])) as messages:
        return _cluster(messages, options)


def _variables(work: Work, scratch: Scratch | None) -> dict[str, str]:
    """Return the variables of a worker. Ray can empty a variable, which numpy takes for one that is not set."""
    own = {**work.settings, "PYTHONPATH": python_path()}
    own |= {CONTRARY: ""} if work.is_exact else {}
    return own | ({"XDG_CACHE_HOME": str(scratch.root / "cache")} if scratch else {})


@contextmanager
def _driver(request: _Request) -> Iterator[Connection[Any, Any]]:
    """Start a driver of Ray and yield the connection on which it answers; end it at once afterwards."""
    here, there = Pipe()
    with there:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", DRIVER, str(there.fileno())],
            cwd=ROOT,  # Ray lets workers import from it
            env={**os.environ, "PYTHONPATH": python_path(), "RAY_USAGE_STATS_ENABLED": "0"},
            pass_fds=[there.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # Ray prints logs of its daemons
            stderr=subprocess.DEVNULL,
        )
    try:
        with here:
            with suppress(OSError):  # a driver that ended at once is found by reading
                here.send(request)
            yield here
    finally:
        process.kill()
        process.wait()


def _cluster(messages: Connection[Any, Any], options: EngineOptions) -> list[RayNode]:
    late = InputError(f"engine.address {options.address!r}: no answer within {CONNECT_S:g} s")
    found: list[RayNode] = _received(messages, CONNECT_S, late)
    return found


def _received(messages: Connection[Any, Any], wait_s: float | None, late: Exception) -> Any:
    """Return the next message that is no progress. Raises the error that it is, and `late` after `wait_s` seconds."""
    while True:
        if wait_s is not None and not messages.poll(wait_s):
            raise late
        try:
            message = messages.recv()
        except (EOFError, OSError):
            raise WorkError("the driver of Ray ended: is the Ray cluster still up?") from None
        if isinstance(message, Exception):
            raise message
        if not isinstance(message, str):
            return message
        say(message)


def drive(descriptor: int) -> None:
    """Run the driver: answer the request that comes on the connection with the nodes, then with what `_results` has."""
    end_with_parent()
    with Connection(descriptor) as connection:
        try:
            request: _Request = connection.recv()
            nodes = _connected(request)
            connection.send(nodes)
            for message in _results(request, max(node.memory_bytes for node in nodes)):
                connection.send(message)
        except BatonError as error:
            connection.send(error)
        except Exception as error:
            connection.send(WorkError(f"the driver of Ray: {_line(error)}"))
        connection.recv()  # until the other side ends this process


def _connected(request: _Request) -> list[RayNode]:
    """Connect to the cluster and return the nodes on which a task fits. Raises InputError."""
    import ray

    options, variables = request.options, {"env_vars": request.variables}
    try:
        if options.address != "auto":  # Ray would not say why there is no connection
            host, _colon, port = options.address.rpartition(":")
            socket.create_connection((host.strip("[]"), int(port)), CONNECT_S / 4).close()
        ray.init(address=options.address, runtime_env=variables, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray has many
        raise InputError(f"engine.address {options.address!r}: {_line(error)}") from error
    nodes = [
        RayNode(one["NodeID"], one["NodeName"], one["Resources"].get("CPU", 0), one["Resources"].get("memory", 0))
        for one in ray.nodes()
        if one["Alive"]
    ]
    fit = [node for node in nodes if node.cpus >= options.cpus and node.memory_bytes >= options.memory_bytes]
    if not fit:
        there = ", ".join(sorted({f"{one.cpus:g} and {one.memory_bytes / 2**30:.1f}G" for one in nodes}))
        raise InputError(
            f"no node of the Ray cluster has engine.cpus {options.cpus} and engine.memory {options.memory}: "
            f"they have {there}"
        )
    return fit


def _results(request: _Request, most_bytes: float) -> Iterator[tuple[int, bytes] | str]:
    """Yield (position, pickled answer) as they come, and lines of progress. Raises WorkError for a task lost twice."""
    import ray
    from ray.exceptions import RayError, RayTaskError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    options, call = request.options, request.call._replace(shared=ray.put(request.call.shared))
    run = ray.remote(max_retries=0, num_cpus=options.cpus)(run_on_ray)
    to_do = deque(range(len(request.tasks)))
    running: dict[Any, int] = {}
    lost: Counter[int] = Counter()
    while to_do or running:
        while to_do and len(running) < options.at_once:
            place = to_do.popleft()
            given: dict[str, Any] = {"memory": min(options.memory_bytes * (1 + lost[place]), most_bytes)}
            if request.nodes:
                given["scheduling_strategy"] = NodeAffinitySchedulingStrategy(request.nodes[place], soft=False)
            running[run.options(**given).remote(call, request.tasks[place][2])] = place
        (ready, *_), _others = ray.wait(list(running))
        place = running.pop(ready)
        at, name, _argument = request.tasks[place]
        try:
            yield at, ray.get(ready)
        except RayTaskError as error:  # a worker without Baton cannot load the function
            raise WorkError(f"{name}: node {error.ip} cannot run it: {_line(error.cause)}") from error
        except RayError as error:
            lost[place] += 1
            if lost[place] > 1:
                raise WorkError(f"{name}: lost twice on Ray ({_line(error)})") from error
            yield f"Ray: {name} is lost ({_line(error)}); trying again"
            to_do.appendleft(place)


def run_on_ray(call: _Call, argument: bytes) -> bytes:
    """Run a task on a worker; returns the pickled answer."""
    began = time.perf_counter()
    try:
        function, shared = _ready(call)
        answer = Answer(function(shared, pickle.loads(argument)))  # noqa: S301 - of our driver
    except Exception as error:
        answer = Answer(error=error)
    return pickled(answer._replace(wall_s=time.perf_counter() - began))


@lru_cache(maxsize=1)
def _ready(call: _Call) -> tuple[Any, Any]:
    """Return the function and the shared value, once a process. Raises WorkError for a worker with other code."""
    import ray

    refusal = other_code(dict(call.code), {call.function.partition(":")[0], *call.modules})
    if refusal is not None:
        raise refusal
    shared = pickle.loads(ray.get(call.shared))  # noqa: S301 - of our driver
    if call.prepare:
        own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baton" / "engine"
        prepare_once(Path(call.folder) if call.folder else own, call.prepare, digest(call.code), shared)
    return imported(call.function), shared


def _line(error: BaseException) -> str:
    """Return the message of an error of Ray on one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
