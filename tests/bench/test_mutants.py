"""`make mutants`: its modules and tests are there, and mutmut reads the settings."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bench.mutants import run
from bench.mutants.aims import AIMS
from tests.conftest import REPOSITORY


@pytest.mark.parametrize("module", AIMS)
def test_every_aimed_module_and_test_is_there(module: str, tmp_path: Path) -> None:
    assert (REPOSITORY / module).is_file()
    assert [test for test in AIMS[module] if not (REPOSITORY / test.partition("::")[0]).exists()] == []
    for name in ("models", "tests"):
        (tmp_path / name).mkdir(exist_ok=True)
    settings = tomllib.loads(run._settings(tmp_path, module))["tool"]["mutmut"]
    assert settings["only_mutate"] == [module]
    assert sorted(settings["also_copy"]) == ["models", "tests"]
    assert settings["pytest_add_cli_args_test_selection"] == list(AIMS[module])


def test_an_unknown_module_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["features/unknown.py"]) == 2
    assert "unknown module 'features/unknown.py'; known: features/observe.py" in capsys.readouterr().err
