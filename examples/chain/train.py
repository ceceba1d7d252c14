"""Fit a line, a second a step, as a link of a chain: docs/tutorial-chain.md."""

import json
import random
import time

from baton_chain import Link

STEPS = 100

with Link(save_every_s=10, margin_s=15) as link:
    saved = link.folder / "checkpoint.json"
    step, weight = json.loads(saved.read_text()) if saved.exists() else (0, 0.0)
    while step < STEPS:
        x = random.Random(step).random()
        weight += 0.1 * (3 * x - weight * x) * x
        time.sleep(1)
        step += 1
        if step % 10 == 0:
            print(f"step {step}: weight {weight:.4f}", flush=True)
        if link.should_save() or step == STEPS:
            with link.replacing(saved.name) as part:
                part.write_text(json.dumps([step, weight]))
        if link.must_end() and step < STEPS:
            link.ask_for_another()
