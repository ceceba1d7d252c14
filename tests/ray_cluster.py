"""A real Ray of two nodes for tests, on the loopback alone: no dashboard, no telemetry.

`python -m tests.ray_cluster` starts one, prints its address, and ends it when its standard input closes.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.conftest import REPOSITORY, skip_or_fail
from tests.live.slurm import end_daemons

# Without "clusters" Ray takes 127.0.0.1 for the address of this machine, and its servers listen there alone.
LOOPBACK = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}


@dataclass(frozen=True)
class RayCluster:
    """Two nodes with one CPU and 2 GiB for tasks each."""

    address: str
    pid: int

    def daemons(self) -> list[int]:
        """The processes of Ray, without its workers."""
        return [pid for pid in _descendants(self.pid) if not _command(pid).startswith("ray::")]

    def kill_newest_node(self) -> None:
        """End the second node as a machine ends: its raylet and all that the raylet started, at once."""
        raylet = max(pid for pid in self.daemons() if _command(pid).endswith("/raylet"))
        for pid in [raylet, *_descendants(raylet)]:
            os.kill(pid, signal.SIGKILL)


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")


def _descendants(pid: int) -> list[int]:
    paths = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(one) for path in paths for one in path.read_text().split()]
    return [*children, *(one for child in children for one in _descendants(child))]


@contextmanager
def running_ray() -> Iterator[RayCluster]:
    """Yield a cluster; skips without Ray, or fails if BATON_REQUIRE names it."""
    if find_spec("ray") is None:
        skip_or_fail("ray", "no Ray: make ray")
    folder = tempfile.mkdtemp(prefix="baton-ray-", dir="/tmp")  # short: Ray's sockets are in it
    env = os.environ | LOOPBACK | {"RAY_TMPDIR": folder}
    command = [sys.executable, "-m", "tests.ray_cluster"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        cluster = RayCluster(process.stdout.readline().strip(), process.pid)
        try:
            assert cluster.address.startswith("127.0.0.1:"), "Ray did not start"
            yield cluster
        finally:
            started = _descendants(process.pid)
            process.kill()
            process.wait()
            end_daemons(started, 5)
            shutil.rmtree(folder, ignore_errors=True)


def wait_for(ready: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Wait until `ready` holds."""
    end = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)


def main() -> None:
    """Run a cluster."""
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "memory": 2 << 30, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=size)
    cluster.add_node(**size)
    print(cluster.address, flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
