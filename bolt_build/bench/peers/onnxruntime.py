"""onnxruntime on the ONNX file itself, in the file's own precision: CUDA's kernels for a GPU, its CPU kernels else."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bolt_build.bench.contestant import Contestant, PeerFailed, PeerMissing, Setup
from bolt_build.bench.device import Buffer, Device
from bolt_build.graph.ir import Array
from bolt_build.toolchain.reference_runtime import import_onnxruntime
from bolt_build.user_files import utf8_folder

_CUDA = "CUDAExecutionProvider"
_PRECISIONS = {np.float32: "fp32", np.float16: "fp16", np.float64: "fp64"}
_DTYPES: dict[str, tuple[type[np.generic], str]] = {
    "tensor(float)": (np.float32, "f32"),
    "tensor(float16)": (np.float16, "f16"),
    "tensor(double)": (np.float64, "f64"),
    "tensor(bool)": (np.bool_, "bool"),
    **{
        f"tensor({sign}int{bits})": (np.dtype(f"{sign}int{bits}").type, f"{sign or 'i'}{bits}")
        for sign in ("", "u")
        for bits in (8, 16, 32, 64)
    },
}


class OnnxruntimePeer:
    name = "onnxruntime"

    def version(self, where: str) -> str:
        try:
            found: Any = import_onnxruntime()
        except ImportError as error:
            package = "onnxruntime-gpu" if where == "cuda" else "onnxruntime"
            raise PeerMissing(f"onnxruntime cannot be imported ({error})", f"pip install {package}") from None
        if where == "cuda" and _CUDA not in found.get_available_providers():
            message = f"onnxruntime {found.__version__} is here without its kernels for CUDA"
            raise PeerMissing(message, "pip install onnxruntime-gpu in place of onnxruntime")
        return f"onnxruntime {found.__version__}"

    def enter(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> Contestant:
        return LoadedModel(setup, feeds, device)


class LoadedModel:
    """Inputs and outputs are bound once, to buffers of the device, so that runs copy nothing."""

    compile_seconds: float | None = None

    def __init__(self, setup: Setup, feeds: Mapping[str, Array], device: Device) -> None:
        self.stream = device.new_stream()
        self._session = _session(setup, self.stream)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if (strange := next((given for given in inputs if given.type not in _DTYPES), None)) is not None:
            raise PeerFailed(f"its input '{strange.name}' is a {strange.type}, which cannot be fed here")
        kinds = {given.name: _DTYPES[given.type] for given in inputs}
        self.precision = _precision([port.type for port in (*inputs, *outputs)])
        self.form = ", ".join(dict.fromkeys(f"{form} row" for _, form in kinds.values()))
        self._binding = self._session.io_binding()
        self._buffers: list[Buffer] = []
        for name, kind in kinds.items():
            array = np.ascontiguousarray(feeds[name].astype(kind[0]))
            self._buffers.append(device.buffer(array.nbytes))
            self._buffers[-1].fill(array)
            self._binding.bind_input(name, device.where, 0, kind[0], array.shape, self._buffers[-1].address)
        self._outputs = [made.name for made in outputs]
        for name in self._outputs:
            self._binding.bind_output(name, device.where)

    def run(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def settle(self) -> None:
        """Nothing: its allocator keeps what it has."""

    def outputs(self) -> dict[str, Array]:
        made = self._binding.copy_outputs_to_cpu()
        return {
            name: array.astype(np.float32) if array.dtype.kind == "f" else array
            for name, array in zip(self._outputs, made, strict=True)
        }


def _precision(types: list[str]) -> str:
    """What a file computes in, by its inputs and outputs: a text's inputs are integers."""
    found = (_PRECISIONS.get(_DTYPES[each][0]) for each in types if each in _DTYPES)
    return next((each for each in found if each is not None), "integers")


def _session(setup: Setup, stream: int) -> Any:
    runtime: Any = import_onnxruntime()
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = setup.threads
    for name, extent in setup.dims:
        options.add_free_dimension_override_by_name(name, extent)
    providers: list[Any] = ["CPUExecutionProvider"]
    if setup.where == "cuda":
        providers.insert(0, (_CUDA, {"device_id": "0", "user_compute_stream": str(stream)}))
    model = Path(setup.model)
    with utf8_folder(model.parent) as folder:
        session = runtime.InferenceSession(f"{folder}/{model.name}", options, providers=providers)
    if setup.where == "cuda" and _CUDA not in session.get_providers():
        raise PeerFailed("onnxruntime does not load its kernels for CUDA, and would have run on the CPU")
    return session
