"""Pollux's throughput model: the step time of a job on any allocation, fitted to the few steps that it has run.

Qiao et al., "Pollux: Co-adaptive cluster scheduling for goodput-optimized deep learning" (OSDI 2021), section 3.2, and
the program that its authors released. Sia keeps one model per job and GPU type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from traces.arrays import Float64s

TINY = 1e-8  # in place of 0 in the logarithms of the model; tolerance for rounding errors of a batch
TOLERANCE = 1e-5  # of the fit, as in the released program of Sia
SAMPLES = 50  # batches that are tried, in equal ratios


class StepModel(NamedTuple):
    """Seconds of a step: ((a_c + b_c m)^gamma + sync^gamma)^(1 / gamma) at m samples a GPU.

    `sync` is a + b max(K - 2, 0) on K GPUs, with (a, b) of one node (r) or of several (n), and 0 on one GPU.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float

    def seconds(self, nodes: Float64s, gpus: Float64s, local_batch: Float64s) -> tuple[Float64s, Float64s]:
        """Return the seconds of a step, and of its computation alone; every array of one shape."""
        compute = self.alpha_c + self.beta_c * local_batch
        params = [self.alpha_c, self.beta_c, self.alpha_n, self.beta_n, self.alpha_r, self.beta_r]
        sync = _sync(np.array(params), nodes, gpus)[0]
        step = (compute**self.gamma + sync**self.gamma) ** (1.0 / self.gamma)
        return np.asarray(step, dtype=np.float64), np.asarray(compute, dtype=np.float64)


class BatchChoice(NamedTuple):
    """For each allocation, (n,): the best goodput, samples/s, and the batch that reaches it."""

    goodput: Float64s
    local_batch: Float64s  # samples per GPU at once
    accumulation: Float64s  # further passes before each step


class BatchLimits(NamedTuple):
    """What a job may choose from, in samples."""

    own: float  # the model's own batch, least over all GPUs
    most: float  # largest batch over all GPUs
    least_local: float  # of one GPU at once
    most_local: float


def gain(gradient: tuple[float, float], scale: Float64s) -> Float64s:
    """Return the progress of a step at `scale` times the own batch; `gradient` is its square and its variance.

    A gradient of 0 makes the progress of the own batch.
    """
    sqr, var = gradient
    if sqr + var == 0.0:
        return np.ones_like(scale)
    return np.asarray((var + sqr) / (var / scale + sqr), dtype=np.float64)


def best_batch(
    model: StepModel,
    gradient: tuple[float, float],
    nodes: Float64s,
    gpus: Float64s,
    limits: BatchLimits,
    is_fixed: bool,
) -> BatchChoice:
    """Choose the batch of the best goodput on each allocation, `nodes` and `gpus` (n,).

    As in the released program, SAMPLES batches in equal ratios from the least to the most are tried. A batch that is
    too large for a GPU is split into several passes. One GPU with more than the own batch makes at least two, from
    which the gradient's variance is estimated. With `is_fixed` only the most is tried. The goodput is 0 if no batch is
    feasible.
    """
    least = np.full(len(gpus), limits.most) if is_fixed else np.maximum(limits.own, limits.least_local * gpus)
    share = np.geomspace(least, np.full(len(gpus), limits.most), SAMPLES) / gpus
    accumulation = np.ceil(share / limits.most_local - TINY) - 1.0
    alone = (gpus == 1.0) & (share > limits.own + TINY)
    accumulation = np.where(alone, np.maximum(accumulation, 1.0), accumulation)
    local = np.ceil(share / (accumulation + 1.0) - TINY)
    step_s, compute_s = model.seconds(nodes, gpus, local)
    batch = gpus * local * (accumulation + 1.0)
    goodput = limits.own * gain(gradient, batch / limits.own) / (step_s + accumulation * compute_s)
    goodput = np.where((limits.least_local <= local) & (local <= limits.most_local), goodput, 0.0)
    best = goodput.argmax(axis=0), np.arange(len(gpus))
    return BatchChoice(goodput[best], local[best], accumulation[best])


def fitted(
    seen: Mapping[tuple[int, int, float], tuple[float, float]], tolerance: float | None = TOLERANCE
) -> StepModel:
    """Fit the model to at least one measured step: (nodes, GPUs, samples per GPU) -> (seconds of a step, of its sync).

    It minimises the root mean square errors of the logarithms of step and computation. Small penalties apply to gamma
    above 1 and to a sync that grows with the GPUs. What was not yet measured (several nodes, several GPUs of a node,
    more than two) costs nothing at first, so that the job tries it. All is as in the released program, whose search may
    stop short of the best fit. It stops at `tolerance`; None is that of scipy, as in the released program of Pollux.
    """
    from scipy.optimize import Bounds, minimize

    points = np.array(list(seen), dtype=np.float64)
    step, sync = np.array(list(seen.values()), dtype=np.float64).T
    nodes, gpus, local = points.T
    start = np.array([0.1, 0.01] * 3 + [1.001])
    low = np.array([TINY] * 6 + [1.0])
    high = np.array([np.inf] * 6 + [10.0])
    if len(np.unique(local)) == 1:
        start[0] = low[0] = high[0] = (step - sync).mean() / 2.0
    several, shared = (nodes > 1.0).any(), ((nodes == 1.0) & (gpus > 1.0)).any()
    is_unseen = np.array(
        [False, False, not several, not several, not shared, not shared, False]
        if (gpus > 2.0).any()
        else [False, False, not several, True, not shared, True, False]
    )
    start[is_unseen] = high[is_unseen] = low[is_unseen]
    found = minimize(
        _loss,
        start,
        args=(points, np.log(step - sync), np.log(step)),
        jac=True,
        bounds=Bounds(low, high, keep_feasible=True),
        tol=tolerance,
    ).x
    if not several:  # several nodes are no faster than one
        found[2], found[3] = max(found[2], 1.1 * found[4]), max(found[3], 1.1 * found[5])
    return StepModel(*found.tolist())


def _sync(params: Float64s, nodes: Float64s, gpus: Float64s) -> tuple[Float64s, Float64s, Float64s, Float64s]:
    """Return the sync, s, which of (n, r) it follows as two masks, and the factor of its beta."""
    spread, shared = nodes > 1.0, (nodes <= 1.0) & (gpus > 1.0)
    growth = np.maximum(gpus - 2.0, TINY)
    alpha = np.where(spread, params[2], np.where(shared, params[4], TINY))
    beta = np.where(spread, params[3], np.where(shared, params[5], TINY))
    return alpha + beta * growth, spread.astype(np.float64), shared.astype(np.float64), growth


def _loss(params: Float64s, points: Float64s, log_compute: Float64s, log_step: Float64s) -> tuple[float, Float64s]:
    """Return what the fit minimises, and its gradient (7,)."""
    nodes, gpus, local = points.T
    compute = params[0] + params[1] * local
    sync, spread, shared, growth = _sync(params, nodes, gpus)
    gamma = params[6]
    logs = np.log(compute), np.log(sync)
    total = np.logaddexp(gamma * logs[0], gamma * logs[1])
    of_compute, of_sync = np.exp(gamma * logs[0] - total), np.exp(gamma * logs[1] - total)
    wrong = logs[0] - log_compute, total / gamma - log_step
    errors = [float(np.sqrt((each**2).mean())) for each in wrong]
    slopes = [
        each / (len(each) * error) if error > 0.0 else 0.0 * each for each, error in zip(wrong, errors, strict=True)
    ]
    by_compute = (slopes[0] + slopes[1] * of_compute) / compute
    by_sync = slopes[1] * of_sync / sync
    by_gamma = slopes[1] @ ((of_compute * logs[0] + of_sync * logs[1]) / gamma - total / gamma**2)
    ratios = params[3] / params[2], params[5] / params[4]
    loss = sum(errors) + 1e-3 * (gamma - 1.0) ** 2 + 1e-2 * (ratios[0] ** 2 + ratios[1] ** 2)
    slope = np.array(
        [
            by_compute.sum(),
            by_compute @ local,
            by_sync @ spread - 2e-2 * ratios[0] ** 2 / params[2],
            by_sync @ (spread * growth) + 2e-2 * ratios[0] / params[2],
            by_sync @ shared - 2e-2 * ratios[1] ** 2 / params[4],
            by_sync @ (shared * growth) + 2e-2 * ratios[1] / params[4],
            by_gamma + 2e-3 * (gamma - 1.0),
        ]
    )
    return loss, slope
