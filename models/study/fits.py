"""Training and comparison of policies on one cluster, with what they leave under artifacts/policies.

Each fitted policy is kept with a fingerprint of everything that it was made from, so that the same fit is never made
twice. Which pairs belong to which window is settled in `models.study.experiment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from agent.artifact import Artifact
from models.fingerprint import code_digest, digest, forget_stamp, read_stamp, write_stamp
from models.protocol import PairTable
from models.registry import check_world, make_policy
from models.study import experiment, extent
from models.study.experiment import Scenario, Window, Windows
from models.study.support import too_few_pairs
from models.training import SEEDS, TrainedPolicy, TrainingContext, code_version, train
from simulator.names import check_names
from simulator.workload import Workload
from traces import clusters
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.files.locks import locked
from traces.store.folder import DataFolder
from traces.store.raw_files import lake_digest

if TYPE_CHECKING:
    from models.evaluation import Comparison

CHAMPION = "champion"
COMPARISON = "comparison"  # the stamp that holds the rows of a cluster's standing comparison
PAIR_NODES = (1, 8)
FIT_CODE = ("models", "agent", "features/observe.py")


@dataclass(frozen=True)
class Study:
    """One cluster's trace in one scenario. Build it with `of`."""

    data: DataFolder
    settings: ClusterSettings
    scenario: Scenario
    workload: Workload

    @cached_property
    def usable(self) -> Window:
        return experiment.usable_starts(self.workload)

    @cached_property
    def windows(self) -> Windows:
        return experiment.windows(self.settings, self.usable)

    def pairs(self, window: Window) -> PairTable:
        return experiment.pair_table(self.data, self.workload, self.scenario, window)

    def fit_pairs(self, window: Window) -> PairTable:
        """What learners are fitted on: the window's pairs on each of `experiment.fit_scenarios`."""
        scenarios = experiment.fit_scenarios(self.scenario, self.workload)
        return experiment.join(experiment.pair_table(self.data, self.workload, each, window) for each in scenarios)

    def fit_window(self, until_s: int | None) -> Window:
        """Starts to fit on: all usable ones before `until_s`; None is the end of the declared fit window."""
        if until_s is None:
            return self.windows.fit
        first_s = max(self.usable.from_s, experiment.declared_s(self.settings.fit_from) or 0)
        if first_s >= until_s:
            raise InputError(
                f"--until {experiment.text(until_s)}: the usable starts of cluster {self.scenario.cluster!r} begin at "
                f"{experiment.text(first_s)}; give a later date"
            )
        return Window(first_s, until_s, experiment.FIT_DECISION_S)

    def context(self, until_s: int) -> TrainingContext:
        """What a fit on outcomes known before `until_s` is made in."""
        return TrainingContext(
            cluster=self.scenario.cluster,
            trace_digest=lake_digest(self.data, self.scenario.cluster),
            until_utc=datetime.fromtimestamp(until_s, UTC).replace(tzinfo=None),
            capacity=self.scenario.capacity,
            fit_capacities=tuple(one.capacity for one in experiment.fit_scenarios(self.scenario, self.workload)),
            scheduler=self.scenario.scheduler,
            world=self.scenario.world,
            limit_s=self.scenario.limit_s,
            pair_nodes=self.scenario.pair_nodes,
            code_version=code_version(),
            trace_from_utc=None if self.scenario.from_s is None else experiment.text(self.scenario.from_s),
        )

    def folder(self, policy: str) -> Path:
        """Where the policy's artifacts of this scenario lie, one folder a seed."""
        return self.data.artifacts / "policies" / self.scenario.cluster / self._key / policy

    @property
    def _key(self) -> str:
        told = {name: value for name, value in asdict(self.scenario).items() if name not in ("every_s", "from_s")}
        return digest(told)[:12]

    @property
    def seeds(self) -> tuple[int, ...]:
        """What learners are fitted with: as many as the cluster's settings say, else SEEDS."""
        return SEEDS if self.settings.seeds is None else tuple(range(self.settings.seeds))

    def _step(self, policy: str, seed: int | None = None) -> str:
        """Name of the stamp of a policy, or of one fit of it."""
        return f"train-{self._key}-{policy}" + ("" if seed is None else f"-seed-{seed}")

    def _fingerprint(self, policy: str, window: Window, seeds: Sequence[int]) -> str:
        pairs = experiment.pair_fingerprint(self.data, self.scenario, window)
        return digest(pairs, policy, list(seeds), code_digest(*FIT_CODE))


def of(
    data: DataFolder,
    settings: ClusterSettings,
    *,
    capacity: int | None = None,
    pair_nodes: tuple[int, ...] | None = None,
    limit_s: int = 48 * experiment.HOUR_S,
    scheduler: str = "mirage",
    world: str = "plain",
    every_s: int | None = None,
) -> Study:
    """The study of that cluster; `pair_nodes` None is those of PAIR_NODES that fit on it.

    Of a trace longer than `models.study.extent` allows it is that of the newest part. `every_s` None is what it says
    there. Raises InputError where it cannot be replayed in that scenario.
    """
    check_names(scheduler=scheduler)
    check_world(world)
    from_s = extent.first_replayed_s(
        data,
        settings.name,
        warm_up_s=experiment.WARM_UP_S,
        cool_down_s=experiment.COOL_DOWN_S,
        from_s=experiment.declared_s(settings.fit_from),
        until_s=experiment.declared_s(settings.report_until),
    )
    workload, _ = experiment.read_workload(data, settings.name, from_s)
    nodes = experiment.capacity_of(data, settings, capacity)
    pair_nodes = pair_nodes or tuple(size for size in PAIR_NODES if size <= nodes)
    if max(pair_nodes) > nodes:
        raise InputError(f"--pair-nodes {max(pair_nodes)}: cluster {settings.name!r} has {nodes} nodes; ask for fewer")
    span_s = int(np.ptp(workload.submit_s))
    every_s = every_s or extent.starts_every_s(workload, span_s)
    scenario = Scenario(settings.name, nodes, pair_nodes, limit_s, scheduler, world, every_s, from_s)
    return Study(data, settings, scenario, workload)


def every_policy() -> list[str]:
    """Names of the registry, in its order."""
    from models.registry import POLICIES

    return list(POLICIES)


def why_no_policies(data: DataFolder, cluster: str, settings: ClusterSettings | None = None) -> str | None:
    """Why this cluster's trace supports no provisioning policies, in one sentence; None where it does.

    Nothing is trained or simulated to find out. Without `settings` the declared ones count.
    """
    settings = settings or clusters.resolve(data, cluster=cluster)
    if why := experiment.why_not_replayed(data, settings):
        return why
    try:
        return too_few_pairs(of(data, settings))
    except InputError as error:
        return str(error)


def fit(
    study: Study, policies: Sequence[str], window: Window, seeds: Sequence[int] | None = None
) -> tuple[list[TrainedPolicy], list[str]]:
    """The policies fitted on the pairs of the window whose outcomes were known at its end, with the study's seeds.

    Each fit is kept as it ends, so that what an interrupted training made is only loaded by the next; of two processes
    that want the same the second waits, and loads it too. Returns them in the order given, and the names of those that
    were fitted before from the same things. Raises InputError for an unknown policy, or where no outcome was known.
    """
    with locked(study.data.root, f"training of {study.scenario.cluster}"):
        return _fit(study, policies, window, study.seeds if seeds is None else seeds)


def _fit(
    study: Study, policies: Sequence[str], window: Window, seeds: Sequence[int]
) -> tuple[list[TrainedPolicy], list[str]]:
    from models.tracking import store as mlflow_store
    from models.tracking.training_runs import MlflowTracker

    asked = {name: tuple(seeds if make_policy(name).is_learned else seeds[:1]) for name in policies}
    found = {(name, seed): _kept(study, name, seed, window) for name in asked for seed in asked[name]}
    left = {"from_s": window.from_s, "until_s": window.until_s}

    def keep(one: TrainedPolicy) -> None:
        found[one.name, one.seed] = one
        forget_stamp(study.data, study._step(one.name, one.seed), study.scenario.cluster)
        one.artifact.save(study.folder(one.name) / str(one.seed))
        made_from = study._fingerprint(one.name, window, (one.seed,))
        run = {"run_id": one.run_id, "wall_s": one.wall_s, **left}
        write_stamp(study.data, study._step(one.name, one.seed), study.scenario.cluster, made_from, run)

    before = {fit for fit, one in found.items() if one is not None}
    missing = [name for name in policies if any((name, seed) not in before for seed in asked[name])]
    if missing:
        context, tracker = study.context(window.until_s), MlflowTracker(study.data)
        pairs = study.fit_pairs(window)
        train(pairs, missing, context=context, seeds=seeds, tracker=tracker, keep=keep, but=before)
    else:
        mlflow_store.settle(study.data)
    for name in policies:
        made_from = study._fingerprint(name, window, asked[name])
        told = {"seeds": list(asked[name]), **left}
        if read_stamp(study.data, study._step(name), study.scenario.cluster, made_from) != told:
            write_stamp(study.data, study._step(name), study.scenario.cluster, made_from, told)
    fitted = [one for name in policies for seed in asked[name] if (one := found[name, seed]) is not None]
    return fitted, [name for name in policies if name not in missing]


def _kept(study: Study, policy: str, seed: int, window: Window) -> TrainedPolicy | None:
    """That fit, if it was made from exactly what it would be made from now."""
    return _loaded(study, policy, seed, study._fingerprint(policy, window, (seed,)))


def _loaded(study: Study, policy: str, seed: int, fingerprint: str | None, **of: int) -> TrainedPolicy | None:
    """The fit as it was kept; None where it is gone, was made from something else, or differs from `of`."""
    left = read_stamp(study.data, study._step(policy, seed), study.scenario.cluster, fingerprint)
    try:
        if left is None or any(left[name] != value for name, value in of.items()):
            return None
        artifact = Artifact.load(study.folder(policy) / str(seed))
        if read_stamp(study.data, study._step(policy, seed), study.scenario.cluster, fingerprint) != left:
            return None  # replaced meanwhile
        return TrainedPolicy(policy, seed, artifact, left["run_id"], left["wall_s"])
    except (OSError, ValueError, KeyError):
        return None


def last_fit(study: Study, policy: str) -> tuple[list[TrainedPolicy], int]:
    """The policy as it was last fitted in this scenario, and the instant (epoch s) that it was fitted until.

    Raises InputError where it never was, or its artifacts are gone.
    """
    make_policy(policy)
    left = read_stamp(study.data, study._step(policy), study.scenario.cluster) or {}
    of = {name: left[name] for name in ("from_s", "until_s") if name in left}
    # a training that was interrupted leaves some seeds of another window: they are not mixed
    kept = [_loaded(study, policy, seed, None, **of) for seed in left.get("seeds", [])]
    trained = [one for one in kept if one is not None]
    if not trained or len(trained) < len(kept):
        raise InputError(
            f"policy {policy!r} is not trained for {study.scenario}; run `baton train --cluster "
            f"{study.scenario.cluster} --policies {policy}` with the same options first"
        )
    return trained, int(left["until_s"])


def run_ids(study: Study, policies: Sequence[str]) -> list[str]:
    """The runs in MLflow of the policies as they were last fitted in this scenario; none of a policy that never was."""
    cluster = study.scenario.cluster
    told = {name: read_stamp(study.data, study._step(name), cluster) or {} for name in policies}
    fits = [(name, seed) for name, left in told.items() for seed in left.get("seeds", [])]
    stamps = [read_stamp(study.data, study._step(name, seed), cluster) or {} for name, seed in fits]
    return [run_id for left in stamps if (run_id := str(left.get("run_id", "")))]


def champion_policy(data: DataFolder) -> str:
    """Registry name of the policy that the registered champion is. Raises InputError where there is none."""
    return str(_registered(data).manifest["policy"])


def remember_champion(study: Study, policy: str) -> None:
    """`champion` now means that policy as last fitted in this scenario."""
    write_stamp(study.data, study._step(CHAMPION), study.scenario.cluster, policy, {"policy": policy})


def champion(study: Study) -> tuple[list[TrainedPolicy], int]:
    """What was last trained under the name `champion` in this scenario, else the registered version; as `last_fit`."""
    left = read_stamp(study.data, study._step(CHAMPION), study.scenario.cluster)
    if left is not None:
        fits, until_s = last_fit(study, left["policy"])
        return [replace(one, name=CHAMPION) for one in fits], until_s
    artifact = _registered(study.data)
    until_s = int(artifact.manifest.get("trained_on", {}).get("until_s", 0))
    return [TrainedPolicy(CHAMPION, 0, artifact, "", 0.0)], until_s


def _registered(data: DataFolder) -> Artifact:
    from models.tracking import versions as tracking

    version = tracking.champion(data)
    if version is None:
        raise InputError(f"no champion is registered in {data.mlflow}; run `baton run` first, or name a policy")
    return tracking.load_artifact(data, version.version)


def warnings_about(study: Study, report: Window, fitted_until_s: int) -> list[str]:
    """What makes a comparison on that window weaker than it looks, a sentence each."""
    found = []
    if fitted_until_s > report.from_s:
        found.append(
            f"a policy was fitted on outcomes up to {experiment.text(fitted_until_s)}, inside the window {report}"
        )
    if report.until_s > study.usable.until_s or report.from_s < study.usable.from_s:
        found.append(f"starts outside {study.usable} meet a cold cluster or run out of arrivals")
    return found


def compare_on(study: Study, trained: Sequence[TrainedPolicy], report: Window, select: Window | None) -> Comparison:
    """The policies on the pairs of the report window, with settings picked on those of the select window.

    Of the select window only pairs count whose outcome was known at its end.
    """
    from models.evaluation import compare

    pairs = None if select is None else study.pairs(select).known_before(select.until_s)
    return compare(study.pairs(report), trained, context=study.context(report.from_s), select=pairs)


def remember_comparison(
    study: Study,
    trained: Sequence[TrainedPolicy],
    compared: Comparison,
    report: Window,
    select: Window | None,
    pictures: Mapping[str, bytes] | None = None,
) -> None:
    """What the policies earned goes to their runs in MLflow, with the comparison as a table, and those pictures."""
    from models.tables import results_frame
    from models.tracking.training_runs import add_comparison, dataset

    context = study.context(report.from_s)
    measured_on = [dataset(context, study.pairs(report), "report")]
    if select is not None and len(known := study.pairs(select).known_before(select.until_s)):
        measured_on.insert(0, dataset(context, known, "select"))
    add_comparison(study.data, compared, trained, measured_on, results_frame(compared.results), pictures or {})


def comparison_fingerprint(study: Study, policies: Sequence[str]) -> str:
    """Changes when the fits or the windows of the cluster's standing comparison do."""
    fits = [study._fingerprint(name, study.windows.fit, study.seeds) for name in policies]
    others = [
        experiment.pair_fingerprint(study.data, study.scenario, w) for w in (study.windows.select, study.windows.report)
    ]
    return digest(fits, others)
