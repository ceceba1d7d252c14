"""Chains on a busy real Slurm: reactive ones, those of other policies, and those of one whose agents are killed.

    python -m tests.live.proof [--champion DIR] [--beside DIR]... [--repeats 1] [--out FOLDER] [--chains 10]
        [--links 4] [--kills 50] [--rate 600]

As root, after `make system`. Without `--champion` the policy is `start-expected` at its default, a rule that needs no
fit. All meet the same background, submitted at the same moments of the fast clock, in turn, `--repeats` times. FOLDER
keeps the figures and the decision logs of each; what it holds already is not run again. Then all repeats together,
95 % by draws of whole chains, and the last line. Exit status 1 where a link was lost or doubled, or an agent was not
the ordinary user's.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from models.provisioning.policies.estimates import start_by_expected_run_times
from models.provisioning.policies.reactive import Reactive
from models.provisioning.protocol import Policy
from tests.live.audit import Audit, last_line
from tests.live.chains import Link, figures, run
from tests.live.slurm import missing
from tests.models.generated import identity_table

Measured = dict[str, Any]


def released(policy: Policy, folder: Path) -> Path:
    """The artifact of a policy that fits nothing, whatever pairs it is given."""
    policy.fit(identity_table(pairs=1), 0)[0].save(folder)
    return folder


def prove(policies: dict[str, Path], out: Path, *, repeats: int, kills: int, **shape: Any) -> tuple[str, bool]:
    """Keep the chains; the last of `policies` is the one whose agents are killed, the first what it is compared with.

    Returns the last line, and whether all kills were made and nothing is wrong.
    """
    first, *_, last = policies
    result: dict[str, list[Measured]] = {name: [] for name in policies}
    for repeat in range(1, repeats + 1):
        for name, artifact in policies.items():
            logs = out / f"repeat{repeat}" / name
            result[name].append(_kept(artifact, logs, kills=kills if name == last else 0, **shape))
    together = {name: pooled(found) for name, found in result.items()}
    for name, found in together.items():
        print(_in_words(name, found) + ("" if name == first else _against(found, together[first])))
    every = [one for found in result.values() for one in found]
    wrong = Audit(*(tuple(line for one in every for line in one[name]) for name in ("lost", "doubled", "strangers")))
    for line in (*wrong.lost, *wrong.doubled, *wrong.strangers):
        print(line)
    made = sum(one["kills"] for one in result[last])
    return last_line(together[last], together[first], made, wrong), wrong == Audit() and made == kills * repeats


def _kept(artifact: Path, logs: Path, **shape: Any) -> Measured:
    """Chains under one policy: what came of them, printed and kept beside the logs."""
    record = logs.with_suffix(".json")
    if record.exists():
        answer: Measured = json.loads(record.read_text())
        answer |= figures([Link(**link) for link in answer["all"]])
        print(f"{record} was there: not run again")
    else:
        answer = run(artifact, logs, **shape)
        record.write_text(json.dumps(answer, indent=1))
    looks = f", clock x{answer['rate']:g}, a look every {answer['cycle_s'] / 60:g} min"
    print(f"{logs.parent.name}, {_in_words(answer['policy'], answer)}{looks}", flush=True)
    return answer


def pooled(repeats: list[Measured]) -> Measured:
    """The figures of all repeats. A chain meets the same hours in each: its links in all of them are drawn as one."""
    links = [Link(**link) for one in repeats for link in one["all"]]
    return figures(links) | {"all": links, "chains": sum(one["chains"] for one in repeats)}


def _in_words(name: str, found: Measured) -> str:
    ends = (
        f"{words} {found[key]:.2f} h [{found[f'{key}_low']:.2f}, {found[f'{key}_high']:.2f}]"
        for words, key in (("interruption", "interruption_h"), ("overlap", "overlap_h"))
    )
    handovers = f"{name}: {found['links']} handovers of {found['chains']} chains"
    rest = (
        f"without interruption {found['zero_share']:.0%}",
        f"waits beyond a whole link {found['unavoidable_h']:.2f} h",
    )
    return ", ".join((handovers, *ends, *rest))


def share_left(links: list[Link], others: list[Link]) -> tuple[float, float, float]:
    """Mean interruption of the links over that of the others, and its 95 % by draws of chains, the same for both."""
    names = sorted({link.chain for link in (*links, *others)})
    lost_h, count = np.zeros((2, len(names))), np.zeros((2, len(names)))
    for row, some in enumerate((links, others)):
        for link in some:
            lost_h[row, names.index(link.chain)] += max(link.gap_h, 0.0)
            count[row, names.index(link.chain)] += 1
    draws = np.random.default_rng(0).integers(0, len(names), (2000, len(names)))
    draws = np.concatenate([np.arange(len(names))[None], draws])  # the chains themselves come first
    means = lost_h[:, draws].sum(axis=2) / count[:, draws].sum(axis=2)
    share = means[0] / means[1]
    low, high = np.quantile(share[1:], (0.025, 0.975))
    return float(share[0]), float(low), float(high)


def _against(found: Measured, other: Measured) -> str:
    share, low, high = share_left(found["all"], other["all"])
    return f", {share:.2f} [{low:.2f}, {high:.2f}] of the first's interruption"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--champion", type=Path)
    parser.add_argument("--beside", type=Path, action="append", default=[], help="an artifact to run before it")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a new folder if not given")
    parser.add_argument("--chains", type=int, default=10)
    parser.add_argument("--links", type=int, default=4)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rate", type=float, default=300.0)
    given = parser.parse_args()
    reason = missing(clock=True)
    if reason:
        sys.exit(reason)
    with tempfile.TemporaryDirectory(prefix="baton-proof-") as place:
        policies = {"reactive": released(Reactive(), Path(place) / "reactive")}
        policies |= {folder.name: folder for folder in given.beside}
        policies["policy"] = given.champion or released(start_by_expected_run_times(), Path(place) / "start-expected")
        out = given.out or Path(tempfile.mkdtemp(prefix="baton-proof-"))
        print(f"logs and figures in {out}", flush=True)
        line, is_good = prove(
            policies, out, repeats=given.repeats, kills=given.kills, chains=given.chains, links=given.links,
            side_by_side=min(5, given.chains), rate=given.rate, cycle_s=600.0,
        )  # fmt: skip
    print(line)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
