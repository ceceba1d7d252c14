"""`python -m agent FOLDER`: describe a released policy and its promises, or let it decide. Needs only numpy.

FOLDER is the artifact itself (manifest.json, arrays.npz) or the MLflow model that holds it. With `--decide`, every line
of standard input is an observation: a JSON object with one number per feature. Every line of standard output is its
answer: `submit` (true or false) and `score`. The policy submits if the score is not negative, or if the predecessor has
ended. Exit status: 0 done; 1 the reader of the answers has gone; 2 the folder or an observation is invalid.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from agent.artifact import Artifact
from agent.streams import reader_gone
from traces.visible import visible

SHOWN = ("policy", "kind", "knob", "settings", "default_setting", "trained_on", "requirements", "features")


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return the exit status."""
    options = _parser().parse_args(arguments)
    try:
        artifact = Artifact.load(artifact_folder(options.folder))
        if not options.decide:
            shown = {name: artifact.manifest[name] for name in SHOWN if name in artifact.manifest}
            shown |= {"promises": artifact.promises} if artifact.promises else {}
            print(json.dumps(shown, indent=1), flush=True)
            return 0
        for number, line in enumerate(sys.stdin, 1):
            if line.strip():
                print(json.dumps(decision(artifact, line, f"standard input:{number}", options.setting)), flush=True)
    except BrokenPipeError:
        return reader_gone()
    except ValueError as error:
        sys.stderr.write(f"agent: {visible(' '.join(str(error).split()))}\n")
        return 2
    return 0


def artifact_folder(folder: Path) -> Path:
    """Return the folder if it holds a manifest, else the policy inside an MLflow model's folder. Raises ValueError."""
    for candidate in (folder, folder / "artifacts" / "policy", folder / "policy"):
        if (candidate / "manifest.json").is_file():
            return candidate
    raise ValueError(f"{folder} holds no released policy: no manifest.json in it, in artifacts/policy or in policy")


def decision(artifact: Artifact, line: str, where: str, setting: float | None = None) -> dict[str, Any]:
    """Answer one observation; missing features get their declared fill (`Artifact.row`). Raises ValueError."""
    try:
        observation = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON: {error}") from error
    if not isinstance(observation, dict):
        raise ValueError(f"{where}: an observation must be a JSON object with one number per feature")
    try:
        row = [artifact.row(observation)]
        return {"submit": bool(artifact.decide(row, setting)[0]), "score": float(artifact.score(row, setting)[0])}
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agent", description="Describe a released provisioning policy, or let it decide."
    )
    parser.add_argument("folder", type=Path, help="a released artifact, or the MLflow model that holds it")
    parser.add_argument("--decide", action="store_true", help="answer observations on standard input (JSON lines)")
    parser.add_argument("--setting", type=float, help="value of the policy's knob (default: the released one)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
