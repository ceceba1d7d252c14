"""Figures of chains with a wanted service, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from models.provisioning.service.chain import Link, ServiceChain
from models.provisioning.service.figures import measures_of, service_figures
from models.provisioning.service.play import Service
from reports.text.service import format_services
from traces.units import DAY_S, HOUR_S

SERVICE = Service(2 * DAY_S, HOUR_S, 600, (DAY_S,))


def chain(*hours: tuple[float, float], most_queued: int = 1) -> ServiceChain:
    """A chain whose links ran between these hours."""
    links = [Link(int((b - a) * HOUR_S), int(a * HOUR_S), int(a * HOUR_S), int(b * HOUR_S)) for a, b in hours]
    return ServiceChain(0, DAY_S, links, most_queued=most_queued)


def test_measures_of_a_chain() -> None:
    """48 h of work in links of 24 h: 2 h of interruption on the second day, two restarts of 1 h, 3 h side by side."""
    found = measures_of(chain((0, 24), (26, 50), (47, 71), most_queued=2), SERVICE)
    # Work: 24 h, then 27 to 50, then one hour of the third link, from 51 to 52.
    assert found["lost_h_per_day"] == pytest.approx((2 + 2) / 2)
    assert found["overlap_h_per_day"] == pytest.approx(3 / 2)
    assert found["restarts_per_day"] == 1 and found["most_queued"] == 2
    assert found["node_hours_ratio"] == pytest.approx((24 + 24 + 5) / 48)
    assert found["undisturbed_days_share"] == pytest.approx(2 / 3)  # three days begin within 52 h


def test_measures_are_those_of_the_twin() -> None:
    """Random links that start on whole hours, hour by hour; a restart takes an hour, 40 hours of work are wanted."""
    rng, seen = np.random.default_rng(0), set()
    for _ in range(200):
        starts = np.sort(np.append(0, rng.integers(1, 80, 5)))
        hours = list(zip(starts.tolist(), (starts + rng.integers(1, 24, 6)).tolist(), strict=True))
        found = measures_of(chain(*hours), Service(40 * HOUR_S, HOUR_S, 600, (DAY_S,)))
        done, lost, held, restarts = 0, 0, 0, 0
        serving: tuple[int, int] | None = None
        for hour in range(max(end for _, end in hours)):
            if done == 40:
                break
            running = [link for link in hours if link[0] <= hour < link[1]]
            takes_over = serving is not None and serving not in running and len(running) > 0
            if running and serving not in running:
                serving = running[0]
            works = len(running) > 0 and not takes_over
            done, lost, held, restarts = done + works, lost + (not works), held + len(running), restarts + takes_over
        seen.add((done == 40, restarts > 2, lost > restarts))
        days = done / 24
        figures = [found[name] for name in ("lost_h_per_day", "restarts_per_day", "node_hours_ratio")]
        assert figures == pytest.approx([lost / days, restarts / days, held / done]), hours
    assert len(seen) > 4


def test_a_chain_that_lacks_the_work_of_a_restart_is_unfinished() -> None:
    """Two links of 24 h do 47 h of work, another that ends an hour later all of it."""
    chains = [chain((0, 24), (24, 48)), chain((0, 24), (24, 49))]
    (row,) = service_figures({"reactive": [chains]}, ["reactive"], np.array([0, DAY_S]), SERVICE, 1.0)
    assert row["unfinished"] == 1
    alone = row["difference_to_best_timing"]
    assert (row["blocks"], row["ci95"], alone["lost_h_per_day"], alone["ci95"]) == (1, None, 0.0, None)


def test_an_interruption_of_ten_minutes_disturbs_no_day() -> None:
    brief = measures_of(chain((0, 24), (24 + 1 / 6, 60)), SERVICE)
    longer = measures_of(chain((0, 24), (24 + 1 / 5, 60)), SERVICE)
    assert brief["undisturbed_days_share"] == 1.0 and longer["undisturbed_days_share"] == pytest.approx(2 / 3)


def test_rows_hold_paired_differences_to_the_best_policy_of_timing() -> None:
    """`early` loses least but overlaps; at weight 1 `late` is the better of the two."""
    service = Service(2 * DAY_S, 0, 600, (DAY_S,))
    late = [chain((0, 24), (26, 50)), chain((0, 24), (24, 48))]
    early = [chain((0, 24), (20, 44), (44, 68)), chain((0, 24), (20, 44), (44, 68))]
    plan = [chain((0, 24), (26, 50)), chain((0, 24), (26, 50))]
    submit_s = np.array([0, 8 * DAY_S])
    rows = service_figures(
        {"late": [late], "early": [early], "plan": [plan]}, ["late", "early"], submit_s, service, 1.0
    )
    by_name = {row["policy"]: row for row in rows}
    assert {row["difference_to_best_timing"]["policy"] for row in rows} == {"late"}
    beside = by_name["plan"]["difference_to_best_timing"]
    assert beside["lost_h_per_day"] == pytest.approx(0.5) and beside["ci95"] == [0.0, 1.0]  # chain by chain
    assert by_name["late"]["ci95"] == [0.0, 1.0] and by_name["late"]["n"] == 2 and by_name["late"]["unfinished"] == 0
    assert by_name["early"]["overlap_h_per_day"] == 2.0 and by_name["early"]["cost_h_per_day"] == 2.0
    weightless = service_figures({"late": [late], "early": [early]}, ["late", "early"], submit_s, service, 0.0)
    assert {row["difference_to_best_timing"]["policy"] for row in weightless} == {"early"}
    about = {"wanted_h": 48.0, "restart_s": 0, "world": "plain", "scheduler": "easy"}
    about |= {"overlap_weight": 1.0, "beyond_log": 1}
    settings = {"late": 0.25, "early": 12.0, "plan": None}
    text = format_services([{**row, **about, "setting": settings[row["policy"]]} for row in rows])
    assert "chains of 2 days of work, a restart costs 0 min, world plain (easy): n 2" in text and text.splitlines()[
        2
    ].startswith("late")
    lines = {line.split()[0]: line.split()[-1] for line in text.splitlines()[1:5]}
    assert lines == {"policy": "setting", "late": "0.25", "early": "12", "plan": "-"}
    assert text.endswith("1 of 2 chains continued after the last submission of the log")
    late_row = {**by_name["late"], **about, "setting": 0.25}
    assert format_services([late_row, late_row | {"unfinished": 1}]).endswith(
        "up to 1 chain of a policy did not do all of the work"
    )
