"""What the two networks share, each part against its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from features.observe import FEATURES
from models.provisioning.learning import networks
from models.provisioning.protocol import PairTable


def test_a_target_moves_towards_its_source_by_the_rate() -> None:
    torch.manual_seed(0)
    slow, fast = networks.network(3, (4,), 2), networks.network(3, (4,), 2)
    before = [weight.clone() for weight in slow.parameters()]
    networks.follow(slow, fast, 0.25)
    for was, now, source in zip(before, slow.parameters(), fast.parameters(), strict=True):
        torch.testing.assert_close(now, 0.75 * was + 0.25 * source)


def test_cost_weights_are_uniform_in_their_logarithm_from_a_hundredth_to_a_hundred() -> None:
    drawn = networks.sample_log_weights(np.random.default_rng(0), 20_000)
    assert drawn.dtype == np.float32 and drawn.shape == (20_000,)
    assert np.exp(drawn.min()) == pytest.approx(0.01, rel=0.01) and np.exp(drawn.max()) == pytest.approx(100, rel=0.01)
    counts, _ = np.histogram(drawn, bins=10, range=(np.log(0.01), np.log(100.0)))
    assert counts.min() > 1800 and counts.max() < 2200


def test_a_network_is_relu_layers_and_a_linear_path_that_starts_at_zero() -> None:
    torch.manual_seed(0)
    network = networks.network(3, (5, 4), 2)
    x = torch.randn(7, 3)
    hidden = x
    linear = [layer for layer in network.modules() if isinstance(layer, torch.nn.Linear)]
    assert [tuple(layer.weight.shape) for layer in linear] == [(5, 3), (4, 5), (2, 4), (2, 3)]
    for layer in linear[:2]:
        hidden = torch.clamp(hidden @ layer.weight.T + layer.bias, min=0.0)
    expected = hidden @ linear[2].weight.T + linear[2].bias
    torch.testing.assert_close(network(x), expected)
    with torch.no_grad():
        linear[3].weight.fill_(1.0)
    torch.testing.assert_close(network(x), expected + x.sum(dim=1, keepdim=True))


def test_inputs_are_five_ratios_and_a_third_of_the_weights_logarithm(fit_table: PairTable) -> None:
    inputs = networks.Inputs.of(fit_table.observations)
    ratios = ("start_estimate_h", "start_estimate_expected_h", "start_estimate_idle_h", "headroom_wait_h")
    raw = fit_table.observations.astype(np.float64)

    def log(name: str) -> np.ndarray:
        values = raw[:, FEATURES.index(name)]
        return np.asarray(np.sign(values) * np.log1p(np.abs(values)))

    shown = np.stack([log(name) - log("remaining_h") for name in (*ratios, "predecessor_wait_h")], axis=1)
    spread = np.maximum(shown.std(axis=0), 0.05)
    expected = np.clip((shown - shown.mean(axis=0)) / spread, -5, 5)
    rows = np.array([0, 7, 400, 3])
    log_weight = np.array([-3.0, 0.0, 1.5, 3.0], np.float32)
    seen = inputs.at(rows, log_weight).numpy()
    assert inputs.width == seen.shape[1] == 6
    np.testing.assert_allclose(seen[:, :5], expected[rows], atol=1e-4)
    np.testing.assert_allclose(seen[:, 5], log_weight / 3)
    other = fit_table.take(np.array([1, 2]))
    at = np.arange(fit_table.offset[1], fit_table.offset[3])
    np.testing.assert_allclose(inputs.of_pairs(other).normal.numpy(), expected[at], atol=1e-4)


def test_the_nearest_rule_is_told_by_logarithms() -> None:
    weights = networks.RULE_WEIGHTS
    assert weights[0] == pytest.approx(0.01) and weights[-1] == pytest.approx(100.0) and len(weights) == 9
    log_weight = np.log(np.array([0.001, 0.01, 1.0, 1.7, 1.8, 1000.0])).astype(np.float32)
    assert networks.nearest_rule(log_weight).tolist() == [0, 0, 4, 4, 5, 8]


def test_settings_lie_within_the_weights_that_are_met_in_training() -> None:
    assert max(networks.SETTINGS) <= networks.WEIGHTS[1] and min(networks.SETTINGS) >= networks.WEIGHTS[0]
    assert list(networks.SETTINGS) == sorted(networks.SETTINGS, reverse=True)
    assert networks.DEFAULT_WEIGHT == 1.0 and 1.0 in networks.SETTINGS  # interruption and overlap alike


def test_inside_repeatable_torch_has_one_thread() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with networks.repeatable(0):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_is_drawn_inside_repeatable_hangs_on_the_seed_alone() -> None:
    def drawn(before: int, seed: int) -> float:
        torch.manual_seed(before)
        with networks.repeatable(seed):
            return torch.rand(1).item()

    assert drawn(1, 5) == drawn(2, 5) != drawn(1, 6)
