"""The files that set up a contributor's workplace say the same as the Makefile and pyproject.toml."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from vulture import Vulture

from tests.conftest import LONGEST, REPOSITORY

MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def loaded(name: str) -> Any:
    """The values of a YAML file of the repository."""
    return yaml.safe_load((REPOSITORY / name).read_text(encoding="utf-8"))


def recipe(target: str) -> str:
    """The commands of a target of the Makefile."""
    (commands,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    return str(commands)


def test_every_tool_of_make_lint_runs_before_a_commit() -> None:
    (local,) = loaded(".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"
    entries = [shlex.split(hook["entry"]) for hook in local["hooks"]]
    assert all(hook["language"] == "system" for hook in local["hooks"])
    for tool, *_ in entries:
        assert (REPOSITORY / tool).is_file(), tool
    before_commit = {" ".join([Path(tool).name, *rest]).removesuffix(" --force-exclude") for tool, *rest in entries}
    in_lint = {command.removesuffix(" .") for command in re.findall(r"\$\(BIN\)/([^&\n]*\w)", recipe("lint"))}
    assert before_commit == in_lint


def test_the_hosted_run_only_calls_ci_run() -> None:
    (job,) = loaded(".github/workflows/ci.yml")["jobs"].values()
    checkout, *commands = job["steps"]
    assert checkout["uses"].startswith("actions/checkout@")
    assert [command["run"] for command in commands] == [".ci/run ${{ matrix.target }}"]
    assert all(recipe(target) for target in job["strategy"]["matrix"]["target"])


def test_every_name_that_is_excused_from_the_search_for_dead_code_needs_it() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["vulture"]
    search = Vulture(ignore_names=["test_*"], ignore_decorators=settings["ignore_decorators"])
    search.scavenge([str(REPOSITORY / folder) for folder in settings["paths"]])
    unused = {item.name for item in search.get_unused_code(min_confidence=60)}
    stale = [name for name in settings["ignore_names"] if name != "test_*" and name not in unused]
    assert not stale, f"take these names out of ignore_names of [tool.vulture] in pyproject.toml: {stale}"


@pytest.mark.parametrize("field", ["version", "license"])
def test_the_citation_names_this_release(field: str) -> None:
    assert loaded("CITATION.cff")[field] == PROJECT[field]


def test_the_files_that_begin_a_run_are_there() -> None:
    assert [name for name in LONGEST if not (REPOSITORY / name).is_file()] == []
