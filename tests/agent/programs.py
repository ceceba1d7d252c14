"""Slurm's programs as files that a process can run: each hands its arguments to a fake Slurm in the test's own process.

For tests of `baton-agent` as it is installed. They talk through a Unix socket; nothing listens on the network. The
fake's time goes on with the real one.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agent.slurm.commands import SlurmError
from tests.agent.fake_slurm import FakeSlurm

NAMES = ("squeue", "sinfo", "sacct", "sacctmgr", "scontrol", "sbatch", "scancel", "sdiag")
PROGRAM = """#!{python} -IS
import json, socket, sys
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect({address!r})
    asked.sendall(json.dumps([{name!r}, *sys.argv[1:]]).encode())
    asked.shutdown(socket.SHUT_WR)
    answer = b"".join(iter(lambda: asked.recv(1 << 16), b""))
said = json.loads(answer)
sys.stdout.write(said["out"])
sys.stderr.write(said["error"])
sys.exit(1 if said["error"] else 0)
"""


@dataclass
class Running:
    """A fake Slurm whose programs lie in `folder`. Whoever looks at it holds `lock`."""

    slurm: FakeSlurm
    folder: Path
    lock: threading.Lock = field(default_factory=threading.Lock)
    nodes: int = 0  # that sinfo shows, however few the test lets jobs have

    def __post_init__(self) -> None:
        self.nodes = self.slurm.nodes

    def call(self, argv: Sequence[str]) -> dict[str, str]:
        """The answer to one call: what it prints, or why it does not."""
        with self.lock:
            self.slurm.advance(int(time.time()) - self.slurm.now_s)
            try:
                return {"out": self._answer(argv), "error": ""}
            except SlurmError as error:
                return {"out": "", "error": f"{error.detail}\n"}

    def _answer(self, argv: Sequence[str]) -> str:
        nodes = f"n[1-{self.nodes}]"
        if argv[0] == "sinfo":
            return f"mixed|{nodes}\n"
        if argv[0] == "sacctmgr":
            return "||normal||||||\n" if "association" in argv else "normal|||||||||\n"
        if argv[0] == "scontrol" and argv[-1] == "config":
            return f"Configuration data as of {self.slurm.now_s}\nClusterName = lab\nSLURM_VERSION = 22.05.8\n"
        if argv[0] == "scontrol":
            return f"PartitionName=gpu Default=YES QoS=N/A MaxTime=2-00:00:00 Nodes={nodes} PriorityTier=1\n"
        if argv[0] == "sbatch" and "--test-only" in argv:
            return ""
        if argv[0] == "sacct" and "--allusers" in argv:
            return ""
        return self.slurm.call(argv)


@contextmanager
def programs(slurm: FakeSlurm, folder: Path) -> Iterator[Running]:
    """The programs in `folder`, which belongs first into PATH, as long as the block lasts. `folder` is made."""
    folder.mkdir()
    address = f"{tempfile.mkdtemp()}/slurm"  # a path that is short enough for a socket
    for name in NAMES:
        program = folder / name
        program.write_text(PROGRAM.format(python=sys.executable, address=address, name=name))
        program.chmod(0o755)
    running = Running(slurm, folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        serving = threading.Thread(target=_serve, args=(listening, running), daemon=True)
        serving.start()
        try:
            yield running
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.join(5)
            shutil.rmtree(Path(address).parent)


def _serve(listening: socket.socket, running: Running) -> None:
    while True:
        try:
            asked, _ = listening.accept()
        except OSError:
            return
        with asked:
            argv = b"".join(iter(lambda: asked.recv(1 << 16), b""))  # noqa: B023  read at once
            asked.sendall(json.dumps(running.call(json.loads(argv))).encode())
