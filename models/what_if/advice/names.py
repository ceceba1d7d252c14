"""The names of the advisor's objectives; `models.what_if.advice.objectives` defines them."""

OBJECTIVE_NAMES = ("mean-wait", "p90-wait", "p90-wait-small", "slowdown", "worst-group", "utilization")
