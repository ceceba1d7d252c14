"""What a diff of slurm.conf is predicted to do, and what a real Slurm does with it.

One diff on 24 jobs, in a minute and a half. `make live` then runs `tests.live.advice`: every diff on 200 jobs, on this
machine's own Slurm, in twenty minutes.
"""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from models.study.slurm.files import SlurmDescription
from models.what_if.advice.conf_text import applied
from models.what_if.advice.declared import edited_description
from models.what_if.advice.slurm_diff import slurm_diff
from simulator.slurm.inputs.cluster import cluster
from tests.conftest import skip_or_fail
from tests.live import advice, recording
from tests.live.slurm import OWN, Cluster, Slurm, end_daemons, missing
from traces.slurm.conf import read_slurm_conf

pytestmark = pytest.mark.live


def test_a_real_slurm_does_what_was_predicted_of_a_diff(version: str, tmp_path: Path) -> None:
    """The stream before and after a diff that is predicted to be bad: slurmctld accepts it, and the waits grow."""
    if reason := missing(clock=True, version=version):
        skip_or_fail("slurm" if version == OWN else f"slurm-{version}", reason)
    before, after = tmp_path / "before", tmp_path / "after"
    advice.run_before(before, advice.SHORT, version)
    diff = advice.diff_of(before, advice.SHORT_CHANGE)
    assert not diff.by_hand
    advice.run_after(after, advice.SHORT, diff, version)

    advice.check_accepted(diff, after)
    found = advice.compare(before, after, diff, advice.SHORT)
    print(f"\nSlurm {version}\n{advice.table({advice.SHORT_CHANGE: found})}")
    assert found.jobs >= advice.SHORT.jobs - 1
    assert found.verdict == "more"
    assert found.same_sign
    assert found.is_within(0.999)  # at 95 % one of twenty runs fails by chance


COMMANDS = (
    "max_jobs.qos.normal=3 and max_nodes.qos.normal=2",
    "max_nodes.qos.normal=UNLIMITED and max_nodes.qos.normal=7",
    "max_jobs.account.science=6 and max_nodes.user.root=4",
    "max_jobs.account.science=5",
    "max_jobs.user.root=2 and limit.user.root=2h and limit.qos.normal=1-0",
    "priority.qos.normal=+500",
    "priority.user.root=+800",
    "priority.limit.4h=+900 and priority.nodes.1=+950",
    "max_jobs.user.root=UNLIMITED and max_jobs.qos.normal=UNLIMITED",
)


CLUSTER_CHANGES = (
    "default_limit.partition.gpu=30m",
    "conf.partition.gpu.OverSubscribe=EXCLUSIVE",
    "nodes.like.n1=+1",
    "nodes.like.n1=-1",
    "merge.partition.urgent=gpu",
    "partition.fast.limit.1h=n1",
)


def check_cluster_changes(slurm: Slurm) -> None:
    """Start slurmctld anew with changes of nodes and partitions: it knows them and names none of them as wrong."""
    conf, log = slurm.folder / "etc/slurm.conf", slurm.folder / "log/slurmctld.log"
    text = applied(conf.read_text(), slurm_diff(CLUSTER_CHANGES, read_slurm_conf(conf)).conf)
    host = "NodeHostname=localhost NodeAddr=127.0.0.1 Port=7"  # of the new node, which a person names
    conf.write_text(text.replace("NodeName=new1 ", f"NodeName=new1 {host} "))
    end_daemons([slurm.pid("slurmctld")])
    old = len(log.read_bytes())
    slurm.daemon("slurmctld")
    slurm.wait(30, lambda: "UP" in slurm.run("scontrol", "ping"), "slurmctld")
    lines = slurm.run("scontrol", "show", "partition", "-o").splitlines()
    shown = {words[0].partition("=")[2]: set(words) for words in map(str.split, lines)}
    assert {"DefaultTime=00:30:00", "TotalNodes=2"} <= shown["gpu"]
    assert {"OverSubscribe=EXCLUSIVE", "Exclusive=NODE"} & shown["gpu"]
    assert "State=DRAIN" in shown["urgent"] and "Nodes=n1" in shown["fast"]
    said = log.read_bytes()[old:].decode(errors="replace")
    assert "Down nodes: n1" in said
    assert not [
        line for line in said.splitlines() if "error" in line and any(name in line for name in (*shown, "new1"))
    ]


def test_the_database_then_holds_what_is_simulated(version: str, tmp_path: Path) -> None:
    """Every kind of command: the dumps that follow it make the same QOS and associations as the edit of the dumps."""
    enforced = Cluster(
        nodes=1, settings={"AccountingStorageEnforce": "associations,limits,qos", "PriorityWeightQOS": "1000"}
    )
    with Slurm.running(enforced, version=version) as slurm:
        (tmp_path / "slurm.conf").write_text((slurm.folder / "etc/slurm.conf").read_text())

        def described() -> SlurmDescription:
            for what in ("qos", "assoc"):
                (tmp_path / f"{what}.psv").write_text(slurm.run("sacctmgr", "show", what, "-P"))
            return recording.described(tmp_path)

        for change in COMMANDS:
            before = described()
            diff = slurm_diff([change], before.conf, before.qos)
            assert diff.accounts
            for edit in diff.accounts:
                program, *words = edit.command
                slurm.run(program, "-i", *words)
            simulated, held = (cluster(*one) for one in (edited_description(before, diff), described()))
            assert simulated.qos.names == held.qos.names
            for one, other in ((simulated.qos, held.qos), (simulated.associations, held.associations)):
                for field in fields(one):
                    np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name), field.name)
        check_cluster_changes(slurm)
