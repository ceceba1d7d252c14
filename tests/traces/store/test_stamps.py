"""What a killed process leaves of a stamp is removed by the next one that writes a stamp."""

from __future__ import annotations

from pathlib import Path

from traces.files.presence import at_work
from traces.store.folder import DataFolder
from traces.store.stamps import read_stamp, stamp_path, write_stamp


def test_a_temporary_file_of_a_killed_process_is_removed_unless_another_process_writes(tmp_path: Path) -> None:
    data = DataFolder(tmp_path)
    write_stamp(data, "first", "lab", "digest", {"rows": 1})
    folder = stamp_path(data, "first", "lab").parent
    left = folder / ".first.json.123.part"
    left.write_text("{")
    with at_work(folder):
        write_stamp(data, "second", "lab", "digest", {})
        assert left.exists(), "it may be of the process that works there"
    write_stamp(data, "third", "lab", "digest", {})
    assert not left.exists()
    assert read_stamp(data, "first", "lab", "digest") == {"rows": 1} and read_stamp(data, "third", "lab") == {}
