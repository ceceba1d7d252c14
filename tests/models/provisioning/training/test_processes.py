"""Fits in processes of their own: the same bytes on another processor, errors that come back, nothing left running."""

from __future__ import annotations

import platform
import subprocess
from functools import partial
from pathlib import Path

import pytest

from models.engine import work as fitting
from models.engine.local import each_here
from models.provisioning.comparison.outcomes import content_digest
from models.provisioning.policies.dqn import DQN
from models.provisioning.policies.fitted_q import FittedQ
from models.provisioning.policies.forest import RandomForest
from models.provisioning.policies.lightgbm import LightGBMQuantile
from models.provisioning.policies.policy_gradient import PolicyGradient
from models.provisioning.policies.reactive import Reactive
from models.provisioning.policies.xgboost import XGBoostMean
from models.provisioning.protocol import Policy
from models.provisioning.training.processes import Made, fit_each
from tests.models.broken_policy import Broken
from tests.models.generated import queue_table
from tests.models.pair_tables import random_pairs
from traces.errors import WorkError

QUICK: tuple[Policy, ...] = (
    DQN(updates=20),
    PolicyGradient(updates=10),
    RandomForest(trees=5),
    XGBoostMean(rounds=5),
    LightGBMQuantile(rounds=5),
    FittedQ(rounds=3, improvement_rounds=3),
)
# What the libraries would find on a processor of 2013, as far as they can be told: instructions, and libm's choices.
OLDER = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "OPENBLAS_CORETYPE": "Haswell",
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW",
}
OLDEST = {**OLDER, "ATEN_CPU_CAPABILITY": "default", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "OPENBLAS_CORETYPE": "Core2"}


def digests(policies: tuple[Policy, ...]) -> dict[str, str]:
    """Of what each policy became, with its training curves."""
    made = fit_each(
        [(policy, 7) for policy in policies], queue_table(seed=2, starts=12), partial(each_here, processes=1)
    )
    return {one.policy: f"{content_digest(one.artifact)} {one.metrics}" for one in made}


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the arithmetic is fixed for x86-64")
def test_the_same_seed_gives_the_same_bytes_on_another_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    here = digests(QUICK)
    for other in (OLDER, OLDEST):
        with monkeypatch.context() as patch:
            for name, value in other.items():
                patch.setenv(name, value)
            assert digests(QUICK) == here


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the arithmetic is fixed for x86-64")
def test_without_the_fixed_arithmetic_networks_differ_between_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would see it: these settings do reach the libraries."""
    networks = QUICK[:2]
    monkeypatch.setattr(fitting, "SAME_EVERYWHERE", {**OLDER, "MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "avx2"})
    older = digests(networks)
    monkeypatch.setattr(
        fitting, "SAME_EVERYWHERE", {**OLDER, "MKL_CBWR": "COMPATIBLE", "ATEN_CPU_CAPABILITY": "default"}
    )
    oldest = digests(networks)
    assert older.keys() == oldest.keys() and all(older[name] != oldest[name] for name in older)


def test_every_fit_comes_back_once_whatever_the_number_of_processes() -> None:
    asked: list[tuple[Policy, int]] = [(RandomForest(trees=2), 0), (Reactive(), 0), (RandomForest(trees=2), 1)]
    made = [list(fit_each(asked, random_pairs(0, 6), partial(each_here, processes=count))) for count in (1, 2)]
    assert [{(one.policy, one.seed) for one in each} for each in made] == [
        {("forest", 0), ("forest", 1), ("reactive", 0)}
    ] * 2
    by_fit = [{(one.policy, one.seed): content_digest(one.artifact) for one in each} for each in made]
    assert by_fit[0] == by_fit[1]
    assert all(isinstance(one, Made) and one.wall_s >= 0 for one in made[0])
    assert list(fit_each([], random_pairs(0, 6))) == []


def test_what_the_caller_has_around_him_is_kept_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the modules of the present folder, nor a setting beside which numpy refuses to start."""
    (tmp_path / "platform.py").write_text("raise SystemExit('the platform.py of the present folder')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NPY_ENABLE_CPU_FEATURES", "X86_V3")
    assert [one.policy for one in fit_each([(Reactive(), 0)], random_pairs(0, 4))] == ["reactive"]


def test_a_fit_has_one_thread_whatever_is_set_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    assert fitting.environment(fitting.Work(print, []))["OMP_NUM_THREADS"] == "1"


def test_what_a_fit_prints_goes_to_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="no fit"):
        list(fit_each([(Broken(), 3)], random_pairs(0, 4)))
    captured = capfd.readouterr()
    assert captured.out == "" and "of a library" in captured.err


def test_what_a_fit_raises_is_raised_here() -> None:
    with pytest.raises(ValueError, match="no fit with seed 3"):
        list(fit_each([(Broken(), 3)], random_pairs(0, 4)))


def test_a_process_that_dies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def remembered(*arguments: object, **options: object) -> subprocess.Popen[bytes]:
        begun.append(popen(*arguments, **options))  # type: ignore[call-overload]
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", remembered)
    fits: list[tuple[Policy, int]] = [(Broken(kills=True), 5), (RandomForest(trees=2), 0)]
    with pytest.raises(WorkError, match=r"ended early \(exit status 7\) during the fit of 'reactive', seed 5"):
        list(fit_each(fits, random_pairs(0, 4), partial(each_here, processes=2)))
    assert len(begun) == 2 and all(process.poll() is not None for process in begun)


def test_who_stops_listening_stops_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[tuple[Policy, int]] = [(Reactive(), 0), (RandomForest(trees=100_000), 0)]
    made = fit_each(fits, queue_table(seed=2, starts=12), partial(each_here, processes=1))
    assert next(made).policy == "reactive"
    made.close()  # type: ignore[attr-defined]  # would wait for minutes if it did not end the process
