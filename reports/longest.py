"""The jobs of each user that waited longest, and what `baton explain` prints about them, for the page's filters."""

from __future__ import annotations

import shlex
from typing import Any

from features.explain import JobExplainer, node_time
from reports import format as fmt
from reports.causes import CAUSES
from reports.source import NAME_COLUMNS, Source
from reports.text.explanation import job_text
from traces.clusters import ClusterSettings
from traces.store import warehouse

JOBS_A_USER = 5
MOST_TEXTS = 100  # jobs explained in the page, of the users who waited longest; each takes about 30 ms
MOST_LOOKED_AT = 10_000_000  # jobs read for these texts, so a long log gets fewer texts
MOST_JOBS = 1_000_000  # of a log that gets texts, because all its waits are held for them
NO_REPLAY = "the command below adds one"


def longest(source: Source, step: str) -> list[dict[str, Any]]:
    """Return JOBS_A_USER jobs of each user, longest wait first; users with the longest total wait come first.

    Each job has `user_name`, `partition` and `at_utc` (the start of the `step` in which it was submitted), which the
    filters use. It has `id`, `wait_s`, `causes` (s, in the order of CAUSES; empty if unknown) and `words` for a person.
    `command` prints everything known about the job. `text` is what that command prints except for the replay; None if
    the page has no room for it.
    """
    known = source.read("SELECT * FROM queueing_delay WHERE cluster = ? LIMIT 0").columns
    causes = [cause.column for cause in CAUSES if cause.column in known]
    waited = ", ".join(f'q."{column}"' for column in causes) if len(causes) == len(CAUSES) else ""
    rows = source.read(
        f"SELECT * EXCLUDE (place) FROM (SELECT q.user_name, q.partition, q.job_key, q.submit_utc, q.wait_s, q.nodes, "  # noqa: S608 - our own names
        f"date_trunc('{step}', q.submit_utc)::TIMESTAMP AS at_utc, q.state, j.job_id, count(*) OVER (PARTITION BY "
        "j.job_id) AS ids, sum(greatest(q.wait_s, 0)) OVER (PARTITION BY q.user_name) AS waited_s, row_number() OVER "
        "(PARTITION BY q.user_name ORDER BY q.wait_s DESC NULLS LAST, q.job_key) AS place"
        f"{', ' + waited if waited else ''} FROM queueing_delay q JOIN jobs j USING (cluster, job_key) "
        f"WHERE q.cluster = ?) WHERE place <= {JOBS_A_USER} AND wait_s > 0 "
        "ORDER BY waited_s DESC, user_name NULLS LAST, place"
    ).to_dicts()
    jobs = source.jobs.height
    most = min(MOST_TEXTS, MOST_LOOKED_AT // jobs) if jobs <= MOST_JOBS else 0
    texts = _texts(source, [row["job_key"] for row in rows[:most]])
    return [
        {
            **{name: row[name] for name in ("user_name", "partition", "at_utc", "wait_s")},
            "id": fmt.text(row["job_id"]),
            "causes": [int(row[column] or 0) for column in causes] if waited else [],
            "words": f"submitted {fmt.moment(row['submit_utc'])}, {row['state']}",
            "command": _command(source.cluster, row["job_id"] if row["ids"] == 1 else row["job_key"]),
            "text": texts.get(row["job_key"]),
        }
        for row in rows
    ]


def _command(cluster: str, job: str) -> str:
    """Return the command that explains a job, quoted so that it is safe to paste into a shell."""
    words = [
        "baton",
        "explain",
        f"--cluster={fmt.text(cluster)}",
        *(["--"] if job.startswith("-") else []),
        fmt.text(job),
    ]
    return shlex.join(words)


def _texts(source: Source, job_keys: list[str]) -> dict[str, str]:
    """Return the explanation of each of these jobs, by key, with names hidden on request."""
    if not job_keys or not {"attempts", "steps", "placements"} <= source.tables:
        return {}
    settings = ClusterSettings(source.cluster)
    with warehouse.published(source.data):  # opening a connection takes longer than each of the reads
        delays = warehouse.read(source.data, "SELECT * FROM queueing_delay WHERE cluster = ?", [source.cluster])
        record = JobExplainer(source.data, source.cluster, delays, node_time(source.data, settings, delays))
        facts = {key: _hidden(source, record.job(key)) for key in job_keys}
    return {key: job_text({**job, "what_if": None, "why_no_what_if": NO_REPLAY}) for key, job in facts.items()}


def _hidden(source: Source, value: Any) -> Any:
    """Hide every name in nested facts."""
    if isinstance(value, dict):
        return {
            name: source.hidden(name, part) if name in NAME_COLUMNS else _hidden(source, part)
            for name, part in value.items()
        }
    return [_hidden(source, part) for part in value] if isinstance(value, list) else value
