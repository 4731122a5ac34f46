"""`bolt-build package`: what lies in the archive, and that a stranger's build finds and runs it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from recipe_projects import PATIENCE_SECONDS, Project, new_project

from bolt_build.errors import ExitCode


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory, cache_home: Path) -> Project:
    """Built, packed, and unpacked into `use/`."""
    project = new_project(tmp_path_factory.mktemp("package") / "p", cache_home)
    project.build()
    said = project.bolt("package", "tiny.yaml").split()
    assert said[2::3] == ["tiny-host.tar.gz", "tiny-host-debug.tar.gz"]
    with tarfile.open(project.path / "tiny-host.tar.gz") as archive:
        archive.extractall(project.path / "use", filter="data")
    return project


def command(*words: str, cwd: Path) -> str:
    plain = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        words, cwd=cwd, env=plain, capture_output=True, text=True, check=False, timeout=PATIENCE_SECONDS
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_example_finds_the_package_and_runs(packed: Project, tmp_path: Path) -> None:
    """By CMake and by pkg-config, each where it is installed, from a place that is not where it was packed."""
    root = packed.path / "use" / "tiny-host"
    example = shutil.copytree(root / "example", tmp_path / "example")
    said = []
    if shutil.which("cmake"):
        command("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={root}", cwd=example)
        command("cmake", "--build", "build", cwd=example)
        said.append(command("build/example", cwd=example))
    if shutil.which("pkg-config"):
        found = ("pkg-config", f"--with-path={root}/lib/pkgconfig")
        flags = command(*found, "--cflags", "--libs", "tiny", cwd=example).split()
        weights = command(*found, "--variable=weights", "tiny", cwd=example).strip()
        command("g++", "-Wall", "-Werror", "main.cpp", f'-DWEIGHTS="{weights}"', *flags, "-o", "example", cwd=example)
        said.append(command("./example", cwd=example))
    if not said:
        pytest.skip("neither CMake nor pkg-config is installed")
    for text in said:
        first, second = text.splitlines()
        assert first == "tiny for host, batch 1"
        assert second.startswith("y: 20 bytes ")
        assert len(second.split()) == 3 + 4


def test_what_lies_in_it(packed: Project) -> None:
    """Every file with its digest; a library that is smaller, and names its debug information."""
    root = packed.path / "use" / "tiny-host"
    sums = dict(reversed(line.split("  ")) for line in (root / "SHA256SUMS").read_text().splitlines())
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    assert files == sums.keys() | {"SHA256SUMS"}
    assert all(hashlib.sha256((root / name).read_bytes()).hexdigest() == digest for name, digest in sums.items())
    assert {"licences/bolt-build-LICENSE", "licences/onednn-cpu-gomp-LICENSE.txt", "share/tiny/manifest.json"} <= files
    assert "bolt-build: bolt-build-LICENSE\n" in (root / "licences" / "README").read_text()
    library = root / "lib" / "libtiny.so"
    assert library.stat().st_size < (packed.host / "libtiny.so").stat().st_size / 4
    assert b"libtiny.so.debug" in library.read_bytes()


def test_equal_builds_make_equal_archives(packed: Project) -> None:
    (packed.path / "again").mkdir()
    for path in packed.host.iterdir():
        os.utime(path, (0, 0))
    packed.bolt("package", "tiny.yaml", "--out", "again")
    for name in ("tiny-host.tar.gz", "tiny-host-debug.tar.gz"):
        assert (packed.path / "again" / name).read_bytes() == (packed.path / name).read_bytes()


def test_what_is_not_packed(packed: Project, tmp_path: Path) -> None:
    other = new_project(tmp_path / "p", packed.cache)
    assert "error[not-built]: generated/tiny/host was not built yet" in other.bolt(
        "package", "tiny.yaml", code=ExitCode.INVALID
    )
    assert other.bolt("package", "tiny.yaml", "--out", "gone", code=ExitCode.USAGE) == (
        "gone: error[no-place]: there is no such directory\n  hint: make it with: mkdir -p gone\n"
    )
    report = packed.host / "verify.json"
    text = report.read_text()
    try:
        report.write_text(json.dumps(json.loads(text) | {"ok": False}))
        said = packed.bolt("package", "tiny.yaml", code=ExitCode.VERIFY_FAILED)
    finally:
        report.write_text(text)
    assert said == (
        "error[not-verified]: generated/tiny/host departs from the reference\n"
        "  hint: see what departs with: bolt-build verify\n"
    )
