"""Run a Slurm of another version out of its root (`install-packages --slurm`): daemons inside, commands from outside.

The daemons live in mount and process namespaces whose first process ends with the test run, however that ends: the
kernel then ends the daemons and their jobs and undoes the mounts. Munge and MariaDB stay those of the machine.
"""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOTS = Path(os.environ.get("BATON_SLURM_ROOTS", "/var/cache/baton/slurm")).absolute()
COMMANDS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sdiag", "sinfo", "sprio", "sshare", "squeue", "srun")
# This machine's own root is at /mnt, for jobs that run its Python. Users, groups and host names are the machine's own.
# libfaketime names shared memory by process id, and those of the namespace are its own: hence another /dev/shm. Ended
# children of the first process leave by themselves (SIGCHLD).
ENTER = """
root=$1 folder=$2
mount --rbind / "$root/mnt"
mount -t proc proc "$root/proc"
for name in sys dev tmp etc/hosts etc/passwd etc/group; do mount --rbind "/$name" "$root/$name"; done
mount -t tmpfs tmpfs "$root/dev/shm"
mkdir -p "$root$folder"
mount --bind "$folder" "$root$folder"
echo entered
exec chroot "$root" env --ignore-signal=CHLD sleep infinity
"""
NAMESPACES = ("unshare", "--mount", "--propagation=private", "--pid", "--fork", "--kill-child=KILL")


def missing_root(version: str) -> str | None:
    """Why the daemons of that version cannot run out of a root here, or None."""
    if not (ROOTS / version).is_dir():
        return f"no Slurm {version} in {ROOTS} (tests/live/install-packages --slurm {version})"
    tried = subprocess.run((*NAMESPACES, "true"), capture_output=True, check=False)
    return f"Slurm {version}: {tried.stderr.decode(errors='replace').strip()}" if tried.returncode else None


@dataclass
class Root:
    """The root of one version, and the namespaces of one cluster whose daemons run in it."""

    path: Path
    namespaces: subprocess.Popen[str] | None = None

    @property
    def libraries(self) -> Path:
        """The folder of the root's libraries, with its loader."""
        return next(self.path.glob("usr/lib/*/ld-linux-*.so.*")).parent

    @property
    def plugins(self) -> Path:
        """Slurm's plugins, at the same path inside and outside."""
        return self.libraries / "slurm-wlm"

    def enter(self, folder: Path) -> None:
        """Make the namespaces, with `folder` at its own path, and wrappers of the commands in its folder `bin`."""
        loader = next(self.libraries.glob("ld-linux-*.so.*"))
        (folder / "bin").mkdir(exist_ok=True)
        for name in COMMANDS:
            path = folder / "bin" / name
            path.write_text(
                f"#!/bin/sh\nexec {loader} --argv0 {name} --library-path {self.plugins}:{self.libraries} "
                f'{self.path}/usr/bin/{name} "$@"\n'
            )
            path.chmod(0o755)
        script = ("sh", "-euc", ENTER, "enter", str(self.path), str(folder))
        command = ("setpriv", "--pdeathsig=KILL", *NAMESPACES, *script)
        self.namespaces = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self.namespaces.stdout is not None
        if self.namespaces.stdout.readline() != "entered\n":
            raise RuntimeError(f"{self.path}: its namespaces cannot be made")

    def inside(self, *command: str) -> tuple[str, ...]:
        """The command as one that runs inside the root."""
        return ("nsenter", f"--target={self._first()}", "--mount", "--pid", "--root", "--wd", "--", *command)

    def outside(self, pid: int) -> int:
        """The process id outside of one that the namespace calls `pid`. Raises ProcessLookupError."""
        own = os.readlink(f"/proc/{self._first()}/ns/pid")
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                ids = next(line for line in status.read_text().splitlines() if line.startswith("NSpid:")).split()
                if int(ids[-1]) == pid and os.readlink(status.parent / "ns/pid") == own:
                    return int(status.parent.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
        raise ProcessLookupError(f"{self.path}: no process {pid}")

    def leave(self) -> None:
        """End all that runs inside; the mounts go with it."""
        if self.namespaces is not None:
            self.namespaces.send_signal(signal.SIGKILL)
            self.namespaces.wait()

    def _first(self) -> int:
        assert self.namespaces is not None
        pid = self.namespaces.pid
        return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
