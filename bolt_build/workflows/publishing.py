"""An engine's image sent to a registry, by oras, and signed, by model-signing: programs of others, where installed."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from pathlib import Path

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.workflows.image import EngineImage
from bolt_build.workflows.sbom import require_library

INSTALL_ORAS = "go install oras.land/oras/cmd/oras@latest, or unpack a release of oras 1.2 or newer"
INSTALL_SIGNING = "python -m pip install model-signing pyopenssl"

_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+\Z")


def checked_repository(text: str) -> str:
    """A registry with a path in it, "registry.example/engines": images get their names behind it. Raises ValueError."""
    if not _REPOSITORY.match(text):
        raise ValueError(f"'{text[:60]}' is no place in a registry, such as registry.example/engines")
    return text


def check_programs(*, image: bool = False, push: bool, key: Path | None) -> None:
    """Raises BoltError where what an image, sending or signing it needs is not installed ("missing-library",
    "missing-tool"), or the key is no file ("no-such-file"): before anything is packed."""
    if image:
        require_library()
    if push and shutil.which("oras") is None:
        message = "--push needs oras, which is not installed"
        raise BoltError([Diagnostic("missing-tool", message, hint=INSTALL_ORAS)], ExitCode.TOOL_MISSING)
    if key is None:
        return
    try:
        importlib.import_module("model_signing.signing")
    except ImportError as error:
        message = "--sign needs model-signing, which is not installed"
        raise BoltError(
            [Diagnostic("missing-library", message, hint=INSTALL_SIGNING)], ExitCode.TOOL_MISSING
        ) from error
    if not key.is_file():
        hint = "openssl ecparam -name prime256v1 -genkey -noout -out KEY.pem makes one"
        raise BoltError([Diagnostic("no-such-file", "no such key", hint=hint, subject=str(key))], ExitCode.USAGE)


def sign(image: EngineImage, key: Path) -> Path:
    """Writes `NAME-TARGET.oci.sig` beside the layout: a signature of all its files with an elliptic-curve key (PEM).

    Raises BoltError ("not-signed").
    """
    signature = image.layout.with_name(f"{image.layout.name}.sig")
    signing = importlib.import_module("model_signing.signing")
    try:
        signing.Config().use_elliptic_key_signer(private_key=key).sign(image.layout, signature)
    except Exception as error:
        message = f"{image.layout} was not signed: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        hint = "the key is a private one of an elliptic curve, in PEM, without a password"
        raise BoltError([Diagnostic("not-signed", message, hint=hint)], ExitCode.TASK_FAILED) from error
    return signature


def push(image: EngineImage, repository: str) -> str:
    """Send the image and all that refers to it to REPOSITORY/NAME-TARGET:TAG, whose name it returns. Raises BoltError
    ("not-pushed") with what oras says."""
    name = f"{repository}/{image.layout.name.removesuffix('.oci').lower()}:{image.tag}"
    command = ["oras", "cp", "--recursive", "--from-oci-layout", f"{image.layout}:{image.tag}", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        message = f"{name} was not pushed: {said[0] if said else f'oras ended with status {done.returncode}'}"
        hint = f"oras login {repository.partition('/')[0]}, if it asks who you are"
        raise BoltError([Diagnostic("not-pushed", message, hint=hint)], ExitCode.TASK_FAILED)
    return name
