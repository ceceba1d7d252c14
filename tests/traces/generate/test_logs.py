"""The bundled sample is what the generator makes, and the generator refuses nonsense."""

from __future__ import annotations

from pathlib import Path

import pytest

from traces.errors import InputError
from traces.generate.logs import PHILLY_SAMPLE_SEED, SLURM_SAMPLE_SEED, generate_philly, generate_sample, generate_slurm

SAMPLE = Path(__file__).resolve().parents[3] / "data" / "sample"
MIB = 1024 * 1024


@pytest.mark.slow
def test_the_committed_sample_is_made_again_byte_for_byte(tmp_path: Path) -> None:
    made = generate_sample(tmp_path)
    assert {path.relative_to(tmp_path) for path in made} == {
        path.relative_to(SAMPLE) for path in SAMPLE.rglob("*") if path.is_file() and path.name != "README.md"
    }
    for path in made:
        assert path.read_bytes() == (SAMPLE / path.relative_to(tmp_path)).read_bytes(), path.name


def test_the_sample_stays_small_and_says_that_it_is_generated() -> None:
    assert sum(path.stat().st_size for path in SAMPLE.rglob("*") if path.is_file()) <= 3 * MIB
    readme = (SAMPLE / "README.md").read_text()
    assert str(SLURM_SAMPLE_SEED) in readme and str(PHILLY_SAMPLE_SEED) in readme
    assert "baton generate --sample" in readme
    assert all("generated" in path.name for path in (SAMPLE / "slurm").iterdir())


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
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in made}  # nothing half-written
