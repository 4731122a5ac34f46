"""Arrays of ONNX tensors: those in the model file, and external data beside it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path, PurePosixPath

import ml_dtypes
import numpy as np
import onnx
from onnx import SparseTensorProto, TensorProto, numpy_helper
from onnx.external_data_helper import _get_all_tensors, uses_external_data

from bolt_build.graph.arrays import dtype_of
from bolt_build.graph.ir import Array
from bolt_build.graph.limits import FREE_FOLDED_BYTES
from bolt_build.graph.onnx_model.narrow import wider
from bolt_build.graph.onnx_model.onnx_findings import SHOWN, Findings, clipped
from bolt_build.user_files import LFS_POINTER, known_kind, open_regular

_LARGEST_OFFSET = (1 << 63) - 1
_PACKED: dict[np.dtype[np.generic], int] = {
    np.dtype(kind): bits
    for bits, kinds in ((2, (ml_dtypes.int2, ml_dtypes.uint2)), (4, (ml_dtypes.int4, ml_dtypes.uint4)))
    for kind in (*kinds, *((ml_dtypes.float4_e2m1fn,) if bits == 4 else ()))
}
"""Bits of elements of which several lie in one byte."""


class Escape(Exception):
    """External data that does not lie in the model's folder; the text says where it lies."""


def external_file(model: Path, location: str) -> Path:
    """The file that `location` of an external tensor names. It need not exist.

    Raises Escape where it, or what it is a link to, is not inside the folder of `model`.
    """
    inside = PurePosixPath(location.replace("\\", "/"))
    if not inside.parts or inside.is_absolute() or ".." in inside.parts or ":" in inside.parts[0] or "\0" in location:
        raise Escape(f"'{clipped(location)}', outside the model's directory")
    folder = model.parent
    try:
        resolved = (folder / inside).resolve()
        contained = resolved.is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a circle of links
        return folder / inside
    if not contained:
        raise Escape(f"'{clipped(location)}', a link to '{resolved}' outside the model's directory")
    return folder / inside


def external_files(model: Path) -> tuple[Path, ...]:
    """The regular files inside the folder of `model` that its tensors name, in order; none where it is no ONNX file."""
    try:
        proto = onnx.load(str(model), load_external_data=False)
        tensors = [tensor for tensor in _get_all_tensors(proto) if uses_external_data(tensor)]
    except Exception:  # protobuf's errors have no common base that all versions export
        return ()
    found = set()
    for entry in (entry for tensor in tensors for entry in tensor.external_data if entry.key == "location"):
        with contextlib.suppress(Escape, OSError):
            file = external_file(model, entry.value)
            if file.is_file():
                found.add(file)
    return tuple(sorted(found))


@dataclass
class Tensors:
    """Reads the tensors of one model, and reports what is wrong with them. Call `finish` behind the last."""

    findings: Findings
    _missing: dict[str, list[str]] = field(default_factory=dict)
    _escaped: dict[str, list[str]] = field(default_factory=dict)
    _unusable: dict[str, list[str]] = field(default_factory=dict)
    _read: dict[tuple[Path, int, int], bytes] = field(default_factory=dict)
    _taken: dict[Path, int] = field(default_factory=dict)

    def array(self, tensor: TensorProto, label: str) -> Array | None:
        """The array of `tensor`, which messages call `label`; None, reported, where it cannot be had."""
        shape = tuple(int(extent) for extent in tensor.dims)
        if any(extent < 0 for extent in shape):
            self._broken(label, f"its shape {list(shape)} has a negative extent")
            return None
        if tensor.data_location == TensorProto.EXTERNAL:
            return self._external(tensor, shape, label)
        try:
            array = np.asarray(numpy_helper.to_array(tensor))
        except Exception as error:  # onnx raises what NumPy does, and errors of its own
            self._broken(label, _first_line(error))
            return None
        if array.shape != shape:
            self._broken(label, f"its data is of shape {list(array.shape)} and not {list(shape)}")
            return None
        return array

    def dense(self, sparse: SparseTensorProto, label: str) -> Array | None:
        """The array of a sparse tensor, zero wherever it says nothing; None, reported, where it cannot be had."""
        shape = tuple(int(extent) for extent in sparse.dims)
        values, places = self.array(sparse.values, label), self.array(sparse.indices, f"{label} (its indices)")
        if values is None or places is None:
            return None
        if any(extent < 0 for extent in shape) or prod(shape) * max(1, values.itemsize) > FREE_FOLDED_BYTES:
            self._broken(label, f"of the shape {list(shape)} it is no array of at most {FREE_FOLDED_BYTES} bytes")
            return None
        extents = shape if shape and places.ndim == 2 else (prod(shape),)
        told = (
            values.ndim == 1
            and places.dtype == np.int64
            and places.shape in ((values.size,), (values.size, len(extents)))
        )
        columns = places.reshape(-1, len(extents)) if told else np.zeros((0, len(extents)), np.int64)
        if not told or (columns < 0).any() or (columns >= np.array(extents)).any():
            where = f"{list(places.shape)} are no places of its {values.size} values in {list(shape)}"
            self._broken(label, f"its indices {where}")
            return None
        found = np.zeros(shape, values.dtype)
        found.reshape(extents)[tuple(columns.T)] = values
        return found

    def finish(self) -> None:
        """Reports files that are missing, elsewhere or not what they should be, each once with all that lies there."""
        for where, labels in self._escaped.items():
            hint = "keep the data in files beside the model"
            self.findings.report("external-data", f"the data of {_all(labels)} lies at {where}", hint)
        for file, labels in self._missing.items():
            hint = "keep the data file beside the model"
            message = f"the data of {_all(labels)} is missing: there is no file {file}"
            self.findings.report("external-data", message, hint)
        for what, labels in self._unusable.items():
            self.findings.report("external-data", f"the data of {_all(labels)} {what}")

    def _broken(self, label: str, why: str) -> None:
        self.findings.report("broken-tensor", f"the tensor {label} cannot be read: {why}")

    def _external(self, tensor: TensorProto, shape: tuple[int, ...], label: str) -> Array | None:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        try:
            file = external_file(self.findings.path, entries.get("location", ""))
        except Escape as escape:
            self._escaped.setdefault(str(escape), []).append(label)
            return None
        try:
            dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
            dtype_of(wider(np.empty(0, dtype)))
        except KeyError:
            self._broken(label, f"its element type {tensor.data_type} is none of ONNX's")
            return None
        except ValueError as error:
            self.findings.report("unsupported-dtype", f"the tensor {label}: {error}")
            return None
        bits = _PACKED.get(dtype, 8 * dtype.itemsize)
        data = self._range(file, entries, -(-prod(shape) * bits // 8), label)
        if data is None or bits >= 8:
            return None if data is None else np.frombuffer(data, dtype).reshape(shape)
        packed = TensorProto(data_type=tensor.data_type, dims=shape, raw_data=data)
        return np.asarray(numpy_helper.to_array(packed))

    def _range(self, file: Path, entries: Mapping[str, str], nbytes: int, label: str) -> bytes | None:
        where = f"'{clipped(str(file))}'"
        try:
            offset, length = int(entries.get("offset", 0)), int(entries.get("length", nbytes))
        except ValueError:
            self._without(label, f"in {where} has no offset or length in digits")
            return None
        if not 0 <= offset <= _LARGEST_OFFSET or length != nbytes:
            self._without(label, f"in {where} does not have its {nbytes} bytes")
            return None
        try:
            return self._read.get((file, offset, nbytes)) or self._bytes(file, offset, nbytes)
        except FileNotFoundError:
            self._missing.setdefault(where, []).append(label)
        except _Unusable as unusable:
            self._without(label, str(unusable))
        except OSError as error:
            self._without(label, f"cannot be read from {where}: {error.strerror or error}")
        return None

    def _without(self, label: str, what: str) -> None:
        self._unusable.setdefault(what, []).append(label)

    def _bytes(self, file: Path, offset: int, nbytes: int) -> bytes:
        """A range of a file, read. Raises OSError, and _Unusable where the file is too short, or its tensors overlap:
        they would take more memory than it has bytes."""
        where = f"'{clipped(str(file))}'"
        with open_regular(file) as handle:
            size = os.fstat(handle.fileno()).st_size
            if offset + nbytes > size:
                if known_kind(handle.read(64)) == LFS_POINTER:
                    raise _Unusable(f"is not there yet: {where} is {LFS_POINTER}; fetch the file with: git lfs pull")
                raise _Unusable(f"is cut off: {where} is too short; download or export it again")
            taken = self._taken.get(file, 0) + nbytes
            if taken > size:
                raise _Unusable(f"overlaps that of other tensors in {where}")
            handle.seek(offset)
            data = handle.read(nbytes)
        if len(data) != nbytes:
            raise _Unusable(f"is cut off: {where} became shorter")
        if file not in self._taken:
            self.findings.files.append(file)
        self._taken[file] = taken
        self._read[(file, offset, nbytes)] = data
        return data


class _Unusable(Exception):
    """External data that cannot be had; the text goes on behind "the data of ..."."""


def _all(labels: list[str]) -> str:
    if len(labels) == 1:
        return labels[0]
    shown = ", ".join(labels[:SHOWN]) + (", ..." if len(labels) > SHOWN else "")
    return f"{len(labels)} tensors ({shown})"


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
