"""Names of the players of chains with a wanted service, and the limits on what may be asked. Cheap to import."""

from __future__ import annotations

from collections.abc import Sequence

from features.conventions import ORACLE, REACTIVE, RULES
from models.provisioning import registry
from traces.errors import InputError
from traces.units import DAY_S, HOUR_S

PLAN, TIME_MIN, ELASTIC = registry.PLANS
LEAST_SHARE = 0.25  # of the first link's nodes, which the links of ELASTIC have at least
MOMENT = "start-estimate"  # the policy of pairs at whose moment and setting the next two submit
SHORTEST, LONGEST = "shortest", "longest"  # always that limit
HAND_OVER = "longest-hand-over"  # that limit, submitted early; the older link ends when the newer one starts
TWO_AHEAD, SINGLETON, ALL_AT_ONCE = "two-ahead", "singleton", "all-at-once"
BY_HAND = (REACTIVE, SINGLETON, TWO_AHEAD, ALL_AT_ONCE)  # decide without looking
ALWAYS = (
    *BY_HAND,
    *(name for name in RULES if name != REACTIVE),
    SHORTEST,
    LONGEST,
    HAND_OVER,
    ORACLE,
)  # in every table


def check_service_policies(names: Sequence[str]) -> None:
    """Raise InputError, listing the known names, for a policy that cannot play a chain of a wanted service."""
    known = dict.fromkeys((*registry.PLANS, *registry.PLANNING, *ALWAYS, *registry.POLICIES, *registry.LOOKING_AHEAD))
    for name in names:
        if name not in known:
            raise InputError(f"unknown policy {name!r} for --chains; known: {', '.join(known)}")


def check_service(wanted_s: int, restart_s: int, limits_s: Sequence[int], least_limit_s: int) -> None:
    """Raise InputError for a service that no chain can deliver. least_limit_s: the least limit of a first link."""
    if not DAY_S <= wanted_s <= 60 * DAY_S:
        raise InputError(f"--chains {wanted_s / DAY_S:.3g}d: give 1 to 60 days, such as 10d")
    if wanted_s <= least_limit_s:
        raise InputError(
            f"--chains {wanted_s / DAY_S:g}d: the first link does all of the work, because it asks for at least "
            f"{least_limit_s / HOUR_S:g} h; give longer --chains, or a shorter --limit"
        )
    shortest_s = min(least_limit_s, *limits_s)
    if 3 * restart_s > shortest_s:
        raise InputError(
            f"--restart-cost {restart_s} s is over a third of a link of {shortest_s / HOUR_S:g} h; give at most "
            f"{shortest_s // 3} s, or longer links (--limit, --limits)"
        )
