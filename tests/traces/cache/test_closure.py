"""Import closures of small trees of sources, and what changes their digests and what does not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from traces.cache import closure, sources
from traces.cache.closure import Closures
from traces.cache.libraries import installed_version

TREE = {
    "models/__init__.py": '"""Models."""\n',
    "models/step.py": '''"""A step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from simulator import clock
from simulator.names import FIFO as FIRST

if TYPE_CHECKING:
    from traces.typed_only import Told


def compute(told: Told) -> float:
    """Its result."""
    from traces.lazy import SHARE

    return np.float64(clock.now() * SHARE * FIRST)
''',
    "models/registry.py": '''"""Things by name."""

from importlib import import_module

THINGS = {"one": "models.things.one:make", "other": "models.things.other"}
WORDS = "models.things.one is only a word here", "models.things.none_such"


def make(name: str) -> object:
    return import_module(THINGS[name].partition(":")[0])
''',
    "models/words.py": 'THINGS = {"one": "models.things.one:make"}\n',
    "models/things/__init__.py": "",
    "models/things/one.py": "import simulator.names\n",
    "models/things/other.py": "",
    "models/things/unused.py": "",
    "simulator/__init__.py": "",
    "simulator/clock.py": "def now() -> int:\n    return 7\n",
    "simulator/names.py": "FIFO = 1\n",
    "traces/__init__.py": "",
    "traces/lazy.py": "SHARE = 0.5\n",
    "traces/typed_only.py": "class Told: ...\n",
    "reports/__init__.py": "",
    "reports/page.py": "from pathlib import Path\n\nTEMPLATES = Path(__file__).parent\n",
    "reports/templates/page.html": "<p>",
    "reports/__pycache__/page.pyc": "",
}
STEP = {"models", "models.step", "simulator", "simulator.clock", "simulator.names", "traces", "traces.lazy"}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_closure_holds_what_is_imported_however_deep_and_the_packages_on_the_way(tree: Path) -> None:
    assert Closures(tree).closure("models.step") == STEP
    assert Closures(tree).closure("simulator.names", "traces.lazy") == {
        "simulator", "simulator.names", "traces", "traces.lazy",
    }  # fmt: skip


def test_a_registry_names_what_it_may_import(tree: Path) -> None:
    """The same text in a module that imports nothing by name is only a text."""
    things = {"models", "models.registry", "models.things", "models.things.one", "models.things.other"}
    assert Closures(tree).closure("models.registry") == things | {"simulator", "simulator.names"}
    assert Closures(tree).closure("models.words") == {"models", "models.words"}


def test_the_registry_may_be_another_module_than_the_one_that_imports_by_name(tree: Path) -> None:
    (tree / "models" / "loader.py").write_text(
        "from importlib import import_module\nfrom models.words import THINGS\nimport_module(THINGS['one'])\n"
    )
    assert Closures(tree).closure("models.loader") >= {"models.words", "models.things.one", "simulator.names"}


def test_a_closure_can_end_at_a_registry_of_which_one_entry_is_named(tree: Path) -> None:
    (tree / "models" / "step.py").write_text("import models.registry\nimport traces.lazy\n")
    found = Closures(tree).closure("models.step", "models.things.other", but=("models.registry",))
    assert found == {"models", "models.step", "models.things", "models.things.other", "traces", "traces.lazy"}


def test_libraries_are_those_that_the_closure_imports(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Closures(tree).libraries("models.step") == {"numpy"}
    assert Closures(tree).libraries("models.registry") == frozenset()
    before = Closures(tree).digest("models.step"), Closures(tree).digest("models.registry")
    monkeypatch.setattr(closure, "installed_version", lambda library: "99")
    assert Closures(tree).digest("models.step") != before[0]
    assert Closures(tree).digest("models.registry") == before[1]


def test_versions_are_those_of_the_distribution_that_brings_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    from importlib.metadata import version

    assert installed_version("numpy") == version("numpy")
    assert installed_version("no_such_library") is None
    for _ in range(2):  # found, then remembered
        installed_version.cache_clear()
        assert installed_version("sklearn") == f"scikit-learn {version('scikit-learn')}"
        (path,) = tmp_path.rglob("libraries.json")
        assert json.loads(path.read_text()) == {"sklearn": ["scikit-learn"]}
    path.write_text('{"sklearn": ["removed-since"], "PIL": "x"}')
    installed_version.cache_clear()
    assert installed_version("sklearn") == f"scikit-learn {version('scikit-learn')}"


@pytest.mark.parametrize("root", ["models.stop", "numpy", "models.step.compute", ""])
def test_a_root_that_is_no_module_is_named(tree: Path, root: str) -> None:
    with pytest.raises(ModuleNotFoundError, match=f"{root!r} is not a module of pipelines, assets"):
        Closures(tree).digest(root)


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        text = (tree / name).read_text()
        assert old in text
        (tree / name).write_text(text.replace(old, new, 1))

    return change


def new_file(name: str) -> Callable[[Path], None]:
    def change(tree: Path) -> None:
        (tree / name).write_text("x")

    return change


@pytest.mark.parametrize(
    "change",
    [
        edit("models/step.py", "clock.now() * SHARE", "clock.now() + SHARE"),
        edit("simulator/clock.py", "7", "8"),
        edit("traces/lazy.py", "0.5", "0.25"),
        edit("simulator/__init__.py", "", "import traces.typed_only\n"),
        edit("models/step.py", "import numpy as np", "import polars as np"),
    ],
)
def test_a_change_of_code_changes_the_digest(tree: Path, change: Callable[[Path], None]) -> None:
    before = Closures(tree).digest("models.step")
    change(tree)
    assert Closures(tree).digest("models.step") != before


@pytest.mark.parametrize(
    "change",
    [
        edit("models/step.py", "A step.", "A step, in other words."),
        edit("models/step.py", "Its result.", "What it is."),
        edit("models/step.py", "    return", "    # for a reason\n\n    return"),
        edit("models/step.py", "clock.now() * SHARE * FIRST", "\n        clock.now() * SHARE * FIRST\n    "),
        edit("models/step.py", "from traces.typed_only import Told", "from models.registry import THINGS as Told"),
        edit("models/__init__.py", "Models.", "All models."),
        edit("traces/typed_only.py", "Told", "Other"),
        edit("models/registry.py", "one", "other"),
        new_file("models/new.py"),
    ],
)
def test_words_and_what_is_not_imported_do_not(tree: Path, change: Callable[[Path], None]) -> None:
    before = Closures(tree).digest("models.step")
    change(tree)
    assert Closures(tree).digest("models.step") == before


@pytest.mark.parametrize("change", [edit("reports/templates/page.html", "<p>", "<b>"), new_file("reports/rules.toml")])
def test_files_beside_a_module_that_opens_them_count(tree: Path, change: Callable[[Path], None]) -> None:
    assert Closures(tree).opened("reports.page") == ["reports/templates/page.html"]
    before = Closures(tree).digest("reports.page")
    change(tree)
    assert Closures(tree).digest("reports.page") != before


def test_two_checkouts_of_the_same_code_have_one_digest(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other") / "deeper"
    subprocess.run(["/bin/cp", "-r", str(tree), str(other)], check=True)
    assert Closures(tree).digest("models.step", "reports.page") == Closures(other).digest("models.step", "reports.page")


PARSED = """
import sys
from pathlib import Path
from traces.cache import sources
from traces.cache.closure import Closures
parsed, parse = [], sources.parse
sources.parse = lambda text: parsed.append(1) or parse(text)
print(len(parsed), Closures(Path(sys.argv[1])).digest("models.step"), len(parsed))
"""


def digested(tree: Path, cache: Path) -> tuple[str, int]:
    """Digest of the step, and how many sources were parsed for it, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PARSED, str(tree)],
        env={**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONPATH": str(REPOSITORY)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    _, digest, count = done.stdout.split()
    return digest, int(count)


def test_the_next_process_parses_what_is_new(tree: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    distinct = len({TREE[name.replace(".", "/") + suffix] for name in STEP for suffix in (".py", "/__init__.py")
                    if name.replace(".", "/") + suffix in TREE})  # fmt: skip
    first = digested(tree, cache)
    assert first[1] == distinct
    assert digested(tree, cache) == (first[0], 0)
    edit("traces/lazy.py", "0.5", "0.25")(tree)
    assert digested(tree, cache)[1] == 1


@pytest.mark.parametrize("content", ["", "[]", '{"a": 1}', '{"a": [1, 2]}', "\x00"])
def test_damaged_or_unwritable_memory_costs_time_alone(tree: Path, tmp_path: Path, content: str) -> None:
    whole = digested(tree, tmp_path / "cache")
    (kept,) = (tmp_path / "cache" / "baton" / "sources").iterdir()
    assert len(json.loads(kept.read_text())) == whole[1]
    kept.write_text(content)
    assert digested(tree, tmp_path / "cache") == whole
    (tmp_path / "file").write_text("")
    assert digested(tree, tmp_path / "file") == whole


def test_the_memory_keeps_the_newest_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sources, "MOST_KEPT", 2)
    monkeypatch.setattr(sources, "_kept", lambda kept={}: kept)
    for number in range(3):
        (tmp_path / f"{number}.py").write_text(f"x = {number}\n")
        sources.read(tmp_path / f"{number}.py")
    sources.keep()
    (kept,) = (tmp_path / "baton" / "sources").iterdir()
    codes = [code for code, *_ in json.loads(kept.read_text()).values()]
    assert codes == [sources.read(tmp_path / f"{number}.py").code for number in (1, 2)]
