"""What a person does to a Slurm for some changes, and the draft in which the changes collect it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from models.what_if.advice.conf_text import ConfEdit, edited_conf
from models.what_if.advice.moved_jobs import NORMAL, JobMove
from traces.errors import InputError
from traces.slurm.accounts import Qos
from traces.slurm.conf import SlurmConf
from traces.units import DAY_S

_REFUSED_IN_CONF = re.compile(r"[\s\"'#,=\\\x00-\x1f\x7f]")
_REFUSED_BY_SACCTMGR = re.compile(r"[\"'`,=\[\]\\\x00-\x1f\x7f]")  # lists, ranges and quotes of its own


@dataclass(frozen=True)
class AccountEdit:
    """One `sacctmgr` command. `entity` is qos, user or account; `settings` are `Name=value` or `Name+=value`."""

    entity: str
    name: str
    settings: tuple[str, ...]
    is_new: bool = False  # adds the QOS instead of changing it
    cluster: str = ""  # "" for every cluster of the database

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the command."""
        if self.is_new:
            return ("sacctmgr", "add", self.entity, self.name, *self.settings)
        where = [f"name={self.name}", *([f"cluster={self.cluster}"] if self.cluster and self.entity != "qos" else [])]
        return ("sacctmgr", "modify", self.entity, "where", *where, "set", *self.settings)

    @property
    def text(self) -> str:
        """The command as a line for a shell."""
        return shlex.join(self.command)


@dataclass(frozen=True)
class SlurmDiff:
    """What a person does for some changes. Every line of `by_hand` and `remarks` is a sentence."""

    conf: tuple[ConfEdit, ...] = ()
    accounts: tuple[AccountEdit, ...] = ()
    by_hand: tuple[str, ...] = ()  # what no edit and no command does
    remarks: tuple[str, ...] = ()  # what to know about the edits
    moves: tuple[JobMove, ...] = ()  # jobs that ask for something else after it

    @property
    def comments(self) -> str:
        """`by_hand` and `remarks` as comments, one a line."""
        return "".join(f"# {line}\n" for line in (*self.by_hand, *self.remarks))


@dataclass
class SlurmDraft:
    """The diff so far, with the settings as they are after it; None where the present value is not known."""

    conf: SlurmConf | None
    qos: tuple[Qos, ...] | None
    edits: list[ConfEdit] = field(default_factory=list)
    accounts: list[AccountEdit] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    moves: list[JobMove] = field(default_factory=list)

    @property
    def cluster(self) -> str:
        """The ClusterName, "" if unknown."""
        return self.conf.cluster if self.conf else ""

    def qos_names(self) -> list[str]:
        """The names of the QOS; without a dump the usual one."""
        return [row.name for row in self.qos] if self.qos else [NORMAL]

    def edit(self, *edits: ConfEdit) -> None:
        """Add edits of slurm.conf."""
        self.edits += edits
        self.conf = self.conf and edited_conf(self.conf, edits)

    def account(self, entity: str, name: str, *settings: str) -> None:
        """Add a command that changes a QOS, a user or an account."""
        self.accounts.append(AccountEdit(entity, name, settings, cluster=self.cluster))


def check_slurm_name(dimension: str, who: str, change: str) -> None:
    """Refuse a name that slurm.conf or sacctmgr would read as something else."""
    if not dimension:
        return
    in_conf = dimension == "partition"
    refused = (_REFUSED_IN_CONF if in_conf else _REFUSED_BY_SACCTMGR).search(who)
    if not who or refused or who != who.strip() or who.startswith("-") or (in_conf and who.upper() == "DEFAULT"):
        where = "slurm.conf" if in_conf else "sacctmgr"
        raise InputError(f"change {change[:80]!r}: {where} cannot hold the {dimension} {who[:60]!r}: choose another")


def written_time(minutes: int) -> str:
    """Return the time as slurm.conf and sacctmgr read it: days-hours:minutes:seconds."""
    days, rest = divmod(minutes, DAY_S // 60)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00"
