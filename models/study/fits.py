"""The fitted policies of a study, stored under `artifacts/policies`: made once, loaded from then on.

Each fit has a stamp with the digest of its inputs and its window, so that the same fit is never made twice.
`models.provisioning.training` trains, and `models.study.comparisons` compares the fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from agent.artifact import Artifact
from features.futures.summary import SEEN_AHEAD
from features.observe import FEATURES, VERSION
from models.engine.engines import engine_of
from models.provisioning import registry
from models.provisioning.protocol import TrainedPolicy
from models.provisioning.registry import make_policy
from models.provisioning.training.train import train
from models.study.cluster import Study
from models.study.days import days_digest
from models.study.futures import futures_digest
from models.study.pair_tables import pair_fingerprint
from models.study.windows import Window
from traces.cache.closure import code_digest
from traces.cache.digests import digest
from traces.errors import InputError
from traces.files.locks import locked
from traces.store.folder import DataFolder
from traces.store.stamps import forget_stamp, read_stamp, stamp_path, write_stamp

CHAMPION = "champion"
FITTED_BY = ("models.provisioning.training.train",)


def fit(
    study: Study, policies: Sequence[str], window: Window, seeds: Sequence[int] | None = None
) -> tuple[list[TrainedPolicy], list[str]]:
    """Fit the policies on the pairs of the window whose outcomes were known at its end, with the study's seeds.

    Each fit is stored as it ends, so the next training loads what an interrupted one made. Of two processes that need
    the same fit, the second waits and loads it. Returns the fits in the order given, and the names of the policies that
    were already fitted on the same inputs. Raises InputError for an unknown policy, or if no outcome was known.
    """
    with locked(study.data.root, f"training of {study.scenario.cluster}"):
        return _fit(study, policies, window, study.seeds if seeds is None else seeds)


def _fit(
    study: Study, policies: Sequence[str], window: Window, seeds: Sequence[int]
) -> tuple[list[TrainedPolicy], list[str]]:
    from models.tracking import store as mlflow_store
    from models.tracking.training_runs import MlflowTracker

    seeds_of = {name: tuple(seeds if make_policy(name).is_learned else seeds[:1]) for name in policies}
    fits = {(name, seed): _kept(study, name, seed, window) for name in policies for seed in seeds_of[name]}
    kept = {name_and_seed for name_and_seed, fitted in fits.items() if fitted is not None}
    incomplete = [name for name in policies if any((name, seed) not in kept for seed in seeds_of[name])]

    def keep(fitted: TrainedPolicy) -> None:
        fits[fitted.name, fitted.seed] = fitted
        _keep(study, fitted, window)

    if incomplete:
        known = study.seeing(incomplete).known_before(window.until_s)
        context, pairs, tracker = known.context(window.until_s), known.fit_pairs(window), MlflowTracker(study.data)
        train(
            pairs,
            incomplete,
            context=context,
            seeds=seeds,
            tracker=tracker,
            keep=keep,
            already_fitted=kept,
            hyperparameters=study.settings.hyperparameters,
            checkpoints=study.data.artifacts / "checkpoints" / study.scenario.cluster,
            engine=engine_of(study.data.root),
        )
    else:
        mlflow_store.settle(study.data)
    for name in policies:
        made_from = fit_fingerprint(study, name, window, seeds_of[name])
        stamp = {"seeds": list(seeds_of[name]), "scenario": str(study.scenario), **_bounds(window)}
        if _stamp(study, name, fingerprint=made_from) != stamp:
            write_stamp(study.data, _step(study, name), study.scenario.cluster, made_from, stamp)
    in_order = [fitted for name in policies for seed in seeds_of[name] if (fitted := fits[name, seed]) is not None]
    return in_order, [name for name in policies if name not in incomplete]


def _keep(study: Study, fitted: TrainedPolicy, window: Window) -> None:
    """Store the artifact in its folder, then the stamp; a kill between the two leaves a fit without a stamp."""
    step, cluster = _step(study, fitted.name, fitted.seed), study.scenario.cluster
    forget_stamp(study.data, step, cluster)
    fitted.artifact.save(folder(study, fitted.name) / str(fitted.seed))
    made_from = fit_fingerprint(study, fitted.name, window, (fitted.seed,))
    run = {"run_id": fitted.run_id, "wall_s": fitted.wall_s, **_bounds(window)}
    write_stamp(study.data, step, cluster, made_from, run)


def _kept(study: Study, policy: str, seed: int, window: Window) -> TrainedPolicy | None:
    """That fit, if its inputs are exactly those of now."""
    return _loaded(study, policy, seed, fit_fingerprint(study, policy, window, (seed,)))


def _loaded(study: Study, policy: str, seed: int, fingerprint: str | None, **bounds: int) -> TrainedPolicy | None:
    """The stored fit; None if it is missing, was made from other inputs, or has a window with other bounds."""
    stamp = _stamp(study, policy, seed, fingerprint)
    try:
        if stamp is None or any(stamp[name] != value for name, value in bounds.items()):
            return None
        artifact = registry.artifact_of(policy).load(folder(study, policy) / str(seed))
        if _stamp(study, policy, seed, fingerprint) != stamp:
            return None  # replaced in the meantime
        return TrainedPolicy(policy, seed, artifact, stamp["run_id"], stamp["wall_s"])
    except (OSError, ValueError, KeyError):
        return None


def last_fit(study: Study, policy: str) -> tuple[list[TrainedPolicy], int]:
    """The policy as it was last fitted in this scenario, and the instant (epoch s) until which it was fitted.

    Raises InputError if it was never fitted, or its artifacts are missing.
    """
    make_policy(policy)
    stamp = _stamp(study, policy) or {}
    bounds = {name: stamp[name] for name in ("from_s", "until_s") if name in stamp}
    # an interrupted training leaves some seeds of another window, which must not be mixed
    loaded = [_loaded(study, policy, seed, None, **bounds) for seed in stamp.get("seeds", [])]
    trained = [fitted for fitted in loaded if fitted is not None]
    if not trained or len(trained) < len(loaded):
        others = _trained_for(study, policy)
        known = f"; it is trained for {', and for '.join(others)}" if others else ""
        raise InputError(
            f"policy {policy!r} is not trained for {study.scenario}{known}; run `baton train --cluster "
            f"{study.scenario.cluster} --policies {policy}` with the same options first"
        )
    return trained, int(stamp["until_s"])


def _trained_for(study: Study, policy: str) -> list[str]:
    """The scenarios of the cluster in which the policy was fitted, as sentences."""
    paths = stamp_path(study.data, f"train-*-{policy}", study.scenario.cluster)
    steps = [path.stem for path in paths.parent.glob(paths.name)]
    stamps = [read_stamp(study.data, step, study.scenario.cluster) or {} for step in steps]
    return sorted({str(stamp["scenario"]) for stamp in stamps if "scenario" in stamp})


def run_ids(study: Study, policies: Sequence[str]) -> list[str]:
    """The runs in MLflow of the policies as last fitted in this scenario; none for a policy without a fit."""
    fits = [(name, seed) for name in policies for seed in (_stamp(study, name) or {}).get("seeds", [])]
    stamps = [_stamp(study, name, seed) or {} for name, seed in fits]
    return [run_id for stamp in stamps if (run_id := str(stamp.get("run_id", "")))]


def champion_policy(data: DataFolder, cluster: str) -> str:
    """Registry name of the cluster's champion. Raises InputError if there is none."""
    return str(_champion_artifact(data, cluster).manifest["policy"])


def remember_champion(study: Study, policy: str) -> None:
    """Make `champion` refer to that policy as last fitted in this scenario."""
    write_stamp(study.data, _step(study, CHAMPION), study.scenario.cluster, policy, {"policy": policy})


def champion(study: Study) -> tuple[list[TrainedPolicy], int]:
    """The policy last trained as `champion` in this scenario, else the registered version; as `last_fit`."""
    stamp = _stamp(study, CHAMPION)
    if stamp is not None:
        fits, until_s = last_fit(study, stamp["policy"])
        return [replace(fitted, name=CHAMPION) for fitted in fits], until_s
    artifact = _champion_artifact(study.data, study.scenario.cluster)
    made_for = artifact.manifest.get("observe_version", 1)
    if made_for != VERSION or artifact.manifest["features"] not in (list(FEATURES), list(SEEN_AHEAD)):
        raise InputError(
            f"the registered champion decides by observations of version {made_for}, but those here are of version "
            f"{VERSION}: release again (`baton run`), or name trained policies"
        )
    until_s = int(artifact.manifest.get("trained_on", {}).get("until_s", 0))
    return [TrainedPolicy(CHAMPION, 0, artifact, "", 0.0)], until_s


def _champion_artifact(data: DataFolder, cluster: str) -> Artifact:
    from models.tracking import exported, registered

    return exported.load_policy(data, cluster, registered.check_champion(data, cluster))


def folder(study: Study, policy: str) -> Path:
    """Folder of the policy's artifacts of this scenario, with a folder for each seed."""
    return study.data.artifacts / "policies" / study.scenario.cluster / scenario_key(study) / policy


def fit_fingerprint(study: Study, policy: str, window: Window, seeds: Sequence[int]) -> str:
    """Digest of the inputs of those fits: pairs, policy, seeds, hyper-parameters and code."""
    pairs = [pair_fingerprint(study.data, one, window) for one in study.fit_scenarios(window.until_s)]
    code = code_digest(*FITTED_BY, registry.module_of(policy), but=(registry.__name__,))  # other policies do not count
    values = study.settings.hyperparameters.get(policy, {})
    ahead = [futures_digest()] if registry.looks_ahead(policy) else []
    ahead += [days_digest()] if registry.reads_days(policy) else []
    return digest(pairs, policy, list(seeds), code, values, *ahead)


def scenario_key(study: Study) -> str:
    """Short name of the scenario in paths. It ignores where starts lie: `--every` and new logs only move them."""
    moving = ("every_s", "from_s", "known_until_s")
    values = {name: value for name, value in asdict(study.scenario).items() if name not in moving}
    return digest(values)[:12]


def _step(study: Study, policy: str, seed: int | None = None) -> str:
    """Name of the stamp of a policy, or of one fit of it."""
    return f"train-{scenario_key(study)}-{policy}" + ("" if seed is None else f"-seed-{seed}")


def _stamp(study: Study, policy: str, seed: int | None = None, fingerprint: str | None = None) -> dict[str, Any] | None:
    """Content of the stamp of a policy, or of one fit of it; None if it is missing or has another fingerprint."""
    return read_stamp(study.data, _step(study, policy, seed), study.scenario.cluster, fingerprint)


def _bounds(window: Window) -> dict[str, int]:
    return {"from_s": window.from_s, "until_s": window.until_s}
