"""Images of engines pushed and signed by programs of others, and what is said where these are not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.workflows.image import EngineImage
from bolt_build.workflows.oci_layout import Layout
from bolt_build.workflows.publishing import check_programs, checked_repository, push, sign


@pytest.fixture
def image(tmp_path: Path) -> EngineImage:
    layout = Layout()
    found = layout.image({"weights": {"a": b"1"}, "rest": {"b/c": b"2"}}, {"os": "linux"}, {}, "1.2.0")
    layout.write(tmp_path / "Net-host.oci")
    folder = tmp_path / "Net-host.oci"
    return EngineImage(folder, tmp_path / "b", tmp_path / "p", str(found["digest"]), "1.2.0")


@pytest.fixture
def oras(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in its place, which writes down what it is asked; `refusal` beside it makes it fail with that."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "oras"
    program.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/asked\n'
        f"[ ! -f {folder}/refusal ] || {{ cat {folder}/refusal >&2; exit 1; }}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def complaint(code: ExitCode, call: object) -> str:
    with pytest.raises(BoltError) as raised:
        call()  # type: ignore[operator]
    assert raised.value.exit_code is code
    return render(raised.value.diagnostics, color=False)


def test_an_image_goes_to_its_own_name_with_all_that_refers_to_it(image: EngineImage, oras: Path) -> None:
    check_programs(push=True, key=None)
    assert push(image, "registry.example:5000/engines") == "registry.example:5000/engines/net-host:1.2.0"
    assert (oras / "asked").read_text().splitlines() == [
        "cp", "--recursive", "--from-oci-layout", f"{image.layout}:1.2.0",
        "registry.example:5000/engines/net-host:1.2.0",
    ]  # fmt: skip


def test_what_the_registry_refuses_is_said(image: EngineImage, oras: Path) -> None:
    (oras / "refusal").write_text("Error: unauthorized\nmore\n")
    assert complaint(ExitCode.TASK_FAILED, lambda: push(image, "registry.example/engines")) == (
        "error[not-pushed]: registry.example/engines/net-host:1.2.0 was not pushed: Error: unauthorized\n"
        "  hint: oras login registry.example, if it asks who you are\n"
    )


@pytest.mark.parametrize("text", ["", "engines", "registry.example/", "registry.example/a:tag", "-r/x", "a/B", "a/b c"])
def test_what_is_no_place_in_a_registry(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no place in a registry, such as registry\.example/engines"):
        checked_repository(text)


def test_programs_that_are_missing_are_named_before_anything_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert complaint(ExitCode.TOOL_MISSING, lambda: check_programs(push=True, key=None)) == (
        "error[missing-tool]: --push needs oras, which is not installed\n"
        "  hint: go install oras.land/oras/cmd/oras@latest, or unpack a release of oras 1.2 or newer\n"
    )
    monkeypatch.setitem(sys.modules, "model_signing", None)
    assert complaint(ExitCode.TOOL_MISSING, lambda: check_programs(push=False, key=tmp_path / "key.pem")) == (
        "error[missing-library]: --sign needs model-signing, which is not installed\n"
        "  hint: python -m pip install model-signing pyopenssl\n"
    )


@pytest.mark.filterwarnings("default")
def test_a_signature_is_that_of_every_file(image: EngineImage, tmp_path: Path) -> None:
    """By the library's own verifier: it fails once a file is another one."""
    verifying = pytest.importorskip("model_signing.verifying", reason="pip install model-signing", exc_type=ImportError)
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    make = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(key)]
    try:
        subprocess.run(make, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    subprocess.run(["openssl", "ec", "-in", key, "-pubout", "-out", public], check=True, capture_output=True)
    assert complaint(ExitCode.USAGE, lambda: check_programs(push=False, key=tmp_path / "none.pem")).startswith(
        f"{tmp_path}/none.pem: error[no-such-file]: no such key\n"
    )
    check_programs(push=False, key=key)
    signature = sign(image, key)
    assert signature == tmp_path / "Net-host.oci.sig"
    verify = verifying.Config().use_elliptic_key_verifier(public_key=public).verify
    verify(image.layout, signature)
    (image.layout / "index.json").write_text("{}")
    with pytest.raises(ValueError, match="mismatch"):
        verify(image.layout, signature)
    assert "error[not-signed]" in complaint(ExitCode.TASK_FAILED, lambda: sign(image, public))
