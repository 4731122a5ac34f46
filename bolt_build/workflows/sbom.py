"""What an engine consists of, as a CycloneDX bill of materials, by the library of its makers.

Equal builds have equal bills: there is no time in them, and their number follows from the manifest.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.metadata
import json
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bolt_build.build.files import FileStamp
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.workflows.licences import WHEELS

INSTALL = "python -m pip install cyclonedx-python-lib"
_SPACE = uuid.UUID("7a1f3d0e-6d0f-4f7c-9a46-5a1f0c5b7d21")
"""Of names that are digests of manifests."""


def require_library() -> None:
    """Raises BoltError ("missing-library") where bills of materials cannot be made."""
    try:
        importlib.import_module("cyclonedx.output.json")
    except ImportError as error:
        message = "a bill of materials needs cyclonedx-python-lib, which is not installed"
        raise BoltError([Diagnostic("missing-library", message, hint=INSTALL)], ExitCode.TOOL_MISSING) from error


def bill(manifest: Mapping[str, Any], digest: str, model_files: Sequence[FileStamp], verified: bool | None) -> bytes:
    """The bill of materials of the engine with this `manifest.json`, whose SHA-256 is `digest`, as CycloneDX 1.6 JSON.

    Components are the engine's files, those of the model, the libraries that are in it, and, with the scope "excluded",
    the tools that made it. Raises BoltError ("missing-library"), and KeyError for a manifest that is none.
    """
    require_library()
    model = importlib.import_module("cyclonedx.model")
    parts = importlib.import_module("cyclonedx.model.component")
    boms = importlib.import_module("cyclonedx.model.bom")
    dependencies = importlib.import_module("cyclonedx.model.dependency")
    output = importlib.import_module("cyclonedx.output.json")
    kinds, scopes = parts.ComponentType, parts.ComponentScope
    definition = manifest["predicate"]["buildDefinition"]
    asked = definition["externalParameters"]
    version = manifest["predicate"]["runDetails"]["builder"]["version"]["bolt-build"]

    def component(name: str, kind: Any, ref: str, sha256: str = "", **fields: Any) -> Any:
        hashes = [model.HashType(alg=model.HashAlgorithm.SHA_256, content=sha256)] if sha256 else []
        return parts.Component(name=name, type=kind, bom_ref=ref, hashes=hashes, **fields)

    words = {
        "bolt-build:manifest": digest,
        "bolt-build:target": asked["target"],
        "bolt-build:precision": definition["internalParameters"]["precision"],
        "bolt-build:verified": {None: "not here", True: "yes", False: "no"}[verified],
    }
    properties = [model.Property(name=name, value=value) for name, value in words.items()]
    engine = component(f"{asked['name']}-{asked['target']}", kinds.LIBRARY, "engine", properties=properties)
    found = [
        component(each["name"], kinds.FILE, f"file:{each['name']}", each["digest"]["sha256"])
        for each in manifest["subject"]
    ]
    found.append(component("bolt-build", kinds.APPLICATION, "tool:bolt-build", version=version, scope=scopes.EXCLUDED))
    found += [
        component(Path(file.path).name, kinds.MACHINE_LEARNING_MODEL, f"model:{n}", file.digest)
        for n, file in enumerate(model_files)
    ]
    for each in definition["resolvedDependencies"]:
        name, inside = each["name"], each["name"] in WHEELS
        if name == "model":
            continue
        fields: dict[str, Any] = {"scope": scopes.REQUIRED if inside else scopes.EXCLUDED}
        if "version" in each:
            fields["version"] = each["version"]
        if "digest" in each:
            # Of all the tool's files together: as a hash it would be taken for one file's.
            fields["properties"] = [model.Property(name="bolt-build:files-digest", value=each["digest"]["sha256"])]
        if inside and (licence := _licence(WHEELS[name])):
            fields["licenses"] = [importlib.import_module("cyclonedx.model.license").DisjunctiveLicense(name=licence)]
        found.append(component(name, kinds.LIBRARY if inside else kinds.APPLICATION, f"tool:{name}", **fields))
    metadata = boms.BomMetaData(component=engine, timestamp=datetime.datetime.fromtimestamp(0, datetime.UTC))
    whole = boms.Bom(components=found, metadata=metadata, serial_number=uuid.uuid5(_SPACE, digest))
    needs = [dependencies.Dependency(ref=each.bom_ref) for each in found if each.scope is not scopes.EXCLUDED]
    whole.dependencies.add(dependencies.Dependency(ref=engine.bom_ref, dependencies=needs))
    text = output.JsonV1Dot6(whole).output_as_string()
    return (json.dumps(json.loads(text), sort_keys=True, indent=1) + "\n").encode()


def _licence(wheel: str) -> str:
    """The licence as the wheel's metadata names it in one line, empty where it does not."""
    try:
        found = importlib.metadata.metadata(wheel).json
    except importlib.metadata.PackageNotFoundError:
        return ""
    name = str(found.get("license_expression") or found.get("license") or "")
    return "" if "\n" in name or len(name) > 80 else name
