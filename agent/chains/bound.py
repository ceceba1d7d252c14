"""The administrator's bound on the links that agents keep queued: /etc/baton/agent.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.chains.plan import AHEAD
from agent.futures import LINK
from agent.model_folder import read_file
from agent.slurm.queue import SqueueJob
from traces.slurm.text import parse_state

BOUND_FILE = Path("/etc/baton/agent.toml")
KEYS = {"most_queued_a_chain": "chain", "most_queued_a_user": "user"}
MOST_BYTES = 1 << 16
UNBOUNDED = 1000


@dataclass(frozen=True)
class QueueBound:
    """The most links that may be queued at once."""

    chain: int = UNBOUNDED  # of one chain
    user: int = UNBOUNDED  # of all chains of one user

    @property
    def text(self) -> str:
        """The bound in words; "" if there is none."""
        named = [f"{most} a {of}" for of, most in (("chain", self.chain), ("user", self.user)) if most < UNBOUNDED]
        return f"queued links, at most: {', '.join(named)}" if named else ""

    def room(self, jobs: Iterable[SqueueJob], own: Collection[str]) -> int:
        """Count the links that the user may queue for a chain. jobs: the user's; own: ids of the chain's queued ones.

        Whether a job is queued shows in its state. A start time does not tell, because Slurm also predicts one for
        pending jobs.
        """
        others = [job for job in jobs if job.id not in own and LINK.search(job.name)]
        return self.user - sum(parse_state(job.state) in ("PENDING", "REQUEUED") for job in others)


def read_bound(path: Path) -> QueueBound:
    """Read the bound; none if there is no file. Raises ValueError, one line, for an invalid file."""
    try:
        values = tomllib.loads(read_file(path, MOST_BYTES).decode())
    except (FileNotFoundError, NotADirectoryError):
        return QueueBound()
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not TOML: {' '.join(str(error).split())[:200]}") from error
    for key, value in values.items():
        if key not in KEYS:
            raise ValueError(f"{path}: unknown key {key[:40]!r}; known: {', '.join(KEYS)}")
        if type(value) is not int or not 1 <= value <= UNBOUNDED:
            raise ValueError(f"{path}: {key} is {str(value)[:40]!r}; allowed: 1 to {UNBOUNDED}")
    return QueueBound(**{KEYS[key]: value for key, value in values.items()})


def links_ahead(submitted: int, path: Path) -> int:
    """Return the most links that one chain may queue. submitted: jobs that its user may have queued or running.

    A bound that cannot be read counts as one link, as for a running agent.
    """
    try:
        bound = read_bound(path)
    except ValueError:
        bound = QueueBound(chain=1)
    return max(min(AHEAD, submitted - 1, bound.chain, bound.user), 1)
