"""The options of `baton-agent` that describe a chain."""

from __future__ import annotations

import argparse
from pathlib import Path

from agent.chains.chain import AUTO, FIXED, MOST_OVERLAP_H, NEVER, OFF, ON


def chain_options() -> argparse.ArgumentParser:
    """Build the options that describe a chain, the same for `run` and `check`.

    Over 50 lines: each option is declared here once.
    """
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("script", nargs="?", help="job script; sbatch options may follow after --")
    shared.add_argument("--chain", type=Path, metavar="FILE", help="TOML file with any of these options")
    shared.add_argument("--links", type=int, metavar="N", help="maximum number of links (jobs in a row)")
    shared.add_argument(
        "--artifact",
        metavar="DIR",
        help="released policy; may be a symlink that is later replaced (default: the built-in start estimate)",
    )
    shared.add_argument(
        "--setting", type=float, metavar="X", help="value of the policy's knob (default: the released one)"
    )
    shared.add_argument("--name", help="name of the chain and its jobs (default: the script's name)")
    shared.add_argument(
        "--state", metavar="DIR", help="folder of the chain's state (default: ~/.local/state/baton-agent/NAME)"
    )
    shared.add_argument("--first", metavar="JOBID", help="your running or pending job to use as link 1")
    shared.add_argument(
        "--most-overlap", dest="most_overlap_h", metavar="TIME",
        help="cancel a successor that starts more than this before its predecessor ends: hours, 30m, 0-01:00:00, "
        f"UNLIMITED (default: {MOST_OVERLAP_H:g})",
    )  # fmt: skip
    shared.add_argument("--retries", type=int, metavar="N", help="failed links in a row that are retried (default: 1)")
    shared.add_argument(
        "--more-status", type=int, metavar="N", help="exit status by which a job requests another link (default: 85)"
    )
    shared.add_argument(
        "--cycle", dest="cycle_s", metavar="TIME", help="interval between looks: seconds, 2m, 00:30 (default: 60)"
    )
    shared.add_argument(
        "--plan", choices=(FIXED, AUTO),
        help="auto: plan limit, moment and number of queued links, and hand over to a link that runs (default: fixed)",
    )  # fmt: skip
    shared.add_argument(
        "--limits",
        metavar="A,B",
        help="limits that a planned link may ask for: 2h,12h or 2h..24h (default: as Slurm allows)",
    )
    shared.add_argument(
        "--ask", choices=("any", FIXED), help="fixed: planned links ask for the script's limit alone (default: any)"
    )
    shared.add_argument(
        "--work", dest="work_h", metavar="TIME", help="wanted work, such as 10d or 240 (hours), in place of --links"
    )
    shared.add_argument(
        "--restart-cost", dest="restart_cost_s", metavar="TIME",
        help="lost in each link after the first by saving and loading, until it is measured (default: 10m)",
    )  # fmt: skip
    shared.add_argument(
        "--saves", choices=("signal", NEVER),
        help="never: the job does not save when it is signalled, so --plan auto ends no link early (default: signal)",
    )  # fmt: skip
    shared.add_argument(
        "--overlap-weight", type=float, metavar="X",
        help="hours lost that an hour of overlap counts in a plan (default: 0.5)",
    )  # fmt: skip
    shared.add_argument(
        "--qos-choice", metavar="A,B", help="QOS that a planned link may have in place of the script's (default: none)"
    )
    shared.add_argument(
        "--time-min", choices=(ON, OFF),
        help="on: a planned link may get less than it asks for, where it then starts sooner (default: on if the script "
        "has --time-min, and then no less than that)",
    )  # fmt: skip
    shared.add_argument(
        "--least-nodes", type=int, metavar="N",
        help="fewest nodes on which a planned link can run (default: the script's)",
    )  # fmt: skip
    shared.add_argument(
        "--scaling",
        type=float,
        metavar="X",
        help="on n of N nodes a link works (n/N)^SCALING as fast (default: 1, linear)",
    )
    return shared
