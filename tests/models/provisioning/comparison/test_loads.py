"""The text by load: every policy's figures at each load, in the order of the main table."""

from __future__ import annotations

from models.provisioning.comparison.compare import compare
from reports.text.comparison import format_loads, format_table
from tests.models.pair_tables import artifact, context, random_pairs, reactive, trained


def test_the_text_by_load_has_every_policys_figures_of_each_load() -> None:
    policies = [*trained("reactive", reactive()), *trained("lead", artifact("constant-lead", (0.0, 3.0), 3.0))]
    results = compare(random_pairs(2, 66), policies, context=context(), draws=1).results
    _one, eight = format_loads(results).split("\n\n")
    title, heads, *lines = eight.splitlines()
    rows = {(row["policy"], row["load"]): row for row in results if row["size"] == "8"}
    counts = ", ".join(f"{load} n {rows['reactive', load]['n']}" for load in ("light", "medium", "heavy"))
    assert title.startswith("8-node pairs of 48 h by load") and title.endswith(f": {counts}")
    assert heads.split()[:6] == ["policy", "l:", "I", "h", "l:", "reduced"]
    for line in lines:
        expected = [policy := line.split()[0]]
        for row in (rows[policy, load] for load in ("light", "medium", "heavy")):
            shares = (f"{100 * row[name]:.0f}" for name in ("reduction", "zero_share"))
            expected += [f"{row['interruption_h']:.2f}", " % ".join(shares), "%", f"{row['overlap_h']:.2f}"]
        assert line.split() == " ".join(expected).split()
    in_order = format_table(results).split("\n\n")[1].splitlines()[2:-1]
    assert [line.split()[0] for line in lines] == [line.split()[0] for line in in_order] and len(lines) > 2


def test_a_load_without_pairs_has_no_columns() -> None:
    pairs = random_pairs(2, 66, sizes=(1,))
    calm = pairs.take(pairs.gap_h[pairs.last] <= 2)
    text = format_loads(compare(calm, trained("reactive", reactive()), context=context(), draws=1).results)
    assert f"light n {len(calm)}" in text and "m: " not in text.splitlines()[1] and "heavy n" not in text
