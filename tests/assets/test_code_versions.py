"""What an edit of each module makes out of date, against the imports that import-linter's engine finds."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import grimp
import pytest

from assets.shared import promises
from models.provisioning import registry
from models.study import fits
from pipelines.definitions import build_defs
from tests.conftest import REPOSITORY
from traces.cache.closure import PACKAGES, Closures
from traces.readers import registry as readers

Roots = tuple[tuple[str, ...], tuple[str, ...]]  # (modules that compute it, modules at which their closure ends)
EVERY = 15  # every 15th module, in order of their names, is edited and all steps are looked at
GPU_POLICIES = (
    "import simulator.gpu.registry as known, importlib\n"
    "[importlib.import_module(module) for module in known.SCHEDULERS.values()]"
)
# What a module imports by name, as Python shows it once every entry of the registry was asked for.
BY_NAME = {
    "models.provisioning.registry": "known = models.provisioning.registry\n"
    "by_name = (*known.LOOKING_AHEAD, *known.READING_DAYS, *known.PLANNING)\n"
    "[(known.make_policy(name), known.artifact_of(name)) for name in (*known.POLICIES, *by_name)]",
    "models.queue_time.registry": "known = models.queue_time.registry\n"
    "[known.make_method(name) for name in known.METHODS]",
    "models.queue_time.methods.combination": "known = models.queue_time.methods.combination\n"
    "[known._made(place) for place in known.PARTS]",
    "simulator.cluster": "[simulator.cluster.world(name) for name in simulator.cluster.WORLDS]",
    "simulator.flat.dispatch": "",
    "simulator.gpu.registry": GPU_POLICIES,
}


def asset_roots() -> dict[str, Roots]:
    """Of every asset what its code version is the digest of."""
    found: dict[str, Roots] = {}
    for spec in build_defs().resolve_all_asset_specs():
        result = (str(spec.metadata.get(key, "")) for key in (promises.COMPUTED_BY, promises.NOT_BY))
        by, but = (tuple(filter(None, names.split(promises.SEPARATOR))) for names in result)
        found[spec.key.to_user_string()] = by, but
    return found


def steps() -> dict[str, Roots]:
    """Everything that is kept with a digest of the code that made it."""
    of_readers = {
        f"reader {name}": ((type(reader).__module__, "traces.readers.staged"), (readers.__name__,))
        for name, reader in readers.READERS.items()
    }
    of_fits = {
        f"fit {name}": ((*fits.FITTED_BY, registry.module_of(name)), (registry.__name__,))
        for name in (*registry.POLICIES, *registry.LOOKING_AHEAD, *registry.READING_DAYS, *registry.PLANNING)
    }
    kernels = ("simulator.flat.kernel", "simulator.slurm.compiled.kernel", "traces.readers.sacct.kernel")
    return asset_roots() | of_readers | of_fits | {f"compiled {name}": ((name,), ()) for name in kernels}


@pytest.fixture(scope="module")
def imported() -> Mapping[str, set[str]]:
    """The modules that each module imports, and the packages that these lie in, without Baton's own parser."""
    graph = grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)
    direct = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    for module, asked in BY_NAME.items():
        program = f"import sys, {module}\n{asked}\nprint(*sys.modules)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        direct[module] |= set(done.stdout.split()) & graph.modules
    return {
        module: names | {above for name in (module, *names) for above in packages_of(name)}
        for module, names in direct.items()
    }


def packages_of(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def reached(imported: Mapping[str, set[str]], roots: Roots) -> set[str]:
    """The import closure, found in the plainest way."""
    (by, but), found = roots, set[str]()
    todo = set(by)
    while todo:
        module = todo.pop()
        if module not in found and module not in but:
            found.add(module)
            todo |= imported[module]
    return found


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for package in PACKAGES:
        shutil.copytree(REPOSITORY / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def digests(copy: Path, wanted: Mapping[str, Roots]) -> dict[str, str]:
    here = Closures(copy)
    made = {roots: here.digest(*roots[0], but=roots[1]) for roots in set(wanted.values())}
    return {step: made[roots] for step, roots in wanted.items()}


def test_the_closure_of_each_step_is_what_its_modules_import(imported: Mapping[str, set[str]]) -> None:
    here = Closures(REPOSITORY)
    assert set(here.modules) == set(imported) and len(imported) > 300
    for step, (by, but) in steps().items():
        assert here.closure(*by, but=but) == reached(imported, (by, but)), step


def test_an_edit_of_a_module_makes_out_of_date_exactly_what_imports_it(copy: Path) -> None:
    """Some modules of every package; the closures are those of the test before."""
    wanted = steps()
    before = digests(copy, wanted)
    here = Closures(copy)
    closures = {step: here.closure(*by, but=but) for step, (by, but) in wanted.items()}
    edited = sorted(here.modules)[::EVERY]
    assert {module.partition(".")[0] for module in edited} == set(PACKAGES)
    for module in edited:
        path = here.path(module)
        text = path.read_bytes()
        path.write_bytes(text + b"\nedited = 1\n")
        after = digests(copy, wanted)
        path.write_bytes(text)
        changed = {step for step in wanted if after[step] != before[step]}
        assert changed == {step for step in wanted if module in closures[step]}, module
    assert digests(copy, wanted) == before


def test_an_edit_of_each_module_changes_its_part_of_a_digest(copy: Path) -> None:
    """With the closures, which are tested above, this decides what an edit of any module makes out of date."""
    here = Closures(copy)
    for module in here.modules:
        others = {*here.modules} - {module}
        before = here.digest(module, but=others)
        path = here.path(module)
        text = path.read_bytes()
        path.write_bytes(text + b"\nedited = 1\n")
        assert Closures(copy).digest(module, but=others) != before, module
        path.write_bytes(text)


def test_words_make_nothing_out_of_date(copy: Path) -> None:
    wanted = steps()
    before = digests(copy, wanted)
    texts = {path: path.read_bytes() for package in PACKAGES for path in (copy / package).rglob("*.py")}
    for path, text in texts.items():
        path.write_bytes(text + b"\n# Said once more, in other words.\n")
    assert digests(copy, wanted) == before
    for path, text in texts.items():
        path.write_bytes(text)


@pytest.mark.parametrize(
    ("module", "made_again"),
    [
        # settle.py made the warehouse anew and reused the replays of the old one
        ("traces.store.settle", {"simulation_replay", "simulation_what_if", "pair_tables", "queueing_delay", "report"}),
        # what-if left out the tables that it fills
        ("models.tables", {"simulation_what_if", "simulation_what_if_schedulers", "policy_comparison"}),
        ("simulator.gpu.policies.sia", {"simulation_what_if_schedulers"}),
        ("simulator.flat.kernel", {"simulation_replay", "simulation_what_if", "pair_tables"}),
        ("features.load.load", {"load", "drift", "champion_drift"}),
        ("models.provisioning.policies.dqn", {"fit dqn", "fit dqn-ahead", "trained_policies"}),
        ("traces.readers.philly.samples", {"reader philly-gpu-util", "trace_files", "raw_file"}),
        ("reports.build", {"report", "report_with_policies"}),
    ],
)
def test_what_was_wrong_or_too_much_by_hand(module: str, made_again: set[str]) -> None:
    here = Closures(REPOSITORY)
    holding = {step for step, (by, but) in steps().items() if module in here.closure(*by, but=but)}
    assert made_again <= holding
    if module != "traces.store.settle":
        assert not {"warehouse/jobs", "reader sacct", "compiled traces.readers.sacct.kernel"} & holding
    if module in ("features.load.load", "reports.build", "models.provisioning.policies.dqn"):
        assert holding == made_again


def test_nothing_reads_docstrings_which_are_no_part_of_the_digest() -> None:
    reading = [
        path for package in PACKAGES for path in (REPOSITORY / package).rglob("*.py") if ".__doc__" in path.read_text()
    ]
    assert reading == []
