"""What a Python source says: a digest of its code, what it imports, and whether it reads files that lie beside it.

The digest is of the syntax tree without docstrings, comments, line breaks and what only type checkers import, so that
a reworded sentence makes nothing out of date. Parsing costs some milliseconds a file, which a command line that only
wants to know whether something is new should not pay at every start: what was found is kept in the user's cache
directory by the digest of the file's bytes. Where that directory cannot be written, each process parses for itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traces.errors import BatonError
from traces.files.whole import write_text

if TYPE_CHECKING:
    import ast

MOST_KEPT = 1500  # sources: about four versions of each file
_DOTTED = re.compile(r"[a-z_]\w*(\.\w+)+(:\w+)?")


class Source(NamedTuple):
    """`imports` and `texts`: dotted names, each of a module or of a name in one, imported or only written.

    `by_name`: it uses `import_module`. `opens_files`: it uses its own `__file__`.
    """

    code: str
    imports: tuple[str, ...]
    texts: tuple[str, ...]
    by_name: bool
    opens_files: bool


def parse(text: bytes) -> Source:
    """What the source says. Raises SyntaxError where it is no Python."""
    import ast  # ten milliseconds that are only needed where a source is new

    tree = ast.parse(text)
    _strip(tree)
    imports: set[str] = set()
    texts: set[str] = set()
    by_name = opens_files = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):  # relative ones do not pass `make lint`
            imports.update(f"{node.module}.{alias.name}" for alias in node.names)
            by_name = by_name or any(alias.name == "import_module" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            texts.add(node.value.replace(":", "."))
        elif isinstance(node, ast.Name) and node.id == "__file__":
            opens_files = True
    code = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return Source(code, tuple(sorted(imports)), tuple(sorted(texts)), by_name, opens_files)


def _strip(tree: ast.AST) -> None:
    """Take out what changes no result: docstrings, and the body of `if TYPE_CHECKING:`."""
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                del node.body[0]
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []


def user_cache(name: str) -> Path | None:
    """Baton's folder of that name in the user's cache directory, made where it is not; None where it cannot be."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baton" / name
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return None
    return folder if os.access(folder, os.W_OK) else None


def read(path: Path) -> Source:
    """What the file says. Raises OSError where it cannot be read, SyntaxError where it is no Python."""
    text = path.read_bytes()
    digest, kept = hashlib.sha256(text).hexdigest(), _kept()
    if digest not in kept:
        kept[digest] = parse(text)
    return kept[digest]


def keep() -> None:
    """Write what was parsed to the user's cache, for the next process; the newest MOST_KEPT sources."""
    folder, kept = user_cache("sources"), _kept()
    if folder is None or len(kept) == _written.get("count", 0):
        return
    with suppress(BatonError):  # then the next process parses again
        write_text(folder / f"{_version()}.json", json.dumps(dict(list(kept.items())[-MOST_KEPT:])))
    _written["count"] = len(kept)


_written: dict[str, int] = {}


@cache
def _version() -> str:
    """Of what is kept: this file says what is found in a source, and Python what its tree is."""
    return f"{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}-{sys.hexversion:x}"


@cache
def _kept() -> dict[str, Source]:
    """Sources by the digest of their bytes, as earlier processes left them."""
    folder = user_cache("sources")
    kept: dict[str, Source] = {}
    if folder is not None:
        with suppress(OSError, ValueError, TypeError, AttributeError):  # not there, or damaged
            stored = json.loads((folder / f"{_version()}.json").read_text(encoding="utf-8"))
            kept = {
                digest: Source(code, tuple(imports), tuple(texts), by_name, opens)
                for digest, (code, imports, texts, by_name, opens) in stored.items()
            }
    _written["count"] = len(kept)
    return kept
