"""Chains on a busy real Slurm, reactive ones and those of a policy whose agents are killed; told in one last line.

    python -m tests.live.proof [--champion DIR] [--out FOLDER] [--chains 10] [--links 4] [--kills 50] [--rate 600]

As root, after `make system`. Without `--champion` the policy is `start-expected` at its default, a rule that needs no
fit. Both meet the same background, submitted at the same moments of the fast clock. FOLDER keeps the figures and the
decision logs. Exit status 1 where a link was lost or doubled, or an agent was not the ordinary user's.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from models.policies.estimates import start_expected
from models.policies.reactive import Reactive
from models.protocol import Policy
from tests.live.audit import Audit, last_line
from tests.live.chains import run
from tests.live.slurm import missing
from tests.models.generated import identity_table


def released(policy: Policy, folder: Path) -> Path:
    """The artifact of a policy that fits nothing, whatever pairs it is given."""
    policy.fit(identity_table(pairs=1), 0)[0].save(folder)
    return folder


def prove(champion: Path | None, out: Path, *, kills: int, **shape: Any) -> tuple[str, bool]:
    """Keep the chains. Returns the last line, and whether all kills were made and nothing is wrong."""
    with tempfile.TemporaryDirectory(prefix="baton-proof-") as place:
        reactive = _kept(released(Reactive(), Path(place) / "reactive"), out / "reactive", kills=0, **shape)
        policy = champion or released(start_expected(), Path(place) / "start-expected")
        found = _kept(policy, out / "policy", kills=kills, **shape)
    wrong = Audit(*((*reactive[name], *found[name]) for name in ("lost", "doubled", "strangers")))
    for line in (*wrong.lost, *wrong.doubled, *wrong.strangers):
        print(line)
    return last_line(found, reactive, found["kills"], wrong), wrong == Audit() and found["kills"] == kills


def _kept(artifact: Path, logs: Path, **shape: Any) -> dict[str, Any]:
    """Chains under one policy: what came of them, printed and kept beside the logs."""
    told = run(artifact, logs, **shape)
    logs.with_suffix(".json").write_text(json.dumps(told, indent=1))
    ends = {
        name: f"{told[name]:.2f} h [{told[f'{name}_low']:.2f}, {told[f'{name}_high']:.2f}]"
        for name in ("interruption_h", "overlap_h")
    }
    words = (
        f"{told['policy']}: {told['links']} handovers of {told['chains']} chains",
        f"interruption {ends['interruption_h']}, overlap {ends['overlap_h']}",
        f"without interruption {told['zero_share']:.0%}",
        f"clock x{told['rate']:g}, a look every {told['cycle_s'] / 60:g} min",
    )
    print(", ".join(words), flush=True)
    return told


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--champion", type=Path)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "baton-proof")
    parser.add_argument("--chains", type=int, default=10)
    parser.add_argument("--links", type=int, default=4)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rate", type=float, default=600.0)
    given = parser.parse_args()
    reason = missing(clock=True)
    if reason:
        sys.exit(reason)
    line, is_good = prove(
        given.champion, given.out, chains=given.chains, links=given.links, side_by_side=min(5, given.chains),
        rate=given.rate, cycle_s=600.0, kills=given.kills,
    )  # fmt: skip
    print(line)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
