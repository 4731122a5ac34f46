"""The model in onnxruntime, in fp32 on the CPU: as a whole, and cut where an engine shows its tensors."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.graph.ir import Array
from bolt_build.graph.operators import added_operators
from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.toolchain.reference_runtime import import_onnxruntime
from bolt_build.toolchain.wheels import installing
from bolt_build.user_files import utf8_folder
from bolt_build.verify.models.known import giving, shape_reads
from bolt_build.verify.models.named_twice import with_outputs_apart
from bolt_build.verify.models.piece import Care, Wanted
from bolt_build.verify.models.places import with_near_places
from bolt_build.verify.models.readable import Unreadable, Versions, readable, reads_of, versions_of
from bolt_build.verify.models.rounded_model import RoundedModel
from bolt_build.verify.models.segments import CutModel
from bolt_build.verify.models.sparse import without_sparse
from bolt_build.verify.models.stirred import stirred
from bolt_build.verify.models.unrolled import has_graphs, unrolled
from bolt_build.verify.models.widening import without_bf16, without_fp64
from bolt_build.verify.models.written_out import with_exact_sigmoids, written_out
from bolt_build.verify.taps import Tap

_NUMPY = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(int16)": np.int16,
    "tensor(uint16)": np.uint16,
    "tensor(uint32)": np.uint32,
    "tensor(uint64)": np.uint64,
    "tensor(bool)": np.bool_,
}

Run = Callable[[list[str], Mapping[str, Array]], dict[str, Array]]
"""Outputs of those names for feeds."""


@dataclass(frozen=True)
class Expected:
    """What the model makes of a tap's sources, in fp32, and the variance that rounding gives it: `variance` (None: 0),
    and a part that is `relative` to the tensor's squares. Both are in units of the square of `rounding.UNIT`."""

    tensor: Array
    variance: Array | None
    relative: float


_REWRITES = ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC")
"""Levels of onnxruntime's rewriting below its own choice, of which older versions fail at some graphs."""


class Reference:
    """Runs the ONNX file `path`, symbolic dimensions bound by `dims` and by what is fed.

    A model of newer versions than onnxruntime reads is given to it in older ones, where that changes nothing. Raises
    BoltError where onnxruntime is missing (exit code 7) or refuses the model.
    """

    def __init__(self, path: Path, dims: tuple[tuple[str, int], ...]) -> None:
        self._path = path
        self._dims = dims
        self._runtime = _runtime()
        self._loaded: Any = None
        self._outputs: tuple[str, ...] = ()
        self._cuts: dict[Hashable, CutModel] = {}
        self._ready: dict[Hashable, tuple[tuple[tuple[str, str], ...], tuple[Wanted, ...], Any]] = {}
        self._versions: tuple[Versions, Versions] | None = None  # the model's own, and those compared

    @property
    def version(self) -> str:
        """What is compared with; once the model is loaded, in which versions, and which the model itself states."""
        name = f"onnxruntime {self._runtime.__version__}"
        if self._versions is None:
            return name
        stated, compared = self._versions
        widened = "" if without_bf16(self._model) is self._model else ", bf16 as fp32"
        return f"{name}, {compared}{'' if compared == stated else f' (the model has {stated})'}{widened}"

    @property
    def observable(self) -> frozenset[str]:
        """The names of all tensors that the model's nodes make, and of its initializers."""
        return CutModel(self._written_out, {}).tensors

    @property
    def takes_any_batch(self) -> bool:
        """True where the first extent of every input is symbolic, once the model is loaded."""
        return all(port.shape and not isinstance(port.shape[0], int) for port in self._loaded.get_inputs())

    @property
    def rounds_to_integers(self) -> bool:
        """True where some numbers of the model are quantised on the way."""
        return any("Quantize" in node.op_type or node.op_type.startswith("QLinear") for node in self._rounding)

    @functools.cached_property
    def _rounding(self) -> tuple[onnx.NodeProto, ...]:
        """Nodes that may round to integers: those that only undo it do not."""
        return tuple(node for node in self._model.graph.node if node.op_type != "DequantizeLinear")

    def outputs(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The whole model's outputs by name. Attention is computed as ONNX defines it: onnxruntime's own kernel gives 0
        where all keys are masked."""
        if self._loaded is None:
            model = self._whole
            self._outputs = tuple(output.name for output in model.graph.output)
            self._loaded = self._session(model, whole=True)
        return self._run(self._loaded, list(self._outputs), self._cast(self._loaded, feeds))

    def stirred(self, feeds: Mapping[str, Array], size: float, seed: int) -> dict[str, Array]:
        """The outputs where what integers select is changed by a random part of itself (`verify.models.stirred`)."""
        model = stirred(self._whole, size, seed)
        if model is None:
            return self.outputs(feeds)
        session = self._session(model, whole=True)
        return self._run(session, [output.name for output in model.graph.output], self._cast(session, feeds))

    def _cast(self, session: Any, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """`feeds` in the types that a session of the whole model takes."""
        wanted = {port.name: port for port in session.get_inputs()}
        if set(wanted) != set(feeds):
            raise self._failed(f"takes other inputs than the engine: {sorted(wanted)} instead of {sorted(feeds)}")
        strange = sorted(port.type for port in wanted.values() if port.type not in _NUMPY)
        if strange:
            raise self._failed(f"takes inputs that NumPy has no type for: {', '.join(strange)}")
        return {name: array.astype(_NUMPY[wanted[name].type], copy=False) for name, array in feeds.items()}

    def expected(
        self,
        taps: Sequence[Tap],
        held: Mapping[str, Array],
        ports: Mapping[str, str],
        care: Care = Care.FIRST_ROWS,
    ) -> tuple[Expected, ...]:
        """For each tap, what the model makes of the engine's own values `held` (by the plan's names).

        `ports` says which of them is the model's input of a name. All taps are computed at once.
        """
        known, cut = self._cut({name: held[value] for name, value in ports.items()})
        key = known, cut.key(taps, held), care
        if key not in self._ready:
            piece = cut.piece(taps, held, ports, care)
            self._ready[key] = (piece.fed, piece.wanted, self._session(piece.model, whole=False))
        fed, wanted, session = self._ready[key]
        inputs = [port.name for port in session.get_inputs()]
        feeds = {name: widened(held[value]) for value, name in fed if name in inputs}
        names = [name for item in wanted for name in item.names]
        made = self._run(session, list(dict.fromkeys(names)), feeds)
        return tuple(
            Expected(
                made[item.tensor],
                None if item.variance is None else made[item.variance],
                item.roundings.at_the_end(sum(float(made[name].reshape(-1)[0]) for name in item.counts))
                if item.computed
                else 0.0,
            )
            for item in wanted
        )

    def rounded(self, plan: BatchPlan) -> tuple[RoundedModel, Run]:
        """The model with a switch for each layer of `plan` in half precision, and what runs it: outputs by name for
        feeds. Raises BoltError ("not-rounded") for a model that is itself in fp16."""
        model = self._written_out
        if _has_fp16(model):
            message = "the model itself is in fp16, so that its own roundings cannot be told from an engine's"
            found = Diagnostic("not-rounded", message, hint="export it in fp32", subject=str(self._path))
            raise BoltError([found], ExitCode.INVALID)
        made = RoundedModel(without_bf16(model), plan)
        session = self._session(made.graph, whole=False)
        return made, lambda names, feeds: self._run(session, names, feeds)

    def _cut(self, feeds: Mapping[str, Array]) -> tuple[Hashable, CutModel]:
        """The model to be cut, and for which shapes of inputs: any, where no node reads a shape."""
        model = self._written_out
        reads = shape_reads(model)
        key = tuple((name, array.shape) for name, array in feeds.items()) if reads or has_graphs(model) else ()
        if key not in self._cuts:
            model = unrolled(model, lambda asked, names: self._asked(asked, names, feeds))
            reads = shape_reads(model)
            self._cuts[key] = CutModel(model, self._shapes(model, reads, feeds) if reads else {})
        return key, self._cuts[key]

    def _shapes(self, model: onnx.ModelProto, reads: tuple[str, ...], feeds: Mapping[str, Array]) -> dict[str, Array]:
        return self._asked(giving(model, reads), reads, feeds)

    def _asked(self, model: onnx.ModelProto, names: tuple[str, ...], feeds: Mapping[str, Array]) -> dict[str, Array]:
        """What a model gives of these names for these inputs."""
        session = self._session(without_bf16(model), whole=False)
        return self._run(session, list(names), self._cast(session, feeds))

    @property
    def _whole(self) -> onnx.ModelProto:
        """What gives outputs."""
        return with_exact_sigmoids(without_bf16(self._written_out))

    @functools.cached_property
    def _written_out(self) -> onnx.ModelProto:
        return with_near_places(written_out(self._model))

    @functools.cached_property
    def _model(self) -> onnx.ModelProto:
        """The model in versions that onnxruntime reads, external data left where it is."""
        loaded = onnx.load(str(self._path), load_external_data=False)
        stated = with_outputs_apart(without_sparse(loaded))
        try:
            model = readable(self._path, stated, reads_of(self._runtime))
        except Unreadable as reason:
            hint = "install a newer onnxruntime, or export the model with an older opset"
            raise self._failed(str(reason), hint) from reason
        self._versions = versions_of(stated), versions_of(model)
        return model

    def _session(self, model: onnx.ModelProto, *, whole: bool, rewrites: int = len(_REWRITES)) -> Any:
        """`rewrites`: how many of its levels of rewriting onnxruntime may use."""
        options = self._runtime.SessionOptions()
        options.log_severity_level = 4  # what is an error is raised too
        # Its threads would wait for work by spinning, on the cores on which the engine then computes.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # One block for all tensors of a run doubles the memory of a large batch, and saves no time.
        options.enable_mem_pattern = False
        # Several pieces are ready at a time: they must not keep what they once needed.
        options.enable_cpu_mem_arena = whole
        # A model says which numbers are rounded where: it is not to become one that computes with integers between.
        options.add_session_config_entry("session.disable_quant_qdq", "1")
        # Without instructions for it, products of bytes with signed bytes would end at 16 bits.
        options.add_session_config_entry("session.x64quantprecision", "1")
        if rewrites < len(_REWRITES):
            levels = self._runtime.GraphOptimizationLevel
            options.graph_optimization_level = getattr(levels, _REWRITES[rewrites])
        for name, extent in self._dims:
            options.add_free_dimension_override_by_name(name, extent)
        try:
            # External data is found beside the file although the session sees only the bytes of the graph.
            with utf8_folder(self._path.resolve().parent) as folder:
                options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
                return self._runtime.InferenceSession(
                    model.SerializeToString(), options, providers=["CPUExecutionProvider"]
                )
        except Exception as error:  # onnxruntime's exceptions share no base class
            single = without_fp64(model)
            if single is not model and "NOT_IMPLEMENTED" in _text(error):  # it lacks some operators in fp64
                return self._session(single, whole=whole)
            if rewrites > 0:  # its optimiser makes what it lacks, or fails
                with contextlib.suppress(BoltError):
                    return self._session(model, whole=whole, rewrites=rewrites - 1)
            hint = self._function_wanted() or self._contradicted(_text(error))
            raise self._failed(f"does not load the model: {_text(error)}", hint) from error

    def _function_wanted(self) -> str | None:
        """What helps where an operator of another package is one that onnxruntime does not know."""
        added = added_operators()
        own = (node for node in self._model.graph.node if (node.domain, node.op_type) in added)
        found = next((f"{node.domain}.{node.op_type}" for node in own), None)
        if found is None:
            return None
        return (
            f"if onnxruntime does not know {found}, give the model a local function of that name, made of ONNX's own "
            "operators: verification computes the function"
        )

    def _contradicted(self, said: str) -> str | None:
        """What helps where a file states another type than its operators give. Import goes by the operators."""
        if "Type Error" not in said:
            return None
        check = f"import onnx; onnx.checker.check_model({str(self._path)!r}, full_check=True)"
        return f'the file states another type than its operators give; this says where: python -c "{check}"'

    def _run(self, session: Any, names: list[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return dict(zip(names, session.run(names, feeds), strict=True))
        except Exception as error:  # onnxruntime's exceptions share no base class
            raise self._failed(f"does not run the model: {_text(error)}") from error

    def _failed(self, what: str, hint: str | None = None) -> BoltError:
        found = Diagnostic("reference-failed", f"onnxruntime {what}", hint=hint, subject=str(self._path))
        return BoltError([found], ExitCode.VERIFY_FAILED)


def _has_fp16(model: onnx.ModelProto) -> bool:
    ports = (port.type.tensor_type.elem_type for port in (*model.graph.input, *model.graph.output))
    constants = (constant.data_type for constant in model.graph.initializer)
    return any(dtype == onnx.TensorProto.FLOAT16 for dtype in (*ports, *constants))


def _text(error: Exception) -> str:
    """All of it, in one line."""
    return " ".join(str(error).split())


def widened(array: Array) -> Array:
    """Floating-point arrays in fp32, others as they are."""
    return array if array.dtype.kind in "iub" else array.astype(np.float32, copy=False)


def _runtime() -> Any:
    try:
        return import_onnxruntime()
    except ImportError:
        message = "verification compares with onnxruntime, which is not installed"
        hint = installing("verify")
        raise BoltError([Diagnostic("tool-missing", message, hint=hint)], ExitCode.TOOL_MISSING) from None
