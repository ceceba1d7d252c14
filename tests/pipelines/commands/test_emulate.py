"""`baton emulate` becomes the user's program: its arguments, environment, signals and exit status are its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipelines.conftest import Baton

EMULATE = ("--model", "bert", "--gpu-type", "A100", "--gpus", "2")


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "pipelines.entry", "emulate", *EMULATE, *command]
    return subprocess.run(whole, env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_program_gets_its_arguments_and_its_status_is_ours(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import json, sys; from emulated_gpu import EmulatedGpu\n"
        "with EmulatedGpu.from_environment() as gpu: gpu.step()\n"
        "print(json.dumps([sys.argv[1:], gpu.model, gpu.gpus, gpu.speed, gpu.steps])); sys.exit(7)"
    )
    hostile = ["--json", "$(touch no)", "a b;c", "--", "--gpus"]
    done = run("--speed", "1e3", "--", sys.executable, str(script), *hostile)
    assert done.returncode == 7, done.stderr
    assert json.loads(done.stdout) == [hostile, "bert", 2, 1000.0, 1]
    assert done.stderr == (
        "emulating bert on 2 A100 of 1 node, 1000 times as fast; steps measured at 11 samples per GPU; "
        "not profiled: memory and transfer; no limit of memory (--gpu-memory-gib sets one)\n"
    )


def test_signals_reach_the_program_and_a_pipe_is_not_ignored() -> None:
    command = [sys.executable, "-m", "pipelines.entry", "emulate", *EMULATE, "--", "sh", "-c", "echo $$; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None and int(process.stdout.readline()) == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == -signal.SIGTERM
    status = run("cat", "/proc/self/status").stdout
    ignored = re.search(r"SigIgn:\s*([0-9a-f]+)", status)
    assert ignored and not int(ignored[1], 16) & 1 << (signal.SIGPIPE - 1)


def test_folders_of_modules_stay_in_front() -> None:
    done = run("sh", "-c", 'echo "$PYTHONPATH"', PYTHONPATH=f"/mine{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    first, *_, last = done.stdout.strip().split(os.pathsep)
    assert first == "/mine" and last.endswith("simulator/gpu/emulation/script")
    assert sorted(path.name for path in Path(last).glob("*.py")) == ["__init__.py", "emulated_gpu.py"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((*EMULATE, "no-such-program"), "cannot run 'no-such-program': no such program"),
        ((*EMULATE, "/tmp"), "cannot run '/tmp': no such program"),
        ((*EMULATE, "--speed", "nan", "true"), "--speed nan"),
        ((*EMULATE, "--gpu-memory-gib", "nan", "true"), "--gpu-memory-gib nan"),
        (("--model", "gpt5", "--gpu-type", "A100", "true"), "no profile of model 'gpt5'"),
        ((*EMULATE, "--profiles", "no.csv", "true"), "no.csv"),
    ],
)
def test_bad_input_is_one_line(baton: Baton, arguments: tuple[str, ...], reason: str) -> None:
    result = baton("emulate", *arguments)
    assert result.code == 2 and result.out == ""
    assert result.err.startswith("baton: ") and reason in result.err and result.err.count("\n") == 1


@pytest.mark.parametrize("speed", ["0", "-1", "inf", "1e9"])
def test_a_speed_that_is_none_is_refused(baton: Baton, speed: str) -> None:
    result = baton("emulate", *EMULATE, "--speed", speed, "true")
    assert result.code == 2 and "--speed" in result.err
