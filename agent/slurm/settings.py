"""Settings and partitions of this Slurm, as an ordinary user may see them: two calls of scontrol."""

from __future__ import annotations

from dataclasses import dataclass

from agent.slurm.commands import Commands, SlurmError, answer_lines
from agent.slurm.numbers import (
    MOST_NAMES,
    UNLIMITED_S,
    bounded,
    time_limit_s,
    tres_counts,
    whole_number,
    whole_number_or_none,
)
from traces.slurm.text import expand_nodes, parse_duration_s

BASIC = "priority/basic"


@dataclass(frozen=True)
class ScontrolConfig:
    """Settings of slurm.conf, from `scontrol show config`."""

    version: str
    cluster: str
    now_s: int  # the controller's clock when it answered, epoch s
    private: frozenset[str]  # PrivateData: jobs, nodes, usage ...
    priority_type: str  # priority/multifactor or priority/basic
    age_weight: int  # priority that a job gains by waiting age_most_s
    age_most_s: int
    enforced: frozenset[str]  # AccountingStorageEnforce: associations, limits, qos ...
    flags: frozenset[str] = frozenset()  # PriorityFlags
    qos_weight: int = 0  # priority of a job of the QOS of highest Priority
    qos_preempts: bool = False  # PreemptType=preempt/qos
    needs_all: bool = False  # EnforcePartLimits=ALL: a job must fit each of its partitions

    @property
    def is_qos_raw(self) -> bool:
        """Whether the weight multiplies the Priority of a QOS, not its share of the highest one."""
        return bool({"NO_NORMAL_QOS", "NO_NORMAL_ALL"} & self.flags)

    @property
    def ages_held(self) -> bool:
        """Whether a job gains priority while a dependency holds it."""
        return "ACCRUE_ALWAYS" in self.flags and self.priority_type != BASIC and self.age_weight * self.age_most_s > 0


@dataclass(frozen=True)
class Partition:
    """A partition. whole: the total resources of its nodes by TRES name: node, cpu, gres/gpu ..."""

    name: str
    nodes: frozenset[str]
    tier: int
    qos: str  # the QOS whose limits apply in it; "" if none
    limit_s: int  # longest time limit; UNLIMITED_S if it has none
    is_default: bool
    whole: dict[str, int]
    allows: tuple[tuple[str, frozenset[str]], ...] = ()  # AllowAccounts, DenyAccounts, AllowQos, DenyQos: those set

    def refusal(self, account: str, qos: str) -> str:
        """Explain why Slurm would never start a job of this account and QOS here; "" if it may. "": not known.

        With EnforcePartLimits=NO, the default, sbatch accepts such a job, and it waits for ever.
        """
        for key, names in self.allows:
            value, of = (account, "account") if key.endswith("Accounts") else (qos, "QOS")
            if value and (value in names) != key.startswith("Allow"):
                return f"partition {self.name} does not allow {of} {value}: {key}={','.join(sorted(names))}"
        return ""


def read_settings(commands: Commands) -> ScontrolConfig:
    """Read the current settings. Raises SlurmError."""
    return parse_settings(commands.run("scontrol", "show", "config"))


def parse_settings(text: str) -> ScontrolConfig:
    """Parse `scontrol show config`: `Key = Value` lines under a line with the time (epoch s). Raises SlurmError."""
    lines = [line.partition("=") for line in answer_lines("scontrol", text)]
    values = {key.strip(): value.strip() for key, equals, value in lines if equals}
    now_s = whole_number_or_none(text.partition("\n")[0].rsplit(" ", 1)[-1])
    if now_s is None or "SLURM_VERSION" not in values:
        raise SlurmError("nonsense", "scontrol", "its answer holds no configuration")
    most_age = values.get("PriorityMaxAge", "")
    try:
        age_most_s = int(parse_duration_s(most_age)) if most_age else 0
    except ValueError as error:
        raise SlurmError("nonsense", "scontrol", f"PriorityMaxAge: {error}") from error
    return ScontrolConfig(
        version=values["SLURM_VERSION"],
        cluster=values.get("ClusterName", ""),
        now_s=now_s,
        private=_words(values.get("PrivateData", "")),
        priority_type=values.get("PriorityType", ""),
        age_weight=whole_number_or_none(values.get("PriorityWeightAge", "")) or 0,
        age_most_s=age_most_s,
        enforced=_words(values.get("AccountingStorageEnforce", "")),
        flags=_words(values.get("PriorityFlags", "")),
        qos_weight=whole_number_or_none(values.get("PriorityWeightQOS", "")) or 0,
        qos_preempts=values.get("PreemptType") == "preempt/qos",
        needs_all=values.get("EnforcePartLimits") == "ALL",
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in text.split(",") if word not in ("", "none", "(null)"))


def read_partitions(commands: Commands) -> dict[str, Partition]:
    """Read every partition by name. Raises SlurmError."""
    return parse_partitions(commands.run("scontrol", "--oneliner", "--all", "show", "partition"))


def hidden_partitions(names: str, nodes: int) -> dict[str, Partition]:
    """Make stand-ins for the partitions of a request where Slurm shows none: as many nodes as it asks for, no limits.

    names: as in `--partition`, separated by commas; "" for the cluster's default.
    """
    place = frozenset(f"hidden{n}" for n in range(nodes))
    return {
        name: Partition(name, place, 0, "", UNLIMITED_S, is_default=not names, whole={})
        for name in (names or "default").split(",")
    }


def parse_partitions(text: str) -> dict[str, Partition]:
    """Parse `Key=Value` words, one line per partition. Raises SlurmError, also for over MOST_NAMES nodes."""
    found: dict[str, Partition] = {}
    named = 0
    for line in answer_lines("scontrol", text):
        values = {key: value for key, _, value in (word.partition("=") for word in line.split())}
        if "PartitionName" in values:
            try:
                partition = _partition(values)
                named = bounded(named + len(partition.nodes), MOST_NAMES)
            except ValueError as error:
                raise SlurmError("nonsense", "scontrol", f"partition {values['PartitionName']}: {error}") from error
            found[partition.name] = partition
    return found


def _partition(values: dict[str, str]) -> Partition:
    tres = values.get("TRES", "").replace("(null)", "")
    qos = values.get("QoS", "N/A")
    return Partition(
        name=values["PartitionName"],
        nodes=frozenset(expand_nodes(values.get("Nodes", ""))),
        tier=whole_number(values.get("PriorityTier", "1")),
        qos="" if qos == "N/A" else qos,
        limit_s=time_limit_s(values.get("MaxTime", "")),
        is_default=values.get("Default") == "YES",
        whole=tres_counts(tres),
        allows=tuple(
            (key, frozenset(text.lower().split(",")))
            for key in ("AllowAccounts", "DenyAccounts", "AllowQos", "DenyQos")
            if (text := values.get(key, "ALL")) not in ("ALL", "(null)", "")
        ),
    )
