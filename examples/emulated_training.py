"""Train on emulated GPUs: a loop that copies, computes, saves and resumes, without a GPU and without torch.

    .venv/bin/baton emulate --model resnet50-imagenet --gpu-type A100 --gpus 4 --speed 20 -- \\
        python3 examples/emulated_training.py checkpoint.json [--steps 100] [--save-every 20] [--batch 163]

`baton emulate` puts `emulated_gpu` on the path. Where your own script calls its model, call `gpu.step`; where it moves
a batch to the GPU, call `gpu.transfer`. Everything else, such as saving on SIGTERM, is what you want to test.
"""

import argparse
import json
import os
import signal
import time
from pathlib import Path

from emulated_gpu import EmulatedGpu

options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
options.add_argument("checkpoint", type=Path)
options.add_argument("--steps", type=int, default=100)
options.add_argument("--save-every", type=int, default=20)
options.add_argument("--batch", type=float, default=None, help="samples per GPU; default: the profile's")
given = options.parse_args()

must_end = []
signal.signal(signal.SIGTERM, lambda number, frame: must_end.append(number))
step = json.loads(given.checkpoint.read_text())["step"] if given.checkpoint.exists() else 0
print(f"starts at step {step}", flush=True)


def save() -> None:
    """Replace the checkpoint in one go, so that a kill leaves the old one or the new one."""
    part = given.checkpoint.with_suffix(".part")
    part.write_text(json.dumps({"step": step}))
    os.replace(part, given.checkpoint)


with EmulatedGpu.from_environment() as gpu:
    started_s, first = time.monotonic(), step
    while step < given.steps and not must_end:
        gpu.transfer(given.batch)
        gpu.step(given.batch)
        step += 1
        if step % given.save_every == 0:
            save()
    save()
    passed_s = (time.monotonic() - started_s) * gpu.speed
    print(f"ends at step {step}: {passed_s / max(1, step - first):.3f} s a step on {gpu.gpus} {gpu.gpu_type}")
    print(f"memory of each GPU: {gpu.reserved_mib:,.0f} MiB" if gpu.reserved_mib else "memory: not profiled")
raise SystemExit(143 if must_end else 0)  # 128 + SIGTERM, as a shell would say
