"""Simulation: replays of the trace by schedulers, and the pairs on which policies learn and are compared."""

import dagster as dg
import polars as pl

from assets import warehouse
from assets.shared.metadata import materialization, numbers, plot, spread_metadata, table
from assets.shared.promises import computed_by
from assets.shared.resources import CLUSTERS, OWNERS, Baton
from features.conventions import interruption_h
from models.provisioning import registry
from models.study import calibrations, extent, inputs
from models.study.pair_tables import MADE_BY, pair_path
from models.study.support import Refusal, headline_study
from models.tables import WHAT_IF
from models.what_if import answers as what_ifs
from models.what_if import gpu_answers as gpu_what_ifs
from models.what_if import replays
from models.what_if.advice import table as advice
from simulator.tables import CALIBRATION, SIMULATED_STARTS
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import InputError
from traces.store import derived
from traces.store import warehouse as canonical
from traces.units import HOUR_S

SCHEDULER = "mirage"
WAITS = ("mean", "p50", "p95")


@dg.asset(
    deps=[warehouse.key("jobs")],
    group_name="simulation",
    partitions_def=CLUSTERS,
    kinds={"numba", "parquet"},
    owners=OWNERS,
    metadata=computed_by(replays.__name__),
    description="Simulated and recorded wait of every job in a replay of the trace: the error of the simulator.",
)
def simulation_replay(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    settings = baton.settings(cluster)
    if why := inputs.why_not_replayed(data, settings):
        return materialization(rows=0, why=why)
    made_from = digest(canonical.made_from(data, cluster), settings.nodes, SCHEDULER, code_digest(replays.__name__))
    (frame,), reused = derived.read_or_compute(
        data, [SIMULATED_STARTS], cluster, made_from, lambda: [replays.replay(data, settings, SCHEDULER)]
    )
    waits = {side: _ecdf(frame[f"{side}_wait_s"].drop_nulls()) for side in ("recorded", "simulated")}
    distance = replays.distances(frame)
    return materialization(
        rows=len(frame),
        reused=reused,
        version=made_from,
        **numbers(spearman=dict(distance.iter_rows())["spearman"]),
        **spread_metadata(frame["simulated_wait_s"], "simulated_wait"),
        **spread_metadata(frame["recorded_wait_s"], "recorded_wait"),
        distance=table(distance),
        waits=plot(waits, x="wait, h", y="share of jobs", log_x=True),
    )


@dg.asset(
    deps=[warehouse.key("jobs")],
    group_name="simulation",
    partitions_def=CLUSTERS,
    kinds={"numba", "parquet"},
    owners=OWNERS,
    metadata=computed_by(calibrations.__name__),
    description="Scheduler parameters inferred from the trace, and the calibrated waits of every later month.",
)
def simulation_calibration(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    from simulator.recorded.calibration.study import unexplained

    data, cluster = baton.folder, context.partition_key
    if why := inputs.why_no_plan(data, cluster):
        return materialization(rows=0, why=why)
    settings = baton.settings(cluster)
    made_from = digest(canonical.made_from(data, cluster), settings.fit_from, code_digest(calibrations.__name__))

    def calibrate() -> list[pl.DataFrame]:
        calibrated = calibrations.calibrate(data, settings)
        return [calibrated.figures, calibrated.starts, calibrated.parameters]

    (figures, starts, parameters), reused = derived.read_or_compute(data, CALIBRATION, cluster, made_from, calibrate)
    if figures.is_empty():
        why = "no month of the trace has 100 jobs and four weeks of record before it to fit on"
        return materialization(rows=0, reused=reused, why=why, fidelity=table(figures))
    waits = {form: _ecdf(starts[f"{form}_wait_s"]) for form in ("recorded", "frozen", "causal", "forked", "informed")}
    return materialization(
        rows=len(starts),
        reused=reused,
        version=made_from,
        **spread_metadata(starts["recorded_wait_s"], "recorded_wait"),
        **spread_metadata(starts["informed_wait_s"], "calibrated_wait"),
        left_out=extent.calibration_cut(data, cluster) or "nothing",
        fidelity=table(figures.filter(pl.col("change") == "all").drop("cluster", "change", "mechanism")),
        mechanisms=table(figures.filter(pl.col("change") != "all").drop("cluster", "from_utc", "until_utc"), rows=40),
        parameters=table(parameters),
        unexplained=table(unexplained(starts)),
        waits=plot(waits, x="wait, h", y="share of jobs", log_x=True),
    )


@dg.asset(
    deps=[warehouse.key("jobs")],
    group_name="simulation",
    partitions_def=CLUSTERS,
    kinds={"numba", "parquet"},
    owners=OWNERS,
    metadata=computed_by(what_ifs.__name__, but=(registry.__name__,)),
    description="Mean wait in the cluster as recorded, with other nodes, time limits, arrivals, or without backfill.",
)
def simulation_what_if(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    if why := inputs.why_no_plan(data, cluster):
        return materialization(rows=0, why=why)
    settings = baton.settings(cluster)
    code = code_digest(
        what_ifs.__name__, but=(registry.__name__,)
    )  # the registry names the worlds of tables; policies have no effect here
    made_from = digest(canonical.made_from(data, cluster), settings.fit_from, code)
    try:
        (frame,), reused = derived.read_or_compute(
            data, [WHAT_IF], cluster, made_from, lambda: [what_ifs.what_if(data, settings)]
        )
    except InputError as error:  # a log of less than a week
        return materialization(rows=0, why=str(error))
    base = frame.filter(pl.col("change") == "as it is")
    return materialization(
        rows=len(frame),
        reused=reused,
        version=made_from,
        **numbers(
            **{f"as_it_is_{name}_h": value / 3600 for name in WAITS for value in base[f"{name}_wait_s"]},
            recorded_mean_h=base["recorded_mean_wait_s"][0] / 3600,
        ),
        trust=f"{base['trust'][0]}: {base['trust_why'][0]}",
        changes=table(frame),
    )


@dg.asset(
    deps=[warehouse.key("jobs")],
    group_name="simulation",
    partitions_def=CLUSTERS,
    kinds={"numba", "optuna", "parquet"},
    owners=OWNERS,
    metadata=computed_by(advice.__name__, but=(registry.__name__,)),
    description="Settings that would shorten the waits, searched on older weeks and judged on newer ones.",
)
def simulation_advice(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    if why := inputs.why_no_plan(data, cluster):
        return materialization(rows=0, why=why)
    settings = baton.settings(cluster)
    code = code_digest(advice.__name__, but=(registry.__name__,))
    made_from = digest(canonical.made_from(data, cluster), settings.fit_from, code)
    try:
        (frame, _curves), reused = derived.read_or_compute(
            data, advice.TABLES, cluster, made_from, lambda: advice.advice_tables(data, settings)
        )
    except InputError as error:  # a log of less than two weeks
        return materialization(rows=0, why=str(error))
    recommended = frame.filter("is_recommended")["changes"].to_list()
    return materialization(
        rows=len(frame),
        reused=reused,
        version=made_from,
        recommended=recommended[0] if recommended else "change nothing",
        **numbers(**{f"difference_{row['place']}": row["difference"] for row in frame.to_dicts()}),
        candidates=table(frame.drop("cluster")),
    )


@dg.asset(
    deps=[warehouse.key("jobs"), warehouse.key("nodes")],
    group_name="simulation",
    partitions_def=CLUSTERS,
    kinds={"numba", "parquet"},
    owners=OWNERS,
    metadata=computed_by(gpu_what_ifs.__name__, but=(registry.__name__,)),
    description="The same jobs under published GPU schedulers, also with changes: which groups gain and lose.",
)
def simulation_what_if_schedulers(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    settings = baton.settings(cluster)
    if why := gpu_what_ifs.why_not(data, settings):
        return materialization(rows=0, why=why)
    made_from = gpu_what_ifs.made_from(data, settings)
    kept = gpu_what_ifs.kept(data, settings)  # the answer to a `baton whatif`
    if kept is not None:
        (schedulers, groups), reused = kept, True
        made_from = derived.made_from(data, gpu_what_ifs.TABLES[0].name, cluster) or made_from
    else:
        (schedulers, groups), reused = derived.read_or_compute(
            data,
            gpu_what_ifs.TABLES,
            cluster,
            made_from,
            lambda: gpu_what_ifs.answer(data, settings, gpu_what_ifs.declared(data, settings), workers=1),
        )
    best = schedulers.sort("mean_jct_s", "place").row(0, named=True)
    return materialization(
        rows=len(schedulers),
        reused=reused,
        version=made_from,
        asked_by="baton whatif" if kept is not None else "clusters.toml, or the default question",
        **numbers(best_mean_jct_h=best["mean_jct_s"] / 3600, best_jct_change_h=best["jct_change_s"] / 3600),
        best=f"{best['scheduler']}, {best['change']}",
        replays=table(schedulers.drop("assumptions", "cluster")),
        parts=table(groups.drop("cluster"), rows=40),
        assumed=dg.MetadataValue.text(schedulers.sort("place")["assumptions"][0]),
    )


@dg.asset(
    deps=[warehouse.key("jobs")],
    group_name="simulation",
    partitions_def=CLUSTERS,
    kinds={"numba", "numpy"},
    owners=OWNERS,
    metadata=computed_by(*MADE_BY),
    description="Pairs of a job and its successor at every submit time: jobs ended by their limit, else injected.",
)
def pair_tables(context: dg.AssetExecutionContext, baton: Baton) -> dg.MaterializeResult[None]:
    data, cluster = baton.folder, context.partition_key
    study = headline_study(data, baton.settings(cluster))
    if isinstance(study, Refusal):
        return materialization(rows=0, why=study.why)
    parts = (study.windows.fit, study.windows.select, study.windows.report)
    fitted = study.fit_scenarios(parts[0].until_s)
    scenarios = [(scenario, parts[0]) for scenario in fitted] + [(study.scenario, part) for part in parts[1:]]
    paths = [pair_path(data, scenario, part) for scenario, part in scenarios]
    reused = all(path.is_file() for path in paths)
    tables = [study.fit_pairs(parts[0]), *(study.pairs(part) for part in parts[1:])]
    counts = pl.Series("pairs", [len(pairs) for pairs in tables])
    named = dict(zip(("fit", "select", "report"), tables, strict=True))
    gaps = {name: _ecdf(pl.Series(pairs.gap_h[pairs.last]) * HOUR_S) for name, pairs in named.items()}
    return materialization(
        rows=int(counts.sum()),
        reused=reused,
        version=digest([path.name for path in paths]),  # the name holds the fingerprint
        scenario=str(study.scenario),
        windows=table(study.windows.frame().with_columns(counts)),
        **numbers(**{f"pairs_{name}": len(pairs) for name, pairs in named.items()}),
        **numbers(
            **{
                f"reactive_interruption_{name}_h": float(interruption_h(pairs.gap_h[pairs.last]).mean())
                for name, pairs in named.items()
                if len(pairs)
            }
        ),
        reactive=plot(gaps, x="interruption of reactive, h", y="share of pairs", log_x=True),
    )


def _ecdf(seconds: pl.Series) -> tuple[list[float], list[float]]:
    """Return (hours, share of at most that long) at 200 quantiles."""
    shares = [i / 199 for i in range(200)]
    hours = [float(seconds.quantile(share) or 0.0) / HOUR_S for share in shares] if len(seconds) else []
    return hours, shares[: len(hours)]
