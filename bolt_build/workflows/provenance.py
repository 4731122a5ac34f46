"""How an engine was made, as an in-toto statement with SLSA provenance that other tools read.

The manifest of a build has the same shape, and says more than the predicate's form has fields for. Here what has none
becomes an annotation, and what must be a URI is one: in-toto attestation v1 (ResourceDescriptor), SLSA provenance v1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bolt_build.build.files import FileStamp

_BUILDER = "urn:bolt-build:builder"


def statement(manifest: Mapping[str, Any], model: Sequence[FileStamp], image: Mapping[str, str]) -> bytes:
    """The statement of a `manifest.json`, about its files and about images (SHA-256 in hex by name), as JSON with
    sorted keys. Raises KeyError, TypeError for a manifest that is none.

    A manifest's digests of model and tools are of all their files together. So the files of the `model` stand here by
    themselves, and those digests are annotations: in a descriptor they would be taken for a file's.
    """
    made = manifest["predicate"]
    definition = made["buildDefinition"]
    subjects = [*manifest["subject"], *({"name": name, "digest": {"sha256": digest}} for name, digest in image.items())]
    files = [{"name": Path(file.path).name, "digest": {"sha256": file.digest}} for file in model]
    tools = [_descriptor(each) for each in definition["resolvedDependencies"] if each["name"] != "model"]
    predicate = {
        "buildDefinition": {**definition, "resolvedDependencies": [*files, *tools]},
        "runDetails": {"builder": {**made["runDetails"]["builder"], "id": _BUILDER}},
    }
    found = {
        "_type": manifest["_type"], "subject": subjects, "predicateType": manifest["predicateType"],
        "predicate": predicate,
    }  # fmt: skip
    return (json.dumps(found, sort_keys=True, indent=1) + "\n").encode()


def _descriptor(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool as a resource descriptor, which has no field for a version."""
    others = {name: value for name, value in tool.items() if name not in ("name", "digest")}
    if "digest" in tool:
        others["filesDigest"] = tool["digest"]["sha256"]
    return {"name": tool["name"], **({"annotations": others} if others else {})}
