"""Options, script and chain file: what is wrong is one line and status 2, and what is right reaches sbatch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agent.chains import submission
from agent.chains.chain import from_file, make
from agent.chains.state import Folder, LinkAttempt, new_chain_state
from tests.agent.fake_slurm import START_S
from tests.agent.lab import SCRIPT, artifact, chain_of, run

WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("no limit", {"script": "#!/bin/sh\nsleep 1\n"}, "no time limit: set #SBATCH --time there"),
    ("a limit after a command", {"script": "#!/bin/sh\nsleep 1\n#SBATCH -t 5\n"}, "no time limit"),
    (
        "no interpreter",
        {"script": "sleep 1\n"},
        "does not begin with #! and an interpreter; sbatch needs that, as #!/bin/sh",
    ),
    (
        "an array",
        {"script": "#!/bin/sh\n#SBATCH -t 5 --array=1-3\n"},
        "--array is not allowed in a chain",
    ),
    ("a bad line", {"script": "#!/bin/sh\n#SBATCH -t '5\n"}, "job.sh:2: No closing quotation"),
    ("unknown key", {"toml": "linkz = 3"}, "unknown key 'linkz'; known: script, links"),
    ("the wrong type", {"toml": "links = '3'"}, "links is '3', which has the wrong type"),
    ("no TOML", {"toml": "links ="}, "not TOML"),
    ("no links", {"links": None}, "links is missing; a chain needs a script, and --links 5 or --work 10d"),
    ("a limit of Baton", {"script": "#!/bin/sh\n#SBATCH -t 6h\n"}, "sbatch option --time is '6h'; write 30 (minutes)"),
    ("zero links", {"links": "0"}, "links is 0; allowed: 1 to 1000"),
    ("a hostile name", {"more": ["--name", "a;rm -rf ~"]}, "name is 'a;rm -rf ~'; allowed: up to 40"),
    (
        "an unusual overlap",
        {"more": ["--most-overlap", "nan"]},
        "most_overlap_h: duration 'nan' is not understood",
    ),
    ("too much overlap", {"more": ["--most-overlap", "9999d"]}, "most_overlap_h is 239976; allowed: 0 to 10000"),
    ("a cycle that is too short", {"more": ["--cycle", "00:05"]}, "cycle_s is 5; allowed: 10 to 3600"),
    ("a status of no failure", {"more": ["--more-status", "0"]}, "more_status is 0; allowed: 1 to 255"),
    ("an own dependency", {"more": ["--", "--dependency=afterok:1"]}, "--dependency is not allowed in a chain"),
    ("an own name", {"more": ["--", "-J", "x"]}, "-J is not allowed in a chain: the agent sets it"),
    (
        "a name cut short",
        {"more": ["--", "--arr=1-3"]},
        "--array is not allowed in a chain: a link is exactly one job",
    ),
    ("two words", {"more": ["--", "--depend", "afterok:1"]}, "--dependency is not allowed in a chain"),
    (
        "another user",
        {"more": ["--", "--uid=1"]},
        "--uid is not allowed in a chain: the agent sees only jobs",
    ),
    (
        "several parts",
        {"script": "#!/bin/sh\n#SBATCH -t 5\n#SBATCH hetjob\n#SBATCH -N 2\n"},
        "hetjob is not allowed in a chain: a link cannot be a heterogeneous job",
    ),
    ("parts on the line", {"more": ["--", "-N1", ":", "-N2"]}, ": is not allowed in a chain: a link cannot be"),
    ("a mere test", {"script": "#!/bin/sh\n#SBATCH -t 5 --test-only\n"}, "--test-only is not allowed in a chain"),
    ("deep TOML", {"toml": "links = " + "[" * 5000}, "not TOML"),
    ("is not a job id", {"more": ["--first", "1_2"]}, "first is '1_2'; allowed: a job id"),
    ("a NUL", {"more": ["--", "--comment=a\0b"]}, "must be text without NUL"),
    ("no file", {"more": ["--chain", "/nowhere/chain.toml"]}, "/nowhere/chain.toml: No such file"),
    ("no script", {"more": [], "missing": True}, "job.sh: No such file"),
    ("too long", {"script": SCRIPT + "#" * (4 << 20)}, "which Slurm does not accept"),
    ("no policy", {"artifact": "nowhere"}, "holds no released policy"),
    ("no such setting", {"more": ["--setting", "9"]}, "setting is 9; allowed for this policy: 0 to 4"),
]


@pytest.mark.parametrize(("given", "part"), [pytest.param(g, p, id=name) for name, g, p in WRONG])
def test_bad_input_is_one_line_and_status_2(
    tmp_path: Path,
    given: dict[str, Any],
    part: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))  # no Slurm is asked
    artifact(tmp_path / "released")
    script = tmp_path / "job.sh"
    if not given.get("missing"):
        script.write_text(given.get("script", SCRIPT))
    arguments = ["run", "--artifact", str(tmp_path / given.get("artifact", "released")), "--state", str(tmp_path / "s")]
    if "toml" in given:
        (tmp_path / "chain.toml").write_text(given["toml"])
        arguments += ["--chain", str(tmp_path / "chain.toml")]
    links = given.get("links", "3")
    arguments += [str(script), *(["--links", links] if links else []), *given.get("more", [])]
    code, err = run(capsys, *arguments)
    assert code == 2 and err.startswith("baton-agent: ") and err.count("\n") == 1 and part in err
    assert not (tmp_path / "s").exists()


def test_without_slurm_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    chain = chain_of(tmp_path)
    where = ("--artifact", str(chain.artifact), "--state", str(tmp_path / "s"))
    code, err = run(capsys, "run", str(chain.script), "--links", "2", *where)
    assert code == 1 and "scontrol: cannot be run: No such file" in err


def test_a_chain_file_under_the_command_line(tmp_path: Path) -> None:
    chain_of(tmp_path)
    (tmp_path / "chain.toml").write_text(
        'script = "job.sh"\nlinks = 5\nartifact = "released"\noptions = ["--time=1:00:00", "-p", "gpu"]\n'
    )
    chain = make(from_file(tmp_path / "chain.toml") | {"links": 2})
    assert (chain.script, chain.links, chain.limit_s) == (tmp_path / "job.sh", 2, 3600)
    assert chain.name == "job" and chain.submitted_options[-2:] == ("-p", "gpu")


def test_durations_of_a_chain_may_be_written_as_slurm_writes_them(tmp_path: Path) -> None:
    chain_of(tmp_path)
    file = 'script = "job.sh"\nlinks = 5\nartifact = "released"\nmost_overlap_h = "0-00:30:00"\ncycle_s = "02:00"\n'
    (tmp_path / "chain.toml").write_text(file)
    chain = make(from_file(tmp_path / "chain.toml"))
    assert (chain.most_overlap_h, chain.cycle_s) == (0.5, 120.0)
    assert make(from_file(tmp_path / "chain.toml") | {"most_overlap_h": "UNLIMITED"}).most_overlap_h == float("inf")
    assert make(from_file(tmp_path / "chain.toml") | {"most_overlap_h": "2"}).most_overlap_h == 2.0
    assert chain_of(tmp_path).most_overlap_h == 1.0, "bounded where nothing is said"


def test_options_reach_sbatch_as_they_are_and_never_a_shell(tmp_path: Path) -> None:
    chain = chain_of(tmp_path, options=("--comment=$(touch x); *", "--chdir=/tmp"))
    argv = submission.arguments(chain, LinkAttempt(2, 1, "train-00000000-2.1", START_S, "afterany:7"))
    assert argv == ["sbatch", "--parsable", "--job-name=train-00000000-2.1", "--dependency=afterany:7",
                    "--comment=$(touch x); *", "--chdir=/tmp", str(chain.script)]  # fmt: skip
    chain = chain_of(tmp_path)
    assert f"--chdir={tmp_path}" in submission.arguments(chain, LinkAttempt(1, 1, "n", START_S))


def test_what_is_wrong_with_an_argument_is_so_for_a_chain_that_has_begun_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain, folder = chain_of(tmp_path), Folder(tmp_path / "s")
    folder.make()
    folder.save(new_chain_state("train", str(chain.script), 2))
    where = ["run", str(chain.script), "--links", "2", "--state", str(folder.path)]
    for more in (["--setting", "99"], ["--artifact", str(tmp_path / "nowhere")], ["--chain", str(tmp_path / "none")]):
        assert run(capsys, *where, *more)[0] == 2
