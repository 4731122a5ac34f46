"""Kernels for a GPU, built where there is none and run where there is one: right against NumPy, or timed."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from families_harness import NUMPY, Layer, expected, graph_with, in_memory, logical, values_of

from bolt_build import runtime
from bolt_build.families import load
from bolt_build.families.base import Candidate, Operand, ProposedStep, StepExpressions, TensorFormat
from bolt_build.graph.ir import Array, Node
from bolt_build.graph.ops.products.chain import Chain
from bolt_build.graph.reference import evaluate_node
from bolt_build.targets import target_named
from bolt_build.toolchain import probe

TARGET = target_named(os.environ.get("BOLT_GPU_TARGET", "h200"))
"""Another one has kernels of one warp's instructions alone: `write FOLDER warps`."""
HERE = Path(__file__).parent
_PARTS, _ENTRIES, _UNITS, _LIGHT_UNITS = 16, 16, 4, 12
_POISON = 0xFF
"""Every byte of an output before a kernel has written it."""
_L2_BYTES = 200 << 20
"""Buffers are rotated until they fill this much: several times the cache."""


@dataclass(frozen=True)
class Trial:
    """One kernel for one layer, compared with NumPy; a `large` one with `reference`, an earlier trial of the layer, if
    there is one. Rows of the output are stored `pitch` elements apart (0: dense); between those of inputs that can be
    read so lie `between` more. `there` are the keys of attention that are no padding (0: all). `launches` follow
    each other."""

    layer: Layer
    step: ProposedStep
    candidate: Candidate
    shared: int | None = None
    large: bool = False
    timed: bool = False
    reference: int | None = None
    pitch: int = 0
    between: int = 0
    there: int = 0
    launches: int = 1

    @property
    def input_pitches(self) -> tuple[int, ...]:
        """Elements from a row of each input to the next, 0 where they are dense."""
        inputs, apart = self.step.problem.inputs, self.step.reads_apart if self.between else ()
        return tuple(operand.row + self.between if i in apart else 0 for i, operand in enumerate(inputs))

    @property
    def label(self) -> str:
        formats = "-".join(str(o.format) for o in (*self.step.problem.inputs[:1], *self.step.problem.outputs))
        sizes = "x".join(str(value) for _, value in (*self.candidate.parameters, *self.candidate.settings))
        where = "" if self.shared is None else f"-shares{self.shared}"
        where += f"-rows{self.pitch}" if self.pitch else ""
        where += f"-between{self.between}" if self.between else ""
        where += f"-there{self.there}" if self.there else ""
        return f"{self.layer.label}-{self.candidate.family}-{sizes}-{formats}{where}"


def trials_of(
    layer: Layer,
    family: str,
    candidates: int = 1,
    *,
    kind: str | None = None,
    large: bool = False,
    without: Sequence[str] = (),
) -> list[Trial]:
    """Every alternative of the family for the layer, each with its first `candidates`, shared memory included.

    `kind` is a parameter that the candidates must have, `without` are algorithms that other trials are of.
    """
    graph, node = graph_with(layer)
    (offering,) = [f for f in load(TARGET) if f.name == family]
    found = []
    for alternative in offering.propose(graph, node, TARGET, layer.precision)[0]:
        (step,) = alternative.steps
        legal = offering.candidates(step.problem, TARGET)[0]
        stated = [(c, dict(c.parameters)) for c in legal]
        wanted = [c for c, of in stated if (kind is None or kind in of) and of.get("algorithm") not in without]
        for candidate in wanted[:candidates]:
            shares = [None] if large else [None, *(pair[0] for pair in step.may_share)]
            found += [Trial(layer, step, candidate, shared, large) for shared in shares]
    return found


def write(trials: Sequence[Trial], folder: Path, *, few: bool = False, together: int = _UNITS) -> None:
    """Writes the sources of the kernels and the list of trials. `few` are in one file, and what calls them in one; else
    so many of the tensor-core kernels share a file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trials.pkl").write_bytes(pickle.dumps(list(trials)))
    parts = 1 if few else min(_PARTS, -(-len(trials) // _ENTRIES))
    for part in range(parts):
        entries = [_entry(index, trial) for index, trial in enumerate(trials) if index % parts == part]
        headers = dict.fromkeys(["gpu_trials.h", *(header for _, found in entries for header in found)])
        text = "".join(f'#include "{header}"\n' for header in headers) + "".join(code for code, _ in entries)
        _write(folder / f"calls{part}.cu", text)
    units = []
    for family in load(TARGET):
        units += family.units(
            [(t.step.problem, t.candidate) for t in trials if t.candidate.family == family.name], TARGET
        )
    # Several kernels a file: most of the time goes into the headers.
    if few:
        _write(folder / "kernels.cu", "\n".join(unit.text for unit in units))
        return
    for kind in sorted({unit.text.splitlines()[0] for unit in units}):
        texts = [unit.text for unit in units if unit.text.startswith(kind)]
        name = kind.split("/")[1].removesuffix('_kernel.h"')
        a_file = together if "bolt_cutlass" in kind else _LIGHT_UNITS
        for part in range(0, len(texts), a_file):
            _write(folder / f"{name}{part}.cu", "\n".join(texts[part : part + a_file]))


def _write(path: Path, text: str) -> None:
    """Leaves an equal file as it is, and what was compiled from it."""
    if not path.exists() or path.read_text() != text:
        path.with_suffix(".o").unlink(missing_ok=True)
        path.write_text(text)


def compiled(trials: Sequence[Trial], folder: Path) -> Library:
    """The trials' kernels, compiled in `folder`. Raises AssertionError where a tool is missing or fails."""
    chain = probe(TARGET.tools)
    assert chain.diagnostics() == ()
    nvcc, cutlass = chain.tool("nvcc").path, chain.tool("cutlass").path
    assert nvcc is not None
    assert cutlass is not None
    write(trials, folder)
    compile_all(folder, Path(nvcc), Path(cutlass).parent)
    return Library(folder)


def compile_all(
    folder: Path,
    nvcc: Path,
    cutlass: Path,
    flags: Sequence[str] = TARGET.compile_flags,
    cudart: Sequence[str] = ("-cudart", "static"),
    calls: Sequence[str] = (),
) -> Path:
    """Compiles what `write` wrote into `folder`/kernels.so, with `cudart` as the flags that link CUDA's and `calls` as
    further ones of the files that call kernels, which have those that are headers alone.

    Raises AssertionError with the compiler's words.
    """
    pairs = cutlass / "examples" / "13_two_tensor_op_fusion"
    headers = [cutlass / "include", cutlass / "tools" / "util" / "include", pairs]
    includes = [runtime.include_dir(), *headers, HERE, *(family.include_dir for family in load(TARGET))]
    flags = ["-std=c++17", *flags, "-Xcompiler", "-fPIC", *(f"-I{path}" for path in includes)]

    def compiled(source: Path) -> Path:
        target = source.with_suffix(".o")
        if not target.exists():
            more = calls if source.name.startswith("calls") else ()
            command = [nvcc, *flags, *more, "-c", source, "-o", target]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr[:4000]
        return target

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        objects = list(pool.map(compiled, sorted(folder.glob("*.cu"), key=lambda path: "warpgroup" not in path.name)))
    library = folder / "kernels.so"
    # The compiler of pip's packages has its libraries here, and looks for them in lib64.
    beside = nvcc.parents[1] / "lib"
    folders = [f"-L{beside}"] if beside.is_dir() else []
    subprocess.run([nvcc, "-shared", *cudart, *folders, "-o", library, *objects], check=True)
    return library


def _places(trial: Trial) -> list[int]:
    """Where in one buffer the outputs begin, and where it ends: the last ends with it."""
    places = [0]
    for number, output in enumerate(trial.step.problem.outputs):
        end = places[-1] + output.reach(0 if number else trial.pitch)
        places.append(end if number + 1 == len(trial.step.problem.outputs) else -(-end // 256) * 256)
    return places


def _entry(index: int, trial: Trial) -> tuple[str, tuple[str, ...]]:
    problem = trial.step.problem
    inputs = tuple(
        "r.output(0)" if i == trial.shared else f"r.weight({i})" if operand.constant else f"r.input({i})"
        for i, operand in enumerate(problem.inputs)
    )
    prepare = tuple(f"p.weight({i})" if operand.constant else None for i, operand in enumerate(problem.inputs))
    families = {family.name: family for family in load(TARGET)}
    outputs = tuple(f"static_cast<std::byte*>(r.output(0)) + {place}" for place in _places(trial)[1:-1])
    at = StepExpressions(
        inputs, ("r.output(0)", *outputs), prepare, (trial.pitch, *(0 for _ in outputs)), trial.input_pitches
    )
    code = families[trial.candidate.family].emit(problem, trial.candidate, TARGET, at)
    make = "0" if code.member_type is None else f"{code.member_type}(p, {code.member_arguments})"
    scratch = "0" if code.member_type is None else "kernel.scratch_bytes()"
    text = f"""
// {trial.label}
static auto make_{index}([[maybe_unused]] const bolt::Prepare& p) {{ return {make}; }}
template <typename Kernel>
static void call_{index}([[maybe_unused]] const Kernel& kernel, const bolt::Run& r) {{
  {code.call}
}}
extern "C" int kernel_{index}(const trials::Given* given, char* message, std::size_t room) {{
  return trials::guarded(message, room, [&] {{
    trials::run(*given, [](const bolt::Prepare& p) {{ return make_{index}(p); }},
                []([[maybe_unused]] const auto& kernel) {{ return static_cast<std::size_t>({scratch}); }},
                [](const auto& kernel, const bolt::Run& r) {{ call_{index}(kernel, r); }});
  }});
}}
"""
    return text, code.includes


class Given(ctypes.Structure):
    """`trials::Given`."""

    _fields_ = (
        ("inputs", ctypes.c_void_p), ("bytes", ctypes.c_void_p), ("count", ctypes.c_int), ("output", ctypes.c_void_p),
        ("output_bytes", ctypes.c_size_t), ("sets", ctypes.c_int), ("shared", ctypes.c_int),
        ("left", ctypes.c_uint), ("overlap", ctypes.c_int), ("microseconds", ctypes.c_void_p),
        ("there", ctypes.c_int64), ("launches", ctypes.c_int), ("seconds", ctypes.c_double),
    )  # fmt: skip


def sets_of(moved: int) -> int:
    """Sets of buffers that are timed in turns, where a launch moves so many bytes: they exceed L2."""
    return min(24, max(2, _L2_BYTES // moved + 1))


@dataclass(frozen=True)
class Outcome:
    """`error` is the largest difference relative to the tolerance, or of a large trial the relative norm."""

    label: str
    error: float
    message: str
    microseconds: float | None


class Library:
    """The compiled trials of a folder."""

    def __init__(self, folder: Path) -> None:
        self.trials: list[Trial] = pickle.loads((folder / "trials.pkl").read_bytes())
        self._library = ctypes.CDLL(str(folder / "kernels.so"))
        self._outputs: dict[int, Array] = {}
        self._wanted: tuple[list[Array], tuple[Array, ...]] | tuple[()] = ()
        self._kept: dict[tuple[Layer, tuple[TensorFormat, ...]], tuple[list[Array], list[Array]]] = {}

    def forget(self) -> None:
        """The next trial's inputs are made again."""
        self._kept, self._wanted = {}, ()

    def _inputs(self, layer: Layer, formats: tuple[TensorFormat, ...]) -> tuple[list[Array], list[Array]]:
        """Values as they are stored, and in memory's order; kept for the next trial, which often has the same."""
        if (layer, formats) not in self._kept:
            values = zip(values_of(layer), formats, strict=True)
            with np.errstate(over="ignore"):  # masks that hide by what half precision stores as minus infinity
                stored = [array.astype(NUMPY[format.dtype]) for array, format in values]
            memories = [in_memory(a, format.layout) for a, format in zip(stored, formats, strict=True)]
            self._kept = {(layer, formats): (stored, memories)}
        return self._kept[layer, formats]

    def _expected(self, layer: Layer, stored: list[Array], there: int = 0) -> tuple[Array, ...]:
        """What NumPy computes, all outputs; kept for the next trial of the same inputs."""
        if there:  # of keys and values the others are padding
            return (expected(layer, [stored[0], *(each[:, :there] for each in stored[1:])]),)
        if not self._wanted or self._wanted[0] is not stored:
            several = isinstance(layer.op, Chain) and layer.op.keeps
            wide = [
                a.astype(np.float64) if given.dtype.is_float else a
                for a, given in zip(stored, layer.inputs, strict=True)
            ]
            node = Node("layer", layer.op, tuple(map(str, range(len(wide)))), ("y",), layer.epilogue)
            self._wanted = (stored, evaluate_node(node, wide) if several else (expected(layer, stored),))
        return self._wanted[1]

    def run(self, index: int, seconds: float = 0.0) -> Outcome:
        """One trial. What is timed goes on for so many `seconds` without a pause, and their second half counts."""
        trial = self.trials[index]
        problem, layer = trial.step.problem, trial.layer
        stored, memories = self._inputs(layer, tuple(operand.format for operand in problem.inputs))
        given_apart = zip(memories, problem.inputs, trial.input_pitches, strict=True)
        memories = [_apart(memory, operand, pitch) for memory, operand, pitch in given_apart]
        output, places = problem.outputs[0], _places(trial)
        memory = np.zeros(places[-1], np.uint8)
        pointers = (ctypes.c_void_p * len(memories))(*(m.ctypes.data for m in memories))
        sizes = (ctypes.c_size_t * len(memories))(*(m.nbytes for m in memories))
        time_found, message = ctypes.c_float(0), ctypes.create_string_buffer(1024)
        moved = sum(m.nbytes for m in memories) + output.nbytes
        sets = sets_of(moved) if trial.timed else 0
        left = sum(1 << i for i, operand in enumerate(problem.inputs) if not operand.constant)
        given = Given(
            ctypes.addressof(pointers), ctypes.addressof(sizes), len(memories), memory.ctypes.data, memory.nbytes,
            sets, -1 if trial.shared is None else trial.shared,
            left, int(TARGET.gpu is not None and TARGET.gpu.overlaps), ctypes.addressof(time_found),
            trial.there, trial.launches, seconds,
        )  # fmt: skip
        entry = getattr(self._library, f"kernel_{index}")
        if entry(ctypes.byref(given), message, ctypes.c_size_t(1024)) != 0:
            return Outcome(trial.label, float("inf"), message.value.decode(), None)
        whole, memory = memory, memory[: output.reach(trial.pitch)]
        if trial.pitch:
            memory, between = _rows(memory, output, trial.pitch)
            if (between != _POISON).any():
                return Outcome(trial.label, float("inf"), "wrote between rows", None)
        result = logical(memory.view(NUMPY[output.format.dtype]), output.shape, output.format.layout)
        if trial.large:
            if trial.reference is None:
                self._outputs = {index: result}
            error = 0.0 if trial.reference is None else _distance(result, self._outputs[trial.reference])
            return Outcome(trial.label, error, "", float(time_found.value) if trial.timed else None)
        results = [result]
        for begin, more in zip(places[1:], problem.outputs[1:], strict=False):
            values = whole[begin : begin + more.nbytes].view(NUMPY[more.format.dtype])
            results.append(logical(values, more.shape, more.format.layout))
        took = float(time_found.value) if trial.timed else None
        wanted = zip(results, self._expected(layer, stored, trial.there), strict=True)
        return Outcome(trial.label, max(_excess(*pair, layer.tolerance) for pair in wanted), "", took)


def _apart(memory: Array, operand: Operand, pitch: int) -> Array:
    """An input's memory with rows `pitch` elements apart (0: as it is), and NaN or the like between them."""
    if not pitch:
        return memory
    rows = memory.reshape(-1, operand.row)
    found = np.full((len(rows), pitch * rows.itemsize), 0xFF, np.uint8).view(memory.dtype)
    found[:, : operand.row] = rows
    return found.reshape(-1)[: operand.reach(pitch) // rows.itemsize]


def _rows(memory: Array, output: Operand, pitch: int) -> tuple[Array, Array]:
    """The bytes of rows that lie apart, one behind the other, and those between them."""
    size = output.format.dtype.nbytes
    filled = np.concatenate([memory, np.full((pitch - output.row) * size, _POISON, np.uint8)]).reshape(-1, pitch * size)
    return np.ascontiguousarray(filled[:, : output.row * size]).reshape(-1), filled[:, output.row * size :]


def _distance(result: Array, reference: Array) -> float:
    a, b = result.astype(np.float64), reference.astype(np.float64)
    norm = float(np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-30))
    return norm if np.isfinite(norm) else float("inf")


def _excess(result: Array, wanted: Array, tolerance: float) -> float:
    """The largest |result - wanted| / (tolerance * (1 + |wanted|)); NaN where none was wanted is infinite."""
    a, b = result.astype(np.float64), wanted.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore"):  # infinity less itself, which is the same
        excess = np.where(same, 0.0, np.abs(a - b) / (tolerance * (1 + np.abs(b))))
    return float(np.nan_to_num(excess, nan=np.inf).max(initial=0.0))
