"""The model card of a released queue-time model, for the registry and the export folder."""

from __future__ import annotations

from typing import Any

from agent.distribution import Distribution
from traces.counted import counted


def card(made: Distribution) -> str:
    """Markdown card: the model, its fit, the gate's verdict, figures of every method, and the fallbacks."""
    manifest = made.manifest
    release, trained = manifest["release"], manifest["trained_on"]
    parts = [
        f"# Queue time of cluster `{manifest['cluster']}`: {manifest['method']}",
        f"**Fitted on** {counted(trained['jobs'], 'job')} known at {trained['until_utc']} UTC; observation version "
        f"{manifest['observe_version']}, {counted(len(manifest['features']), 'feature')}.",
        f"**Gate**, {release['verdict']}: {release['gate']['reason']}.",
        "**Windows**: "
        + "; ".join(f"{name} {one['from_utc']} to {one['until_utc']}" for name, one in release["windows"].items()),
        _results(release["results"]),
        "**Falls back**: " + "; ".join(manifest["fallbacks"]) + ".",
        "**Use**: `baton wait --cluster NAME`, or with numpy alone `agent.distribution.Distribution.load(FOLDER)"
        ".forecast(observations, partitions)`. It was not judged on any other cluster.",
    ]
    return "\n\n".join(parts) + "\n"


def _results(rows: list[dict[str, Any]]) -> str:
    lines = ["| method | n | CRPS, h | 95 % | covers of 95 % |", "|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda one: float(one["crps_h"])):
        ends = row["ci95"].get("crps_h")
        spread = "-" if ends is None else f"{ends[0]:.2f} to {ends[1]:.2f}"
        lines.append(
            f"| {row['method']} | {row['n']:,} | {row['crps_h']:.2f} | {spread} | {row['coverage']['0.95']:.3f} |"
        )
    return "\n".join(lines)
