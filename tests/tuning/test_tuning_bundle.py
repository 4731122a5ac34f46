"""Bundles: what a tar file holds, that equal contents give equal bytes, and what is said of one that cannot be used."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tune_sets import FIRST, SECOND, bundle

from bolt_build.digest import digest
from bolt_build.errors import BoltError
from bolt_build.report.diagnostics import render
from bolt_build.tuning.exchange.bundle import (
    LARGEST_DESCRIPTION,
    bundle_text,
    read_bundle,
    write_bundle,
)


def linked(directory: Path) -> Path:
    """A directory with what a link would have made."""
    directory.mkdir(parents=True)
    (directory / "run").write_bytes(b"the driver")
    (directory / "candidates.so").write_bytes(b"kernels" * 1000)
    return directory


def complaint(path: Path) -> str:
    with pytest.raises(BoltError) as caught:
        read_bundle(path)
    return render(caught.value.diagnostics, color=False).replace(str(path), "B")


def test_a_bundle_holds_what_the_other_machine_needs(tmp_path: Path) -> None:
    directory = linked(tmp_path / "tuning")
    write_bundle(tmp_path / "b.tar", bundle(), directory)
    with tarfile.open(tmp_path / "b.tar") as archive:
        members = {member.name: member for member in archive.getmembers()}
        archive.extractall(tmp_path / "there", filter="data")
    assert list(members) == ["README", "bundle.json", "candidates.so", "run"]
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members.values()} == {(0, 0, "", "", 0)}
    assert os.access(tmp_path / "there" / "run", os.X_OK)
    assert (tmp_path / "there" / "candidates.so").read_bytes() == b"kernels" * 1000
    assert read_bundle(tmp_path / "there" / "bundle.json") == read_bundle(tmp_path / "b.tar") == bundle()


def test_the_readme_says_what_to_do(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.tar", bundle(), linked(tmp_path / "tuning"))
    with tarfile.open(tmp_path / "b.tar") as archive:
        stream = archive.extractfile("README")
        assert stream is not None
        text = stream.read().decode()
    assert text == (
        "Kernels of net for a100, to be measured on that GPU: 2 problems, 5 candidates.\n"
        "\n"
        "    ./run                    measures on every GPU of this machine and writes results.jsonl\n"
        "    ./run --help             its options\n"
        "\n"
        "It needs the NVIDIA driver and nothing else. Then, where the bundle was made:\n"
        "\n"
        "    bolt-build tune RECIPE --target a100 --import results.jsonl\n"
        "\n"
        "Anywhere else keep bundle.json beside results.jsonl: it says what was measured.\n"
        f"Bundle {bundle().id}\n"
    )


def test_engines_to_play_are_beside_the_candidates(tmp_path: Path) -> None:
    write_bundle(tmp_path / "b.tar", bundle(), linked(tmp_path / "tuning"), "bolt-engines\t1\n")
    with tarfile.open(tmp_path / "b.tar") as archive:
        names = archive.getnames()
        assert names == ["README", "bundle.json", "candidates.so", "engines.tsv", "run"]
        assert _text(archive, "engines.tsv") == "bolt-engines\t1\n"
        told = _text(archive, "README").split("its options\n", 1)[1].partition("Then, where")[0]
        assert told == (
            "\n"
            "When every candidate was measured by itself it plays whole engines, with the fastest candidates and with\n"
            "others in their place. Their steps are those of engines.tsv: where the measurements lead to other steps,\n"
            "what was found of an engine is left out.\n"
            "\n"
            "It needs the NVIDIA driver and nothing else. "
        )


def _text(archive: tarfile.TarFile, name: str) -> str:
    stream = archive.extractfile(name)
    assert stream is not None
    return stream.read().decode()


def test_equal_contents_give_equal_bytes_wherever_and_whenever(tmp_path: Path) -> None:
    one, other = linked(tmp_path / "one"), linked(tmp_path / "deeper" / "other")
    os.utime(other / "run", (time.time() - 1e6,) * 2)
    write_bundle(tmp_path / "1.tar", bundle(), one)
    write_bundle(tmp_path / "2.tar", bundle(), other)
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()


def test_the_id_changes_with_everything_that_is_measured() -> None:
    one = bundle()
    others = [
        bundle(FIRST), bundle(SECOND, FIRST), bundle(recipe="other"), replace(one, not_compiled=()),
        replace(one, sources=(("run", "1" * 64),)), replace(one, tools=replace(one.tools, cuda="12.9")),
    ]  # fmt: skip
    assert len({one.id, *(other.id for other in others)}) == 1 + len(others)
    assert read_bundle_id_of(one) == one.id


def read_bundle_id_of(made) -> str:  # type: ignore[no-untyped-def]
    return str(json.loads(bundle_text(made))["id"])


def test_an_old_tar_file_stays_where_a_new_one_cannot_be_written(tmp_path: Path) -> None:
    directory = linked(tmp_path / "tuning")
    path = tmp_path / "b.tar"
    write_bundle(path, bundle(), directory)
    before = path.read_bytes()
    (directory / "run").unlink()
    with pytest.raises(FileNotFoundError):
        write_bundle(path, bundle(FIRST), directory)
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b.tar", "tuning"]


def test_a_bundle_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    path.write_text(bundle_text(bundle()).replace('"version": 1', '"version": 2', 1))
    assert complaint(path) == (
        "error[bundle-version]: B is a bundle of version 2; this bolt-build reads version 1\n"
        "  hint: make it again: bolt-build tune RECIPE --export BUNDLE.tar\n"
    )


def test_a_bundle_whose_contents_were_changed(tmp_path: Path) -> None:
    path = tmp_path / "bundle.json"
    path.write_text(bundle_text(bundle()).replace("batch 1: conv128", "batch 1: conv127"))
    assert complaint(path) == (
        "error[bundle-damaged]: the bundle B is damaged: its contents are not those that its id stands for\n"
        "  hint: copy it again, or make it again: bolt-build tune RECIPE --export BUNDLE.tar\n"
    )


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.99])
def test_a_truncated_description(tmp_path: Path, share: float) -> None:
    path = tmp_path / "bundle.json"
    text = bundle_text(bundle())
    path.write_text(text[: int(len(text) * share)])
    assert complaint(path) == (
        "error[bundle-damaged]: the bundle B is damaged: it is not JSON to its end\n"
        "  hint: copy it again, or make it again: bolt-build tune RECIPE --export BUNDLE.tar\n"
    )


def test_a_truncated_tar_file(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    write_bundle(path, bundle(), linked(tmp_path / "tuning"))
    path.write_bytes(path.read_bytes()[:2048])
    assert (
        complaint(path) == "error[bundle-unreadable]: cannot read the bundle B: there is no whole bundle.json in it\n"
    )


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_compressed_tar_file_whole_or_not(tmp_path: Path, share: float) -> None:
    """Nothing is unpacked to find out what it is."""
    path = tmp_path / "b.tar"
    write_bundle(path, bundle(), linked(tmp_path / "tuning"))
    data = gzip.compress(path.read_bytes())
    path.write_bytes(data[: int(len(data) * share)])
    assert complaint(path) == "error[bundle-unreadable]: cannot read the bundle B: this is a gzip archive\n"


def test_a_tar_file_that_is_no_bundle(tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    with tarfile.open(path, "w") as archive:
        archive.add(linked(tmp_path / "other") / "run", "run")
    assert (
        complaint(path) == "error[bundle-unreadable]: cannot read the bundle B: there is no whole bundle.json in it\n"
    )


def described(path: Path, member: tarfile.TarInfo, data: bytes = b"") -> Path:
    """A tar file whose description is this member."""
    with tarfile.open(path, "w") as archive:
        archive.addfile(member, io.BytesIO(data))
    return path


def test_a_tar_file_whose_description_is_no_file(tmp_path: Path) -> None:
    """A link to itself: to follow it would never end."""
    member = tarfile.TarInfo("bundle.json")
    member.type, member.linkname = tarfile.SYMTYPE, "bundle.json"
    assert complaint(described(tmp_path / "b.tar", member)) == (
        "error[bundle-unreadable]: cannot read the bundle B: there is no whole bundle.json in it\n"
    )


def test_a_tar_file_whose_description_is_too_large(tmp_path: Path) -> None:
    member = tarfile.TarInfo("bundle.json")
    member.size = LARGEST_DESCRIPTION + 1
    with (tmp_path / "b.tar").open("wb") as file:
        file.write(member.tobuf())
        file.truncate(2 * LARGEST_DESCRIPTION)
    assert complaint(tmp_path / "b.tar") == (
        "error[bundle-unreadable]: cannot read the bundle B: its bundle.json is larger than 64 MiB\n"
    )


def test_a_bundle_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "b.tar")
    assert complaint(tmp_path / "b.tar") == ("error[bundle-unreadable]: cannot read the bundle B: a pipe, not a file\n")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"version": NaN}'], ids=["nested", "no number"])
def test_a_description_that_is_no_json(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bundle.json"
    path.write_text(text)
    assert complaint(path) == (
        "error[bundle-damaged]: the bundle B is damaged: it is not JSON to its end\n"
        "  hint: copy it again, or make it again: bolt-build tune RECIPE --export BUNDLE.tar\n"
    )


def test_contents_of_which_the_id_is_right_and_the_types_are_not(tmp_path: Path) -> None:
    """Whoever changes a bundle can give it another id."""
    path = tmp_path / "bundle.json"
    data = json.loads(bundle_text(bundle()))
    data["bundle"]["problems"][0]["trials"][0]["predicted"] = 10**400
    path.write_text(json.dumps(data | {"id": digest(data["bundle"])}))
    assert complaint(path) == (
        "error[bundle-damaged]: the bundle B is damaged: its contents are no bundle (expected float, found an integer "
        "that no float can hold)\n"
        "  hint: copy it again, or make it again: bolt-build tune RECIPE --export BUNDLE.tar\n"
    )


def test_a_bundle_that_is_not_there(tmp_path: Path) -> None:
    assert complaint(tmp_path / "b.tar") == (
        "error[bundle-unreadable]: cannot read the bundle B: No such file or directory\n"
    )
