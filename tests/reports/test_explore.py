"""The numbers of the filters: they add up, are exact or say how far off they are, stay small, and hide names."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from features import explain, queueing
from reports import longest
from reports.sections import explore
from reports.sections.explore import GRAINS, embedded, packed, rounded
from reports.source import Names, Source
from reports.text.explanation import job_text
from tests.reports import warehouse
from tests.reports.packed import cells, quantile, unpacked
from traces.clusters import ClusterSettings
from traces.ingest import ingest
from traces.store import warehouse as store
from traces.store.folder import DataFolder
from traces.visible import visible

SHARES = (0.5, 0.95)


def _content(source: Source) -> dict[str, Any]:
    text = embedded(source)
    assert text is not None and not {"<", ">", "&", '"', "'"} & set(text)
    return unpacked(text)


def _sql(data: DataFolder, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(data.warehouse), read_only=True) as connection:
        return connection.execute(sql).fetchall()


@pytest.fixture(scope="module")
def whole(full_data: DataFolder) -> dict[str, Any]:
    return _content(Source(full_data, "gpu-lab"))


@pytest.fixture
def without_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """No job is explained: that takes seconds."""
    monkeypatch.setattr(longest, "MOST_TEXTS", 0)


@pytest.mark.usefixtures("without_texts")
def test_where_split_cells_do_not_fit_the_tables_by_size_state_and_month_are_left_out(
    full_data: DataFolder, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next grain is as exact: the same sums and waits of each user, partition and period."""
    assert [table["name"] for table in whole["tables"]] == ["by_size_bucket", "by_state", "by_month"]
    monkeypatch.setattr(explore, "GRAINS", explore.GRAINS[1:])
    content = _content(Source(full_data, "gpu-lab"))
    assert content["tables"] == [] and content["notes"] == whole["notes"]
    assert len(content["cells"]) < len(whole["cells"]) and {len(cell) for cell in content["cells"]} == {5}
    for one in (content, whole):
        one["by_user"] = {
            user: (sum(cell["jobs"] for cell in of_user), sorted(wait for cell in of_user for wait in cell["waits"]))
            for user in one["users"]
            for of_user in [[cell for cell in cells(one) if cell["user"] == user]]
        }
    assert content["by_user"] == whole["by_user"]


def test_cells_add_up_to_the_jobs_of_each_user(full_data: DataFolder, whole: dict[str, Any]) -> None:
    content = whole
    found = _sql(
        full_data,
        "SELECT count(*), count(*) FILTER (start_utc IS NOT NULL OR run_s > 0), count(*) FILTER (wait_s > 600), "
        "sum(wait_s), sum(gpu_time_s) FROM jobs "
        "WHERE user_name = 'user07-of-the-laboratory' AND partition = 'gpu-long'",
    )
    mine = [
        cell for cell in cells(content)
        if cell["user"] == "user07-of-the-laboratory" and cell["partition"] == "gpu-long"
    ]  # fmt: skip
    names = ("jobs", "ran", "long", "wait_s", "held_time_s")
    assert [tuple(sum(cell[name] for cell in mine) for name in names)] == found and found[0][0] > 0
    weeks = _sql(full_data, "SELECT count(DISTINCT date_trunc('week', submit_utc)) FROM jobs")
    assert weeks == [(len(content["periods"]),)] and content["step"] == "week"
    for cell in cells(content):
        assert len(cell["waits"]) == cell["waited"] and sum(cell["waits"]) == cell["wait_s"]
        assert sum(cell[cause["sum"]] for cause in content["causes"]) in (0, cell["wait_s"])


def test_users_and_partitions_are_in_the_order_of_what_they_waited(
    full_data: DataFolder, whole: dict[str, Any]
) -> None:
    for column, names in (("user_name", whole["users"]), ("partition", whole["partitions"])):
        rows = _sql(full_data, f"SELECT {column} FROM jobs GROUP BY 1 ORDER BY sum(wait_s) DESC")
        assert names == [visible(row[0]) for row in rows]


def test_percentiles_of_any_choice_are_exact(full_data: DataFolder, whole: dict[str, Any]) -> None:
    """Each user, partition and week against DuckDB's quantile_cont, which interpolates linearly."""
    content, all_cells = whole, cells(whole)
    assert content["notes"][0].startswith("Counts, sums and percentiles are exact.")
    rows = _sql(
        full_data,
        "SELECT user_name, partition, strftime(date_trunc('week', submit_utc), '%Y-%m-%d') AS week, "
        "quantile_cont(wait_s, 0.5), quantile_cont(wait_s, 0.95) FROM jobs WHERE user_name LIKE 'user%' "
        "GROUP BY GROUPING SETS ((1), (2), (3), (1, 2), (1, 3)) HAVING count(wait_s) > 0",
    )
    assert len(rows) > 200
    for user, part, week, *expected in rows:

        def is_chosen(cell: dict[str, Any], user: Any = user, part: Any = part, week: Any = week) -> bool:
            at = content["periods"][cell["period"]][:10]
            return (
                cell["user"].startswith("user")
                and user in (None, cell["user"])
                and part in (None, cell["partition"])
                and week in (None, at)
            )

        for share, value in zip(SHARES, expected, strict=True):
            assert quantile(all_cells, share, is_chosen) == pytest.approx(value, abs=1e-6), (user, part, week)


@pytest.mark.usefixtures("without_texts")
def test_percentiles_of_a_real_log_are_those_of_its_raw_text(shared_traces: Path, tmp_path: Path) -> None:
    """300 users of the A100 log, against SQL on the text. Left out: users with a time in the hour that came twice.

    A job that was cancelled before it ran has its end as its start, as Slurm wrote it before 22.05.
    """
    log = shared_traces / "tacc-lonestar6" / "ls6-a100.log"
    settings, data = ClusterSettings("ls6", timezone="America/Chicago", nodes=80, gpus_per_node=3), DataFolder(tmp_path)
    ingest([log], cluster=settings, data=data)
    store.build(data)
    delays = queueing.compute(data, settings)["queueing_delay"]
    with duckdb.connect(str(data.warehouse)) as connection:
        connection.register("incoming", delays.cast({pl.Categorical: pl.String}).to_arrow())
        connection.execute("CREATE OR REPLACE TABLE queueing_delay AS SELECT * FROM incoming")
    all_cells = cells(_content(Source(data, "ls6")))
    with duckdb.connect() as connection:
        rows = connection.execute(
            "WITH log AS (SELECT column2 AS uid, TRY_CAST(column3 AS TIMESTAMP) AS start, "
            "TRY_CAST(column4 AS TIMESTAMP) AS submit, column5 AS ended FROM read_csv(?, delim = '\\t', skip = 3, "
            "header = false, all_varchar = true, quote = '') WHERE column3 <> column5), "
            "waits AS (SELECT uid, epoch(timezone('America/Chicago', start)) - "
            "epoch(timezone('America/Chicago', submit)) AS wait_s, TIMESTAMP '2022-11-06 01:00:00' IN "
            "(date_trunc('hour', start), date_trunc('hour', submit)) AS is_twice FROM log WHERE start IS NOT NULL) "
            "SELECT uid, quantile_cont(wait_s, 0.5), quantile_cont(wait_s, 0.95) FROM waits "
            "GROUP BY 1 HAVING NOT bool_or(is_twice)",
            [str(log)],
        ).fetchall()
    assert len(rows) > 270
    for user, *expected in rows:
        for share, value in zip(SHARES, expected, strict=True):
            found = quantile(all_cells, share, lambda cell, user=user: cell["user"] == user)  # type: ignore[misc]
            assert found == pytest.approx(value, abs=0.5), user


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=40), st.sampled_from([7, 10]), st.floats(0, 1))
def test_rounded_waits_bound_the_error_of_every_percentile(waits: list[int], bits: int, share: float) -> None:
    exact = np.array(sorted(waits), dtype=np.int64)
    coarse = rounded(exact, bits)
    assert (np.diff(coarse) >= 0).all() and (coarse[exact < 2**bits] == exact[exact < 2**bits]).all()
    assert (np.abs(coarse - exact) <= exact * 2.0**-bits).all()
    true, found = (float(np.quantile(values, share)) for values in (exact, coarse))
    assert abs(found - true) <= true * 2.0**-bits * (1 + 1e-9)


def test_waits_under_0_are_rounded_alike() -> None:
    assert rounded(np.array([-3600, -5, 0]), 7).tolist() == [-int(rounded(np.array([3600]), 7)[0]), -5, 0]


@pytest.mark.usefixtures("without_texts")
@pytest.mark.parametrize("grain", GRAINS, ids=str)
def test_every_grain_sums_up_to_the_same_and_is_as_far_off_as_it_says(
    full_data: DataFolder, monkeypatch: pytest.MonkeyPatch, grain: explore.Grain
) -> None:
    monkeypatch.setattr(explore, "GRAINS", (grain,))
    content = _content(Source(full_data, "gpu-lab"))
    all_cells = cells(content)
    ((jobs, waited, held),) = _sql(full_data, "SELECT count(*), sum(wait_s), sum(gpu_time_s) FROM jobs")
    sums = tuple(sum(cell[name] for cell in all_cells) for name in ("jobs", "wait_s", "held_time_s"))
    assert sums == (jobs, waited, held)
    assert content["step"] == (grain.step or "week")
    users = _sql(full_data, "SELECT count(DISTINCT user_name) FROM jobs")[0][0]
    assert len(content["users"]) == min(users, grain.names + 1)
    assert (f"at most {100 * grain.error:.1g} %" in content["notes"][0]) == (grain.error > 0)
    rows = _sql(
        full_data,
        "SELECT user_name, quantile_cont(wait_s, 0.5), quantile_cont(wait_s, 0.95) FROM jobs "
        "WHERE user_name LIKE 'user%' GROUP BY 1 HAVING count(wait_s) > 0",
    )
    known = [row for row in rows if row[0] in content["users"]]
    assert known
    for user, *expected in known:
        for share, value in zip(SHARES, expected, strict=True):
            found = quantile(all_cells, share, lambda cell, user=user: cell["user"] == user)  # type: ignore[misc]
            assert abs(found - value) <= grain.error * value + 1e-6


def test_what_is_too_much_is_made_coarser_and_never_over_the_bound(
    full_data: DataFolder, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts go first, then the grains one after the other; what cannot fit at all is left out."""
    source = Source(full_data, "gpu-lab")
    made = longest.longest(source, "week")
    monkeypatch.setattr(explore, "longest", lambda *_: made)

    def within(most: int) -> dict[str, Any] | None:
        monkeypatch.setattr(explore, "MOST_BYTES", most)
        text = embedded(source)
        assert text is None or len(text) <= most
        return None if text is None else unpacked(text)

    bare: list[int] = []  # size at each grain without any text
    for grain in GRAINS:
        with monkeypatch.context() as patch:
            patch.setattr(explore, "GRAINS", (grain,))
            content = _content(source)
        bare.append(len(packed({**content, "longest": [[*job[:-1], None] for job in content["longest"]]})))
    for place, size in enumerate(bare):
        found, grain = within(size), GRAINS[next(i for i in range(place + 1) if bare[i] <= size)]
        assert found is not None and found["step"] == (grain.step or "week")
        assert len(found["users"]) == min(38, grain.names + 1)
    assert within(min(bare) - 1) is None
    assert bare[-1] < bare[0] and any("Periods are longer" in note for note in (within(bare[-1]) or {})["notes"])
    texts = [sum(job[-1] is not None for job in whole["longest"])]
    half = within((bare[0] + len(packed(whole))) // 2)
    assert half is not None and half["step"] == "week"
    texts.append(sum(job[-1] is not None for job in half["longest"]))
    assert longest.MOST_TEXTS == texts[0] > texts[1] > 0


def test_the_longest_jobs_of_each_user_are_explained_as_the_command_does(
    full_data: DataFolder, whole: dict[str, Any]
) -> None:
    content = whole
    rows = _sql(
        full_data,
        "SELECT job_id, wait_s FROM jobs WHERE user_name = 'user07-of-the-laboratory' AND wait_s > 0 "
        "ORDER BY wait_s DESC, job_key LIMIT 5",
    )
    place = content["users"].index("user07-of-the-laboratory")
    mine = [job for job in content["longest"] if job[0] == place]
    assert [(job[3], job[4]) for job in mine] == rows
    settings = ClusterSettings("gpu-lab", timezone="America/Chicago", nodes=16, gpus_per_node=4)
    for job in (job for job in content["longest"][:2]):
        assert sum(job[5]) == job[4]
        said = job_text(
            {**explain.job(full_data, settings, job[3]), "what_if": None, "why_no_what_if": longest.NO_REPLAY}
        )
        assert job[8] == said and "ahead of it when it was submitted" in said
        assert shlex.split(job[7]) == ["baton", "explain", "--cluster=gpu-lab", job[3]]


def test_a_long_log_has_fewer_texts(full_data: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(longest, "MOST_LOOKED_AT", 3 * 400)
    texts = [job[8] for job in _content(Source(full_data, "gpu-lab"))["longest"]]
    assert [text is not None for text in texts[:4]] == [True, True, True, False] and len(texts) > 100


def test_a_command_is_one_line_of_a_shell_whatever_the_names_hold() -> None:
    assert shlex.split(longest._command("a b;$(x)'", "-1_7")) == [
        "baton",
        "explain",
        "--cluster=a b;$(x)'",
        "--",
        "-1_7",
    ]
    assert longest._command("lab", "12") == "baton explain --cluster=lab 12"


def test_hidden_names_are_hidden_here_too(full_data: DataFolder) -> None:
    text = embedded(Source(full_data, "gpu-lab", Names(b"k" * 32)))
    assert text is not None
    content = unpacked(text)
    assert all(name.startswith("user-") for name in content["users"]) and len(content["users"]) == 38
    names = _sql(full_data, "SELECT user_name FROM jobs UNION SELECT account FROM jobs UNION SELECT job_name FROM jobs")
    said = "\n".join(str(job) for job in content["longest"])
    assert "name job-" in said and [name for (name,) in names if len(name) > 3 and name in said] == []


def test_a_log_without_jobs_has_no_filters(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    warehouse.write(data, warehouse.empty_tables())
    assert embedded(Source(data, "void")) is None


@pytest.mark.parametrize(
    "values",
    [{}, {"wait_s": None, "run_s": None, "state": "CANCELLED", "attempts": 0}, {"wait_s": 0}, {"user_name": None}],
    ids=["plain", "never ran", "no wait", "no name"],
)
def test_one_job_can_be_filtered(tmp_path: Path, values: dict[str, Any]) -> None:
    content = _content(Source(warehouse.one_job(tmp_path, **values), "tiny"))
    ((cell),) = cells(content)
    wait = values.get("wait_s", 60)
    assert cell["jobs"] == 1 and cell["waits"] == ([] if wait is None else [wait])
    assert len(content["longest"]) == (1 if wait else 0)
