"""Training scripts of several frameworks as links of a chain: a chain of signalled and killed links ends as one run."""

from __future__ import annotations

import signal
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import skip_or_fail
from tests.examples.links import SCRIPTS, WAITING, start_link

pytestmark = pytest.mark.slow


def _torch(folder: Path) -> Any:
    return torch.load(folder / "checkpoint.pt")


def _lightning(folder: Path) -> Any:
    saved = torch.load(folder / "last.ckpt", weights_only=False)
    return {name: saved[name] for name in ("global_step", "epoch", "state_dict", "optimizer_states")}


def _transformers(folder: Path) -> Any:
    last = folder / "checkpoint-400"
    return (last / "model.safetensors").read_bytes(), torch.load(last / "optimizer.pt")


def _submitit(folder: Path) -> Any:
    (weight,) = {line for out in folder.glob("out-*") for line in out.read_text().splitlines() if "ends with" in line}
    return weight


RESULTS: dict[str, tuple[str, Callable[[Path], Any]]] = {  # script: (needs, what it left)
    "train.sh": ("json", lambda folder: (folder / "checkpoint.json").read_text()),
    "with_torch.py": ("torch", _torch),
    "with_lightning.py": ("pytorch_lightning", _lightning),
    "with_transformers.py": ("transformers", _transformers),
    "with_submitit.py": ("submitit", _submitit),
}


@pytest.mark.parametrize("script", RESULTS)
def test_a_chain_of_links_gives_what_one_run_gives(script: str, tmp_path: Path) -> None:
    needs, result = RESULTS[script]
    if find_spec(needs) is None:
        skip_or_fail("frameworks", f"no {needs}: make frameworks")
    alone = start_link(tmp_path / "alone", script)
    assert alone.ends() == 0, alone.said
    chain = tmp_path / "chain"
    first = start_link(chain, script)
    first.until("step ")
    first.signal(signal.SIGSTOP)  # so that it is alive when the second one asks for the lock
    second = start_link(chain, script)
    second.until(WAITING)
    assert not second.steps
    first.signal(signal.SIGUSR1, signal.SIGCONT)
    second.until("step ")
    second.signal(signal.SIGKILL)  # as Slurm does at the limit
    assert first.ends() == 85 and second.ends() == -signal.SIGKILL, first.said
    third = start_link(chain, script)
    assert third.ends() == 0, third.said
    assert first.steps and second.steps and third.steps, f"{first.said}\n{second.said}\n{third.said}"
    assert second.said.count(WAITING) == 1
    assert second.steps[0] > first.steps[-1], "the second link did not resume where the first one ended"
    assert third.steps[0] > first.steps[-1], "the third link did not resume from a checkpoint"
    assert max(alone.steps) == max(third.steps)
    _assert_same(result(chain), result(tmp_path / "alone"))
    assert not (chain / "requeued").exists(), "the framework requeued the job itself"


def _assert_same(found: Any, expected: Any) -> None:
    """Bit for bit."""
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected)
    elif isinstance(expected, dict | list | tuple):
        assert len(found) == len(expected)
        for key in expected if isinstance(expected, dict) else range(len(expected)):
            _assert_same(found[key], expected[key])
    else:
        assert found == expected


@pytest.mark.parametrize("script", sorted(path.name for path in SCRIPTS.glob("with_*.py")))
def test_each_is_short_and_is_listed(script: str) -> None:
    lines = (SCRIPTS / script).read_text(encoding="utf-8").splitlines()
    assert len(lines) < 60 and script in RESULTS
    assert f"`chain/{script}`" in (SCRIPTS.parent / "README.md").read_text(encoding="utf-8")
