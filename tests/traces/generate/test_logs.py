"""The bundled sample is what the generator makes, and the generator refuses nonsense."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from traces.clusters import ClusterSettings
from traces.errors import InputError
from traces.generate.logs import PHILLY_SAMPLE_SEED, SLURM_SAMPLE_SEED, generate_philly, generate_sample, generate_slurm
from traces.generated import LIST, is_generated
from traces.ingest import ingest
from traces.store import warehouse
from traces.store.folder import DataFolder

SAMPLE = Path(__file__).resolve().parents[3] / "data" / "sample"
MIB = 1024 * 1024


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.slow
def test_the_committed_sample_is_made_again_byte_for_byte(tmp_path: Path) -> None:
    made = generate_sample(tmp_path)
    assert {path.relative_to(tmp_path) for path in made} == {
        path.relative_to(SAMPLE)
        for path in SAMPLE.rglob("*")
        if path.is_file() and path.name not in ("README.md", LIST)
    }
    for path in (*made, *(tmp_path / folder / LIST for folder in ("slurm", "philly"))):
        assert path.read_bytes() == (SAMPLE / path.relative_to(tmp_path)).read_bytes(), path.name


def test_the_sample_stays_small_and_says_that_it_is_generated() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) <= 3 * MIB
    readme = (SAMPLE / "README.md").read_text()
    assert str(SLURM_SAMPLE_SEED) in readme and str(PHILLY_SAMPLE_SEED) in readme
    assert "baton generate --sample" in readme
    assert all("generated" in path.name for path in (SAMPLE / "slurm").iterdir())
    assert all(is_generated(path, sha256(path)) for path in SAMPLE.glob("*/*") if path.name != LIST)


def test_a_seed_decides_the_bytes(tmp_path: Path) -> None:
    def dump(folder: str, seed: int) -> bytes:
        path = generate_slurm(
            tmp_path / folder, jobs=None, weeks=1, nodes=16, gpus_per_node=4, seed=seed, steps=True, compress=True
        )
        return path.read_bytes()

    assert dump("a", 3) == dump("b", 3)
    assert dump("a", 3) != dump("c", 4)


@pytest.mark.parametrize("wrong", ["jobs", "weeks", "nodes", "gpus_per_node"])
def test_a_count_under_one_is_refused_by_name(tmp_path: Path, wrong: str) -> None:
    counts = {"jobs": 100, "weeks": 1, "nodes": 8, "gpus_per_node": 4, wrong: 0}
    with pytest.raises(InputError, match=f"{wrong} is 0"):
        generate_slurm(tmp_path, **counts, seed=1, steps=False, compress=False)
    assert not list(tmp_path.iterdir())


def test_philly_files_have_the_schema_names(tmp_path: Path) -> None:
    made = generate_philly(tmp_path, jobs=50, weeks=2, utilization_days=1, machines=3, seed=1, compress=False)
    assert {path.name for path in made} == {
        "cluster_job_log", "cluster_gpu_util", "cluster_cpu_util", "cluster_mem_util", "cluster_machine_list",
    }  # fmt: skip
    assert {path.name for path in tmp_path.iterdir()} == {LIST, *(path.name for path in made)}  # nothing half-written


def test_what_was_generated_is_known_by_its_bytes_and_not_by_its_cluster(tmp_path: Path) -> None:
    """A renamed copy is known where the list lies beside it; a copy of the sample everywhere; a record nowhere."""
    dump = generate_slurm(tmp_path, jobs=50, weeks=1, nodes=8, gpus_per_node=4, seed=5, steps=False, compress=False)
    renamed = Path(shutil.copy(dump, tmp_path / "jobs.txt"))
    away = tmp_path / "away"
    away.mkdir()
    sampled = Path(shutil.copy(SAMPLE / "philly" / "cluster_machine_list", away / "machines"))
    (away / "sample.txt").write_text(dump.read_text().replace("u0", "x0"))
    data = DataFolder(tmp_path / "data")
    given = [renamed, sampled, away / "sample.txt"]
    for path in given:
        ingest([path], cluster=ClusterSettings("sample"), data=data)
    warehouse.build(data)
    files = warehouse.read(data, "SELECT path, is_generated FROM trace_files")
    known = {Path(path).name: flag for path, flag in files.iter_rows()}
    assert known == {"jobs.txt": True, "machines": True, "sample.txt": False}


def test_a_list_keeps_what_it_names_and_one_that_cannot_be_read_is_none(tmp_path: Path) -> None:
    for seed in (1, 2):
        made = generate_slurm(
            tmp_path, jobs=20, weeks=1, nodes=8, gpus_per_node=4, seed=seed, steps=False, compress=False
        )
    assert [line.split("  ")[1] for line in (tmp_path / LIST).read_text().splitlines()] == [
        "sacct-generated-1.psv", "sacct-generated-2.psv",
    ]  # fmt: skip
    (tmp_path / LIST).write_bytes(b"\xff\xfe")
    assert not is_generated(tmp_path / "jobs.txt", sha256(made))
