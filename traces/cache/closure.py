"""Which sources a result depends on, and one digest of them all.

A module depends on every module of Baton that it imports, and on what those import: its import closure. Imports
inside functions count, as does the `__init__` of every package on the way; imports under `if TYPE_CHECKING:` do not.
A module that calls `import_module` takes what it imports from texts, "package.module" or "package.module:name", of its
own or of a module that it imports (a registry), and each of these counts. A module that uses its own `__file__` depends
on the files beside and below it that are not Python: templates, rules. A library counts by its installed version.

Nothing is imported to find this out.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

from traces.cache import sources
from traces.cache.libraries import installed_version
from traces.cache.sources import Source

PACKAGES = ("pipelines", "assets", "reports", "models", "agent", "features", "simulator", "traces")
ROOT = Path(__file__).resolve().parents[2]


class Closures:
    """The sources of the packages below `root`, each read once."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._files = {
            file[:-3].replace(os.sep, ".").removesuffix(".__init__"): file
            for package in PACKAGES
            for file in _files_below(root, package)
            if file.endswith(".py")
        }
        self._read: dict[str, Source] = {}
        self._needed: dict[str, frozenset[str]] = {}
        self._states: dict[str, bytes] = {}
        self._libraries: dict[str, frozenset[str]] = {}

    @property
    def modules(self) -> Collection[str]:
        """Every module, by its dotted name."""
        return self._files.keys()

    def path(self, module: str) -> Path:
        """The module's file."""
        return self.root / self._files[module]

    def closure(self, *roots: str, but: Collection[str] = ()) -> frozenset[str]:
        """The modules that the roots (dotted names) depend on, themselves included.

        `but`: modules that are left out with what only they need, such as a registry of which the caller names the one
        entry that it uses. Raises ModuleNotFoundError for a root that there is not.
        """
        for root in roots:
            if root not in self._files:
                raise ModuleNotFoundError(f"{root!r} is no module of {', '.join(PACKAGES)} in {self.root}")
        reached: set[str] = set()
        todo = list(roots)
        while todo:
            module = todo.pop()
            if module not in reached and module not in but:
                reached.add(module)
                todo += self._needs(module)
        return frozenset(reached)

    def libraries(self, *roots: str, but: Collection[str] = ()) -> frozenset[str]:
        """Top-level names of what the closure imports that is neither Baton's nor Python's own."""
        return self._libraries_of(self.closure(*roots, but=but))

    def digest(self, *roots: str, but: Collection[str] = ()) -> str:
        """SHA-256 over the code of the closure, the files that it opens, and the versions of its libraries."""
        state, modules = hashlib.sha256(), self.closure(*roots, but=but)
        for module in sorted(modules):
            state.update(self._state(module))
        for name in sorted(self._libraries_of(modules)):
            state.update(f"{name}=={installed_version(name)}\n".encode())
        sources.keep()
        return state.hexdigest()

    def opened(self, module: str) -> list[str]:
        """The files beside and below the module, relative to the root, that are no Python, where it opens files."""
        if not self._source(module).opens_files:
            return []
        folder = os.path.dirname(self._files[module])
        return sorted(file for file in _files_below(self.root, folder) if not file.endswith(".py"))

    def _state(self, module: str) -> bytes:
        """What a digest says of the module: its code, and the content of each file that it opens."""
        if module not in self._states:
            files = ((file, hashlib.sha256((self.root / file).read_bytes())) for file in self.opened(module))
            lines = [f"{module}\0{self._source(module).code}\n"]
            lines += [f"{file}\0{content.hexdigest()}\n" for file, content in files]
            self._states[module] = "".join(lines).encode()
        return self._states[module]

    def _libraries_of(self, modules: Collection[str]) -> frozenset[str]:
        ours = {*PACKAGES, *sys.stdlib_module_names}
        for module in modules:
            if module not in self._libraries:
                names = {name.partition(".")[0] for name in self._source(module).imports}
                self._libraries[module] = frozenset(names - ours)
        return frozenset().union(*(self._libraries[module] for module in modules))

    def _source(self, module: str) -> Source:
        if module not in self._read:
            self._read[module] = sources.read(self.path(module))
        return self._read[module]

    def _needs(self, module: str) -> frozenset[str]:
        """The modules that it imports, and the packages that those and itself lie in."""
        if module not in self._needed:
            source = self._source(module)
            direct = frozenset(above for name in (module, *source.imports) for above in self._along(name))
            texts = (
                [text for other in direct | {module} for text in self._source(other).texts] if source.by_name else []
            )
            self._needed[module] = direct | {above for text in texts for above in self._along(text)}
        return self._needed[module]

    def _along(self, name: str) -> Iterator[str]:
        """Those of a, a.b and a.b.c, for the name "a.b.c", that are modules."""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            if (above := ".".join(parts[:count])) in self._files:
                yield above


def _files_below(root: Path, folder: str) -> Iterator[str]:
    """Every file below root/folder, relative to the root, apart from Python's own compiled ones."""
    for entry in sorted(os.scandir(root / folder), key=lambda entry: entry.name) if (root / folder).is_dir() else ():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _files_below(root, os.path.join(folder, entry.name))
        elif entry.is_file():
            yield os.path.join(folder, entry.name)


@cache
def present() -> Closures:
    """The sources that this process runs."""
    return Closures()


@cache
def code_digest(*roots: str, but: tuple[str, ...] = ()) -> str:
    """Digest of everything that results computed by those modules depend on, apart from their inputs.

    `but`: see `Closures.closure`. Computed once a process: an edit while it runs does not change what it runs.
    """
    return present().digest(*roots, but=but)
