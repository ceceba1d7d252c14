"""A real Slurm on loopback: munge, MariaDB, slurmdbd, slurmctld and a few slurmds with emulated GPUs.

Its version is this machine's own (`make system`) or that of a root (`tests.live.root`).

Everything it writes lies in one folder, every port is on 127.0.0.1, and `down` ends exactly the processes that `up`
started, by their pid files. Needs root and the packages of `make system`. The GPUs are device files that lead to
/dev/null: Slurm counts, schedules and accounts them as if they were there.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.check import TESTED
from tests.conftest import skip_or_fail
from tests.live.clock import LIBRARY, FastClock
from tests.live.root import ROOTS, Root, missing_root

OWN = TESTED[0]  # the packages of Debian 12
PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sacct", "sbatch", "sinfo")


@dataclass(frozen=True)
class Cluster:
    """What is to be started: size, and the slurm.conf lines that differ from the small cluster of the ingest tests."""

    nodes: int = 4
    node: str = "CPUs=8 RealMemory=32000 Gres=gpu:a100:4"
    settings: dict[str, str] = field(default_factory=dict)
    partitions: tuple[str, ...] = (
        "PartitionName=gpu Nodes=ALL Default=YES MaxTime=2-00:00:00 DefaultTime=01:00:00 State=UP DefMemPerCPU=1000",
        "PartitionName=urgent Nodes=ALL PriorityTier=9 DefaultTime=01:00:00 State=UP DefMemPerCPU=1000",
    )

    def names(self) -> list[str]:
        """Node names: n1, n2 ..., zero-padded to one width."""
        return [f"n{number:0{len(str(self.nodes))}d}" for number in range(1, self.nodes + 1)]


# With each GPU in two shards, jobs measured and ended where they use too much memory, and nodes that power down.
WHOLE = Cluster(
    node="CPUs=8 RealMemory=32000 Gres=gpu:a100:4,shard:8",
    settings={
        "GresTypes": "gpu,shard",
        "AccountingStorageTRES": "gres/gpu,gres/gpu:a100,gres/shard",
        "JobAcctGatherType": "jobacct_gather/linux",
        "JobAcctGatherFrequency": "task=1",
        "JobAcctGatherParams": "OverMemoryKill",
        **{"SuspendProgram": "/bin/true", "ResumeProgram": "/bin/true"},  # tests end and start slurmd
        **{"SuspendTime": "1000000", "SuspendTimeout": "5", "ResumeTimeout": "60"},
    },
)


def missing(clock: bool = False, version: str = OWN) -> str | None:
    """Why no Slurm of that version (with `clock`: on a fast clock) can be started here, or None."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin") is None]
    if absent:
        return f"no {', '.join(absent)} on this machine (make system installs Debian's Slurm)"
    if clock and not LIBRARY.exists():
        return f"no {LIBRARY} on this machine (make system installs Debian's faketime)"
    if os.geteuid() != 0:
        return "the Slurm daemons need root"
    return None if version == OWN else missing_root(version)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def end_daemons(pids: list[int], patience_s: float = 15) -> None:
    """Terminate daemons that we started, together, and kill those that do not go."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal_number)
        end = time.monotonic() + patience_s
        while pids and time.monotonic() < end:
            pids = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
            time.sleep(0.05)


@dataclass
class Slurm:
    """One cluster `live` of nodes with four emulated A100s each; with `clock`, its daemons and commands live in it."""

    folder: Path
    cluster: Cluster = field(default_factory=Cluster)
    clock: FastClock | None = None
    version: str = OWN
    ports: dict[str, int] = field(default_factory=lambda: {name: _free_port() for name in ("ctld", "dbd", "sql")})
    pid_files: list[Path] = field(default_factory=list)
    mariadb: subprocess.Popen[bytes] | None = None
    root: Root | None = None

    def __post_init__(self) -> None:
        if self.version != OWN:
            self.root = Root(ROOTS / self.version)

    @property
    def env(self) -> dict[str, str]:
        path = f"{self.folder}/bin:{os.environ['PATH']}:/usr/sbin:/sbin"
        own = {**os.environ, "PATH": path, "SLURM_CONF": str(self.folder / "etc/slurm.conf"), "TZ": "UTC"}
        return own | (self.clock.env() if self.clock else {})

    @property
    def real_env(self) -> dict[str, str]:
        """The environment of munge and MariaDB, which stay on the real clock."""
        return {key: value for key, value in self.env.items() if key not in ("LD_PRELOAD", "FAKETIME")}

    def run(self, *command: str, timeout: float = 60, real_clock: bool = False) -> str:
        """Standard output of a command of this cluster; raises with its error output if it fails."""
        env = self.real_env if real_clock else self.env
        done = subprocess.run(command, env=env, capture_output=True, timeout=timeout, check=False)
        if done.returncode:
            message = done.stderr.strip() or done.stdout.strip()
            raise RuntimeError(f"{command[0]}: {message.decode(errors='replace')}")
        return done.stdout.decode(errors="surrogateescape")

    def daemon(self, *command: str) -> None:
        """Start a daemon of Slurm, which goes to the background by itself."""
        self.run(*(self.root.inside(*command) if self.root else command))

    def reconfigure(self, old: str, new: str, is_known: Callable[[], bool]) -> None:
        """Replace a text of slurm.conf, and wait until the controller knows."""
        conf, part = self.folder / "etc/slurm.conf", self.folder / "etc/slurm.conf.part"
        part.write_text(conf.read_text().replace(old, new))
        part.rename(conf)
        self.run("scontrol", "reconfigure")
        self.wait(30, is_known, "the new configuration")

    def hide(self, words: str) -> None:
        """Set PrivateData, and wait until the controller knows."""

        def is_known() -> bool:
            shown = self.run("scontrol", "show", "config").partition("PrivateData")[2].partition("\n")[0]
            return sorted(shown.strip(" =").split(",")) == sorted(words.split(","))

        old = (self.folder / "etc/slurm.conf").read_text()
        self.reconfigure(old, f"{old.partition('PrivateData=')[0]}PrivateData={words}\n", is_known)

    def pid(self, daemon: str) -> int:
        """The process of slurmdbd, slurmctld or slurmd-NODE. Raises FileNotFoundError, ProcessLookupError."""
        return self._outside(self.folder / f"run/{daemon}.pid")

    def _outside(self, pid_file: Path) -> int:
        pid = int(pid_file.read_text().split()[0])
        return self.root.outside(pid) if self.root and pid_file.parent.name == "run" else pid

    def sbatch(self, *options: str, script: str = "sleep 1") -> str:
        """Submit a batch job; returns its id.

        On the real clock even where the daemons have a fast one: the job inherits the environment, and libfaketime in
        the processes of several users kills some of them (their shared memory is named by pid alone).
        """
        body = f"#!/bin/sh\n{script}\n"
        command = ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", *options]
        done = subprocess.run(
            command, env=self.real_env, input=body.encode(), capture_output=True, check=False, timeout=60
        )
        if done.returncode:
            raise RuntimeError(f"sbatch {options}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode().strip().split(";")[0]

    def wait(self, seconds: float, ready: Callable[[], bool], what: str, every: float = 0.1) -> None:
        """Poll `ready`, `every` so many seconds, until it holds."""
        end = time.monotonic() + seconds
        while True:
            try:
                if ready():
                    return
            except (RuntimeError, subprocess.TimeoutExpired):
                pass
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {seconds:g} s")
            time.sleep(every)

    def up(self) -> None:
        """Write the configuration and start the daemons in order, each waited for."""
        self._configure()
        f = self.folder
        if self.root:
            self.root.enter(f)
        self.pid_files = [f / "munge/munged.pid", f / "run/slurmdbd.pid", f / "run/slurmctld.pid"]
        self.run(
            "setpriv", "--reuid", "munge", "--regid", "munge", "--clear-groups", "munged",
            f"--key-file={f}/munge/key", f"--socket={f}/munge/sock", f"--pid-file={f}/munge/munged.pid",
            f"--log-file={f}/munge/log", f"--seed-file={f}/munge/seed",
            real_clock=True,
        )  # fmt: skip
        cnf = f"--defaults-file={f}/etc/my.cnf"
        self.run(
            "mariadb-install-db", cnf, "--user=root", "--auth-root-authentication-method=socket", "--skip-test-db",
            real_clock=True,
        )  # fmt: skip
        with (f / "log/mariadb.out").open("wb") as log:
            self.mariadb = subprocess.Popen(
                ["mariadbd", cnf, "--user=root"], env=self.real_env, stdout=log, stderr=log, start_new_session=True
            )
        sql = ("mariadb", "--no-defaults", "-S", f"{f}/run/sql.sock", "-u", "root", "-e")
        self.wait(30, lambda: bool(self.run(*sql, "select 1", real_clock=True)), "mariadbd")
        password = (f / "etc/password").read_text()
        self.run(
            *sql,
            "CREATE DATABASE slurm_acct_db; "
            f"CREATE USER slurm@'127.0.0.1' IDENTIFIED BY '{password}'; "
            "GRANT ALL ON slurm_acct_db.* TO slurm@'127.0.0.1'",
            real_clock=True,
        )
        self.daemon("slurmdbd")
        self.wait(60, lambda: self.run("sacctmgr", "-n", "show", "cluster") is not None, "slurmdbd")
        self.run("sacctmgr", "-i", "add", "cluster", "live")
        self.daemon("slurmctld")
        self.wait(30, lambda: "UP" in self.run("scontrol", "ping"), "slurmctld")
        for name in self.cluster.names():
            self.daemon("slurmd", "-N", name)
            self.pid_files.append(f / f"run/slurmd-{name}.pid")
        self.wait(60, self._all_idle, "nodes idle")
        self.run("sacctmgr", "-i", "add", "account", "science", "Cluster=live")
        self.run("sacctmgr", "-i", "add", "user", "root", "Account=science", "Cluster=live")

    @classmethod
    @contextlib.contextmanager
    def running(
        cls, cluster: Cluster | None = None, clock: FastClock | None = None, version: str = OWN
    ) -> Iterator[Slurm]:
        """A cluster in a temporary folder, up and then down; skips (or fails, BATON_REQUIRE) where none can start."""
        if reason := missing(clock is not None, version):
            skip_or_fail("slurm" if version == OWN else f"slurm-{version}", reason)
        with tempfile.TemporaryDirectory(prefix="baton-slurm-") as folder:
            Path(folder).chmod(0o755)  # munge refuses a socket that others cannot reach
            slurm = cls(Path(folder), cluster or Cluster(), clock, version)
            try:
                slurm.up()
                yield slurm
            finally:
                slurm.down()

    def _all_idle(self) -> bool:
        states = self.run("sinfo", "-h", "-N", "-o", "%T").split()
        return len(states) >= self.cluster.nodes and all(state == "idle" for state in states)

    def down(self) -> None:
        """End what `up` started, jobs and slurmds first, and wait until each is gone."""
        with contextlib.suppress(RuntimeError, subprocess.TimeoutExpired, TimeoutError):  # the daemons may not be up
            for state in ("PENDING", "RUNNING"):
                self.run("scancel", f"--state={state}", timeout=10)
            self.wait(15, lambda: not self.run("squeue", "-h").strip(), "the jobs to end")
        running = [path for path in self.pid_files if path.exists()]
        slurmds = [path for path in running if path.name.startswith("slurmd-")]
        for group in (slurmds, *([path] for path in reversed(running) if path not in slurmds)):
            with contextlib.suppress(ProcessLookupError):
                end_daemons([self._outside(path) for path in group])
        if self.root:
            self.root.leave()
        if self.mariadb is not None:  # after slurmdbd, which writes to it until it ends
            self.mariadb.terminate()
            self.mariadb.wait(30)

    def _configure(self) -> None:
        f = self.folder
        for name in ("etc", "log", "run", "spool/ctld", "sql", "sql-tmp", "munge", "dev"):
            (f / name).mkdir(parents=True, exist_ok=True)
        (f / "munge/key").write_bytes(secrets.token_bytes(128))
        (f / "munge/key").chmod(0o600)
        for path in (f / "munge", f / "munge/key"):
            shutil.chown(path, "munge", "munge")
        password = secrets.token_hex(12)
        host = socket.gethostname().split(".")[0]
        (f / "etc/password").write_text(password)
        (f / "etc/my.cnf").write_text(
            f"[mariadbd]\ndatadir={f}/sql\ntmpdir={f}/sql-tmp\nsocket={f}/run/sql.sock\npid-file={f}/run/mariadb.pid\n"
            f"log-error={f}/log/mariadb.err\nbind-address=127.0.0.1\nport={self.ports['sql']}\nskip-name-resolve\n"
            "character-set-server=utf8mb4\ninnodb_buffer_pool_size=128M\ninnodb_lock_wait_timeout=900\n"
            "innodb_flush_log_at_trx_commit=0\nmax_allowed_packet=16M\n"
        )
        (f / "etc/slurmdbd.conf").write_text(
            f"AuthType=auth/munge\nAuthInfo=socket={f}/munge/sock\nDbdHost=localhost\nDbdAddr=127.0.0.1\n"
            f"DbdPort={self.ports['dbd']}\nCommunicationParameters=NoInAddrAny\nSlurmUser=root\n"
            f"LogFile={f}/log/slurmdbd.log\nPidFile={f}/run/slurmdbd.pid\nStorageType=accounting_storage/mysql\n"
            f"StorageHost=127.0.0.1\nStoragePort={self.ports['sql']}\nStorageUser=slurm\nStoragePass={password}\n"
            "StorageLoc=slurm_acct_db\n"
        )
        (f / "etc/slurmdbd.conf").chmod(0o600)
        for number in range(4):  # null devices (character device 1, 3): slurmd counts device files, not a bare Count=
            os.mknod(f / f"dev/nvidia{number}", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        names = self.cluster.names()
        gres = "".join(f"NodeName={name} Name=gpu Type=a100 File={f}/dev/nvidia[0-3]\n" for name in names)
        if "shard" in self.cluster.node:
            gres += "".join(f"NodeName={name} Name=shard Count=8\n" for name in names)
        (f / "etc/gres.conf").write_text(gres)
        (f / "etc/cgroup.conf").write_text("CgroupPlugin=disabled\n" if self.root else "ConstrainCores=no\n")
        (f / "etc/slurm.conf").write_text(self.conf(host))
        for name in names:
            (f / f"spool/{name}").mkdir(exist_ok=True)

    def conf(self, host: str) -> str:
        """The text of slurm.conf.

        Over 50 lines: a line for each key of the file.
        """
        f = self.folder
        settings = {
            "ClusterName": "live",
            "SlurmctldHost": f"{host}(127.0.0.1)",
            "SlurmctldPort": str(self.ports["ctld"]),
            "SlurmUser": "root",
            "SlurmdUser": "root",
            "AuthType": "auth/munge",
            "AuthInfo": f"socket={f}/munge/sock,cred_expire=5",
            "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",
            "MpiDefault": "none",
            "ProctrackType": "proctrack/linuxproc",
            "TaskPlugin": "task/none",
            "ReturnToService": "2",
            "SlurmctldPidFile": f"{f}/run/slurmctld.pid",
            "SlurmctldLogFile": f"{f}/log/slurmctld.log",
            "SlurmdPidFile": f"{f}/run/slurmd-%n.pid",
            "SlurmdLogFile": f"{f}/log/slurmd-%n.log",
            "SlurmdSpoolDir": f"{f}/spool/%n",
            "StateSaveLocation": f"{f}/spool/ctld",
            "SlurmdParameters": "config_overrides",
            "KillWait": "3",
            "MinJobAge": "600",
            "InactiveLimit": "0",
            "SlurmdTimeout": "60",
            "RequeueExit": "99",
            "JobRequeue": "1",
            "PreemptType": "preempt/partition_prio",
            "PreemptMode": "REQUEUE",
            "SchedulerType": "sched/backfill",
            "SchedulerParameters": "bf_interval=5,bf_continue,batch_sched_delay=1,sched_min_interval=100000",
            "SelectType": "select/cons_tres",
            "SelectTypeParameters": "CR_Core_Memory",
            "PriorityType": "priority/multifactor",
            "PriorityWeightAge": "1000",
            "PriorityWeightJobSize": "500",
            "AccountingStorageType": "accounting_storage/slurmdbd",
            "AccountingStorageHost": "127.0.0.1",
            "AccountingStoragePort": str(self.ports["dbd"]),
            "AccountingStoragePass": f"{f}/munge/sock",
            "AccountingStorageTRES": "gres/gpu,gres/gpu:a100",
            "JobAcctGatherType": "jobacct_gather/none",
            "GresTypes": "gpu",
        } | self.cluster.settings
        if self.root:
            settings["PluginDir"] = str(self.root.plugins)
        nodes = (
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={_free_port()} {self.cluster.node}"
            for name in self.cluster.names()
        )
        lines = [f"{key}={value}" for key, value in settings.items()]
        return "\n".join([*lines, *nodes, *self.cluster.partitions]) + "\n"
