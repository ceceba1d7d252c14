"""One job asked about: the answer is the model's, what cannot be is said, and what was never seen falls back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agent.model_folder import pack_arrays, unpack_arrays
from features.submission.index import FEATURES
from features.submission.log import SubmissionLog
from features.submission.observed import observe_log
from models.queue_time.ask import WaitRequest, answer, observed_of, why_never
from models.queue_time.ground import submitted_jobs
from models.queue_time.make import make
from models.queue_time.protocol import Forecast
from models.queue_time.rolling import rolled
from models.queue_time.stored import Stored
from simulator.recorded.parameters import infer_parameters
from simulator.recorded.record import ARRAYS, NEVER, RecordedTrace
from tests.features.submission.logs import generated_log
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.units import DAY_S, HOUR_S

LAB = ClusterSettings(name="lab", nodes=10)


@pytest.fixture(scope="module")
def log() -> SubmissionLog:
    return generated_log(7, jobs=500, days=30)


@pytest.fixture(scope="module")
def stored(log: SubmissionLog) -> Stored:
    return make(log, LAB, {"made_from": "", "code": "", "champion": None})


def with_one_more(log: SubmissionLog, size: int, limit_s: int, of: int) -> SubmissionLog:
    """The log as it was known at its last submission, and a job like row `of` submitted a second later."""
    record = log.record
    now = int(record.submit_s[-1]) + 1
    start = np.append(np.where(record.start_s < now, record.start_s, NEVER), now + 5 * DAY_S)
    end = np.append(np.where(record.end_s < now, record.end_s, now + 9 * DAY_S), now + 6 * DAY_S)
    columns = [np.append(record.submit_s, now), start, end, np.append(record.size, size)]
    columns += [
        np.append(record.limit_s, limit_s),
        np.append(record.user, record.user[of]),
        np.append(record.priority, 0),
    ]
    names = {name: [*found, found[of]] for name, found in log.names.items()}
    asked = np.vstack([log.asked, [size * 8.0, size * 4.0, 0.0, 0.0, 0.0]])
    keys = [*record.job_key, "new"]
    fields = dict(zip(ARRAYS, columns, strict=True))
    return replace(log, record=RecordedTrace(**fields, job_key=keys), names=names, asked=asked)


def test_what_is_asked_about_is_observed_as_if_it_had_been_submitted(log: SubmissionLog, stored: Stored) -> None:
    for of, size, limit_s in ((10, 2, HOUR_S), (200, 4, DAY_S), (33, 1, 6 * HOUR_S)):
        longer = with_one_more(log, size, limit_s, of)
        wanted = np.arange(len(longer.record)) == len(log.record)
        (expected,) = observe_log(longer, infer_parameters(log.record, int(log.record.submit_s[-1]) + 1), wanted)
        names = {name: log.names[name][of] for name in ("user", "account", "partition", "qos")}
        (found,) = observed_of(stored, WaitRequest(size, limit_s, **names))
        differing = {
            name: (a, b)
            for name, a, b in zip(FEATURES, found.tolist(), expected.tolist(), strict=True)
            if not np.isclose(a, b, rtol=1e-4, atol=1e-4)
        }
        assert not differing


def test_an_answer_has_rising_quantiles_reasons_and_what_is_sooner(stored: Stored) -> None:
    result = answer(stored, WaitRequest(4, DAY_S, user="u1"))
    values = list(result["quantiles_s"].values())
    assert values == sorted(values) and 0 <= result["p_under_600s"] <= 1 and result["never"] is None
    assert 1 <= len(result["reasons"]) <= 3 and all(isinstance(reason, str) for reason in result["reasons"])
    assert all(one["median_s"] <= 0.9 * result["quantiles_s"]["0.5"] for one in result["sooner"])


def test_what_is_kept_answers_as_what_was_made(stored: Stored, tmp_path: Path) -> None:
    stored.save(tmp_path / "lab")
    again = Stored.load(tmp_path / "lab")
    request = WaitRequest(2, 6 * HOUR_S, user="u2", partition="p1")
    assert answer(again, request) == answer(stored, request)
    (tmp_path / "lab" / "arrays.npz").write_bytes(b"no zip")
    with pytest.raises(ValueError, match="unreadable prediction model"):
        Stored.load(tmp_path / "lab")


def test_what_no_node_can_satisfy_never_starts(stored: Stored) -> None:
    result = answer(stored, WaitRequest(11, HOUR_S))
    assert result["never"] == "never: it asks for 11 nodes, and the cluster has 10"
    assert result["p_under_600s"] == 0 and set(result["quantiles_s"].values()) == {None}
    longest_s = stored.manifest["partitions"]["p0"]
    assert why_never(stored, WaitRequest(1, longest_s, partition="p0")) is None
    above = why_never(stored, WaitRequest(1, longest_s + 1, partition="p0"))
    assert above is not None and "the longest limit of any job in partition 'p0'" in above


def test_what_was_never_seen_falls_back_and_is_said(stored: Stored) -> None:
    result = answer(stored, WaitRequest(1, HOUR_S, partition="new", user="nobody", account="none", qos="odd"))
    assert [note.split(" is not in the log")[0] for note in result["notes"][:4]] == [
        "user 'nobody'", "account 'none'", "partition 'new'", "qos 'odd'",
    ]  # fmt: skip
    assert result["never"] is None and result["quantiles_s"]["0.5"] >= 0


def test_a_short_history_widens_the_interval_and_says_so(stored: Stored) -> None:
    request = WaitRequest(10, DAY_S)
    long = replace(stored, manifest={**stored.manifest, "fitted_days": 90.0})
    short = replace(stored, manifest={**stored.manifest, "fitted_days": 7.0})
    a, b = answer(long, request), answer(short, request)
    assert any("7 days of history" in note for note in b["notes"]) and not any("history" in n for n in a["notes"])

    def width(found: dict[str, dict[str, float]]) -> float:
        return found["quantiles_s"]["0.9"] - found["quantiles_s"]["0.1"]

    assert width(b) > width(a)


def test_an_empty_queue_is_answered(stored: Stored) -> None:
    empty = {name: column[:0] for name, column in stored.seen.items()}
    result = answer(replace(stored, seen=empty, pending_key=stored.pending_key[:0]), WaitRequest(1, HOUR_S))
    assert result["never"] is None and np.isfinite(list(result["quantiles_s"].values())).all()


def test_a_log_that_cannot_be_rebuilt_is_refused(log: SubmissionLog) -> None:
    waited = replace(log.record, start_s=log.record.start_s + HOUR_S, end_s=log.record.end_s + HOUR_S)
    with pytest.raises(InputError, match="its queue cannot be rebuilt"):
        make(replace(log, record=waited), LAB, {})


def test_a_model_fitted_earlier_is_corrected_by_what_became_of_the_jobs_since(
    log: SubmissionLog, stored: Stored, tmp_path: Path
) -> None:
    now_s = int(stored.manifest["now_s"])
    request = WaitRequest(4, DAY_S, partition="p0", qos=stored.manifest["usual"]["qos"])
    result = answer(stored, request)
    assert result["outcomes"] == 0 and not any("outcomes of" in note for note in result["notes"])
    earlier = replace(stored.model, manifest={**stored.model.manifest, "trained_on": {"until_s": now_s - 10 * DAY_S}})
    made = make(log, LAB, {"made_from": "", "code": "", "champion": 1}, earlier)
    result = answer(made, request)
    assert result["outcomes"] > 0
    assert f"corrected by the outcomes of {result['outcomes']} jobs since the model was fitted" in result["notes"]

    rows = submitted_jobs(log, now_s).rows
    since = rows.take((rows.submit_s >= now_s - 10 * DAY_S) & (rows.submit_s < now_s))
    names = sorted(set(log.names["partition"]))
    said = earlier.forecast(since.observed, [names[one] for one in since.partition.tolist()])
    asked = earlier.forecast(observed_of(made, request), ["p0"])
    both = Forecast(*(np.concatenate([a, b]) for a, b in zip(said, asked, strict=True)))
    wait = np.append(since.wait_s, 0)
    wanted = rolled(both, np.append(since.submit_s, now_s), wait).quantiles_s[-1]
    long = replace(made, manifest={**made.manifest, "fitted_days": 90.0})
    assert answer(long, request)["quantiles_s"]["0.5"] == pytest.approx(wanted[19], rel=1e-12)
    assert wanted[19] != pytest.approx(asked.quantiles_s[0, 19])

    made.save(tmp_path)
    assert answer(Stored.load(tmp_path), request) == result
    arrays = unpack_arrays((tmp_path / "arrays.npz").read_bytes())
    moves, outcomes = arrays["moves"], arrays["outcomes"]
    for name, damage in (("moves", moves[:1]), ("moves", moves * np.nan), ("outcomes", -outcomes), ("outcomes", moves)):
        (tmp_path / "arrays.npz").write_bytes(pack_arrays({**arrays, name: damage}))
        with pytest.raises(ValueError, match="unreadable prediction model"):
            Stored.load(tmp_path)
