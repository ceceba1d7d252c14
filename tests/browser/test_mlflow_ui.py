"""The MLflow UI in a real browser: fits sorted by cost, a training's table, and the page of a version.

BATON_SCREENSHOTS=DIR keeps pictures of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from models.provisioning.comparison.compare import compare
from models.provisioning.protocol import TrainedPolicy
from models.provisioning.training.train import train
from models.release.policies.candidate import choose_candidate
from models.release.policies.gate import GateVerdict
from models.release.policies.note import release_note
from models.tables import results_frame
from models.tracking import registered, runs
from models.tracking import versions as tracking
from models.tracking.store import store_uri
from models.tracking.training_runs import MlflowTracker, add_comparison, dataset
from tests.browser.conftest import Show, served
from tests.models.pair_tables import FIRST_S, context, random_pairs
from traces.store.folder import DataFolder

pytestmark = [pytest.mark.browser, pytest.mark.slow]
WHERE = context(FIRST_S + 90 * 86_400)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataFolder:
    return DataFolder(tmp_path_factory.mktemp("mlflow") / "data")


@pytest.fixture(scope="module")
def fits(data: DataFolder) -> list[TrainedPolicy]:
    """Rules fitted, compared and released, on generated pairs."""
    made = train(random_pairs(0, 20), ["reactive", "start-estimate"], context=WHERE, tracker=MlflowTracker(data))
    select, report = random_pairs(1, 120), random_pairs(2, 240)
    compared = compare(report, made, context=WHERE, select=select)
    measured_on = [dataset(WHERE, select, "select"), dataset(WHERE, report, "report")]
    add_comparison(data, compared, made, measured_on, results_frame(compared.results), {})
    best = choose_candidate(select, made)
    words = release_note(best, best.artifact, GateVerdict("passed", "not worse than reactive"))
    tracking.set_alias(
        data,
        "toy",
        registered.CHAMPION,
        tracking.register(data, "toy", best.artifact, tags={}, description=words, metrics={}),
    )
    return made


@pytest.fixture(scope="module")
def address(data: DataFolder, fits: list[TrainedPolicy]) -> Iterator[str]:
    """The server, as `make mlflow` starts it but with one worker."""
    command = ("mlflow", "server", "--app-name", "baton", "--host", "127.0.0.1", "--port", "{port}", "--workers", "1")
    environment = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1"}
    with served((*command, "--backend-store-uri", store_uri(data)), environment, "/health") as url:
        yield url


def path(url: str) -> str:
    return "/#" + url.partition("/#")[2]


def test_the_server_opens_at_the_fits_by_cost(show: Show, fits: list[TrainedPolicy]) -> None:
    names = [f"{one.name} seed {one.seed}" for one in fits]
    columns = [f"{window}_{figure}" for window in ("report", "select") for figure in ("cost_w1_h", "overlap_h")]
    text = show("/", *names, *columns, name="mlflow-landing")
    assert text.index("start-estimate seed 0") < text.index("reactive seed 0")
    assert "Ask questions about" not in text, "the assistant is closed"


def test_no_page_speaks_of_telemetry(show: Show) -> None:
    text = show("/#/", "Welcome to MLflow", "Recent Experiments", name="mlflow-home")
    assert "telemetry" not in text.lower() and "usage data" not in text
    settings = show("/#/settings/general", "Enable telemetry", "Demo data", name="mlflow-settings")
    assert settings.split("Enable telemetry")[1].split("Demo data")[0].strip().endswith("Off")


def test_fits_are_sorted_by_cost(show: Show, data: DataFolder, fits: list[TrainedPolicy]) -> None:
    names = [f"{one.name} seed {one.seed}" for one in fits]
    text = show(path(runs.by_cost_url(data)), *names, "report_cost_w1_h", "select_overlap_h", name="mlflow-by-cost")
    assert text.index("start-estimate seed 0") < text.index("reactive seed 0")
    assert "train toy until" not in text  # a parent is not a fit


def test_a_training_shows_its_comparison(show: Show, data: DataFolder, fits: list[TrainedPolicy]) -> None:
    parent = runs.parent_run(data, fits[0].run_id)
    link = runs.training_url(data, [fits[0].run_id])
    assert link is not None and parent is not None and parent in link
    show(path(link), "train toy until 2023-04-01", "Child runs", "reactive seed 0", name="mlflow-training")
    artifacts = path(link).replace("?", "/artifacts/comparison.csv?")
    show(artifacts, "comparison.csv", "interruption_h", "oracle", name="mlflow-comparison")


def test_a_version_says_what_it_is(show: Show, data: DataFolder) -> None:
    words = ("start-estimate: submits when", "Trained on", "Cost", "Gate", "not worse than reactive", "champion")
    show(path(tracking.version_url(data, "toy", 1)), *words, name="mlflow-version")
