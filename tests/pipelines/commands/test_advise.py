"""`baton advise`: the search, the advice, its check afterwards, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models.what_if.recorded import cases
from tests.pipelines.commands.test_whatif_recorded import CONF
from tests.pipelines.conftest import Baton

WEIGHTS = "PriorityType=priority/multifactor\nPriorityWeightAge=1000\nPriorityWeightQOS=1000\n"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The busy cluster of `cases`, with its slurm.conf."""
    folder = cases.in_warehouse(tmp_path_factory.mktemp("advise"))
    (folder.root / "slurm.conf").write_text(CONF + WEIGHTS, encoding="utf-8")
    (folder.root / "qos.psv").write_text("Name|Priority\nnormal|0\n", encoding="utf-8")
    rows = "".join(f"lab|{account}||1|normal\n" for account in ("root", "odd", "even"))
    users = "".join(f"lab|{'odd' if n % 2 else 'even'}|user{n}|1|normal\n" for n in range(40))
    (folder.root / "assoc.psv").write_text(f"Cluster|Account|User|Share|QOS\n{rows}{users}", encoding="utf-8")
    folder.clusters_toml.write_text('[busy]\nnodes = 6\nslurm_conf = "slurm.conf"\n', encoding="utf-8")
    return folder.root


def test_the_advice_is_printed_with_its_diff_and_can_be_verified(baton: Baton, data: Path) -> None:
    asked = ("advise", "--cluster", "busy", "--data", data, "--objective", "slowdown", "--may", "qos,limits")
    early = baton("advise", "--cluster", "busy", "--data", data, "--verify", "2024-02-10")
    assert early.code == 2 and "there is no advice about cluster 'busy'" in early.err
    text = baton(*asked, "--candidates", 40).out
    assert "(nothing is applied)" in text and "\n   recommended\n" in text
    assert "under the declared slurm.conf the mean wait is" in text
    result = baton(*asked, "--candidates", 40, "--json").json
    assert result["recommended"] == result["candidates"][0]["changes"] and len(result["candidates"]) <= 3
    assert result["slurm_conf"][0].startswith("# mean bounded slowdown: ")
    assert all(one["objective"] == "slowdown" and "why_not" in one for one in result["candidates"])
    verified = baton("advise", "--cluster", "busy", "--data", data, "--verify", "2024-02-10")
    assert verified.out.endswith("cannot tell\n")  # nothing was changed
    given = ("--verify", "2024-02-10", "--change", "max_jobs=1", "--json")
    idle = baton("advise", "--cluster", "busy", "--data", data, "--objective", "utilization", *given[:-1]).out
    assert "recorded share of usable nodes idle before: " in idle and "percentage points" in idle
    named = baton("advise", "--cluster", "busy", "--data", data, "--objective", "mean-wait", *given).json
    assert named["changes"] == "max_jobs=1" and named["predicted"] > 0 and named["verdict"] == "cannot tell"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--objective", "speed"), "unknown objective 'speed': known are mean-wait"),
        (("--may", "magic"), "--may 'magic' is unknown: known are weights, backfill, limits, qos"),
        (("--may", "weights"), "--may weights allows no change in this cluster"),
        (("--keep", "account"), "invalid --keep 'account'; write account=10%"),
        (("--keep", "planet=10%"), "invalid --keep 'planet=10%'"),
        (("--keep", "account=ten%"), "invalid --keep"),
        (("--horizon", "10m"), "--horizon '10m' is shorter than an hour"),
        (("--budget", "soon"), "duration 'soon' is not understood"),
        (("--change", "nodes=+1"), "--change goes with --verify"),
        (("--from", "2024-02-20"), "is shorter than two weeks"),
        (("--verify", "2024-03-03"), "the log holds less than a week since 2024-03-03"),
        (("--verify", "2024-02-10", "--change", "nodes"), "is not understood; write NAME=VALUE"),
    ],
)
def test_what_is_refused(baton: Baton, data: Path, given: tuple[object, ...], why: str) -> None:
    needs = ("--change", "max_jobs=1") if given[0] == "--verify" and len(given) == 2 else ()
    refused = baton("advise", "--cluster", "busy", "--data", data, *given, *needs)
    assert refused.code == 2, refused.out
    assert why in refused.err
