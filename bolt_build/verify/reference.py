"""The model in onnxruntime, in fp32 on the CPU, with every intermediate tensor in reach."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.graph.ir import Array

_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


class Reference:
    """Runs the ONNX file `path`, symbolic dimensions bound by `dims` and by what is fed.

    `outputs` come from a session as fast as onnxruntime makes it; `tensors`, which may name any tensor of the model,
    from one without optimisations, where all of them still exist. Raises BoltError where onnxruntime is missing (exit
    code 7) or refuses the model.
    """

    def __init__(self, path: Path, dims: tuple[tuple[str, int], ...]) -> None:
        self._path = path
        self._dims = dims
        self._runtime = _runtime()
        self._plain: Any = None
        self._observed: Any = None
        self._asked: frozenset[str] = frozenset()
        self._observable: frozenset[str] = frozenset()

    @property
    def version(self) -> str:
        return f"onnxruntime {self._runtime.__version__}"

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The model's outputs by name."""
        if self._plain is None:
            model = onnx.load(str(self._path), load_external_data=False)
            self._plain = self._session(model, self._runtime.GraphOptimizationLevel.ORT_ENABLE_ALL)
        return self._run(self._plain, [output.name for output in self._plain.get_outputs()], feeds)

    def observable(self, tensors: Sequence[str]) -> frozenset[str]:
        """Those of `tensors` that are tensors of the model; from then on `tensors` gives them."""
        if self._observed is not None and self._asked == frozenset(tensors):
            return self._observable
        model = onnx.load(str(self._path), load_external_data=False)
        outputs = {output.name for output in model.graph.output}
        made = {name for node in model.graph.node for name in node.output}
        found = dict.fromkeys(name for name in tensors if name in made or name in outputs)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in found if name not in outputs)
        self._observed = self._session(model, self._runtime.GraphOptimizationLevel.ORT_DISABLE_ALL)
        self._asked, self._observable = frozenset(tensors), frozenset(found)
        return self._observable

    def tensors(self, names: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The named tensors, each one of those found observable."""
        return self._run(self._observed, list(dict.fromkeys(names)), feeds)

    def _session(self, model: onnx.ModelProto, level: Any) -> Any:
        options = self._runtime.SessionOptions()
        options.graph_optimization_level = level
        options.log_severity_level = 3
        # External data is found beside the file although the session sees only the bytes of the graph.
        options.add_session_config_entry(
            "session.model_external_initializers_file_folder_path", str(self._path.resolve().parent)
        )
        for name, extent in self._dims:
            options.add_free_dimension_override_by_name(name, extent)
        try:
            return self._runtime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise self._failed("does not load the model", error) from error

    def _run(self, session: Any, names: list[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        wanted = {port.name: port for port in session.get_inputs()}
        if set(wanted) != set(feeds):
            raise self._failed(
                "takes other inputs than the engine", ValueError(f"{sorted(wanted)} instead of {sorted(feeds)}")
            )
        cast: dict[str, Array] = {
            name: array.astype(_NUMPY[wanted[name].type], copy=False) for name, array in feeds.items()
        }
        try:
            return dict(zip(names, session.run(names, cast), strict=True))
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise self._failed("does not run the model", error) from error

    def _failed(self, what: str, error: Exception) -> BoltError:
        text = " ".join(str(error).split())
        message = f"onnxruntime {what}: {text[:300]}"
        return BoltError([Diagnostic("reference-failed", message, subject=str(self._path))], ExitCode.VERIFY_FAILED)


def _runtime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ImportError:
        message = "verification compares with onnxruntime, which is not installed"
        hint = "pip install 'bolt-build[verify]'"
        raise BoltError([Diagnostic("tool-missing", message, hint=hint)], ExitCode.TOOL_MISSING) from None
