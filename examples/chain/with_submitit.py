"""A `Checkpointable` of submitit as a link of a chain: the agent submits the next job, in place of `scontrol requeue`.

The class is as submitit wants it. At the signal, its `checkpoint` returns the next submission, as under submitit. The
link stores it and ends; the next link loads and runs it.
"""

import random
import signal

from baton_chain import Link
from submitit.helpers import Checkpointable, DelayedSubmission

STEPS = 300_000


class Fit(Checkpointable):
    """Fit a line. Its attributes are the state that `checkpoint` keeps."""

    def __init__(self) -> None:
        self.step, self.weight = 0, 0.0

    def __call__(self, steps: int) -> float:
        while self.step < steps:
            x = random.Random(self.step).random()
            self.step, self.weight = self.step + 1, self.weight + 0.001 * (3 * x - self.weight * x) * x
            if self.step % 10_000 == 0:
                print(f"step {self.step}", flush=True)
        return self.weight


with Link() as link:
    saved = link.folder / "submission.pkl"
    submission = DelayedSubmission.load(saved) if saved.exists() else DelayedSubmission(Fit(), STEPS)

    def hand_on(number: int, frame: object) -> None:
        """Store what submitit would requeue, and ask the agent for the job that goes on with it."""
        following = submission.function.checkpoint(*submission.args, **submission.kwargs)
        with link.replacing("submission.pkl") as part:
            following.dump(part)
        link.ask_for_another()

    signal.signal(signal.SIGUSR1, hand_on)  # of `#SBATCH --signal=B:USR1@300`: see the README
    signal.signal(signal.SIGTERM, hand_on)  # at the limit, or when another job preempts this one
    if link.must_end():  # a signal came before these lines
        hand_on(signal.SIGUSR1, None)
    print(f"ends with weight {submission.result()}")
