"""The engine that the deployment of a data folder names."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from models.deployment import EngineOptions, read_deployment
from models.engine.local import each_here
from models.engine.work import Engine
from traces.errors import InputError


def engine_of(root: Path) -> Engine:
    """Return the engine of the data folder `root`. Raises InputError (the file, key; the scratch folder)."""
    return engine_on(read_deployment(root).engine)


def engine_on(options: EngineOptions) -> Engine:
    """Return the engine with these options. Raises InputError for a scratch folder that cannot be used."""
    if options.kind == "local":
        return each_here
    if find_spec("submitit") is None:
        raise InputError("engine.kind 'slurm' needs submitit: pip install '.[slurm]'")
    # By a relative name, which `traces.cache.closure` does not follow: a result does not depend on where it was made.
    scratch = import_module(".scratch", __package__).Scratch(Path(options.scratch))
    each_on_slurm = import_module(".slurm", __package__).each_on_slurm
    return lambda work, _most: each_on_slurm(work, options, scratch)
