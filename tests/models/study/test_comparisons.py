"""What a study says of a window before it compares on it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from models.study.comparisons import is_development, warnings_about
from models.study.windows import Window
from tests.models.toy_study import DAY_S, toy_study


def test_a_window_that_begins_where_the_cluster_declares_to_fit_or_select_is_called_development(tmp_path: Path) -> None:
    """The toy's trace begins in 1970; its select window is declared to end on the sixth day."""
    study = toy_study(tmp_path)
    declared = datetime.fromtimestamp(6 * DAY_S, UTC).replace(tzinfo=None)
    known = replace(study, settings=replace(study.settings, select_until=declared))
    early, late = Window(5 * DAY_S, 6 * DAY_S), Window(6 * DAY_S, 6 * DAY_S + DAY_S // 2)
    assert is_development(known, early) and not is_development(known, late)
    assert not is_development(study, early)  # nothing is declared
    (warning,) = warnings_about(known, early, fitted_until_s=4 * DAY_S)
    assert "a development window, and no headline" in warning
    assert warnings_about(known, late, fitted_until_s=4 * DAY_S) == []
