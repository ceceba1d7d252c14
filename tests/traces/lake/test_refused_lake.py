"""What ends a command with one line: addresses, credentials, servers and buckets that do not work."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.seaweed import BUCKET, KEYS
from tests.traces.lake.conftest import Machine, Row, dump
from traces.errors import InputError, WorkError
from traces.lake import push as push_module
from traces.lake import shared as shared_module
from traces.lake.checks import lake_checks
from traces.lake.listing import Listing, change, listing
from traces.lake.options import LakeOptions
from traces.lake.shared import SharedLake
from traces.store.raw_files import lake_files

URL = f"s3://{BUCKET}/refused"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


def test_credentials_and_folders_are_checked_without_asking_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment"):
        SharedLake(LakeOptions(URL))
    with pytest.raises(InputError, match="there is no such folder; make it, or mount its file system"):
        SharedLake(LakeOptions(f"file://{tmp_path}/absent"))
    monkeypatch.setattr(shared_module, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"deltalake is not installed; install the extra: pip install '\.\[lake\]'"):
        SharedLake(LakeOptions(URL))


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"AWS_ACCESS_KEY_ID": "other"}, "the server refuses these credentials (AWS_ACCESS_KEY_ID)"),
        ({"AWS_SECRET_ACCESS_KEY": "other"}, "the server refuses these credentials (AWS_SECRET_ACCESS_KEY)"),
        ({"bucket": "none-such"}, "there is no such bucket"),
    ],
)
def test_wrong_credentials_and_buckets(
    s3: str, keys: None, wrong: dict[str, str], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = wrong.pop("bucket", BUCKET)
    for name, value in wrong.items():
        monkeypatch.setenv(name, value)
    lake = SharedLake(LakeOptions(f"s3://{bucket}/refused", s3))
    with pytest.raises(InputError) as refusal:
        listing(lake)
    assert str(refusal.value) == f"shared lake s3://{bucket}/refused: {line}"
    assert [check.mend != "" for check in lake_checks(lake)] == [True]


def test_an_unreachable_and_a_silent_server(keys: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "REQUEST_S", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(InputError, match="the server does not answer"):
            listing(SharedLake(LakeOptions(URL, f"http://127.0.0.1:{port}")))
        assert time.monotonic() - began < 3 * shared_module.RETRY_S
    with pytest.raises(InputError, match="the server does not answer"):
        listing(SharedLake(LakeOptions(URL, f"http://127.0.0.1:{port}")))


def test_a_bucket_that_vanishes_ends_the_push_and_the_local_lake_keeps_the_file(
    s3: str, keys: None, tmp_path: Path, sacct_row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("traces.lake.push.listing", lambda _: Listing(-1, {}))
    one = Machine(tmp_path / "data", SharedLake(LakeOptions("s3://none-such/refused", s3)))
    with pytest.raises(WorkError, match=r"s3://none-such/refused: (there is no such bucket|these credentials may not)"):
        one.ingest(dump(tmp_path / "a", sacct_row, 1))
    assert len(lake_files(one.data)) == 1


@pytest.mark.parametrize("options", ["folder"], indirect=True)
def test_a_lake_that_vanishes_between_sending_and_listing_is_not_made_anew(
    machine: Callable[[], Machine], shared: SharedLake, tmp_path: Path, sacct_row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, true = machine(), push_module._send
    one.ingest(dump(tmp_path / "a", sacct_row, 1))

    def vanishing(*arguments: Any) -> Any:
        sent = true(*arguments)
        shutil.rmtree(shared.folder / "files")
        return sent

    monkeypatch.setattr(push_module, "_send", vanishing)
    with pytest.raises(WorkError, match="its table `files` vanished; nothing was shared"):
        one.ingest(dump(tmp_path / "b", sacct_row, 2))
    assert len(lake_files(one.data)) == 2


@pytest.mark.parametrize("options", ["folder"], indirect=True)
def test_a_row_that_is_a_path_out_of_the_local_lake_is_refused(
    machine: Callable[[], Machine], shared: SharedLake, tmp_path: Path, sacct_row: Row
) -> None:
    machine().ingest(dump(tmp_path / "a", sacct_row, 1))
    change(
        shared,
        lambda files: {key: file._replace(part=file.part._replace(cluster="../x")) for key, file in files.items()},
        is_new=False,
    )
    with pytest.raises(WorkError, match=r"its table `files` has an invalid row: '\.\./x/"):
        machine().pull()


def test_doctor_writes_reads_and_commits(shared: SharedLake) -> None:
    found = list(lake_checks(shared))
    assert [check.name for check in found] == ["lake", "lake file", "lake clock", "lake commit"], found
    assert not any(check.mend for check in found) and not list(shared.folder.rglob("*.parquet"))
    assert KEYS["AWS_SECRET_ACCESS_KEY"] not in repr(found)
