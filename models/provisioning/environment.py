"""A Gymnasium environment for researchers' own learners: when to submit the successor.

`ProvisioningEnv` plays one pair at a time; `models.provisioning.batched_pairs` plays many at once for Baton's own
learners. `ScaledObservation` puts the observations on one scale. Importing this module registers the environment.
`gymnasium.make("models.provisioning.environment:Baton/Provisioning-v0", data="data", cluster="sample")` then makes it
from a data folder; `models.study.from_data.make_env` documents the other arguments.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from features.observe import FEATURES
from models.provisioning.batched_pairs import BatchedPairs, rewards
from models.provisioning.protocol import PairTable
from models.provisioning.scaling import BOUND, Scaling
from traces.arrays import Float32s, Int64s

ENV_ID = "Baton/Provisioning-v0"
WAIT, SUBMIT = 0, 1


class ProvisioningEnv(gymnasium.Env[Float32s, np.int64]):
    """One predecessor running under a time limit: at each decision, submit its successor now or wait.

    ## Action space
    `Discrete(2)`: 0 wait until the next decision, 1 submit.

    ## Observation space
    `Box(-inf, inf, (len(FEATURES),), float32)`, the vector of `features.observe` in raw units (`ScaledObservation`
    puts it on one scale). Its order, bounds and units: `print(*features.dictionary.observation_table(), sep="\n")`.

    ## Rewards
    0 while waiting; at submission -(interruption_h + w overlap_h) / (1 + w), hours (`weight` is w).

    ## Starting state
    A pair drawn uniformly from the table, at its first decision; or `options={"pair": i}`.

    ## Episode end
    Terminated when the successor is submitted; at the predecessor's exact end either action submits. Never truncated.
    `info` then holds `interruption_h` and `overlap_h`.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - Gymnasium's own declaration

    def __init__(
        self, table: PairTable, *, weight: float = 1.0, every: int = 1, render_mode: str | None = None
    ) -> None:
        """Play the pairs of `table`, using every `every`-th decision, with `weight` of an hour of overlap.

        `render_mode` "ansi" makes `render` return a line of text. Raises ValueError for an empty table, a weight that
        is not positive, an `every` below 1, or an unknown render mode.
        """
        if not weight > 0:
            raise ValueError(f"weight of overlap {weight}; it must be positive")
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode {render_mode!r}; allowed are None and 'ansi'")
        self.weight = weight
        self.render_mode = render_mode
        self.pairs = BatchedPairs(table, every)
        self.action_space = gymnasium.spaces.Discrete(2)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (len(FEATURES),), np.float32)

    @property
    def table(self) -> PairTable:
        """The pairs that are played, each with all its decisions."""
        return self.pairs.table

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32s, dict[str, Any]]:
        """Start a pair at its first decision: `options["pair"]`, else one drawn. Raises ValueError for an unknown
        pair."""
        super().reset(seed=seed)
        pair = (options or {}).get("pair")
        if pair is not None and not 0 <= int(pair) < len(self.table):
            raise ValueError(f"pair {pair}; the table has pairs 0 to {len(self.table) - 1}")
        chosen = int(self.np_random.integers(len(self.table))) if pair is None else int(pair)
        rows = self.pairs.reset(np.asarray([chosen], np.int64))
        return self._observe(rows), {"pair": chosen}

    def step(self, action: np.int64) -> tuple[Float32s, float, bool, bool, dict[str, Any]]:
        """Wait (0) or submit (1) at the present decision."""
        after = self.pairs.step(np.asarray([int(action) == SUBMIT]))
        interruption, overlap, done = float(after.interruption_h[0]), float(after.overlap_h[0]), bool(after.done[0])
        info = {"interruption_h": interruption, "overlap_h": overlap} if done else {}
        return self._observe(after.rows), float(rewards(interruption, overlap, self.weight)), done, False, info

    def render(self) -> str | None:
        """Describe the present observation in one line; None without a render mode."""
        if self.render_mode is None:
            return None
        seen = dict(zip(FEATURES, self._observe(self.pairs.rows).tolist(), strict=True))
        return (
            f"{seen['successor_nodes']:.0f} nodes: {seen['remaining_h']:.1f} h left, wait if submitted now "
            f"{seen['start_estimate_expected_h']:.1f} h expected, {seen['start_estimate_h']:.1f} h by limits; "
            f"{seen['pending_jobs']:.0f} jobs pending, "
            f"{seen['free_nodes']:.0f} of {seen['capacity_nodes']:.0f} nodes free"
        )

    def _observe(self, rows: Int64s) -> Float32s:
        observation: Float32s = self.table.observations[rows[0]].copy()
        return observation


class ScaledObservation(
    gymnasium.ObservationWrapper[Float32s, np.int64, Float32s], gymnasium.utils.RecordConstructorArgs
):
    """Passes observations through a `Scaling`: signed logarithms, standardised, within +-5, so a `Box(-5, 5)`.

    The statistics are those of the fit window, also when another window is played.
    `Scaling.of(fit.unwrapped.table.observations)` recomputes them, with one input for each feature.
    `Scaling.of_artifact(artifact)` takes those of a trained network, which has its own few inputs.
    """

    def __init__(self, env: gymnasium.Env[Float32s, np.int64], scaling: Scaling) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self, scaling=scaling)
        gymnasium.ObservationWrapper.__init__(self, env)
        self.scaling = scaling
        self.observation_space = gymnasium.spaces.Box(-BOUND, BOUND, (len(scaling.column),), np.float32)

    def observation(self, observation: Float32s) -> Float32s:
        """(i,) inputs of one raw observation (len(FEATURES),)."""
        inputs: Float32s = self.scaling(observation[None])[0]
        return inputs


gymnasium.register(ENV_ID, entry_point="models.study.from_data:make_env")  # imported when it is first made
