"""Facts about a Python source: a digest of its code, its imports, and whether it reads files in its own folder.

The digest covers the syntax tree without docstrings, comments, line breaks and imports for type checkers. So a reworded
sentence makes no result out of date. Parsing takes some milliseconds a file, which a command should not pay at every
start. So the facts are cached in the user's cache directory by the digest of the file's bytes. Where that directory
cannot be written, each process parses for itself.
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

MOST_KEPT = 1500  # sources in the cache: about four versions of each file
_DOTTED = re.compile(r"[a-z_]\w*(\.\w+)+(:\w+)?")


class SourceFacts(NamedTuple):
    """Facts about one Python source.

    `imports` are dotted names that it imports, `texts` dotted names in its string constants; each names a module or an
    attribute of one. `by_name`: it uses `import_module`. `opens_files`: it uses its own `__file__`.
    """

    code: str
    imports: tuple[str, ...]
    texts: tuple[str, ...]
    by_name: bool
    opens_files: bool


def parse(text: bytes) -> SourceFacts:
    """Parse a source. Raises SyntaxError for text that is not Python."""
    import ast  # takes ten milliseconds, needed only for a source that is not in the cache

    tree = ast.parse(text)
    _strip(tree)
    imports: set[str] = set()
    texts: set[str] = set()
    by_name = opens_files = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):  # `make lint` forbids relative imports
            imports.update(f"{node.module}.{alias.name}" for alias in node.names)
            by_name = by_name or any(alias.name == "import_module" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
            texts.add(node.value.replace(":", "."))
        elif isinstance(node, ast.Name) and node.id == "__file__":
            opens_files = True
    code = hashlib.sha256(ast.dump(tree).encode()).hexdigest()
    return SourceFacts(code, tuple(sorted(imports)), tuple(sorted(texts)), by_name, opens_files)


def _strip(tree: ast.AST) -> None:
    """Remove code that cannot change a result: docstrings, and the body of `if TYPE_CHECKING:`."""
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
    """Return Baton's folder of that name in the user's cache directory, made if missing; None if not writable."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "baton" / name
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: no home directory
        return None
    return folder if os.access(folder, os.W_OK) else None


def read(path: Path) -> SourceFacts:
    """Read the facts about a file. Raises OSError where it cannot be read, SyntaxError where it is not Python."""
    text = path.read_bytes()
    digest, kept = hashlib.sha256(text).hexdigest(), _kept()
    if digest not in kept:
        kept[digest] = parse(text)
    return kept[digest]


def keep() -> None:
    """Write the newest MOST_KEPT parsed sources to the user's cache, for the next process."""
    folder, kept = user_cache("sources"), _kept()
    if folder is None or len(kept) == _written.get("count", 0):
        return
    with suppress(BatonError):  # without the cache the next process parses again
        write_text(folder / f"{_version()}.json", json.dumps(dict(list(kept.items())[-MOST_KEPT:])))
    _written["count"] = len(kept)


_written: dict[str, int] = {}


@cache
def _version() -> str:
    """Return the version of the cache, which depends on the code of this file and on the version of Python."""
    return f"{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}-{sys.hexversion:x}"


@cache
def _kept() -> dict[str, SourceFacts]:
    """Return the facts that earlier processes cached, by the digest of each source's bytes."""
    folder = user_cache("sources")
    kept: dict[str, SourceFacts] = {}
    if folder is not None:
        with suppress(OSError, ValueError, TypeError, AttributeError):  # missing or damaged
            stored = json.loads((folder / f"{_version()}.json").read_text(encoding="utf-8"))
            kept = {
                digest: SourceFacts(code, tuple(imports), tuple(texts), by_name, opens)
                for digest, (code, imports, texts, by_name, opens) in stored.items()
            }
    _written["count"] = len(kept)
    return kept
