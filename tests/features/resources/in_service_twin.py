"""What is in service where only counts are known, in plain loops: each second and each day by itself."""

from __future__ import annotations

WINDOW_DAYS = 3


def in_service(
    used: dict[int, int], queued: dict[int, int], whole: int, shows_its_end: bool, *, day: int, pressed: int
) -> dict[int, int]:
    """Second -> what is in service: all, but in days with `pressed` jobs in the queue on average no more than was used.

    Never less than is used. used, queued: of each second from the first change of use to the last. A day has
    `day` seconds.
    """
    first, last = min(used), max(used)
    days = {second // day for second in range(first, last)} | {last // day}
    seconds_of = {d: [s for s in range(first, last) if s // day == d] for d in days}
    level = {d: max((used[s] for s in seconds_of[d]), default=0) for d in days}

    def most(of: list[int]) -> int:
        return max((level[d] for d in of if d in level), default=0)

    found = {}
    for second in used:
        mine = second // day
        if sum(queued[s] for s in seconds_of[mine]) < pressed * len(seconds_of[mine]):
            found[second] = max(whole, used[second])
            continue
        # The days before, without the day itself, and the day itself with those after; windows stay inside the log.
        newest = max(mine - 1, min(min(days) + WINDOW_DAYS, max(days)))
        oldest = min(mine, max(max(days) - WINDOW_DAYS, min(days))) if shows_its_end else mine
        before = most([newest - i for i in range(WINDOW_DAYS + 1)])
        after = most([oldest + i for i in range(WINDOW_DAYS + 1)])
        found[second] = max(min(before, after, whole), used[second])
    return found
