"""`deployment.toml`: what it may say, and the one line that refuses the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from models.deployment import FILE, VARIABLE, DagsterOptions, Deployment, read_deployment
from models.engine.engines import engine_of
from models.engine.local import each_here
from traces.cache.closure import ROOT
from traces.errors import InputError

SLURM = '[engine]\nkind = "slurm"\nscratch = "/shared/baton"\n'
RAY = '[engine]\nkind = "ray"\n'
REFUSED = [
    ("[engine", "Expected ']' at the end of a table declaration"),
    ("[lke]\n", "unknown key lke: known are engine, tracking, locks, lake, dagster"),
    ("tracking = 3\n", "tracking = 3 is not a table"),
    ("[tracking]\nurl = ''\n", "unknown key tracking.url: known are uri"),
    ("[dagster]\nhome = 3\n", "dagster.home = 3 is not text"),
    ("[dagster]\nat_once = '2'\n", "dagster.at_once = '2' is not a whole number"),
    ("[dagster]\nat_once = 0\n", "dagster.at_once and dagster.steps_at_once must be 1 to 250"),
    ("[dagster]\nat_once = 251\n", "dagster.at_once and dagster.steps_at_once must be 1 to 250"),
    ("[dagster]\nsteps_at_once = 0\n", "dagster.at_once and dagster.steps_at_once must be 1 to 250"),
    ("[dagster]\nsteps_at_once = 251\n", "dagster.at_once and dagster.steps_at_once must be 1 to 250"),
    ("[dagster]\nhome = '/x'\nat_once = 2\n", "dagster.at_once does not go with dagster.home: set concurrency.runs"),
    ("[tracking]\nuri = 'https://me:hunter-2@host'\n", "tracking.uri holds a password: set MLFLOW_TRACKING_PASSWORD"),
    ("[locks]\npostgres = 'postgresql://h/d?password=hunter-2'\n", "locks.postgres holds a password"),
    ("[tracking]\nuri = 'http://[host'\n", "tracking.uri is not an address"),
    ("[lake]\nbucket = 'b'\n", "unknown key lake.bucket: known are url, endpoint, region, keep"),
    ("[lake]\nurl = 3\n", "lake.url is not text"),
    ("[lake]\nurl = 's3://me:hunter-2@bucket/x'\n", "lake.url holds a login: set AWS_ACCESS_KEY_ID"),
    ("[lake]\nurl = 's3:/bucket'\n", "lake.url 's3:/bucket': write s3://BUCKET/PREFIX or file:///FOLDER"),
    ("[lake]\nurl = 's3://bucket/../x'\n", "lake.url 's3://bucket/../x': write s3://"),
    ("[lake]\nurl = 'file://shared'\n", "lake.url 'file://shared': write s3://"),
    ("[lake]\nendpoint = 'https://me:hunter-2@host'\n", "lake.endpoint holds a login"),
    ("[lake]\nendpoint = 'host:1'\n", "lake.endpoint 'host:1': write http://HOST:PORT"),
    ("[lake]\nendpoint = 'http://host:99999'\n", "lake.endpoint 'http://host:99999': write http://HOST:PORT"),
    ("[lake]\nkeep = '5m'\n", "lake.keep '5m': write days as in '30d', 1d to 3,650d"),
    ("[lake]\nkeep = '4000d'\n", "lake.keep '4000d': write days"),
    ("engine = 3\n", "engine = 3 is not a table"),
    ('[engine]\nkind = "dask"\n', "engine.kind 'dask' is unknown: known are local, slurm, ray"),
    (RAY + 'address = "head"\n', "engine.address 'head' is not understood: write 'host:6379' or 'auto'"),
    (RAY + 'address = "head:65536"\n', "engine.address 'head:65536' is not understood"),
    (RAY + 'address = "ray://head:10001"\n', "engine.address 'ray://head:10001' is not understood"),
    (RAY + 'address = "-e:1"\n', "engine.address '-e:1' is not understood"),
    (RAY + 'time = "1h"\n', "engine.time is not an option of kind 'ray'"),
    (RAY + 'scratch = "here"\n', "engine.scratch 'here': name a folder that all nodes see"),
    ('[engine]\npartiton = "cpu"\n', "unknown key engine.partiton: known are kind, scratch, partition"),
    ("[engine]\npartition = 3\n", "engine.partition = 3 is not text"),
    ("[engine]\ncpus = true\n", "engine.cpus = True is not a whole number"),
    ('[engine]\nsetup = "module load python"\n', "engine.setup = 'module load python' is not a list of texts"),
    ("[engine]\nsetup = [3]\n", "engine.setup = (3,) is not a list of texts"),
    (
        '[engine]\naccount = "a\\n#SBATCH -p all"\n',
        "#SBATCH -p all' contains a control character",
    ),
    ('[engine]\nkind = "slurm"\n', "engine.scratch '': name a folder that all nodes see"),
    (SLURM + 'memory = "4 GB"\n', "engine.memory '4 GB' is not understood: write it as in '4G'"),
    (SLURM + 'time = "0h"\n', "engine.time '0h' is not understood: write it as in '2h'"),
    (SLURM + "cpus = 0\n", "engine.cpus must be 1 or more"),
    (SLURM + "at_once = 251\n", "engine.at_once 1 to 250"),
]


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


@pytest.mark.parametrize(("text", "line"), REFUSED)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(InputError) as refusal:
        read_deployment(tmp_path)
    assert line in str(refusal.value) and str(refusal.value).startswith(f"{tmp_path / FILE}: ")
    assert "\n" not in str(refusal.value) and "hunter-2" not in str(refusal.value)


@pytest.mark.parametrize("options", [DagsterOptions("", 250, 250), DagsterOptions("/x", steps_at_once=2)])
def test_dagster_has_as_many_runs_and_steps_at_once_as_declared(tmp_path: Path, options: DagsterOptions) -> None:
    given = f"at_once = {options.at_once}" if not options.home else f"home = '{options.home}'"
    (tmp_path / FILE).write_text(f"[dagster]\n{given}\nsteps_at_once = {options.steps_at_once}\n")
    assert read_deployment(tmp_path).dagster == options


def test_without_a_file_the_work_runs_here_and_nothing_of_slurm_is_imported(tmp_path: Path) -> None:
    assert read_deployment(tmp_path) == Deployment(tmp_path / FILE) and engine_of(tmp_path) is each_here
    code = (
        f"import sys, pathlib; from models.engine.engines import engine_of; engine_of(pathlib.Path({str(tmp_path)!r}))"
    )
    modules = ["submitit", "ray", *(f"models.engine.{name}" for name in ("ray", "slurm", "scratch"))]
    look = f"; assert not set({modules}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code + look], cwd=ROOT, check=True)


def test_the_variable_names_another_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other.toml"
    monkeypatch.setenv(VARIABLE, str(other))
    with pytest.raises(InputError, match=r"other\.toml: no such file; it is named by --deployment or BATON_DEPLOYMENT"):
        read_deployment(tmp_path)
    other.write_text(SLURM + 'partition = "cpu"\nmemory = "3G"\ntime = "2h"\nsetup = ["module load python"]\n')
    options = read_deployment(tmp_path).engine
    assert options.setup == ("module load python",)
    assert options.slurm_parameters(memory=2) == {"partition": "cpu", "time": 120, "mem": "6G", "cpus_per_task": 1}


def test_the_option_of_the_command_line_names_it_and_a_mistake_ends_the_command(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[engine]\nkind = 'dask'\n")
    command = [sys.executable, "-m", "pipelines.entry", "--deployment", str(wrong), "--data", str(tmp_path), "doctor"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert done.stderr == f"baton: {wrong}: engine.kind 'dask' is unknown: known are local, slurm, ray\n"
