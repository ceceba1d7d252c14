"""Mirage's networks by their released shapes; training that learns, resumes, and refuses what does not fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from agent.model_folder import pack_arrays, unpack_arrays
from models.provisioning.learning.networks import repeatable
from models.provisioning.mirage import checkpoints, networks, training
from models.provisioning.mirage.networks import Sizes
from models.provisioning.mirage.snapshots import Histories
from tests.models.provisioning.mirage.days import HISTORIES, PAIRS, SMALL
from traces.errors import InputError


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with repeatable(0):
        yield


def test_shapes_are_those_that_were_released() -> None:
    def shapes(network: torch.nn.Module) -> dict[str, tuple[int, ...]]:
        return {name: tuple(weight.shape) for name, weight in network.named_parameters()}

    found = shapes(networks.transformer(Sizes()))
    assert found["embed.weight"] == (512, 42)
    assert found["head.weight"] == (1, 144 * 512)
    assert {name.split(".")[2] for name in found if name.startswith("encoder.layers")} == {"0", "1"}
    assert found["encoder.layers.0.linear1.weight"] == (128, 512)
    network = networks.mixture(Sizes(width=16, inner=8))
    found = shapes(network)
    assert found["gate.1.weight"] == (32, 6048) and found["gate.2.weight"] == (10, 32)
    assert len({name.split(".")[1] for name in found if name.startswith("experts")}) == 10
    states = torch.randn(3, 144, 42)
    network.eval()
    with torch.no_grad():
        each, gate = network.each(states), network.gate(states)  # type: ignore[operator]
        np.testing.assert_allclose(gate.sum(dim=1), 1.0, rtol=1e-5)
        assert each.shape == (3, 10, 1)
        np.testing.assert_allclose(network(states), (each * gate[:, :, None]).sum(dim=1), rtol=1e-5)


def test_probes_are_seven_a_pair_evenly_over_its_run() -> None:
    rows = training.probe_rows(PAIRS)
    assert len(rows) == 7 * len(PAIRS)
    for place, pair in enumerate(np.argsort(PAIRS.submit_s, kind="stable")):
        begin, end = int(PAIRS.predecessor_start_s[pair]) + 60, int(PAIRS.predecessor_end_s[pair]) - 60
        here = np.arange(PAIRS.offset[pair], PAIRS.offset[pair + 1])
        for i in range(7):
            wanted = begin + (end - begin) * i / 6
            found = rows[7 * place + i]
            assert found in here
            assert abs(PAIRS.decision_s[found] - wanted) == np.abs(PAIRS.decision_s[here] - wanted).min()


def test_stages_of_a_mixture_are_an_expert_each_and_then_all() -> None:
    rows = np.arange(100)
    stages = training.mixture_stages(rows, Sizes())
    assert [stage.part for stage in stages] == [*[f"experts.{i}" for i in range(10)], ""]
    assert stages[3].rows.tolist() == [15, 16, 17, 18, 19] and stages[-1].rows.tolist() == list(range(80))
    assert {stage.rate for stage in stages} == {1e-5} and stages[0].batch == 64 and stages[-1].batch == 128


def trained(path: Path | None, epochs: int, seed: int = 0) -> tuple[torch.nn.Module, list[list[float]]]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        network = networks.mixture(SMALL)
    rows = training.probe_rows(PAIRS)
    stages = [training.Stage("experts.0", rows[:20], 2, 1e-3, 8), training.Stage("", rows, epochs, 1e-3, 16)]
    errors, _ = training.pretrain(network, HISTORIES, stages, sizes=SMALL, seed=seed, budget_s=1e9, checkpoint=path)
    return network, errors


def test_a_training_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, errors = trained(None, 3)
    trained(tmp_path / "kept.npz", 1)
    again, rest = trained(tmp_path / "kept.npz", 3)
    assert rest == errors and [len(one) for one in rest] == [2, 3], "the losses of all epochs, not of the last run"
    for expected, found in zip(whole.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)


def test_a_mixture_of_the_released_ten_can_be_gone_on_with(tmp_path: Path) -> None:
    """It has hundreds of weights, more than the reader of arrays lists in one file."""
    sizes, path = Sizes(width=4, inner=4), tmp_path / "ten.npz"
    network, other = networks.mixture(sizes), networks.mixture(sizes)
    adam = torch.optim.Adam(network.parameters())
    network(torch.randn(2, 144, 42)).sum().backward()
    adam.step()
    checkpoints.save(path, network, adam, {"sizes": [4]})
    meta, moments = checkpoints.load(path, other, {"sizes": (4,)})
    again = torch.optim.Adam(other.parameters())
    checkpoints.restore(again, moments)
    assert meta["sizes"] == [4] and len(list(other.parameters())) > 150
    for expected, found in zip(network.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        for name, value in adam.state[expected].items():
            torch.testing.assert_close(again.state[found][name], value, rtol=0, atol=0)


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kept.npz"
    trained(path, 1)
    with pytest.raises(InputError, match=r"no whole checkpoint \(\d+ numbers for \d+ weights\)"):
        checkpoints.load(path, networks.transformer(SMALL), {})


def test_foundations_learn_from_probes() -> None:
    rows = training.probe_rows(PAIRS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = networks.transformer(SMALL)
    stages = [training.Stage("", rows, 15, 5e-3, 16)]
    errors, place = training.pretrain(network, HISTORIES, stages, sizes=SMALL, seed=0, budget_s=1e9)
    assert place.epoch == 15 and place.seconds > 0
    assert min(errors[0]) < 0.7 * errors[0][0]


def test_a_third_of_the_pairs_is_held_out_with_all_their_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []

    def looked_at(network: torch.nn.Module, histories: Histories, rows: np.ndarray) -> np.ndarray:
        held.append(rows)
        return np.asarray(histories.pairs.gap_h[rows][:, None] + 2.0)

    monkeypatch.setattr(training, "looked_at", looked_at)
    stages = [training.Stage("", training.probe_rows(PAIRS), 2, 1e-3, 16)]
    network = networks.transformer(SMALL)
    errors, _ = training.pretrain(network, HISTORIES, stages, sizes=SMALL, seed=0, budget_s=1e9)
    assert errors == [[pytest.approx(4.0)] * 2]
    for rows in held:
        assert np.unique(PAIRS.pair_of[rows], return_counts=True)[1].tolist() == [7] * 4
    assert set(held[0]) == set(held[1]), "the same pairs in each epoch"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
def test_a_gpu_learns_what_the_processor_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = []
    for device in ("cuda", "cpu"):
        monkeypatch.setattr(training, "training_device", lambda device=device: device)
        with repeatable(0):
            network = networks.transformer(SMALL)
        stages = [training.Stage("", training.probe_rows(PAIRS), 20, 1e-2, 16)]
        found, _ = training.pretrain(network, HISTORIES, stages, sizes=SMALL, seed=0, budget_s=60.0)
        errors.append(found[0][-1])
    assert errors[0] == pytest.approx(errors[1], rel=0.2)  # dropout draws other numbers there


def test_a_budget_ends_the_training_after_the_epoch_that_used_it_up() -> None:
    rows = training.probe_rows(PAIRS)
    stages = [training.Stage("", rows[:10], 1000, 1e-3, 16)]
    errors, place = training.pretrain(
        networks.transformer(SMALL), HISTORIES, stages, sizes=SMALL, seed=0, budget_s=1e-9
    )
    assert len(errors[0]) == 1 and place.epoch == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"state_version": 0}, "a checkpoint of state_version 0; this training has 1"),
        ({"sizes": {"width": 9}}, "a checkpoint of sizes"),
        ({"seed": 3}, "a checkpoint of seed 3; this training has 0"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused_by_name(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    path = tmp_path / "kept.npz"
    trained(path, 1)
    arrays = unpack_arrays(path.read_bytes())
    meta = json.loads(arrays["meta"].tobytes()) | change
    arrays["meta"] = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    path.write_bytes(pack_arrays(arrays))
    with pytest.raises(InputError, match=said) as caught:
        trained(path, 1)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "kept.npz"
    path.write_bytes(b"PK nothing")
    with pytest.raises(InputError, match="no whole checkpoint"):
        checkpoints.load(path, networks.transformer(SMALL), {})


def test_a_head_learns_when_to_submit_from_what_its_foundation_says() -> None:
    """A foundation that knows the gap: the head learns to submit where it is small."""
    seen = np.abs(PAIRS.gap_h[:, None]).astype(np.float32)
    weights, rewards = training.reinforce(seen, PAIRS, epochs=40, seed=0, rate=0.05)
    assert weights.shape == (2, 2)
    assert weights[1, 0] - weights[0, 0] < -0.2, "the larger the gap, the less it submits"
    assert np.mean(rewards[-10:]) > np.mean(rewards[:10])
