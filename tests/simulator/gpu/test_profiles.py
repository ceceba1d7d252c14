"""Measured points are returned, others interpolated; the published figures hold; draws are a function of their seed."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from simulator.gpu.profiles import draw, scaling
from simulator.gpu.profiles.profile import StepTimes
from simulator.gpu.profiles.table import published, read_profiles
from tests.simulator.gpu.models import MIX, MODELS
from traces.errors import InputError

HEADING = "model,gpu_type,placement,local_batch,step_s,sync_s,packed_with\n"


def times(*rows: tuple[float, float, float, float]) -> StepTimes:
    """Steps at (nodes, GPUs, batch) with their seconds; a tenth of each synchronises."""
    points = np.array([row[:3] for row in rows], dtype=np.float64)
    return StepTimes(points, np.array([[row[3], row[3] / 10] for row in rows]))


def test_between_measured_points_times_are_linear_and_outside_those_of_the_nearest() -> None:
    steps = times((1, 1, 8, 1.0), (1, 4, 8, 2.0), (4, 4, 8, 5.0), (4, 16, 8, 6.0), (1, 4, 8, 4.0))
    assert steps.at(1, 4, 8) == pytest.approx((3.0, 0.3))  # the mean of two rows
    assert steps.at(1, 1, 8) == pytest.approx((1.0, 0.1))
    assert steps.at(2, 4, 8)[0] == pytest.approx(3.0 + (5.0 - 3.0) / 3.0)
    assert steps.at(9, 64, 8)[0] == 6.0 and steps.at(4, 16, 99)[0] == 6.0
    line = times((1, 1, 8, 1.0), (1, 1, 16, 2.0))
    assert [line.at(1, 1, batch)[0] for batch in (4, 8, 12, 32)] == [1.0, 1.0, 1.5, 2.0]
    assert line.at(2, 8, 12)[0] == 1.5
    assert times((1, 1, 8, 3.0)).at(5, 7, 9)[0] == 3.0
    flat = times((1, 1, 8, 1.0), (2, 2, 8, 2.0), (4, 4, 8, 4.0))  # on a line in two dimensions
    assert flat.at(3, 4, 8)[0] == 4.0
    assert pickle.loads(pickle.dumps(steps)).at(2, 4, 8) == steps.at(2, 4, 8)


# Sia's artifact: speed on 2 nodes of 8 A100 over one A100, and of one A100 over one T4, at equal batches per GPU.
SPEEDUP_16 = {"resnet18-cifar10": 15.5, "bert": 14.8, "yolov3": 9.7, "resnet50-imagenet": 13.6}
A100_OVER_T4 = {"resnet18-cifar10": 2.7, "bert": 5.2, "yolov3": 1.1, "resnet50-imagenet": 3.1}


@pytest.mark.parametrize("name", MIX)
def test_published_models_scale_as_measured(name: str) -> None:
    def speed(gpu_type: str, gpus: int, nodes: int) -> float:
        return scaling.throughput(published()[name], gpu_type, gpus, nodes)

    assert round(speed("A100", 16, 2) / speed("A100", 1, 1), 1) == SPEEDUP_16[name]
    assert round(speed("A100", 1, 1) / speed("T4", 1, 1), 1) == A100_OVER_T4[name]


@pytest.mark.parametrize("name", MODELS)
def test_efficiency_falls_from_one(name: str) -> None:
    shares = [scaling.efficiency(MODELS[name], batches) for batches in (1.0, 2.0, 4.0, 64.0)]
    assert shares[0] == pytest.approx(1.0)
    assert all(a > b > 0.0 for a, b in pairwise(shares))


def test_goodput_on_fewer_gpus_is_throughput() -> None:
    model = MODELS["bert"]
    assert scaling.goodput(model, "T4", 2, 1, own_gpus=4) == scaling.throughput(model, "T4", 2, 1)
    phi = model.noise_scale
    assert phi is not None
    expected = scaling.throughput(model, "T4", 8, 2) * (phi + 1.0) / (phi / 2.0 + 1.0) / 2.0
    assert scaling.goodput(model, "T4", 8, 2, own_gpus=4) == pytest.approx(expected)
    unknown = published()["gavel-lm"]  # no noise scale: a larger batch brings nothing
    assert scaling.goodput(unknown, "V100", 4, 1, 2) == scaling.throughput(unknown, "V100", 4, 1) / 2.0


def test_packed_jobs_keep_the_measured_share_and_unmeasured_pairs_none() -> None:
    lm, resnet = published()["gavel-lm"], published()["gavel-resnet50"]
    share = scaling.packed_share(lm, resnet, "V100", 1)
    assert share == pytest.approx(lm.steps["V100"].at(1, 1, 20)[0] / lm.packed["V100", "gavel-resnet50", 1])
    assert 0.0 < share < 1.0
    assert scaling.packed_share(lm, resnet, "V100", 2) == scaling.packed_share(lm, published()["bert"], "V100", 1) == 0


def test_a_type_without_steps_counts_as_the_first_measured() -> None:
    bert = published()["bert"]
    assert (bert.nearest_type("A100"), bert.nearest_type("H900")) == ("A100", "T4")
    assert scaling.throughput(bert, "H900", 4, 1) == scaling.throughput(bert, "T4", 4, 1)


def test_profiles_of_a_site_are_read(tmp_path: Path) -> None:
    steps = tmp_path / "steps.csv"
    steps.write_text(
        HEADING + "gpt,H100,8,4,0.5,0.1,\ngpt,H100,8-8,4,0.6,0.2,\ngpt,H100,1,4,0.4,0,\ngpt,H100,1,2,.3,0,\n"
        "gpt,H100,1,4,0.7,0,gpt\n"
    )
    (gpt,) = read_profiles(steps).values()
    assert (gpt.model, gpt.local_batch, gpt.restart_s, gpt.noise_scale) == ("gpt", 4.0, 30.0, None)
    assert gpt.steps["H100"].at(2, 16, 4) == (0.6, 0.2)
    assert scaling.packed_share(gpt, gpt, "H100", 1) == pytest.approx(0.4 / 0.7)
    (tmp_path / "models.csv").write_text("model,restart_s,noise_scale,local_batch\ngpt,90,12.5,2\n")
    (gpt,) = read_profiles(tmp_path).values()
    assert (gpt.local_batch, gpt.restart_s, gpt.noise_scale) == (2.0, 90.0, 12.5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("a,T4,4,8,0,0,", r"line 2: step_s '0': give a number above 0"),
        ("a,T4,4,8,-1,0,", r"step_s '-1'"),
        ("a,T4,4,8,nan,0,", r"step_s 'nan'"),
        ("a,T4,4,8,1,2,", r"sync_s 2 is no part of step_s 1"),
        ("a,T4,4,0,1,0,", r"local_batch '0'"),
        ("a,T4,4-x,8,1,0,", r"placement '4-x': give the GPUs on each node"),
        ("a,T4,0,8,1,0,", r"placement '0'"),
        ("a,T4,4,8,1", r"line 2: 5 values for 7 columns"),
        (",T4,4,8,1,0,", r"model '': give a name"),
        ("a\x1b[2J,T4,4,8,1,0,", r"model 'a\\\\x1b\[2J'"),
        ("a,T4,2-2,8,1,0,a", r"a packed pair is measured on one node"),
        ("a,T4,2,8,1,0,a", r"model 'a' has steps with other models only"),
        ("", r"no profile in it"),
    ],
)
def test_wrong_rows_are_named(tmp_path: Path, rows: str, message: str) -> None:
    file = tmp_path / "steps.csv"
    file.write_text(HEADING + rows + "\n" if rows else HEADING)
    with pytest.raises(InputError, match=message):
        read_profiles(file)


def test_wrong_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.csv cannot be read: No such file"):
        read_profiles(tmp_path / "none.csv")
    (tmp_path / "steps.csv").write_text("model,gpu_type,placement,local_batch,step_s,colour\n")
    with pytest.raises(InputError, match="line 1: unknown column 'colour'; columns are model"):
        read_profiles(tmp_path / "steps.csv")
    (tmp_path / "steps.csv").write_text("model,gpu_type,placement,local_batch\n")
    with pytest.raises(InputError, match="line 1: no column 'step_s'"):
        read_profiles(tmp_path / "steps.csv")
    (tmp_path / "steps.csv").write_text(HEADING + "a,T4,1,8,1,0,\n")
    wrong = {"b,30": "model 'b' has no row in steps.csv", "a,1\na,2": "line 3: model 'a' is named twice"}
    for text, message in wrong.items():
        (tmp_path / "models.csv").write_text("model,restart_s\n" + text + "\n")
        with pytest.raises(InputError, match=message):
            read_profiles(tmp_path)


def test_draws_follow_the_mix_and_the_seed() -> None:
    numbers = np.arange(20_000)
    names = draw.models(numbers, 3, MIX)
    for name, share in MIX.items():
        assert names.count(name) / len(names) == pytest.approx(share, abs=0.015)
    assert draw.models(numbers[5:9], 3, MIX) == names[5:9]
    assert draw.models(numbers, 4, MIX) != names
    assert set(draw.models(numbers, 0, {"bert": 0.25, "yolov3": 0.75})) == {"bert", "yolov3"}


def test_models_measured_on_all_types_are_drawn_alike() -> None:
    every = list(published().values())
    assert set(draw.equal_mix(every, ["K80"])) == {name for name in published() if name.startswith("gavel-")}
    assert draw.equal_mix(every, ["T4", "A100"])["bert"] == pytest.approx(1 / 6)
    assert len(draw.equal_mix(every, ["K80", "A100"])) == len(every)  # none was measured on both


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
        (lambda: draw.check_mix({"gpt": 1.0}, MIX), "unknown model 'gpt' in the mix"),
        (lambda: draw.check_mix({"bert": -0.5, "yolov3": 1.5}, MIX), "share -0.5 of model 'bert'"),
        (lambda: draw.check_mix({"bert": 0.5}, MIX), "add to 0.5: they must add to 1"),
        (lambda: draw.elastic(np.arange(2), np.arange(2), share=1.5), "elastic share 1.5"),
        (lambda: draw.inference_servers(np.zeros(1), 5, low=0.9, high=0.1), "inference load from 0.9 to 0.1"),
    ],
)
def test_what_is_refused(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call()  # type: ignore[operator]
