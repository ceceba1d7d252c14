"""A phrase in the user's words for each step of the asset graph, for progress lines and failures."""

from __future__ import annotations

WORDS = {
    "trace_files": "reading the raw logs",
    "warehouse": "building the warehouse",
    "canonical_checks": "checking the tables",
    "queueing": "explaining why jobs waited",
    "order": "comparing the order of starts with that of submissions",
    "load": "measuring the load",
    "utilization": "measuring utilization",
    "accounting": "adding up hours by user, account and month",
    "fragmentation": "measuring fragmentation",
    "locality": "measuring how jobs spread over nodes",
    "failures": "counting failures and their cost",
    "quotas": "testing how quotas change the causes of waits",
    "deployed": "comparing the agent's predictions with what happened",
    "derived_checks": "checking the analytics",
    "simulation_replay": "replaying the log",
    "simulation_what_if": "replaying the log with one thing changed",
    "simulation_advice": "searching settings that shorten the waits",
    "simulation_what_if_schedulers": "replaying the log under GPU schedulers",
    "simulation_calibration": "inferring what the log hides about its scheduler",
    "warehouse__derived_tables": "adding the analytics to the warehouse",
    "report": "writing the report",
    "pair_tables": "simulating pairs of predecessor and successor",
    "trained_policies": "training policies",
    "policy_comparison": "comparing policies",
    "policy_checks": "checking the comparison",
    "provisioning_policy": "deciding whether to release a policy",
    "champion_drift": "checking whether the champion still fits",
    "queue_time_model": "fitting queue-time models",
    "queue_time_drift": "checking whether the queue-time model still fits",
    "warehouse__policy_tables": "adding the policies' results to the warehouse",
    "report_with_policies": "writing the report with the policies",
    "search_hyperparameters": "searching settings of a learner",
}  # step -> phrase


def words_of_step(step: str) -> str:
    """Return the phrase of a step, else its name."""
    return WORDS.get(step, step.replace("_", " "))
