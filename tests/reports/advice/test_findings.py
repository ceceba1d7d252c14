"""The findings: computed from the tables, true of any log, and honest where it holds nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

from features.causes.waits import MAIN_CAUSES
from models.tables import WHAT_IF, frame
from reports import format as fmt
from reports.advice.advice import actions
from reports.advice.findings import findings, of_source, who, why
from reports.advice.patterns import patterns
from reports.advice.trust import trust_in_replays
from reports.build import build_report, section_data
from reports.causes import CAUSES, shares
from reports.source import Names, Source
from tests.reports import warehouse
from traces import schema
from traces.clusters import ClusterSettings
from traces.store.folder import DataFolder
from traces.store.frames import conform
from traces.store.warehouse import read

SETTINGS = ClusterSettings("lab", nodes=8, gpus_per_node=4)


def _data(root: Path, rows: list[dict[str, Any]], settings: ClusterSettings = SETTINGS) -> DataFolder:
    jobs = pl.DataFrame(rows, infer_schema_length=None)
    tables = {
        "jobs": jobs,
        "attempts": warehouse.attempts_of(conform(schema.JOBS, jobs)),
        "trace_files": pl.DataFrame([warehouse.trace_file("lab", len(rows))]),
    }
    return warehouse.with_features(root, tables, settings)


def _jobs(count: int, **values: Any) -> list[dict[str, Any]]:
    """Jobs of the cluster `lab`, one an hour, each value a constant or a function of the job's number."""
    return [
        warehouse.job(
            "lab", number, submit_utc=warehouse.START + timedelta(hours=number),
            **{name: value(number) if callable(value) else value for name, value in values.items()},
        )
        for number in range(count)
    ]  # fmt: skip


def _sql(data: DataFolder, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(data.warehouse), read_only=True) as connection:
        return connection.execute(sql).fetchall()


def _add(data: DataFolder, name: str, rows: pl.DataFrame) -> None:
    with duckdb.connect(str(data.warehouse)) as connection:
        connection.register("incoming", rows.to_arrow())
        connection.execute(f'CREATE OR REPLACE TABLE "{name}" AS SELECT * FROM incoming')


def test_each_finding_names_who_why_and_what_to_do(full_data: DataFolder) -> None:
    found = findings(full_data, "gpu-lab")
    assert [finding["kind"] for finding in found] == ["who", "why", "do"]
    assert section_data(full_data, "gpu-lab", "summary")["sentences"] == [finding["sentence"] for finding in found]
    ((user, share, of_jobs, total),) = _sql(
        full_data,
        "SELECT user_name, sum(wait_s) / (SELECT sum(wait_s) FROM jobs), count(wait_s) / (SELECT count(wait_s) "
        "FROM jobs), (SELECT sum(wait_s) FROM jobs) FROM jobs GROUP BY 1 ORDER BY 2 DESC LIMIT 1",
    )
    assert "\x00" in user  # a hostile name, shown with its control characters made visible
    assert found[0]["sentence"].startswith(
        f"User abc\\u202etxt.exe\\x00\\n accounts for {100 * share:.1f} % of the {fmt.duration(total)} "
        f"that jobs waited in total, with {100 * of_jobs:.1f} % of the jobs that started; "
    )
    assert " % of the waiting was in partition gpu" in found[0]["sentence"]
    assert "How far to trust it: " in found[2]["sentence"]


def test_names_are_hidden_in_every_finding(full_data: DataFolder) -> None:
    found = " ".join(f["sentence"] for f in findings(full_data, "gpu-lab", Names(b"k" * 32)))
    assert found.count("user-") >= 2
    assert not [name for (name,) in _sql(full_data, "SELECT DISTINCT user_name FROM jobs") if name in found]


def test_the_size_and_the_hour_that_wait_longest(tmp_path: Path) -> None:
    def wait(number: int) -> int:
        return 40_000 if number % 24 == 13 else 20_000 if number % 5 == 1 else 1_000

    rows = _jobs(960, wait_s=wait, requested_gpus=lambda n: 32 if n % 5 == 1 else 1, user_name=lambda n: f"u{n % 19}")
    words = who(Source(_data(tmp_path, rows), "lab"))
    assert words.startswith("The waiting is spread over 19 users: no user accounts for more than ")
    assert "Jobs of more than 8 GPUs (" in words
    assert "jobs submitted from 07:00 to 07:59 (America/Chicago) (11 h 7 min on average) wait longest" in words


def test_a_pattern_that_one_user_makes_or_few_jobs_show_is_no_pattern(tmp_path: Path) -> None:
    """The night owl's jobs wait long at one hour; without them it is like any other. And 29 jobs are too few."""
    late = {"wait_s": lambda n: 40_000 if n % 24 == 13 else 1_000}
    owl = _jobs(960, **late, user_name=lambda n: "owl" if n % 24 == 13 else f"u{n % 19}")
    assert patterns(Source(_data(tmp_path / "owl", owl), "lab")) == []
    several = _jobs(960, **late, user_name=lambda n: f"u{n % 19}")
    assert [one.words for one in patterns(Source(_data(tmp_path / "several", several), "lab"))] == [
        "jobs submitted from 07:00 to 07:59 (America/Chicago)"  # 13:00 UTC
    ]
    few = _jobs(24 * 29, **late, user_name=lambda n: f"u{n % 19}")
    assert patterns(Source(_data(tmp_path / "few", few), "lab")) == []
    nameless = _jobs(960, **late, user_name=lambda n: f"u{n % 19}" if n % 8 else None)
    assert patterns(Source(_data(tmp_path / "nameless", nameless), "lab")) == []


@pytest.mark.parametrize(
    ("values", "settings", "words"),
    [
        ({"wait_s": 5000}, SETTINGS, "All jobs that started are those of user ann and waited 1 h 23 min on average."),
        ({"wait_s": 5000, "user_name": None}, SETTINGS, "Jobs waited 1 h 23 min on average (the log names no users)."),
        (
            {"wait_s": 0}, SETTINGS,
            "Hardly anybody waits: 95 % of the jobs that started waited at most 0 s; user ann held all GPU hours.",
        ),
        (
            {"wait_s": None, "run_s": None, "state": "CANCELLED", "attempts": 0}, SETTINGS,
            "The log does not record how long jobs waited.",
        ),
        (
            {"wait_s": 30, "requested_gpus": None, "allocated_gpus": 0}, replace(SETTINGS, gpus_per_node=None),
            "Hardly anybody waits: 95 % of the jobs that started waited at most 30 s; user ann held all node hours.",
        ),
    ],
    ids=["one user", "no users", "no waits", "nothing ran", "CPU only"],
)  # fmt: skip
def test_any_log_has_its_sentences(
    tmp_path: Path, values: dict[str, Any], settings: ClusterSettings, words: str
) -> None:
    data = _data(tmp_path, _jobs(30, **values), settings)
    found = findings(data, "lab")
    assert found[0]["sentence"] == words and len(found) == 3
    for finding in found:
        assert finding["sentence"].endswith(".") and ".." not in finding["sentence"], finding
        assert "None" not in finding["sentence"] and "nan" not in finding["sentence"], finding
    assert words in build_report(data).read_text(encoding="utf-8").replace("\u00a0", " ")


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        (("submit_utc",), "Not known until the log is dumped again with the field Submit."),
        (("start_utc",), "Not known until the log is dumped again with the field Start."),
        (("start_utc", "end_utc"), "Not known until the log is dumped again with the fields Start and End."),
        (
            ("submit_utc", "start_utc", "end_utc"),
            "Not known until the log is dumped again with the fields Submit, Start and End.",
        ),
    ],
)
def test_only_the_fields_that_no_job_has_are_asked_for(tmp_path: Path, lacks: tuple[str, ...], words: str) -> None:
    rows = [{**row, **dict.fromkeys(lacks), "eligible_utc": None, "wait_s": None} for row in _jobs(3)]
    source = Source(_data(tmp_path, [{**row, "eligible_wait_s": None} for row in rows]), "lab")
    first = actions(source)[0]
    assert (first.do, first.trust) == ("Nothing can be recommended on waits", words)


def test_a_log_of_which_nothing_ran_is_not_to_be_dumped_again(tmp_path: Path) -> None:
    rows = _jobs(3, wait_s=None, run_s=None, state="PENDING", attempts=0)
    assert actions(Source(_data(tmp_path, rows), "lab"))[0].trust == "Not known until some of its jobs have run."


def test_a_log_without_a_job_says_so(tmp_path: Path) -> None:
    tables = {"trace_files": pl.DataFrame([warehouse.trace_file("lab", 0)])}
    data = warehouse.with_features(tmp_path, tables, SETTINGS)
    assert findings(data, "lab") == [{"kind": "none", "sentence": "The raw files of this cluster hold no job."}]


# --- why: the causes -------------------------------------------------------------------------------------------


def _with_causes(data: DataFolder, **parts: float) -> Source:
    """The waits of queueing_by and queueing_delay divided among causes, in these shares."""
    for table, total in (("queueing_by", "wait_total_s"), ("queueing_delay", "wait_s")):
        rows = read(data, f"SELECT * FROM {table}")
        rows = rows.drop([cause.column for cause in CAUSES], strict=False).with_columns(
            (pl.col(total) * parts.get(cause.column, 0.0)).round().cast(pl.Int64).alias(cause.column)
            for cause in CAUSES
        )
        if parts and "main_cause" in rows.columns:
            most = max(parts, key=lambda name: parts[name])
            rows = rows.with_columns(pl.lit(MAIN_CAUSES[most]).alias("main_cause"))
        _add(data, table, rows)
    return Source(data, "lab")


def test_why_names_the_largest_cause_and_the_next_where_it_counts(tmp_path: Path) -> None:
    data = _data(tmp_path, _jobs(30, wait_s=5000))
    source = _with_causes(data, cluster_full_s=0.7, held_s=0.25, behind_s=0.05)
    assert why(source).startswith(
        "70.0 % of the waiting passed while the cluster was full (too little was free on the nodes that the job could "
        "use); "
        "25.0 % passed before the job was eligible (dependency, hold or begin time); "
    )
    assert "cluster full" in build_report(data).read_text(encoding="utf-8")  # the plot's legend, and the filters
    assert list(shares({cause.column: 0 for cause in CAUSES})) == []


@pytest.mark.parametrize(
    ("cause", "do"),
    [
        ("own_limit_s", "Review the limits of users and groups, first those of user bob"),
        ("dependency_s", "Ask user bob whether these jobs must run one after another"),
        ("own_jobs_s", "Ask user bob why the jobs wait for each other"),
        ("nodes_down_s", "Bring out-of-service nodes back into use"),
        ("reservation_s", "Look at reservations and maintenance"),
        ("unknown_s", "Dump the log again with the field Reason"),
        ("fragmented_s", "Pack small jobs together, so that whole nodes stay free"),
        ("behind_s", "Find out why jobs that fit do not start"),
    ],
)
def test_what_no_replay_knows_is_advised_by_its_cause(tmp_path: Path, cause: str, do: str) -> None:
    data = _data(tmp_path, _jobs(40, wait_s=5000, user_name=lambda n: "bob" if n < 30 else "ann"))
    first = actions(_with_causes(data, **{cause: 0.6, "held_s": 0.4}))[0]
    assert first.do.startswith(do) and "60.0 % of all waiting" in first.effect
    assert "mostly in 40 jobs. 75.0 % of that was in jobs of user bob." in first.effect
    assert first.trust.startswith("It is an upper bound, counted in the log and not simulated.")


def test_a_cause_of_next_to_nothing_is_no_advice(tmp_path: Path) -> None:
    source = _with_causes(_data(tmp_path, _jobs(40, wait_s=5000)), held_s=0.99, behind_s=0.01)
    first = actions(source)[0]
    assert first.do.startswith("Ask user ann about holds") and "99.0 % of all waiting" in first.effect
    assert not [action for action in actions(source) if "behind" in action.effect]


def test_a_cause_of_few_jobs_of_many_is_no_advice(tmp_path: Path) -> None:
    data = _with_causes(_data(tmp_path, _jobs(40, wait_s=5000)), cluster_full_s=1.0).data
    rows = read(data, "SELECT * FROM queueing_delay").with_row_index("n")
    few = pl.when(pl.col("n") < 29).then(pl.lit("cluster full")).otherwise(pl.lit("unknown")).alias("main_cause")
    _add(data, "queueing_delay", rows.with_columns(few).drop("n"))
    assert not [action for action in actions(Source(data, "lab")) if "full" in action.do]


def test_waits_that_nothing_explains_yet_are_sent_to_analyze(tmp_path: Path) -> None:
    data = _data(tmp_path, _jobs(40, wait_s=5000))
    _add(data, "queueing_by", read(data, "SELECT * FROM queueing_by LIMIT 0"))
    source = Source(data, "lab")
    assert "run `baton analyze`" in who(source) and actions(source)[0].do == "Run `baton analyze`"


def test_jobs_without_a_user_are_nobodys(tmp_path: Path) -> None:
    source = Source(_data(tmp_path, _jobs(40, wait_s=5000, user_name=lambda n: "ann" if n % 2 else None)), "lab")
    assert not who(source).startswith("All jobs that started are those of")
    assert "with 50.0 % of the jobs that started" in who(source)
    assert "sacct -a" not in why(source)


def test_a_log_of_one_user_does_not_show_what_others_held(tmp_path: Path) -> None:
    source = Source(_data(tmp_path, _jobs(40, wait_s=5000)), "lab")
    assert "a log of one user's jobs does not show what others held" in why(source)


# --- what to do: replays, how far to trust them -----------------------------------------------------------------------


def _replays(source: Source, *rows: tuple[str, int, float, float, float, float, str], trust: str = "figures") -> Source:
    named = [
        {"cluster": "lab", "change": change, "capacity_nodes": nodes, "jobs": 40,
         "mean_wait_s": mean, "p50_wait_s": mean, "p95_wait_s": mean, "mean_bounded_slowdown": 2.0,
         "wait_change_s": diff, "wait_change_low_s": low, "wait_change_high_s": high, "wait_change_whole_s": diff,
         "verdict": verdict, "recorded_mean_wait_s": 5000.0, "base_spearman": 0.9, "trust": trust,
         "trust_why": "the base's mean wait is off by 2 %", "said": ""}
        for change, nodes, mean, diff, low, high, verdict in rows
    ]  # fmt: skip
    _add(source.data, "what_if", frame(WHAT_IF, named))
    return Source(source.data, "lab")


BASE = ("as it is", 8, 4900.0, 0.0, 0.0, 0.0, "no change")


@pytest.fixture
def waiting(tmp_path: Path) -> Source:
    """Waits of no known cause."""
    return _with_causes(_data(tmp_path, _jobs(40, wait_s=5000)))


ASK = "Ask users for tighter time limits (simulated: 1.2 times the run time of each job)"


def test_what_is_free_comes_before_what_is_bought(waiting: Source) -> None:
    source = _replays(
        waiting,
        BASE,
        ("ask=1.2", 8, 3900.0, -1000.0, -1500.0, -500.0, "less"),
        ("nodes=+10%", 9, 2900.0, -2000.0, -2500.0, -1500.0, "less"),
        ("arrivals=-50%", 8, 100.0, -4800.0, -4850.0, -4750.0, "less"),  # nobody can order that
    )
    first, second = actions(source)
    assert (first.do, first.interval) == (ASK, [-1500.0, -500.0])
    assert "from 1 h 22 min to 1 h 5 min (by 17 min; 95 % interval 8.3 min to 25 min)" in first.effect
    assert second.do == "Add 1 node (12 % more)"


def test_a_change_that_the_replay_cannot_tell_or_too_small_is_not_recommended(waiting: Source) -> None:
    small = ("ask=1.2", 8, 4700.0, -200.0, -250.0, -150.0, "less")
    chance = ("nodes=+10%", 9, 2000.0, -2000.0, -4500.0, 500.0, "cannot tell")
    (only,) = actions(_replays(waiting, BASE, small, chance))
    assert only.do == "No simulated change is worth making" and "ask users for tighter" in only.effect
    (only,) = actions(_replays(waiting, BASE, chance))
    assert only.do == "No simulated change is certain to help"


def test_an_effect_of_a_replay_far_from_the_record_is_not_offered(waiting: Source) -> None:
    ask = ("ask=1.2", 8, 3000.0, -1000.0, -1500.0, -500.0, "less")
    assert actions(_replays(waiting, BASE, ask))[0].do == ASK
    assert actions(_replays(waiting, BASE, ask, trust="direction"))[0].do == "No simulated change is certain to help"


@pytest.mark.parametrize(
    ("trust", "words"), [("figures", "Trust direction and size"), ("direction", "Trust the direction, not the size")]
)
def test_trust_is_that_of_the_base(waiting: Source, trust: str, words: str) -> None:
    base = _replays(waiting, BASE, trust=trust).rows("what_if").to_dicts()[0]
    found = trust_in_replays(waiting, base)
    assert found.startswith(f"{words}. ") and "recorded waits is 0.90" in found
    assert "mean wait of 1 h 22 min; the recorded mean wait is 1 h 23 min" in found
    assert "The log has 0 whole weeks, so the interval is only indicative." in found


def test_a_policy_that_costs_clearly_less_is_offered(full_data: DataFolder) -> None:
    offered = [action for action in actions(Source(full_data, "gpu-lab")) if action.unit == "h"]
    ((name, interruption),) = _sql(
        full_data,
        "SELECT policy, r.interruption_h FROM policy_results r JOIN policy_curves c USING (policy, size) WHERE "
        "load = 'all' AND size = '8' AND c.\"window\" = 'select' AND policy NOT IN ('oracle', 'reactive', "
        "'mirage-average') AND policy NOT LIKE '%-untrained' ORDER BY c.cost_w1, policy LIMIT 1",
    )
    (action,) = offered
    assert action.do.endswith(f"by the policy {name}") and f"{interruption:.1f} h between two jobs" in action.effect
    assert action.interval is not None and action.interval[0] < interruption < action.interval[1]


def test_idle_gpus_are_asked_back(full_data: DataFolder) -> None:
    source = Source(full_data, "gpu-lab")
    idle = next(action for action in actions(source) if action.do.startswith("Reclaim idle GPUs"))
    ((seconds, share),) = _sql(
        full_data, "SELECT idle_gpu_time_s, idle_share FROM idle_gpu_time WHERE dimension = 'all'"
    )
    assert fmt.unit_time(seconds) in idle.effect and f"{100 * share:.1f} %" in idle.effect
    assert of_source(source)[2]["kind"] == "do"
