"""Compare a study's fitted policies: the pairs used, the warnings, and the record in MLflow.

`models.provisioning.comparison` makes the figures, from pairs and artifacts alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from models.provisioning import registry
from models.provisioning.protocol import TrainedPolicy
from models.provisioning.scenario import RECORDED_WAIT
from models.study.cluster import Study
from models.study.fits import fit_fingerprint
from models.study.inputs import declared_dates
from models.study.pair_tables import pair_fingerprint, pairs_left_out
from models.study.windows import Window
from models.study.world_error import world_error
from traces import instants
from traces.cache.closure import code_digest
from traces.cache.digests import digest

if TYPE_CHECKING:
    from models.provisioning.comparison.compare import Comparison

COMPARED_BY = (
    "models.provisioning.comparison.compare",
    "models.provisioning.comparison.promises",
    "models.tables",
    "models.study.world_error",
)
COMPARISON = "comparison"  # the stamp that holds the rows of a cluster's present comparison


def is_development(study: Study, window: Window) -> bool:
    """Whether the window lies in the time declared for fits and settings, so that its figures are not a headline."""
    until_s = declared_dates(study.settings).select_until_s
    return until_s is not None and window.from_s < until_s


def select_window(known_s: int, report: Window) -> Window | None:
    """The window from `known_s` (epoch s) to the report window, whose pairs choose settings; None if it is empty."""
    return Window(known_s, report.from_s, report.decision_s) if known_s < report.from_s else None


def warnings_about(study: Study, report: Window, fitted_until_s: int) -> list[str]:
    """Reasons why a comparison on that window is weaker than it looks, a sentence each."""
    warnings = []
    if fitted_until_s > report.from_s:
        until = instants.text(fitted_until_s)
        warnings.append(f"a policy was fitted on outcomes up to {until}, inside the window {report}")
    if report.until_s > study.usable.until_s or report.from_s < study.usable.from_s:
        warnings.append(f"starts outside {study.usable} meet a cold cluster or run out of arrivals")
    if is_development(study, report):
        warnings.append(
            f"{report} begins in the cluster's declared fit and select windows: a development window, not a headline"
        )
    if study.scenario.world == RECORDED_WAIT:
        count = pairs_left_out(study.data, study.workload, study.scenario, report)
        if count:
            pairs = "pair is" if count == 1 else "pairs are"
            warnings.append(
                f"{count} {pairs} left out because too few jobs like the successor ran around one of the decisions"
            )
    return warnings


def compare_on(study: Study, trained: Sequence[TrainedPolicy], report: Window, select: Window | None) -> Comparison:
    """Compare the policies on the pairs of the report window, with settings picked on those of the select window.

    In the select window only pairs count whose outcome was known at its end.
    """
    from models.provisioning.comparison.compare import compare

    study = _seen_by(study, trained)
    pairs = None if select is None else study.pairs(select).known_before(select.until_s)
    return compare(study.pairs(report), trained, context=study.context(report.from_s), select=pairs)


def hidden_rows(
    study: Study, trained: Sequence[TrainedPolicy], report: Window, select: Window | None, hidden: Sequence[str]
) -> list[dict[str, Any]]:
    """The cost of hiding groups of features from those policies, on the pairs of `compare_on`."""
    from models.provisioning.comparison.masked import cost_of_hiding

    study = _seen_by(study, trained)
    pairs = None if select is None else study.pairs(select).known_before(select.until_s)
    return cost_of_hiding(study.pairs(report), trained, hidden, kind=study.scenario.pairs, select=pairs)


def promise_rows(
    study: Study, trained: Sequence[TrainedPolicy], report: Window, select: Window | None
) -> list[dict[str, Any]]:
    """How those policies keep the promise of each risk on the report window; settings use outcomes known by then."""
    from models.provisioning.comparison.promises import promises

    study = _seen_by(study, trained)
    return promises(study.pairs(report), trained, earlier=None if select is None else study.pairs(select))


def _seen_by(study: Study, trained: Sequence[TrainedPolicy]) -> Study:
    """The study, with futures if any of those policies looks ahead, under whatever name it appears."""
    return study.seeing(str(one.artifact.manifest["policy"]) for one in trained)


def remember_comparison(
    study: Study,
    trained: Sequence[TrainedPolicy],
    compared: Comparison,
    report: Window,
    select: Window | None,
    pictures: Mapping[str, bytes] | None = None,
) -> None:
    """Add the policies' figures to their runs in MLflow, and the comparison as a table with those pictures."""
    from models.tables import results_frame
    from models.tracking.training_runs import add_comparison, dataset

    context = study.context(report.from_s)
    measured_on = [dataset(context, study.pairs(report), "report")]
    if select is not None and len(known := study.pairs(select).known_before(select.until_s)):
        measured_on.insert(0, dataset(context, known, "select"))
    add_comparison(
        study.data,
        compared,
        trained,
        measured_on,
        results_frame(compared.results, world_error(study, report)),
        pictures or {},
    )


def comparison_fingerprint(study: Study, policies: Sequence[str]) -> str:
    """Digest of the fits and the windows of the cluster's present comparison."""
    windows = study.windows
    fits = [fit_fingerprint(study, name, windows.fit, study.seeds) for name in policies]
    pairs = [pair_fingerprint(study.data, study.scenario, window) for window in (windows.select, windows.report)]
    return digest(fits, pairs, code_digest(*COMPARED_BY, but=(registry.__name__,)))
