"""One reading of a date, and one printing of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from traces import instants

FIRST_S = 1_672_531_200  # 2023-01-01


def test_a_naive_time_is_utc_unless_a_zone_is_named() -> None:
    aware = datetime(2023, 1, 1, 5, tzinfo=timezone(timedelta(hours=5)))
    assert instants.epoch_s(datetime(2023, 1, 1)) == instants.epoch_s(aware) == FIRST_S
    assert instants.epoch_s(datetime(2023, 1, 1, tzinfo=UTC)) == FIRST_S
    chicago = ZoneInfo("America/Chicago")
    assert instants.epoch_s(datetime(2022, 12, 31, 18), chicago) == FIRST_S
    assert instants.epoch_s(aware, chicago) == FIRST_S, "an offset that is written counts"


@pytest.mark.parametrize(
    "text", ["2023-01-01", " 2023-01-01T00:00 ", "2023-01-01T00:00:00Z", "2023-01-01 02:00:00+02:00"]
)
def test_a_date_is_read(text: str) -> None:
    assert instants.epoch_s(instants.parse(text)) == FIRST_S


@pytest.mark.parametrize("text", ["", "yesterday", "2023-13-01", "01/02/2023"])
def test_another_text_is_no_date(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        instants.parse(text)


def test_an_instant_is_printed_to_the_minute_and_held_naive() -> None:
    assert instants.text(FIRST_S + 12 * 3600 + 59) == "2023-01-01T12:00"
    assert instants.utc(FIRST_S) == datetime(2023, 1, 1) and instants.utc(FIRST_S).tzinfo is None
