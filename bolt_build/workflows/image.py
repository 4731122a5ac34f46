"""An engine as an OCI image, with what is known of it as referrers: comparison, bill of materials, provenance."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from bolt_build.build.files import told, write_text
from bolt_build.build.planning.task_graph import VERIFICATION
from bolt_build.digest import digest_bytes
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.runtime import names
from bolt_build.workflows.built import BuiltEngine
from bolt_build.workflows.oci_layout import Layout, may_be_replaced
from bolt_build.workflows.packaging import package_files
from bolt_build.workflows.provenance import statement
from bolt_build.workflows.sbom import bill

BILL = "application/vnd.cyclonedx+json"
PROVENANCE = "application/vnd.in-toto+json"
COMPARISON = "application/vnd.bolt-build.verify.v1+json"
DEFAULT_TAG = "latest"
_PLATFORM = {"architecture": "amd64", "os": "linux"}
_FOLDER = "opt"


@dataclass(frozen=True)
class EngineImage:
    """What was written of one target; `digest` (SHA-256 in hex) is the image's."""

    layout: Path
    bill: Path
    provenance: Path
    digest: str
    tag: str


def check_place(engine: BuiltEngine, folder: Path) -> None:
    """Raises BoltError ("not-a-layout") where the image would take the place of something else than a layout: before
    anything is packed."""
    layout = _layout_in(engine, folder)
    if not may_be_replaced(layout):
        message = "it is there already, and is no OCI image layout that could be replaced"
        hint = "move it away, or write to another folder with --out DIR"
        raise BoltError([Diagnostic("not-a-layout", message, subject=str(layout), hint=hint)], ExitCode.INVALID)


def _layout_in(engine: BuiltEngine, folder: Path) -> Path:
    return folder / f"{engine.plan.engine.name}-{engine.target}.oci"


def engine_image(engine: BuiltEngine, folder: Path, verified: bool | None, version: str | None = None) -> EngineImage:
    """Writes `NAME-TARGET.oci/`, `NAME-TARGET.cdx.json` and `NAME-TARGET.intoto.json` into `folder`.

    The image has the files of the package under `opt/NAME/`, in two layers: its weights, and all the rest. Its tag is
    `version`, or "latest". `verified` is what the comparison said, None where it did not run here.

    Raises BoltError as `package_files` and `bill` do, and where a file cannot be read or written.
    """
    name, here = engine.plan.engine.name, engine.directory.path
    base = f"{name}-{engine.target}"
    with told(here):
        text = (here / names.MANIFEST).read_bytes()
    manifest = json.loads(text)
    materials = bill(manifest, digest_bytes(text), engine.plan.model, verified)
    files = {f"{_FOLDER}/{name}/{path}": data for path, data in package_files(engine, version).items()}
    weights = {path: data for path, data in files.items() if path.endswith(f"/{engine.weights.name}")}
    rest = {path: data for path, data in files.items() if path not in weights}
    tag = version or DEFAULT_TAG
    layout = Layout()
    labels = {"org.opencontainers.image.title": base, "bolt-build.target": engine.target}
    image = layout.image({engine.weights.name: weights, base: rest}, _PLATFORM, labels, tag)
    digest = str(image["digest"]).removeprefix("sha256:")
    made = statement(manifest, engine.plan.model, {base: digest})
    layout.refer(image, BILL, f"{base}.cdx.json", materials)
    layout.refer(image, PROVENANCE, f"{base}.intoto.json", made)
    written = EngineImage(
        _layout_in(engine, folder), folder / f"{base}.cdx.json", folder / f"{base}.intoto.json", digest, tag
    )  # fmt: skip
    with told(folder, "write them to a folder of your own with --out DIR"):
        if verified is not None:
            layout.refer(image, COMPARISON, VERIFICATION, (here / VERIFICATION).read_bytes())
        write_text(written.bill, materials.decode())
        write_text(written.provenance, made.decode())
        layout.write(written.layout)
    return written
