"""Training and comparison of policies on one cluster, with what they leave under artifacts/policies.

Each fitted policy is kept with a fingerprint of everything that it was made from, so that the same fit is never made
twice. Which pairs belong to which window is settled in `models.experiment`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent.artifact import Artifact
from models import experiment
from models.experiment import Scenario, Window, Windows
from models.fingerprint import code_digest, digest, read_stamp, write_stamp
from models.protocol import PairTable
from models.registry import check_world, make_policy
from models.support import too_few_pairs
from models.training import SEEDS, TrainedPolicy, TrainingContext, code_version, train
from simulator.names import check_names
from simulator.workload import Workload
from traces import clusters, store
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store import DataFolder

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
            trace_digest=store.lake_digest(self.data, self.scenario.cluster),
            until_utc=datetime.fromtimestamp(until_s, UTC).replace(tzinfo=None),
            capacity=self.scenario.capacity,
            fit_capacities=tuple(one.capacity for one in experiment.fit_scenarios(self.scenario, self.workload)),
            scheduler=self.scenario.scheduler,
            world=self.scenario.world,
            limit_s=self.scenario.limit_s,
            pair_nodes=self.scenario.pair_nodes,
            code_version=code_version(),
        )

    def folder(self, policy: str) -> Path:
        """Where the policy's artifacts of this scenario lie, one folder a seed."""
        return self.data.artifacts / "policies" / self.scenario.cluster / self._key / policy

    @property
    def _key(self) -> str:
        told = {name: value for name, value in asdict(self.scenario).items() if name != "every_s"}
        return digest(told)[:12]

    def _step(self, policy: str) -> str:
        return f"train-{self._key}-{policy}"

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
    every_s: int = 4 * experiment.HOUR_S,
) -> Study:
    """The study of that cluster; `pair_nodes` None is those of PAIR_NODES that fit on it.

    Raises InputError where it cannot be replayed in that scenario.
    """
    check_names(scheduler=scheduler)
    check_world(world)
    workload, keys = experiment.read_workload(data, settings.name)
    nodes = experiment.capacity_of(data, settings, workload, keys, capacity)
    pair_nodes = pair_nodes or tuple(size for size in PAIR_NODES if size <= nodes)
    if max(pair_nodes) > nodes:
        raise InputError(f"--pair-nodes {max(pair_nodes)}: cluster {settings.name!r} has {nodes} nodes; ask for fewer")
    scenario = Scenario(settings.name, nodes, pair_nodes, limit_s, scheduler, world, every_s)
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
    study: Study, policies: Sequence[str], window: Window, seeds: Sequence[int] = SEEDS
) -> tuple[list[TrainedPolicy], list[str]]:
    """The policies fitted on the pairs of the window whose outcomes were known at its end.

    Returns them in the order given, and the names of those that were fitted before from the same things and were
    only loaded. Raises InputError for an unknown policy, or where no outcome was known.
    """
    from models.training_runs import MlflowTracker

    for name in policies:
        make_policy(name)
    kept = {name: _kept(study, name, study._fingerprint(name, window, seeds)) for name in policies}
    missing = [name for name in policies if kept[name] is None]
    fresh: list[TrainedPolicy] = []
    if missing:
        context = study.context(window.until_s)
        fresh = train(study.fit_pairs(window), missing, context=context, seeds=seeds, tracker=MlflowTracker(study.data))
    for name in missing:
        ours = [one for one in fresh if one.name == name]
        for one in ours:
            one.artifact.save(study.folder(name) / str(one.seed))
        runs = [{"seed": one.seed, "run_id": one.run_id, "wall_s": one.wall_s} for one in ours]
        left = {"runs": runs, "from_s": window.from_s, "until_s": window.until_s}
        write_stamp(
            study.data, study._step(name), study.scenario.cluster, study._fingerprint(name, window, seeds), left
        )
    found = [one for name in policies for one in (kept[name] or [f for f in fresh if f.name == name])]
    return found, [name for name in policies if name not in missing]


def _kept(study: Study, policy: str, fingerprint: str) -> list[TrainedPolicy] | None:
    left = read_stamp(study.data, study._step(policy), study.scenario.cluster, fingerprint)
    return None if left is None else _loaded(study, policy, left)


def _loaded(study: Study, policy: str, left: dict[str, Any]) -> list[TrainedPolicy] | None:
    folder = study.folder(policy)
    try:
        return [
            TrainedPolicy(policy, run["seed"], Artifact.load(folder / str(run["seed"])), run["run_id"], run["wall_s"])
            for run in left["runs"]
        ]
    except (OSError, ValueError):
        return None


def last_fit(study: Study, policy: str) -> tuple[list[TrainedPolicy], int]:
    """The policy as it was last fitted in this scenario, and the instant (epoch s) that it was fitted until.

    Raises InputError where it never was, or its artifacts are gone.
    """
    make_policy(policy)
    left = read_stamp(study.data, study._step(policy), study.scenario.cluster)
    trained = None if left is None else _loaded(study, policy, left)
    if left is None or trained is None:
        raise InputError(
            f"policy {policy!r} is not trained for {study.scenario}; run `baton train --cluster "
            f"{study.scenario.cluster} --policies {policy}` with the same options first"
        )
    return trained, int(left["until_s"])


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
    from models import tracking

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
    from models.training_runs import add_comparison, dataset

    context = study.context(report.from_s)
    measured_on = [dataset(context, study.pairs(report), "report")]
    if select is not None and len(known := study.pairs(select).known_before(select.until_s)):
        measured_on.insert(0, dataset(context, known, "select"))
    table = results_frame(compared.results).drop("ci95", "chosen", "trace_digest", "policy_version")
    add_comparison(study.data, compared, trained, measured_on, table, pictures or {})


def comparison_fingerprint(study: Study, policies: Sequence[str], seeds: Sequence[int] = SEEDS) -> str:
    """Changes when the fits or the windows of the cluster's standing comparison do."""
    fits = [study._fingerprint(name, study.windows.fit, seeds) for name in policies]
    others = [
        experiment.pair_fingerprint(study.data, study.scenario, w) for w in (study.windows.select, study.windows.report)
    ]
    return digest(fits, others)
