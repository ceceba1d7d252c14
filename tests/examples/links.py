"""Links of a chain as processes that a test can signal: the scripts of examples/chain, on a fast clock."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import REPOSITORY
from tests.live.clock import FastClock

SCRIPTS = REPOSITORY / "examples" / "chain"
ENOUGH_S = 90.0
WAITING = "waiting for the lock of the predecessor"
FAST = FastClock(rate=200, epoch=time.time())


@dataclass
class LinkProcess:
    """A link that runs, and the file that it prints to."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")

    @property
    def steps(self) -> list[int]:
        """The steps that the link has printed."""
        return [int(number) for number in re.findall(r"^step (\d+)", self.said, re.MULTILINE)]

    def until(self, text: str) -> None:
        """Wait until the link has printed the text."""
        end = time.monotonic() + ENOUGH_S
        while text not in self.said:
            assert self.process.poll() is None, f"it ended before {text!r}:\n{self.said}"
            assert time.monotonic() < end, f"not within {ENOUGH_S:g} s: {text!r}\n{self.said}"
            time.sleep(0.005)

    def signal(self, *numbers: signal.Signals) -> None:
        for number in numbers:
            self.process.send_signal(number)

    def ends(self) -> int:
        """Wait for the end; return the exit status."""
        return self.process.wait(ENOUGH_S)


def start_link(folder: Path, script: str, **environment: str) -> LinkProcess:
    """Start a link of the chain whose folder this is, as Slurm starts it in the folder of the examples."""
    bin_folder = folder / "bin"
    bin_folder.mkdir(parents=True, exist_ok=True)
    (bin_folder / "scontrol").write_text(f"#!/bin/sh\ntouch {folder}/requeued\n")
    (bin_folder / "scontrol").chmod(0o755)
    of_slurm = {"SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "train-1.1", "SLURM_NTASKS": "1", "SLURM_PROCID": "0"}
    path = f"{bin_folder}:{Path(sys.executable).parent}:/usr/bin:/bin"
    env = {
        **os.environ, **of_slurm, **FAST.python_env(), "PATH": path,
        "SLURM_JOB_END_TIME": str(FAST.now() + 48 * 3600), "BATON_CHAIN_DIR": str(folder), "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1", **environment,
    }  # fmt: skip
    if more := os.environ.get("PYTHONPATH"):
        env["PYTHONPATH"] += f":{more}"
    output = folder / f"out-{len(list(folder.glob('out-*')))}"
    command = ["/bin/sh", script] if script.endswith(".sh") else [sys.executable, script]
    with output.open("wb") as out:
        process = subprocess.Popen(command, cwd=SCRIPTS, env=env, stdout=out, stderr=subprocess.STDOUT)
    return LinkProcess(process, output)
