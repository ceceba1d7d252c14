"""Our learners against stable-baselines3's on the same environment, the same pairs and one cost weight."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from features.observe import FEATURES
from models.provisioning.comparison.outcomes import stopping_rows
from models.provisioning.environment import ProvisioningEnv
from models.provisioning.learning import networks
from models.provisioning.protocol import PairTable
from models.provisioning.registry import make_policy

pytestmark = pytest.mark.slow
EVERY = 6  # an hour a step
STEPS = 15_000  # of the reference; by then it has long stopped being reactive
TOLERANCE_H = 0.1


def mean_cost(pairs: PairTable, submit: np.ndarray) -> float:
    """Interruption plus overlap, hours a pair, where both are asked on the reference's grid."""
    on_grid = (pairs.predecessor_end_s[pairs.pair_of] - pairs.decision_s) % (EVERY * 600) == 0
    return float(np.abs(pairs.gap_h[stopping_rows(pairs, (submit & on_grid)[None])[0]]).mean())


@pytest.mark.parametrize(("learner", "reference_learner"), [("dqn", "DQN"), ("policy-gradient", "PPO")])
def test_costs_no_more_than_the_reference_learner(
    learner: str, reference_learner: str, fit_table: PairTable, report_table: PairTable
) -> None:
    stable_baselines3 = pytest.importorskip("stable_baselines3")
    inputs = networks.Inputs.of(fit_table.observations)
    condition = np.zeros(1, np.float32)  # the log of weight 1

    def seen(observation: np.ndarray) -> np.ndarray:
        rows = np.asarray(observation, np.float32).reshape(-1, len(FEATURES))
        normal = inputs.scaling(rows)
        return np.concatenate([normal, np.tile(condition, (len(normal), 1))], axis=1).reshape(
            *np.shape(observation)[:-1], inputs.width
        )

    space = gymnasium.spaces.Box(-5.0, 5.0, (inputs.width,), np.float32)
    env = gymnasium.wrappers.TransformObservation(ProvisioningEnv(fit_table, every=EVERY), seen, space)
    options: dict[str, dict[str, Any]] = {
        "DQN": {
            "learning_starts": 500,
            "train_freq": 2,
            "batch_size": 128,
            "target_update_interval": 200,
            "exploration_fraction": 0.4,
            "exploration_final_eps": 0.02,
        },
        "PPO": {"n_steps": 1024},
    }
    model = getattr(stable_baselines3, reference_learner)(
        "MlpPolicy", env, gamma=1.0, learning_rate=1e-3, seed=0, device="cpu", **options[reference_learner]
    )
    with networks.repeatable(0):
        model.learn(STEPS)
    reference = mean_cost(report_table, model.predict(seen(report_table.observations), deterministic=True)[0] == 1)

    artifact, _ = make_policy(learner).fit(fit_table, 0)
    found = mean_cost(report_table, artifact.decide(report_table.observations, 1.0))
    reactive = mean_cost(report_table, np.zeros(len(report_table.decision_s), bool))
    assert reference < 0.8 * reactive, f"the reference learned nothing: {reference:.2f} h, reactive {reactive:.2f} h"
    assert found <= reference + TOLERANCE_H, f"{found:.2f} h against {reference:.2f} h; reactive {reactive:.2f} h"
