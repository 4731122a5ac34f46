"""An engine as a Python wheel: loader, library and weights, for an environment with NumPy and without bolt-build.

The loader is bolt-build's own, its modules under the wheel's name. Equal builds make equal wheels: members are sorted,
and have no times. Form of the file: "Binary distribution format" of the Python packaging specifications.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bolt_build
from bolt_build import dtypes, layouts, sizes
from bolt_build.dtypes import DType
from bolt_build.runtime import closing, device_memory, engine_abi, engine_tensors, loader, names, shorter
from bolt_build.workflows.licences import Licence
from bolt_build.workflows.package_texts import package_text

LOADER = (dtypes, layouts, sizes, closing, device_memory, engine_abi, engine_tensors, loader, names, shorter)
"""Modules that read an engine. They import each other, the standard library and NumPy alone."""
_IMPORT = re.compile(r"^from bolt_build(?:\.runtime)?\b", re.MULTILINE)
_VERSION = re.compile(
    r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+(\.[a-z0-9]+)*)?", re.ASCII
)  # fmt: skip
_LEAST_PYTHON = "3.11"
LEVEL = 6
"""Of the compression of wheels and archives: from 7 on they are hardly smaller and take several times as long."""
_TIME = (1980, 1, 1, 0, 0, 0)
"""The first that a zip file can tell."""


def checked_version(text: str) -> str:
    """A version in the normal form that Python's packages have (PEP 440). Raises ValueError where `text` is none."""
    if not _VERSION.fullmatch(text):
        raise ValueError(f"'{text}' is no version such as 1.2.0, 1.2.0rc1 or 1.2.0+build.5")
    return text


def module_name(engine: str, target: str) -> str:
    """What Python imports: engines of two targets lie beside each other in one environment."""
    return re.sub("_+", "_", names.identifier(f"{engine}_{target}").lower()).strip("_")


def write_wheel(
    folder: Path, files: Mapping[str, bytes], licences: tuple[Licence, ...], version: str | None = None
) -> Path:
    """Writes the wheel of an engine into `folder`, by a temporary name and a rename. Returns its path.

    `files` are those of the engine by their names: library without debug information, libraries beside it, weights,
    manifest. Without a version the wheel has one of its contents, 0+DIGEST. Its tag has the least glibc that the
    manifest asks for. Raises OSError, and KeyError or ValueError for a manifest that is none.
    """
    definition = json.loads(files[names.MANIFEST])["predicate"]["buildDefinition"]
    name, target = (definition["externalParameters"][key] for key in ("name", "target"))
    inner = definition["internalParameters"]
    module = module_name(name, target)
    inside = {f"{module}/{name}": data for name, data in files.items()}
    inside |= {f"{module}/_loader/{name}": text for name, text in _loader(module).items()}
    version = version or f"0+{_digest(inside)[:12]}"
    words = {
        "module": module, "name": name, "target": target, "version": version,
        "library": names.library(name), "weights": names.weights(name), "manifest": names.MANIFEST,
        **_example(inner["batches"][0]), "least_python": _LEAST_PYTHON, "licences": [each.name for each in licences],
        "tag": "py3-none-manylinux_{}_{}_x86_64".format(*inner["requires"]["leastVersions"]["GLIBC"].split(".")),
        "builder": f"bolt-build {bolt_build.__version__}",
    }  # fmt: skip
    inside |= {f"{module}/__init__.py": package_text("wheel_init.py.j2", words), f"{module}/py.typed": b""}
    wheel, about = f"{module}-{version}-{words['tag']}.whl", f"{module}-{version}.dist-info"
    inside |= {
        f"{about}/METADATA": package_text("wheel_metadata.j2", words),
        f"{about}/WHEEL": package_text("wheel_tags.j2", words),
    }
    inside |= {f"{about}/licenses/{each.name}": each.text for each in licences}
    inside[f"{about}/RECORD"] = _record(inside, f"{about}/RECORD")
    path = folder / wheel
    temporary = path.with_name(f".{wheel}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as raw:
            raw.write(_zipped(inside, about))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _loader(module: str) -> dict[str, bytes]:
    """The loader's modules, which find each other under the wheel's name."""
    found = {"__init__.py": b""}
    for each in LOADER:
        path = Path(str(each.__file__))
        found[path.name] = _IMPORT.sub(f"from {module}._loader", path.read_text(encoding="utf-8")).encode()
    return found


def _example(batch: Mapping[str, Any]) -> dict[str, object]:
    """Words of the example: the batch and extents, inputs with NumPy's element types, outputs."""
    numpy = {DType.BF16: "bfloat16", DType.BOOL: "bool"}
    kinds = {"f": "float", "i": "int", "u": "uint"}

    def ports(found: list[dict[str, Any]]) -> list[dict[str, object]]:
        types = (DType(port["dtype"]) for port in found)
        return [
            {
                "name": port["name"],
                "shape": port["shape"],
                "dtype": numpy.get(dtype) or f"{kinds[dtype.value[0]]}{8 * dtype.nbytes}",
            }
            for port, dtype in zip(found, types, strict=True)
        ]

    inputs, outputs = ports(batch["inputs"]), ports(batch["outputs"])
    bfloat16 = any(port["dtype"] == "bfloat16" for port in (*inputs, *outputs))
    sizes = {"batch": batch["batch"], "dims": batch.get("dims", {})}
    return sizes | {"inputs": inputs, "outputs": outputs, "bfloat16": bfloat16}


def _digest(members: Mapping[str, bytes]) -> str:
    sums = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(members.items()))
    return hashlib.sha256("".join(sums).encode()).hexdigest()


def _record(members: Mapping[str, bytes], own: str) -> bytes:
    lines = []
    for name, data in sorted(members.items()):
        code = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={code},{len(data)}\n")
    return ("".join(lines) + f"{own},,\n").encode()


def _zipped(members: Mapping[str, bytes], about: str) -> bytes:
    """The members with the metadata last, as installers like it."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, data in sorted(members.items(), key=lambda item: (item[0].startswith(about), item[0])):
            member = zipfile.ZipInfo(name, _TIME)
            member.compress_type = zipfile.ZIP_DEFLATED
            member.external_attr = (0o100755 if ".so" in Path(name).name else 0o100644) << 16
            archive.writestr(member, data, compresslevel=LEVEL)
    return made.getvalue()
