"""The declared tree of queues: names, parents, and one line for what cannot be."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from traces import clusters
from traces.errors import InputError
from traces.files.queue_tree import DeclaredQueue, check_groups, queues_in, queues_of
from traces.store.folder import DataFolder

TREE = """\
"lab.vision" = { capacity = 50, user_limit = 25, user_limit_factor = 2 }
lab = { capacity = 60, most = 80, least = 10 }
"lab.v1.5" = { capacity = 50, user_limit_factor = -1 }
default = { capacity = 40 }
"""


def test_parents_come_first_and_a_group_may_have_dots(tmp_path: Path) -> None:
    path = tmp_path / "queues.toml"
    path.write_text(TREE)
    assert queues_in(path) == (
        DeclaredQueue("lab", "lab", None, False, 60.0, 80.0, 10.0),
        DeclaredQueue("default", "default", None, True, 40.0),
        DeclaredQueue("lab.vision", "vision", "lab", True, 50.0, 100.0, 0.0, 25.0, 2.0),
        DeclaredQueue("lab.v1.5", "v1.5", "lab", True, 50.0, user_limit_factor=None),
    )
    (tmp_path / "clusters.toml").write_text(f"[mine.queues]\n{TREE}")
    assert clusters.load(DataFolder(tmp_path))["mine"].queues == queues_in(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be 1 to 1,000 queues such as research = { capacity = 60, most = 80 }"),
        ("a = 60", "queue 'a': must be a table such as { capacity = 60, most = 80 }"),
        ("a = { most = 60 }", "queue 'a': capacity is missing; give its percentage of the queue above it"),
        (
            "a = { capacity = 100, weight = 3 }",
            "queue 'a': unknown setting 'weight': allowed are capacity, most, least",
        ),
        ("a = { capacity = true }", "queue 'a': capacity must be a number"),
        ("a = { capacity = nan }", "queue 'a': capacity must be from 0 to 100"),
        (f"a = {{ capacity = 1{'0' * 400} }}", "queue 'a': capacity must be from 0 to 100"),
        ("a = { capacity = 100, user_limit = -1 }", "queue 'a': user_limit must be from 0 to 100"),
        (
            "a = { capacity = 100, user_limit_factor = 0 }",
            "user_limit_factor must be above 0 and at most 1,000,000, or -",
        ),
        (
            f"a = {{ capacity = 100, user_limit_factor = 1{'0' * 400} }}",
            "user_limit_factor must be above 0 and at most",
        ),
        ("a = { capacity = 100, most = 99 }", "queue 'a': most of 99 is below its capacity of 100"),
        ("a = { capacity = 100, least = 80, most = 70 }", "queue 'a': most of 70 is below its capacity of 100"),
        ("a = { capacity = 60, least = 80, most = 70 }", "queue 'a': most of 70 is below its least of 80"),
        (
            "a = { capacity = 60 }\nb = { capacity = 30 }",
            "the capacities of the top queues add up to 90: they must add",
        ),
        ('a = { capacity = 100 }\n"a.b" = { capacity = 110 }', "queue 'a.b': capacity must be from 0 to 100"),
        ('a = { capacity = 100 }\n"a.b" = { capacity = 50 }', "the capacities of the queues below 'a' add up to 50"),
        (
            "a = { capacity = 50, least = 60 }\nb = { capacity = 50, least = 60 }",
            "least GPUs of the top queues add up to",
        ),
        (
            'a = { capacity = 100, user_limit = 5 }\n"a.b" = { capacity = 100 }',
            "queue 'a': user_limit counts only in a q",
        ),
        ("a = { capacity = 100 }\na = { capacity = 100 }", "not readable as TOML: Cannot overwrite a value"),
        (
            "[a]\ncapacity = 100\n[a.b]\ncapacity = 100",
            'write the name of a queue below it in quotes, with its path: "a.b"',
        ),
        (
            'a = { capacity = 50 }\n"a.c" = { capacity = 100 }\nb = { capacity = 50 }\n"b.c" = { capacity = 100 }',
            "the leaf queues 'a.c' and 'b.c' have one name: a group has one queue",
        ),
        ("\x00", "not readable as TOML"),
        ("a = " + "[" * 5000, "not readable as TOML"),
    ],
)
def test_a_wrong_tree_is_refused_by_name(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "queues.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        queues_in(path)
    assert why in str(refused.value) and "queues.toml" in str(refused.value) and "\n" not in str(refused.value)


def test_a_file_that_is_not_there_and_a_wrong_setting_of_a_cluster(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.toml: there is no such file"):
        queues_in(tmp_path / "none.toml")
    (tmp_path / "clusters.toml").write_text("[mine]\nqueues = 3\n")
    with pytest.raises(InputError, match=r"clusters\.toml: \[mine\] queues: must be 1 to 1,000 queues"):
        clusters.load(DataFolder(tmp_path))


def test_every_group_has_a_queue_and_every_leaf_a_group() -> None:
    tree = queues_of(tomllib.loads('a = { capacity = 100 }\n"a.x" = { capacity = 100 }'), "here")
    check_groups(tree, {"x"})
    check_groups((), {"x"})
    check_groups(tree, set(), {"x"})
    with pytest.raises(InputError, match=r"queue 'a\.x' is no group of the trace: known are y, z; a queue above o"):
        check_groups(tree, {"z", "y"})
    with pytest.raises(InputError, match=r"group 'y' \(and 1 more group\) has no leaf queue: declare one, or one n"):
        check_groups(tree, {"x", "z", "y"})
    rest = queues_of({"x": {"capacity": 20}, "default": {"capacity": 80}}, "here")
    check_groups(rest, {"x", "y"})
