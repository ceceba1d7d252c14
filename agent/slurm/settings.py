"""Settings and partitions of this Slurm, as an ordinary user may see them: two calls of scontrol."""

from __future__ import annotations

from dataclasses import dataclass

from agent.slurm.commands import Commands, SlurmError
from agent.slurm.queue import UNLIMITED_S
from traces.slurm.text import expand_nodes, parse_duration_s, parse_limit_s, parse_tres

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


def read_settings(commands: Commands) -> ScontrolConfig:
    """Read the current settings. Raises SlurmError."""
    return parse_settings(commands.run("scontrol", "show", "config"))


def parse_settings(text: str) -> ScontrolConfig:
    """Parse `scontrol show config`: `Key = Value` lines under a line with the time (epoch s). Raises SlurmError."""
    lines = [line.partition("=") for line in text.splitlines()]
    values = {key.strip(): value.strip() for key, equals, value in lines if equals}
    now = text.partition("\n")[0].rsplit(" ", 1)[-1]
    if not now.isdigit() or "SLURM_VERSION" not in values:
        raise SlurmError("nonsense", "scontrol", "its answer holds no configuration")
    most_age = values.get("PriorityMaxAge", "")
    weight = values.get("PriorityWeightAge", "0")
    try:
        age_most_s = int(parse_duration_s(most_age)) if most_age else 0
    except ValueError as error:
        raise SlurmError("nonsense", "scontrol", f"PriorityMaxAge: {error}") from error
    return ScontrolConfig(
        version=values["SLURM_VERSION"],
        cluster=values.get("ClusterName", ""),
        now_s=int(now),
        private=_words(values.get("PrivateData", "")),
        priority_type=values.get("PriorityType", ""),
        age_weight=int(weight) if weight.isdigit() else 0,
        age_most_s=age_most_s,
        enforced=_words(values.get("AccountingStorageEnforce", "")),
    )


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in text.split(",") if word not in ("", "none", "(null)"))


def read_partitions(commands: Commands) -> dict[str, Partition]:
    """Read every partition by name. Raises SlurmError."""
    return parse_partitions(commands.run("scontrol", "--oneliner", "--all", "show", "partition"))


def parse_partitions(text: str) -> dict[str, Partition]:
    """Parse one line per partition: `Key=Value` separated by blanks. Raises SlurmError."""
    found: dict[str, Partition] = {}
    for line in text.splitlines():
        values = {key: value for key, _, value in (word.partition("=") for word in line.split())}
        if "PartitionName" in values:
            try:
                partition = _partition(values)
            except ValueError as error:
                raise SlurmError("nonsense", "scontrol", f"partition {values['PartitionName']}: {error}") from error
            found[partition.name] = partition
    return found


def _partition(values: dict[str, str]) -> Partition:
    limit_s = parse_limit_s(values.get("MaxTime", ""))
    tier = values.get("PriorityTier", "1")
    tres = values.get("TRES", "").replace("(null)", "")
    qos = values.get("QoS", "N/A")
    return Partition(
        name=values["PartitionName"],
        nodes=frozenset(expand_nodes(values.get("Nodes", ""))),
        tier=int(tier),
        qos="" if qos == "N/A" else qos,
        limit_s=UNLIMITED_S if limit_s is None else limit_s,
        is_default=values.get("Default") == "YES",
        whole={name: int(count) for name, count in parse_tres(tres).items() if count.isdigit()},
    )
