"""The model in onnxruntime, in fp32 on the CPU, with every intermediate tensor in reach."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
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

    One session, as fast as onnxruntime makes it: tensors that are to be observed are outputs of its graph, so that
    optimisations leave them alone. Raises BoltError where onnxruntime is missing (exit code 7) or refuses the model.
    """

    def __init__(self, path: Path, dims: tuple[tuple[str, int], ...]) -> None:
        self._path = path
        self._dims = dims
        self._runtime = _runtime()
        self._loaded: Any = None
        self._outputs: tuple[str, ...] = ()
        self._observable: frozenset[str] = frozenset()

    @property
    def version(self) -> str:
        return f"onnxruntime {self._runtime.__version__}"

    def observe(self, tensors: Iterable[str]) -> frozenset[str]:
        """Load the model so that `tensors` can be had from it; those of them that are tensors of the model."""
        model = onnx.load(str(self._path), load_external_data=False)
        self._outputs = tuple(output.name for output in model.graph.output)
        made = {name for node in model.graph.node for name in node.output}
        found = dict.fromkeys(name for name in tensors if name in made or name in self._outputs)
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in found if name not in self._outputs)
        self._loaded, self._observable = self._session(model), frozenset(found)
        return self._observable

    @property
    def observable(self) -> frozenset[str]:
        """What `observe` found."""
        return self._observable

    @property
    def output_names(self) -> tuple[str, ...]:
        """The model's outputs, once it is loaded."""
        return self._outputs

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The model's outputs by name."""
        if self._loaded is None:
            self.observe(())
        return self._run(list(self._outputs), feeds)

    def tensors(self, names: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The named tensors, each an output or one of those found observable.

        onnxruntime computes the whole model for whatever is asked: few large questions are best.
        """
        return self._run(list(dict.fromkeys(names)), feeds)

    def _session(self, model: onnx.ModelProto) -> Any:
        options = self._runtime.SessionOptions()
        options.log_severity_level = 3
        # Its threads would wait for work by spinning, on the cores on which the engine then computes.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # One block for all tensors of a run doubles the memory of a large batch, and saves no time.
        options.enable_mem_pattern = False
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

    def _run(self, names: list[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        wanted = {port.name: port for port in self._loaded.get_inputs()}
        if set(wanted) != set(feeds):
            raise self._failed(
                "takes other inputs than the engine", ValueError(f"{sorted(wanted)} instead of {sorted(feeds)}")
            )
        cast: dict[str, Array] = {
            name: array.astype(_NUMPY[wanted[name].type], copy=False) for name, array in feeds.items()
        }
        try:
            return dict(zip(names, self._loaded.run(names, cast), strict=True))
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
