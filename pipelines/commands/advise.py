"""`baton advise`: search the changes that an administrator may make; verify them after they were made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from models.what_if.advice.names import OBJECTIVE_NAMES
from pipelines import completion, options
from pipelines.options import ClusterName, Data, Json
from traces.errors import InputError

if TYPE_CHECKING:
    from models.what_if.advice.search import Fairness
    from traces.clusters import ClusterSettings
    from traces.store.folder import DataFolder

MOST_CANDIDATES = 10_000


def register(app: typer.Typer) -> None:
    """Add `baton advise`."""
    app.command()(advise)


def advise(
    context: typer.Context,
    cluster: ClusterName,
    objective: Annotated[
        str,
        typer.Option("--objective", autocompletion=completion.objectives, help=f"{', '.join(OBJECTIVE_NAMES)}."),
    ] = "p90-wait",
    may: Annotated[
        str, typer.Option("--may", help="Settings that may change: weights, backfill, limits, qos.")
    ] = "weights,backfill,limits,qos",
    keep: Annotated[
        str,
        typer.Option("--keep", help="No group of this dimension may wait that much longer: account=10%, user=25%."),
    ] = "",
    candidates: Annotated[
        int, typer.Option("--candidates", min=1, max=MOST_CANDIDATES, help="Candidates, including earlier runs'.")
    ] = 200,
    budget: Annotated[str, typer.Option("--budget", help="Time limit of the search: 10m, 2h.")] = "10m",
    horizon: Annotated[
        str, typer.Option("--horizon", help="Replay anew from the record this often: 7-0, 24h.")
    ] = "7-0",
    from_: options.From = None,
    to: options.To = None,
    verify: Annotated[
        str | None, typer.Option("--verify", help="Date (UTC) at which the changes were made: were they worth it?")
    ] = None,
    change: Annotated[
        str | None, typer.Option("--change", help="With --verify: the changes that were made, else those recommended.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, max=options.MOST_SEED, help="Seed of the search.")] = 0,
    data: Data = None,
    json: Json = False,
) -> None:
    """Search settings that shorten the waits without losers; print the best with what to type. Applies nothing.

    The older half of the window is searched, the newer half judges the best three. Run it again to resume the search.

    \f
    Over 50 lines: the options are the declaration of the command line.
    """
    with options.output(json) as out:
        folder = options.data_folder(context, data)
        from traces import clusters
        from traces.store import contents

        settings = clusters.resolve(folder, cluster=cluster)
        contents.check_clusters(folder, [settings.name])
        span_s = options.replay_span_s(horizon)
        if change is not None and verify is None:
            raise InputError("--change goes with --verify; to ask about a change, use `baton whatif --change`")
        if verify is not None:
            from reports.text.advice import write_verified

            result = _verified(folder, settings, change, objective, options.utc_s(verify), span_s)
            write = write_verified
        else:
            from models.what_if.advice.advise import AdviceQuestion, advice_on
            from reports.text.advice import write_advice

            folder.ensure_writable()
            budget_s, areas = options.duration_s(budget), tuple(options.names(may))
            question = AdviceQuestion(objective, areas, _fairness(keep), candidates, budget_s, span_s, seed)
            window = options.utc_s(from_) if from_ else None, options.utc_s(to) if to else None
            result = advice_on(folder, settings, question, window)
            write = write_advice
            for line in result["said"]:
                options.say(line)
        if json:
            options.write_json(out, result)
        else:
            write(out, result)


def _verified(
    folder: DataFolder, settings: ClusterSettings, change: str | None, objective: str, applied_s: int, span_s: int
) -> dict[str, Any]:
    """Verify the given changes, else those of the kept advice, with its objective."""
    from models.what_if.advice.advise import kept_advice
    from models.what_if.advice.verify import verify
    from models.what_if.recorded.changes import TOGETHER

    if change is None:
        kept = kept_advice(folder, settings.name)
        if kept["recommended"] is None:
            raise InputError("the newest advice recommends no change; name what was changed with --change")
        change, objective = TOGETHER.join(kept["recommended"]), kept["objective"]
    return verify(folder, settings, change, objective, applied_s, span_s)


def _fairness(keep: str) -> Fairness:
    """Parse --keep. Raises InputError."""
    from models.what_if.advice.search import NO_MORE_THAN_A_TENTH, Fairness
    from models.what_if.recorded.changes import DIMENSIONS

    if not keep:
        return NO_MORE_THAN_A_TENTH
    dimension, _equals, share = (part.strip() for part in keep.partition("="))
    number = share.removesuffix("%")
    is_number = number.replace(".", "", 1).isdecimal() and len(number) < 8
    if dimension not in DIMENSIONS or not share.endswith("%") or not is_number:
        raise InputError(f"invalid --keep {keep[:60]!r}; write account=10%, with one of {', '.join(DIMENSIONS)}")
    return Fairness(dimension, float(number) / 100.0)
