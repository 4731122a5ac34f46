"""An OCI image layout: blobs by their digests, manifests that name them, and an index.

After the OCI Image Format Specification 1.1 (image-layout.md, manifest.md, descriptor.md). Equal contents make equal
layouts: nothing has a time.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bolt_build.digest import digest_bytes

IMAGE = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
EMPTY = "application/vnd.oci.empty.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_TITLE = "org.opencontainers.image.title"
_TAG = "org.opencontainers.image.ref.name"

Descriptor = dict[str, Any]


@dataclass
class Layout:
    """A layout in the making, in memory."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: list[Descriptor] = field(default_factory=list)

    def blob(self, media: str, data: bytes, **annotations: str) -> Descriptor:
        """Keep some bytes, and describe them."""
        digest = f"sha256:{digest_bytes(data)}"
        self.blobs[digest] = data
        found: Descriptor = {"mediaType": media, "digest": digest, "size": len(data)}
        return found | ({"annotations": annotations} if annotations else {})

    def image(
        self,
        layers: Mapping[str, Mapping[str, bytes]],
        platform: Mapping[str, str],
        labels: Mapping[str, str],
        tag: str,
    ) -> Descriptor:
        """Add an image: `layers` are files by their paths, by the title of each layer. Returns its descriptor."""
        made = [self.blob(LAYER, _tar(files), **{_TITLE: title}) for title, files in layers.items()]
        config = {
            **platform,
            "config": {"Labels": dict(labels)},
            # Layers are not compressed, so that what is unpacked has the digest of what is sent.
            "rootfs": {"type": "layers", "diff_ids": [layer["digest"] for layer in made]},
        }
        manifest = {
            "schemaVersion": 2, "mediaType": IMAGE, "config": self.blob(CONFIG, _json(config)), "layers": made,
            "annotations": dict(labels),
        }  # fmt: skip
        found = self.blob(IMAGE, _json(manifest))
        self.manifests.append({**found, "platform": dict(platform), "annotations": {_TAG: tag}})
        return found

    def refer(self, subject: Descriptor, kind: str, name: str, data: bytes) -> Descriptor:
        """Add a document of some kind (its media type) that is about `subject`: a referrer of it."""
        manifest = {
            "schemaVersion": 2, "mediaType": IMAGE, "artifactType": kind, "config": self.blob(EMPTY, b"{}"),
            "layers": [self.blob(kind, data, **{_TITLE: name})], "subject": subject,
        }  # fmt: skip
        found = self.blob(IMAGE, _json(manifest))
        self.manifests.append({**found, "artifactType": kind})
        return found

    def write(self, folder: Path) -> None:
        """Write the layout in place of what is there, which must be a layout or nothing. Raises OSError."""
        temporary = folder.with_name(f".{folder.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        blobs = temporary / "blobs" / "sha256"
        blobs.mkdir(parents=True)
        for digest, data in self.blobs.items():
            (blobs / digest.removeprefix("sha256:")).write_bytes(data)
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": self.manifests}
        (temporary / "index.json").write_bytes(_json(index))
        (temporary / "oci-layout").write_bytes(_json({"imageLayoutVersion": "1.0.0"}))
        if not may_be_replaced(folder):
            shutil.rmtree(temporary)
            raise FileExistsError(17, "it is there already, and is no OCI layout", str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)


def may_be_replaced(folder: Path) -> bool:
    """True where there is a layout, or nothing."""
    return not os.path.lexists(folder) or (folder / "oci-layout").is_file()


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _tar(files: Mapping[str, bytes]) -> bytes:
    """An archive of files by their paths, with the folders on the way, without times and owners."""
    packed = io.BytesIO()
    folders = {str(parent) for path in files for parent in Path(path).parents if str(parent) != "."}
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(folders):
            member = tarfile.TarInfo(f"{name}/")
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
        for name, data in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), 0o755 if ".so" in Path(name).name else 0o644
            archive.addfile(member, io.BytesIO(data))
    return packed.getvalue()
