"""A raw file as bytes and numbered lines: however it is packed and cut into pieces, the lines are the same."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.errors import InputError
from traces.readers import raw_text

LINES = st.lists(st.text(st.sampled_from("a;é \t\r"), max_size=5), max_size=12)


def zstd(data: bytes) -> bytes:
    return bytes(pa.compress(data, "zstd", asbytes=True))


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans(), st.integers(1, 40))
def test_lines_keep_their_numbers_whatever_the_pieces_are(
    lines: list[str], ending: str, is_ended: bool, size: int
) -> None:
    text = ending.join(lines) + (ending if is_ended and lines else "")
    frames = raw_text.numbered_lines(io.BytesIO(text.encode()), 1, Path("x"), size)
    found = [row for frame in frames for row in frame.iter_rows()]
    whole = text if text.endswith("\n") else f"{text}\n"  # the last line is ended too
    plain = whole.replace("\r\n", "\n").split("\n")
    assert found == [(number, line) for number, line in enumerate(plain, 1) if line.strip()]


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": zstd,
    "two frames": lambda data: zstd(data[:5]) + zstd(data[5:]),
    "a frame to be skipped": lambda data: b"P*M\x18\0\0\0\0" + zstd(data),
}


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_packed_or_not_the_bytes_are_the_same(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    data = b"one line\nand another\n" * 50_000
    (tmp_path / "file").write_bytes(pack(data))
    with raw_text.unpacked(tmp_path / "file") as stream:
        assert stream.read(3) + stream.read() == data


@pytest.mark.parametrize("pack", [gzip.compress, zstd])
def test_a_file_that_was_cut_raises_what_readers_expect(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "file").write_bytes(pack(bytes(range(256)) * 100)[:-9])
    with pytest.raises(raw_text.UNREADABLE), raw_text.unpacked(tmp_path / "file") as stream:
        stream.read()


def test_a_line_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_text, "LONGEST_LINE", 1 << 20)
    with pytest.raises(InputError, match="over 1 MiB without a line break"):
        list(raw_text.numbered_lines(io.BytesIO(b"a" * (3 << 20)), 1, Path("x"), 1 << 18))
