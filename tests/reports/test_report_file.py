"""The file as a whole: self-contained, safe with hostile text, small, written whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import duckdb
import polars as pl
import pytest

from reports.build import SECTIONS, build_report, section_data
from reports.source import Source
from tests.reports import warehouse
from tests.reports.packed import unpacked
from traces import schema
from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.store.folder import DataFolder
from traces.store.frames import conform

ALLOWED_TAGS = frozenset(
    [
        *("html", "head", "meta", "title", "style", "link", "body", "header", "main", "footer", "nav", "article"),
        *("section", "figure", "figcaption", "h1", "h2", "h3", "p", "a", "ul", "li", "div", "span", "strong", "code"),
        *("bdi", "table", "thead", "tbody", "tr", "th", "td", "button", "script"),
        *("details", "summary", "dl", "dt", "dd", "dfn", "label", "select", "ol", "b"),
        *("svg", "g", "path", "defs", "use", "text", "clippath", "rect", "polyline"),
    ]
)


class _Page(HTMLParser):
    """Tags with their attributes, the text, and how often each id occurs."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.fixture(scope="module")
def page(full_report: Path) -> _Page:
    return _Page(full_report.read_text(encoding="utf-8"))


def test_hostile_text_is_shown_and_never_markup(page: _Page) -> None:
    assert {tag for tag, _ in page.tags} <= ALLOWED_TAGS
    assert [attributes.get("type") for tag, attributes in page.tags if tag == "script"] == ["text/plain", None]
    for tag, attributes in page.tags:
        assert not [name for name in attributes if name.startswith("on")], tag
        target = attributes.get("href")
        assert target is None or target.startswith("#") or target == "data:,"
    words = "".join(page.words)
    for name in warehouse.HOSTILE[:-1]:
        assert name in words
    assert "\u202e" not in words and "abc\\u202etxt.exe\\x00" in words  # control characters become visible escapes


def test_nothing_outside_the_file_is_referred_to(full_report: Path, page: _Page) -> None:
    html = full_report.read_text(encoding="utf-8")
    assert not re.findall(r"https?://|//[a-z]+\.|@import|url\((?!#)", html)
    assert not [attributes for _, attributes in page.tags if "src" in attributes]
    assert len(html.encode()) < 3_000_000


def test_the_policy_names_the_digest_of_the_only_script(full_report: Path, page: _Page) -> None:
    html = full_report.read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none';") and f"script-src 'sha256-{digest}'" in policy


def test_ids_are_unique_and_every_reference_has_one(full_report: Path, page: _Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    used = re.findall(r'(?:href="|url\()#([^")]+)', full_report.read_text(encoding="utf-8"))
    assert used and set(used) <= set(ids)


def test_every_section_and_caption_is_there(full_data: DataFolder, page: _Page) -> None:
    sections = [a["class"] for tag, a in page.tags if tag == "section"]
    shown = [name for name in SECTIONS if name != "study"]  # Philly logs only
    assert sections == ["explore", "found", *shown]
    ending = re.compile(r"Trace gpu-lab \(\w{12}\), 2024-0[12]-01 to \S+, n = [\d,]+ [\w ]+, (no|\d+) seeds?\.$")
    for make in SECTIONS.values():
        section = make(Source(full_data, "gpu-lab"))
        for caption in [*(table.caption for table in section.tables), *(figure.caption for figure in section.figures)]:
            assert ending.search(caption), caption


def test_anonymised_holds_no_name(full_data: DataFolder, tmp_path: Path) -> None:
    out = build_report(full_data, out=tmp_path / "a.html", anonymise=True, key=b"k" * 32)
    words = "".join(_Page(out.read_text(encoding="utf-8")).words)
    with duckdb.connect(str(full_data.warehouse), read_only=True) as connection:
        names = connection.execute(
            "SELECT user_name FROM jobs UNION SELECT account FROM jobs UNION SELECT job_name FROM jobs"
        ).fetchall()
    assert len(names) > 40
    assert [name for (name,) in names if name in words and len(name) > 3] == []
    assert "user-" in words and "/home/" not in words
    again = build_report(full_data, out=tmp_path / "b.html", anonymise=True, key=b"k" * 32, section="waits")
    other = build_report(full_data, out=tmp_path / "c.html", anonymise=True, section="waits")
    whole, same_key, other_key = (
        set(re.findall(r"user-[0-9a-f]{10}", path.read_text())) for path in (out, again, other)
    )
    assert len(same_key) > 5 and same_key <= whole and not whole & other_key


def test_anonymised_json_holds_no_name(full_data: DataFolder) -> None:
    rows = section_data(full_data, "gpu-lab", "waits", anonymise=True)["tables"]["by_user_name"]
    assert all(re.fullmatch(r"user-[0-9a-f]{10}", row["value"]) for row in rows)


@pytest.mark.parametrize("cluster", warehouse.HOSTILE[:6])
def test_a_cluster_of_any_name_is_text(tmp_path: Path, cluster: str) -> None:
    """Also in the commands that the filters show, which are quoted for a shell."""
    jobs = pl.DataFrame([warehouse.job(cluster, 1, user_name=warehouse.HOSTILE[2], job_id="1; reboot")])
    attempts = warehouse.attempts_of(conform(schema.JOBS, jobs))
    tables = {"jobs": jobs, "attempts": attempts, "trace_files": pl.DataFrame([warehouse.trace_file(cluster, 1)])}
    data = warehouse.with_features(tmp_path, tables, ClusterSettings(cluster, nodes=2, gpus_per_node=4))
    html = build_report(data).read_text(encoding="utf-8")
    page = _Page(html)
    assert {tag for tag, _ in page.tags} <= ALLOWED_TAGS and cluster in "".join(page.words)
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    (packed,) = re.findall(r'<script type="text/plain">(.*?)</script>', html)
    (job,) = unpacked(packed)["longest"]
    assert shlex.split(job[7]) == ["baton", "explain", f"--cluster={cluster}", "1; reboot"]


def test_one_section_alone(full_data: DataFolder, tmp_path: Path) -> None:
    out = build_report(full_data, out=tmp_path / "w.html", section="waits")
    found = _Page(out.read_text(encoding="utf-8"))
    assert [a["class"] for tag, a in found.tags if tag == "section"] == ["waits"]


def test_unknown_names_list_the_known(full_data: DataFolder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown section 'wait'; known sections: summary, waits, start, waste"):
        build_report(full_data, section="wait")
    with pytest.raises(InputError, match=r"no cluster 'nope' in .*; known clusters: gpu-lab"):
        build_report(full_data, clusters=["nope"])
    with pytest.raises(InputError, match="no warehouse at"):
        build_report(DataFolder(tmp_path / "void"))


def test_nothing_half_written_where_the_place_is_a_folder(full_data: DataFolder, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(InputError, match="taken: is a folder; name a file in it"):
        build_report(full_data, out=tmp_path / "taken", section="read")
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
