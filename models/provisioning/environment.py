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
    `Box(-inf, inf, (46,), float32)`, the vector of `features.observe` in raw units (`ScaledObservation` puts it on one
    scale). `limit` is the predecessor's limit in hours, `capacity` the nodes of the simulated cluster:

    | Num | Observation | Min | Max | Unit |
    |---|---|---|---|---|
    | 0 | remaining_h: until the predecessor's end | 0 | limit | h |
    | 1 | predecessor_elapsed_h | 0 | limit | h |
    | 2 | predecessor_wait_h | 0 | Inf | h |
    | 3 | successor_nodes | 1 | capacity | nodes |
    | 4 | successor_limit_h | 0 | Inf | h |
    | 5 | capacity_nodes | 1 | Inf | nodes |
    | 6 | free_nodes | 0 | capacity | nodes |
    | 7 | pending_jobs | 0 | Inf | jobs |
    | 8 | pending_nodes: of all of them | 0 | Inf | nodes |
    | 9 | pending_node_h: nodes x limit | 0 | Inf | node-h |
    | 10 | pending_widest_nodes | 0 | Inf | nodes |
    | 11 | pending_age_max_h | 0 | Inf | h |
    | 12 | pending_age_mean_h | 0 | Inf | h |
    | 13 | pending_limit_mean_h | 0 | Inf | h |
    | 14 | running_jobs | 0 | Inf | jobs |
    | 15 | running_node_h: nodes x time left to the limit | 0 | Inf | node-h |
    | 16 | running_elapsed_mean_h | 0 | Inf | h |
    | 17 | release_1h_nodes: given back by then by limits | 0 | capacity | nodes |
    | 18 | release_4h_nodes | 0 | capacity | nodes |
    | 19 | release_12h_nodes | 0 | capacity | nodes |
    | 20 | release_24h_nodes | 0 | capacity | nodes |
    | 21 | start_estimate_h: wait if submitted now, by limits | 0 | 240 | h |
    | 22 | start_estimate_gap_h: that minus remaining_h | -limit | 240 | h |
    | 23 | start_estimate_expected_h: by expected run times | 0 | 240 | h |
    | 24 | start_estimate_idle_h: if nobody else were pending | 0 | 240 | h |
    | 25 | recent_wait_mean_h: of the last 100 jobs started | 0 | Inf | h |
    | 26 | recent_wait_p50_h | 0 | Inf | h |
    | 27 | recent_wait_p90_h | 0 | Inf | h |
    | 28 | recent_wait_max_h | 0 | Inf | h |
    | 29 | recent_wide_wait_mean_h: of those half as wide or wider | 0 | Inf | h |
    | 30 | started_6h_jobs: of those last 100 | 0 | 100 | jobs |
    | 31 | arrived_1h_node_h: submitted in the last hour | 0 | Inf | node-h |
    | 32 | arrived_6h_node_h | 0 | Inf | node-h |
    | 33 | arrived_24h_node_h | 0 | Inf | node-h |
    | 34 | limit_use_mean: run time over limit | 0 | Inf | 1 |
    | 35 | hour_sin: hour of the day, UTC | -1 | 1 | 1 |
    | 36 | hour_cos | -1 | 1 | 1 |
    | 37 | weekday_sin | -1 | 1 | 1 |
    | 38 | weekday_cos | -1 | 1 | 1 |
    | 39 | usable_nodes: in service | 0 | capacity | nodes |
    | 40 | held_jobs: pending, but kept from starting | 0 | Inf | jobs |
    | 41 | held_nodes | 0 | Inf | nodes |
    | 42 | headroom_jobs: what limits on users leave to run | 0 | 1000 | jobs |
    | 43 | headroom_nodes | 0 | capacity | nodes |
    | 44 | headroom_wait_h: until they allow the successor | 0 | 240 | h |
    | 45 | own_pending_jobs: of the same user, ahead of it | 0 | Inf | jobs |

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
    `Scaling.of(fit.unwrapped.table.observations)` recomputes them, with one input for each of the 46 features.
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
