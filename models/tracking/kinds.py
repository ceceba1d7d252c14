"""The kinds of registered models of a cluster."""

from __future__ import annotations

POLICY, QUEUE_TIME = "policy", "queue-time"
MODEL_DESCRIPTIONS = {
    POLICY: (
        "When to submit the successor of a time-limited job, so that work passes on with neither a gap nor a double "
        "booking. Input: one row a decision, one float column a feature. Output: submit (bool) and score."
    ),
    QUEUE_TIME: (
        "How long a job would wait, as a distribution. Input: one row a job, one float column a feature, and the name "
        "of its partition. Output: quantiles of the wait, s, and the probability of a wait under ten minutes."
    ),
}
