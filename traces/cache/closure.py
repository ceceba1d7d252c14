"""Find the sources that a result depends on, and compute one digest of them all.

The import closure of a module is every module of Baton that it imports, directly or indirectly:

- Imports inside functions count, and so does the `__init__` of every package on the way. Imports under
  `if TYPE_CHECKING:` do not.
- A module that calls `import_module` depends on every text of the form "package.module" or "package.module:name" in
  itself or in a module that it imports (a registry).
- A module that uses its own `__file__` depends on the other files in its folder and below: templates, rules.
- A library counts by its installed version.

The sources are parsed, not imported.
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
from traces.cache.sources import SourceFacts

PACKAGES = ("pipelines", "assets", "reports", "models", "agent", "features", "simulator", "traces")
ROOT = Path(__file__).resolve().parents[2]


class Closures:
    """The sources of Baton's packages below `root`, each read once."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root = root
        self._files = {
            file[:-3].replace(os.sep, ".").removesuffix(".__init__"): file
            for package in PACKAGES
            for file in _files_below(root, package)
            if file.endswith(".py")
        }
        self._read: dict[str, SourceFacts] = {}
        self._needed: dict[str, frozenset[str]] = {}
        self._states: dict[str, bytes] = {}
        self._libraries: dict[str, frozenset[str]] = {}

    @property
    def modules(self) -> Collection[str]:
        """Return the dotted name of every module."""
        return self._files.keys()

    def path(self, module: str) -> Path:
        """Return the module's file."""
        return self.root / self._files[module]

    def closure(self, *roots: str, but: Collection[str] = ()) -> frozenset[str]:
        """Return the modules that the roots (dotted names) depend on, including the roots.

        `but` names modules to leave out, with everything that only they need. An example is a registry, if the caller
        names the one entry that it uses. Raises ModuleNotFoundError for an unknown root.
        """
        for root in roots:
            if root not in self._files:
                raise ModuleNotFoundError(f"{root!r} is not a module of {', '.join(PACKAGES)} in {self.root}")
        reached: set[str] = set()
        todo = list(roots)
        while todo:
            module = todo.pop()
            if module not in reached and module not in but:
                reached.add(module)
                todo += self._needs(module)
        return frozenset(reached)

    def libraries(self, *roots: str, but: Collection[str] = ()) -> frozenset[str]:
        """Return the top-level names of the third-party libraries that the closure imports."""
        return self._libraries_of(self.closure(*roots, but=but))

    def digest(self, *roots: str, but: Collection[str] = ()) -> str:
        """Return the SHA-256 of the closure's code, the files that it opens, and the versions of its libraries."""
        state, modules = hashlib.sha256(), self.closure(*roots, but=but)
        for module in sorted(modules):
            state.update(self.state(module))
        for name in sorted(self._libraries_of(modules)):
            state.update(f"{name}=={installed_version(name)}\n".encode())
        sources.keep()
        return state.hexdigest()

    def opened(self, module: str) -> list[str]:
        """Return the non-Python files in the module's folder and below, if it opens files; relative to the root."""
        if not self._source(module).opens_files:
            return []
        folder = os.path.dirname(self._files[module])
        return sorted(file for file in _files_below(self.root, folder) if not file.endswith(".py"))

    def state(self, module: str) -> bytes:
        """Return the module's part of a digest: its code, and the content of each file that it opens."""
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

    def _source(self, module: str) -> SourceFacts:
        if module not in self._read:
            self._read[module] = sources.read(self.path(module))
        return self._read[module]

    def _needs(self, module: str) -> frozenset[str]:
        """Return the modules that it imports, and the packages that contain them and it."""
        if module not in self._needed:
            source = self._source(module)
            direct = frozenset(above for name in (module, *source.imports) for above in self._along(name))
            texts = (
                [text for other in direct | {module} for text in self._source(other).texts] if source.by_name else []
            )
            self._needed[module] = direct | {above for text in texts for above in self._along(text)}
        return self._needed[module]

    def _along(self, name: str) -> Iterator[str]:
        """Yield those prefixes of a dotted name that are modules: of a, a.b and a.b.c for "a.b.c"."""
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            if (above := ".".join(parts[:count])) in self._files:
                yield above


def _files_below(root: Path, folder: str) -> Iterator[str]:
    """Yield every file below root/folder, relative to the root, except Python's compiled files."""
    for entry in sorted(os.scandir(root / folder), key=lambda entry: entry.name) if (root / folder).is_dir() else ():
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _files_below(root, os.path.join(folder, entry.name))
        elif entry.is_file():
            yield os.path.join(folder, entry.name)


@cache
def present() -> Closures:
    """Return the sources that this process runs."""
    return Closures()


@cache
def code_digest(*roots: str, but: tuple[str, ...] = ()) -> str:
    """Return a digest of all the code that results of those modules depend on.

    For `but` see `Closures.closure`. The digest is computed once a process, because an edit does not change running
    code.
    """
    return present().digest(*roots, but=but)
