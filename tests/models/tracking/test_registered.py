"""The link `champion` in the folder of a cluster's released models names the version that agents follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.tracking.kinds import POLICY
from models.tracking.registered import CHAMPION, champion_version, check_champion, folder
from traces.errors import InputError
from traces.store.folder import DataFolder


def test_each_kind_of_model_has_its_folder(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    assert folder(data, "toy") == folder(data, "toy", POLICY) == tmp_path / "artifacts" / "toy"
    assert folder(data, "toy", "queue-time") == tmp_path / "artifacts" / "queue-time" / "toy"


def test_the_link_names_the_version(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    assert champion_version(data, "toy") is None
    with pytest.raises(InputError, match=r"cluster 'toy' has no champion in .*artifacts/toy; run `baton run` first"):
        check_champion(data, "toy")
    folder(data, "toy").mkdir(parents=True)
    (folder(data, "toy") / CHAMPION).symlink_to("7")
    assert champion_version(data, "toy") == check_champion(data, "toy") == 7
    assert champion_version(data, "toy", "queue-time") is None
    (folder(data, "toy") / CHAMPION).unlink()
    (folder(data, "toy") / CHAMPION).symlink_to("latest")
    assert champion_version(data, "toy") is None
