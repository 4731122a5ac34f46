"""Files that people name: what is no file, or too large, is a sentence, and nothing waits."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from bolt_build.digest import digest_bytes, digest_file
from bolt_build.user_files import UnfitFile, binary_kind, known_kind, open_regular, read_regular, size_text


@pytest.fixture
def odd(tmp_path: Path) -> dict[str, Path]:
    """Paths by what they lead to."""
    pipe, listening, link = tmp_path / "pipe", tmp_path / "socket", tmp_path / "link"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(listening))
    link.symlink_to(pipe)
    return {
        "a pipe": pipe, "a socket": listening, "a device": Path("/dev/zero"), "a link to a pipe": link,
        "a name with a null": tmp_path / "a\0b", "a name that is no text": tmp_path / "a\ud800",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("a pipe", "a pipe, not a file"),
        ("a socket", "a socket, not a file"),
        ("a device", "a device, not a file"),
        ("a link to a pipe", "a pipe, not a file"),
        ("a name with a null", "no file can have this name"),
        ("a name that is no text", "no file can have this name"),
    ],
)
def test_what_is_no_file_is_not_opened(odd: dict[str, Path], what: str, reason: str) -> None:
    for reading in (open_regular, digest_file, lambda path: read_regular(path, 10)):
        with pytest.raises(UnfitFile) as raised:
            reading(odd[what])
        assert str(raised.value) == reason


def test_a_directory_and_nothing(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "gone")


def test_contents_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_regular(path, 5) == b"12345"
    assert digest_file(path) == digest_bytes(b"12345")
    with pytest.raises(UnfitFile, match=r"^larger than 4 bytes$"):
        read_regular(path, 4)


def test_a_file_without_a_stated_size_is_read_up_to_the_limit() -> None:
    """Files of the kernel state a size of 0."""
    assert read_regular(Path("/proc/version"), 4096).startswith(b"Linux")
    with pytest.raises(UnfitFile, match=r"^larger than 4 bytes$"):
        read_regular(Path("/proc/version"), 4)


def test_a_limit_is_said_in_the_unit_that_divides_it() -> None:
    assert [size_text(count) for count in (0, 1000, 1024, 16 << 20, 3 << 30, 1 << 40)] == [
        "0 bytes", "1000 bytes", "1 KiB", "16 MiB", "3 GiB", "1 TiB",
    ]  # fmt: skip


def test_what_a_file_is_by_its_beginning() -> None:
    assert binary_kind(b"\x08\x0a\x12\x07pytorch") == "an ONNX model"
    assert binary_kind(b"\x08\x0a, a text that begins oddly") is None
    assert binary_kind(b"BOLTWGHT\1\0\0\0") == "a weights file"
    assert (binary_kind(b"<html>"), known_kind(b"<html>")) == (None, "markup text")
    assert (binary_kind(b"bolt: 1\n"), known_kind(b"bolt: 1\n")) == (None, None)


def test_an_interrupt_right_behind_the_opening_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was made of the descriptor is gone by then, and the descriptor with it."""
    (tmp_path / "a").touch()

    def interrupted(descriptor: int, mode: str) -> None:
        os.close(descriptor)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fdopen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        open_regular(tmp_path / "a")
