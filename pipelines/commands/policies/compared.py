"""The text of `baton evaluate`."""

from __future__ import annotations

from typing import Any, TextIO

from pipelines import options


def print_comparison(out: TextIO, answer: dict[str, Any], json: bool) -> None:
    """Write the output of `evaluate`, as JSON or as text."""
    if json:
        options.write_json(out, answer)
    else:
        out.write(_comparison_text(answer))


def _comparison_text(answer: dict[str, Any]) -> str:
    """Format the results of `evaluate` as text."""
    from models.provisioning.registry import is_releasable
    from reports.text.comparison import format_loads, format_table, world_words
    from reports.text.hidden import format_hidden
    from reports.text.promises import format_promises

    results = answer["results"]
    text = f"{format_table(results)}\n\n{format_loads(results)}\n\n{world_words(answer['world_error'])}\n"
    text += f"policies fitted in world {answer['fitted_in']}, on cluster {answer['fitted_on']}\n"
    compared = dict.fromkeys(row["policy"] for row in results if not is_releasable(row["policy"]))
    text += f"compared, not released: {', '.join(compared)}\n" if compared else ""
    text += f"\n{format_promises(answer['promises'])}\n" if answer["promises"] else ""
    return text + (f"\n{format_hidden(answer['hidden'])}\n" if answer["hidden"] else "")
