"""An engine for tests that pickles all that crosses to a worker and back, without another process."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from models.engine.work import Work


def each_pickled(work: Work, _most: int) -> Iterator[tuple[int, Any]]:
    """Yield the results in reverse order; each task has its own copy of what is shared."""
    for at, task in reversed(list(enumerate(work.tasks))):
        function, shared, argument = pickle.loads(pickle.dumps((work.function, work.shared, task.argument)))
        yield at, pickle.loads(pickle.dumps(function(shared, argument)))
