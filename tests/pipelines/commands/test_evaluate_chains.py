"""`baton evaluate --chains`: on which window settings are chosen, and the warnings."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from models.study import chains
from models.study.windows import Window
from pipelines.commands.policies.service import ServiceAsked, evaluate_service, service_of
from tests.models.pair_tables import artifact, trained
from tests.models.toy_study import toy_study
from traces.errors import InputError
from traces.units import DAY_S, HOUR_S

ASKED = ServiceAsked(2 * DAY_S, 0, (3600,), 0.25)


@pytest.mark.parametrize(("text", "restart_s"), [("0", 0), ("0h", 0), ("90", 90)])
def test_a_restart_may_cost_nothing(text: str, restart_s: int) -> None:
    asked = service_of("10d", (text, "24h", 0.5, None), (None, None), None, "plan", "calibrated", {})
    assert asked is not None and asked.restart_s == restart_s


def test_a_restart_is_compared_with_the_links_that_there_are() -> None:
    """A first link of the plain world asks for 48 h, one of the calibrated world for 12 h or more."""
    work = ("5h", "24h", 0.5, None)
    asked = service_of("10d", work, (None, None), None, "plan", "plain", {})
    assert asked is not None and asked.restart_s == 5 * HOUR_S
    with pytest.raises(InputError, match="over a third of a link of 12 h"):
        service_of("10d", work, (None, None), None, "plan", "calibrated", {})


@pytest.mark.parametrize(
    ("fitted_until_d", "select_d", "is_warned"),
    [(8.5, (8.5, 9), False), (0, ("select", 9), False), (9.5, None, True), (9, None, False)],
)
def test_settings_are_chosen_after_the_fit_or_from_the_select_window_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fitted_until_d: float,
    select_d: Any,
    is_warned: bool,
) -> None:
    """Without a learner (0) from the start of the select window; never beyond the start of the report window."""
    study, out, asked = toy_study(tmp_path), io.StringIO(), list[Any]()

    def rows_of(*arguments: Any) -> list[dict[str, Any]]:
        asked.append(arguments)
        return [{"policy": "plan"}]

    monkeypatch.setattr(chains, "service_rows", rows_of)
    fits, bounds = trained("late", artifact()), (9 * DAY_S, 10 * DAY_S)
    evaluate_service(out, study, ["plan"], (fits, int(fitted_until_d * DAY_S)), bounds, ASKED, json=True)
    ((_, policies, played, report, select, service, weight),) = asked
    assert (policies, played, report, weight) == (["plan"], fits, Window(*bounds, 600), 0.25)
    assert (service.wanted_s, service.decision_s, service.limits_s) == (2 * DAY_S, 600, (3600,))
    if select_d is None:
        assert select is None
    else:
        from_s = study.windows.select.from_s if select_d[0] == "select" else int(select_d[0] * DAY_S)
        assert 0 < from_s < 9 * DAY_S and select == Window(from_s, 9 * DAY_S, 600)
    assert ("a policy was fitted on outcomes up to" in capsys.readouterr().err) is is_warned
    assert json.loads(out.getvalue())["chains"] == [{"policy": "plan"}]
