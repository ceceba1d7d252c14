"""The table goes through its published points, the laws are the stated ones, and draws are a function of their seed."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from simulator.gpu.profiles import draw, scaling
from simulator.gpu.profiles.table import MIX, MODELS
from traces.errors import InputError

# Step on an allocation over the step on one GPU, T4, as the published rows have it: model, GPUs, nodes, seconds.
PUBLISHED = [
    ("resnet18-cifar10", 4, 1, 0.11051),
    ("resnet18-cifar10", 4, 4, 0.15143),
    ("resnet18-cifar10", 16, 4, 0.15458),
    ("bert", 4, 1, 0.95712),
    ("bert", 4, 4, 1.47060),
    ("bert", 16, 4, 1.88820),
    ("yolov3", 4, 1, 0.50093),
    ("yolov3", 4, 4, 0.78327),
    ("yolov3", 16, 4, 1.18787),
    ("resnet50-imagenet", 4, 1, 1.00503),
    ("resnet50-imagenet", 4, 4, 0.98437),
    ("resnet50-imagenet", 16, 4, 1.04627),
]


@pytest.mark.parametrize(("name", "gpus", "nodes", "step_s"), PUBLISHED)
def test_the_law_goes_through_the_measured_points(name: str, gpus: int, nodes: int, step_s: float) -> None:
    model = scaling.model_of(name)
    samples = gpus * model.batch_per_gpu / scaling.throughput(model, "T4", gpus, nodes)
    assert samples == pytest.approx(step_s, rel=1e-3)


def test_speeds_of_types_are_those_of_resnet50() -> None:
    model = MODELS["resnet50-imagenet"]
    assert scaling.type_speed(model, "A100") / scaling.type_speed(model, "V100") == pytest.approx(0.14512 / 0.05842)
    assert scaling.type_speed(model, "T4") == 1.0
    slow, fast = (scaling.type_speed(MODELS[name], "A100") for name in ("resnet18-cifar10", "bert"))
    assert slow < fast


@pytest.mark.parametrize("name", MODELS)
def test_more_is_never_slower_in_total_and_synchronising_never_gains(name: str) -> None:
    model = MODELS[name]
    one = scaling.throughput(model, "V100", 1, 1)
    for gpus in (2, 4, 8):
        together = scaling.throughput(model, "V100", gpus, 1)
        assert one < together <= gpus * one
        assert scaling.throughput(model, "V100", gpus, gpus) < gpus * one


@pytest.mark.parametrize("name", MODELS)
def test_efficiency_falls_from_one(name: str) -> None:
    shares = [scaling.efficiency(MODELS[name], batches) for batches in (1.0, 2.0, 4.0, 64.0)]
    assert shares[0] == pytest.approx(1.0)
    assert all(a > b > 0.0 for a, b in pairwise(shares))


def test_goodput_on_fewer_gpus_is_throughput() -> None:
    model = MODELS["bert"]
    assert scaling.goodput(model, "T4", 2, 1, own_gpus=4) == scaling.throughput(model, "T4", 2, 1)
    phi = model.noise_scale
    expected = scaling.throughput(model, "T4", 8, 2) * (phi + 1.0) / (phi / 2.0 + 1.0) / 2.0
    assert scaling.goodput(model, "T4", 8, 2, own_gpus=4) == pytest.approx(expected)


def test_packed_jobs_share_what_is_short() -> None:
    small, large = MODELS["resnet18-cifar10"], MODELS["resnet50-imagenet"]
    assert scaling.packed_share(small, []) == 1.0
    assert scaling.packed_share(small, [small]) == 1.0  # 0.45 twice fits in one GPU
    assert scaling.packed_share(large, [large]) == pytest.approx(1.0 / 1.9)


def test_draws_follow_the_mix_and_the_seed() -> None:
    numbers = np.arange(20_000)
    names = draw.models(numbers, seed=3)
    for name, share in MIX.items():
        assert names.count(name) / len(names) == pytest.approx(share, abs=0.015)
    assert draw.models(numbers[5:9], seed=3) == names[5:9]
    assert draw.models(numbers, seed=4) != names
    assert set(draw.models(numbers, 0, {"bert": 0.25, "yolov3": 0.75})) == {"bert", "yolov3"}


def test_elastic_jobs_have_several_gpus() -> None:
    numbers, gpus = np.arange(40_000), np.tile([1, 2, 8, 16], 10_000)
    chosen = draw.elastic(numbers, gpus, share=0.3)
    assert not chosen[gpus == 1].any()
    assert chosen[gpus > 1].mean() == pytest.approx(0.3, abs=0.01)
    assert not draw.elastic(numbers, gpus, share=0.0).any()


def test_inference_load_is_a_daily_wave() -> None:
    hours = np.arange(7 * 24, dtype=np.float64) * 3600.0
    used = draw.inference_servers(hours, servers=200)
    by_hour = used.reshape(7, 24).mean(axis=0)
    assert by_hour.argmax() in (13, 14, 15) and by_hour.argmin() in (1, 2, 3)
    assert by_hour.max() == pytest.approx(190, abs=6) and by_hour.min() == pytest.approx(70, abs=6)
    assert used.min() >= 0 and used.max() <= 200
    assert (draw.inference_servers(hours[7:9], servers=200) == used[7:9]).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scaling.model_of("gpt"), "unknown model 'gpt': known are resnet18-cifar10, bert, yolov3"),
        (lambda: scaling.type_speed(MODELS["bert"], "H100"), "unknown GPU type 'H100': known are K80, P100"),
        (lambda: draw.check_mix({"gpt": 1.0}), "unknown model 'gpt' in the mix"),
        (lambda: draw.check_mix({"bert": -0.5, "yolov3": 1.5}), "share -0.5 of model 'bert'"),
        (lambda: draw.check_mix({"bert": 0.5}), "add to 0.5: they must add to 1"),
        (lambda: draw.elastic(np.arange(2), np.arange(2), share=1.5), "elastic share 1.5"),
        (lambda: draw.inference_servers(np.zeros(1), 5, low=0.9, high=0.1), "inference load from 0.9 to 0.1"),
    ],
)
def test_what_is_refused(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
