"""The engine that the deployment of a data folder names."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from models.deployment import EngineOptions, read_deployment
from models.engine.local import each_here
from models.engine.work import Engine
from traces.errors import InputError

LIBRARIES = {"slurm": "submitit", "ray": "ray"}  # of a kind of engine


def engine_of(root: Path) -> Engine:
    """Return the engine of the data folder `root`. Raises InputError (the file, key; the scratch folder)."""
    return engine_on(read_deployment(root).engine)


def engine_on(options: EngineOptions) -> Engine:
    """Return the engine with these options. Raises InputError for a scratch folder that cannot be used."""
    if options.kind == "local":
        return each_here
    library = LIBRARIES[options.kind]
    if find_spec(library) is None:
        raise InputError(f"engine.kind {options.kind!r} needs {library}: pip install '.[{options.kind}]'")
    # By a relative name, which `traces.cache.closure` does not follow: a result does not depend on where it was made.
    scratch = import_module(".scratch", __package__).Scratch(Path(options.scratch)) if options.scratch else None
    each = getattr(import_module(f".{options.kind}", __package__), f"each_on_{options.kind}")
    return lambda work, most: each_here(work, most) if work.is_short else each(work, options, scratch)
