"""Run Slurm's commands with bounded time and output, in an environment that keeps their output parseable.

SlurmError distinguishes three kinds of failure, because callers handle each differently.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import selectors
import signal
import subprocess
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from traces.units import MINUTE_S
from traces.visible import visible

MOST_BYTES = 1 << 26  # of one answer; squeue prints about 250 bytes per job
MOST_SHOWN = 300  # characters of an error message
END_S = 5.0  # a killed program that has not ended after this long waits in the kernel, as for a dead file system
MOST_STUCK = 10  # such programs; while there are more, no other is started
# Variables that locate Slurm and authenticate the caller. All others with these prefixes are removed: defaults of the
# commands (SQUEUE_FORMAT, SACCT_FORMAT, SBATCH_PARTITION ...) and the variables of a job in which the agent runs.
KEPT = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"})
TAKEN_OUT = ("SLURM", "SQUEUE_", "SINFO_", "SACCT", "SBATCH_", "SALLOC_", "SCANCEL_", "SRUN_")
# Times in epoch seconds; node lists and array tasks in full. Not set for sbatch: a job inherits its environment.
PINNED = {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
SUBMITS = "sbatch"
NOT_RUN = "cannot be run"  # an error's detail begins with this if the program was not started
# Errors of starting a program that another try does not cure: it is not installed, not ours to run, or no program.
LASTING = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.ENOEXEC, errno.E2BIG})
# Messages of slurm_errno.c and of lower layers after which the same call may succeed later.
AWAY = re.compile(
    r"unable to contact slurm controller|unable to contact the controller|timed out|connection refused|connection reset"
    r"|connection failure|message (send|receive) failure|zero bytes were transmitted|standby mode|rate limit exceeded"
    r"|problem talking to the database|transport endpoint|no route to host|network is unreachable|broken pipe"
    r"|authentication error|invalid authentication credential|munge|try again|retry later|temporarily un"
    r"|could not establish a configuration source|failed to fetch config|error getting response",
    re.IGNORECASE,
)


class SlurmError(Exception):
    """A call that returned no usable answer.

    kind: "away" (Slurm was not reached or did not answer in time; a submission may still have succeeded), "refused"
    (Slurm rejected the call, or the command is not installed) or "nonsense" (the answer cannot be parsed). command: the
    program. detail: one line of visible characters.
    """

    def __init__(self, kind: str, command: str, detail: str) -> None:
        line = " ".join(detail.split())
        self.kind = kind
        self.command = command
        self.detail = visible(line if len(line) <= MOST_SHOWN else f"{line[: MOST_SHOWN - 1]}…")
        super().__init__(f"{command}: {self.detail}")

    @property
    def is_denied(self) -> bool:
        """Whether this user may not see what was asked for (slurm.conf: PrivateData)."""
        return self.kind == "refused" and "permission denied" in self.detail.lower()


class Commands:
    """Runner and counter of every call to Slurm.

    environment: default is that of the process. timeout_s: maximum duration of a call, s. clock: returns epoch seconds.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        timeout_s: float = 30.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.calls: Counter[str] = Counter()
        self._environment = dict(os.environ if environment is None else environment)
        self._timeout_s = timeout_s
        self._clock = clock
        self._called_s: deque[float] = deque(maxlen=10_000)
        self._stuck: list[subprocess.Popen[bytes]] = []  # killed, and not ended yet

    def run(
        self,
        *argv: str,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Run a command and return its standard output. Bytes that are not UTF-8 become surrogates.

        environment: replaces that of `Commands`; Slurm's own variables are removed from either. Raises SlurmError.
        """
        program = argv[0]
        self.calls[program] += 1
        self._called_s.append(self._clock())
        variables = cleaned(self._environment if environment is None else environment, program)
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if len(self._stuck) > MOST_STUCK:
            raise SlurmError("away", program, f"{NOT_RUN}: {len(self._stuck)} killed programs of Slurm do not end")
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables,
                pass_fds=tuple(pass_fds), start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            is_lasting = isinstance(error, ValueError) or error.errno in LASTING
            detail = f"{NOT_RUN}: {getattr(error, 'strerror', None) or error}"
            raise SlurmError("refused" if is_lasting else "away", program, detail) from error
        try:
            try:
                output, complaint = self._read(process, program)
            finally:
                self._end(process)
        except OSError as error:
            raise SlurmError("away", program, f"its answer could not be read: {error.strerror}") from error
        except SlurmError as error:
            if process.returncode is None:
                detail = f"{error.detail}; its process {process.pid} was killed and does not end"
                raise SlurmError(error.kind, program, detail) from error
            raise
        return _answer(program, process.returncode, output, complaint)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill a program that still runs, and close its pipes. One that the kernel does not end is left alone."""
        if process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                self._stuck.append(process)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()

    def calls_in_last_minute(self) -> int:
        """Count the calls of the last 60 s by the clock."""
        since_s = self._clock() - MINUTE_S
        return sum(called_s > since_s for called_s in self._called_s)

    def _read(self, process: subprocess.Popen[bytes], program: str) -> tuple[bytes, bytes]:
        """Read (standard output, standard error) until the process ends. Raises SlurmError beyond time or size."""
        deadline_s = time.monotonic() + self._timeout_s
        assert process.stdout is not None and process.stderr is not None
        output, complaint = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, output)
            selector.register(process.stderr, selectors.EVENT_READ, complaint)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline_s - time.monotonic()))
                if not ready:
                    raise SlurmError("away", program, f"no answer within {self._timeout_s:g} s")
                for key, _ in ready:
                    more = os.read(key.fd, 1 << 16)
                    key.data.extend(more)
                    if not more:
                        selector.unregister(key.fileobj)
                    if len(key.data) > MOST_BYTES:
                        raise SlurmError("nonsense", program, f"its answer is longer than {MOST_BYTES} bytes")
        try:
            process.wait(max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired as error:
            raise SlurmError("away", program, f"did not end within {self._timeout_s:g} s") from error
        return bytes(output), bytes(complaint)


def answer_lines(program: str, text: str) -> list[str]:
    """Return the lines of an answer. Raises SlurmError if the last one is truncated: Slurm ends each line."""
    if text and not text.endswith("\n"):
        raise SlurmError("nonsense", program, f"its answer ends within a line: {text[-80:]!r}")
    return text.splitlines()


def cleaned(environment: Mapping[str, str], program: str) -> dict[str, str]:
    """Return the environment in which a command prints what the parsers of this folder expect."""
    kept = {key: value for key, value in environment.items() if key in KEPT or not key.startswith(TAKEN_OUT)}
    return kept if program == SUBMITS else kept | PINNED


def _answer(program: str, status: int, output: bytes, complaint: bytes) -> str:
    if status == 0:
        return output.decode("utf-8", "surrogateescape")
    detail = complaint.decode("utf-8", "surrogateescape").strip() or f"ended with exit status {status}"
    if status < 0:
        raise SlurmError("away", program, f"ended by signal {-status}")
    is_unsaid = program == SUBMITS and not complaint.strip()  # the job may exist: a refusal has a reason
    raise SlurmError("away" if AWAY.search(detail) or is_unsaid else "refused", program, detail)
