"""Runs kernels that families emit: many steps in one small library, against NumPy, with guards around every buffer."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
from shared_folders import entered

from bolt_build import runtime
from bolt_build.digest import digest
from bolt_build.dtypes import DType
from bolt_build.families.base import Family, KernelProblem, ProposedStep, Refusal, StepExpressions
from bolt_build.graph.ir import Array, Constant, EpilogueOp, Graph, Layout, Node, Op, TensorType, Value, graph_of
from bolt_build.targets import HOST

NUMPY = {
    DType.F32: np.dtype(np.float32), DType.F16: np.dtype(np.float16), DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.F64: np.dtype(np.float64), DType.I64: np.dtype(np.int64), DType.U8: np.dtype(np.uint8),
    DType.BOOL: np.dtype(np.bool_), DType.I32: np.dtype(np.int32),
    DType.I8: np.dtype(np.int8), DType.U16: np.dtype(np.uint16), DType.I16: np.dtype(np.int16),
}  # fmt: skip
GUARD = 256
GUARD_BYTE = 0xA5
# A third of the time that -O1 takes, a tenth of what -O3 takes; what runs is small. A later -O rules.
SOON_COMPILED = (*HOST.compile_flags, "-O0")
_MOST_OF_A_UNIT = 250
"""Kernels: of more the compiler's time grows faster than they."""


@dataclass(frozen=True)
class Input:
    """One input of a layer: its shape, whether its values are constant, and the range that they are drawn from. So many
    last elements of each row are minus infinity for the first of its images, half as many for the next one. `even` ones
    are no random numbers: along the first axis they go from the lowest to the highest. Where `alike` is above 0 there
    are so many different images, which follow each other again and again; the first of them is zeros. Booleans are true
    where a number would be in the upper half of the range."""

    shape: tuple[int, ...]
    constant: bool = False
    low: float = -2.0
    high: float = 2.0
    dtype: DType = DType.F32
    hidden: int = 0
    even: bool = False
    alike: int = 0


@dataclass(frozen=True)
class Layer:
    """One node to try: the op, its inputs followed by the epilogue's operands."""

    label: str
    op: Op
    inputs: tuple[Input, ...]
    epilogue: tuple[EpilogueOp, ...] = ()
    precision: DType = DType.F32
    tolerance: float = 1e-5


@dataclass(frozen=True)
class Kernel:
    """A step that a family proposed for a layer. `shared` is the input whose memory is the output's, if any."""

    layer: Layer
    family: Family
    step: ProposedStep
    shared: int | None

    @property
    def label(self) -> str:
        formats = "-".join(str(o.format) for o in (*self.step.problem.inputs[:1], *self.step.problem.outputs))
        where = "" if self.shared is None else f"-shares{self.shared}"
        return f"{self.layer.label}-{self.family.name}-{formats}{where}"


def graph_with(layer: Layer) -> tuple[Graph, Node]:
    """A graph of one node; constants have the values that `values_of` gives."""
    names = tuple(f"x{index}" for index in range(len(layer.inputs)))
    types = [TensorType(given.dtype, given.shape) for given in layer.inputs]
    operands = {stage.operand for stage in layer.epilogue}
    (output,) = layer.op.infer([t for index, t in enumerate(types) if index not in operands])
    values = [
        Value(name, t, Constant(_value(layer, index)) if given.constant else None)
        for index, (name, t, given) in enumerate(zip(names, types, layer.inputs, strict=True))
    ]
    node = Node("layer", layer.op, names, ("y",), layer.epilogue)
    inputs = [name for name, given in zip(names, layer.inputs, strict=True) if not given.constant]
    return graph_of("one", 1, inputs, ["y"], [*values, Value("y", output)], [node]), node


def kernels_of(layers: Sequence[Layer], families: Sequence[Family]) -> list[Kernel]:
    """Every kernel that the families propose for the layers, with and without shared memory; views as the copies
    that they can also be."""
    found = []
    for layer in layers:
        graph, node = graph_with(layer)
        for family in families:
            for alternative in family.propose(graph, node, HOST, layer.precision)[0]:
                (step,) = alternative.steps
                shares = [None, *(pair[0] for pair in step.may_share)]
                found += [Kernel(layer, family, step, shared) for shared in shares]
    return found


def refusals_of(layer: Layer, family: Family) -> tuple[Refusal, ...]:
    graph, node = graph_with(layer)
    return family.propose(graph, node, HOST, layer.precision)[1]


def values_of(layer: Layer) -> list[Array]:
    """Seeded random inputs in the graph's element types."""
    return [_value(layer, index) for index in range(len(layer.inputs))]


def _value(layer: Layer, index: int) -> Array:
    """An input by itself: some layers have others that are too large to be made."""
    given = layer.inputs[index]
    array = np.random.RandomState(20 + index).uniform(given.low, given.high, given.shape)
    if given.even:
        array = np.linspace(np.full(given.shape[1:], given.low), given.high, given.shape[0])
    for image in range(given.shape[0] if given.hidden else 0):
        array[image, ..., given.shape[-1] - (given.hidden >> image) :] = -np.inf
    if given.alike:
        array = array[np.arange(given.shape[0]) % given.alike]
        array[:: given.alike] = 0.0
    if given.dtype is DType.BOOL:
        return np.asarray(array >= (given.low + given.high) / 2)
    with np.errstate(over="ignore"):
        return np.asarray(array).astype(NUMPY[given.dtype])


def in_memory(array: Array, layout: Layout) -> Array:
    """The logical array with its axes in the layout's order."""
    last = layout is Layout.CHANNELS_LAST and array.ndim >= 3
    return np.ascontiguousarray(np.moveaxis(array, 1, -1) if last else array)


def logical(array: Array, shape: tuple[int, ...], layout: Layout) -> Array:
    """The inverse of `in_memory` for a flat array."""
    if layout is Layout.CHANNELS_LAST and len(shape) >= 3:
        return np.moveaxis(array.reshape(shape[0], *shape[2:], shape[1]), -1, 1)
    return array.reshape(shape)


def expected(layer: Layer, stored: Sequence[Array]) -> Array:
    """What the layer computes from `stored`, in double precision where it computes."""
    wide = [a.astype(np.float64) if given.dtype.is_float else a for a, given in zip(stored, layer.inputs, strict=True)]
    operands = {stage.operand for stage in layer.epilogue}
    (value,) = layer.op.evaluate([a for index, a in enumerate(wide) if index not in operands])
    for stage in layer.epilogue:
        if stage.operand is None:
            (value,) = stage.op.evaluate([value])
        else:
            sides = [value, wide[stage.operand]]
            (value,) = stage.op.evaluate(sides[::-1] if stage.swapped else sides)
    return value


LIBRARY = "kernels.so"


class Library:
    """The compiled kernels. `run(index, threads)` gives kernel `index`'s output and what was expected of it.

    `flags` are HOST.compile_flags for kernels that are compiled as those of engines are. What another worker of the run
    has compiled into the folder is used as it is.
    """

    def __init__(self, kernels: Sequence[Kernel], folder: Path, flags: Sequence[str] = SOON_COMPILED) -> None:
        self.kernels = list(kernels)
        path = folder / LIBRARY
        self._library = ctypes.CDLL(str(path if path.exists() else _compile(self.kernels, folder, flags)))
        self._library.failure.restype = ctypes.c_char_p
        self._library.shared_keys.restype = ctypes.c_char_p

    def run(self, index: int, threads: int) -> tuple[Array, Array]:
        kernel = self.kernels[index]
        problem, layer = kernel.step.problem, kernel.layer
        stored = [
            array.astype(NUMPY[operand.format.dtype])
            for array, operand in zip(values_of(layer), problem.inputs, strict=True)
        ]
        memories = [
            in_memory(array, operand.format.layout) for array, operand in zip(stored, problem.inputs, strict=True)
        ]
        output = problem.outputs[0]
        guarded = np.full(output.nbytes + 2 * GUARD, GUARD_BYTE, np.uint8)
        inside = guarded[GUARD : GUARD + output.nbytes]
        if kernel.shared is not None:
            inside[...] = memories[kernel.shared].reshape(-1).view(np.uint8)
        before = [memory.tobytes() for memory in memories]
        pointers = (ctypes.c_void_p * len(memories))(*(memory.ctypes.data for memory in memories))
        entry = getattr(self._library, f"kernel_{index}")
        assert entry(pointers, ctypes.c_void_p(inside.ctypes.data), threads) == 0, self._library.failure().decode()
        assert (guarded[:GUARD] == GUARD_BYTE).all(), "wrote before its output"
        assert (guarded[GUARD + output.nbytes :] == GUARD_BYTE).all(), "wrote behind its output"
        assert [memory.tobytes() for memory in memories] == before, "wrote into an input"
        result = logical(inside.view(NUMPY[output.format.dtype]), output.shape, output.format.layout)
        return result, expected(layer, stored)

    def shared_keys(self) -> list[str]:
        """Keys under which the kernel that ran last keeps memory shared by all plans of a model."""
        found: bytes = self._library.shared_keys()
        return found.decode().splitlines()


def _compile(kernels: Sequence[Kernel], folder: Path, flags: Sequence[str]) -> Path:
    """In one unit, as headers take long, or in two side by side; and the families' own, once a run of the tests."""
    prefix = Path(sys.prefix)
    flags = ["-std=c++17", "-Wno-c++20-extensions", *flags, "-fPIC", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    includes = [f"-I{runtime.include_dir()}", f"-I{prefix / 'include'}"]
    includes += [f"-I{path}" for path in dict.fromkeys(str(kernel.family.include_dir) for kernel in kernels)]
    entries = [_entry(index, kernel) for index, kernel in enumerate(kernels)]
    parts = 2 if len(entries) > _MOST_OF_A_UNIT else 1
    for part in range(parts):
        chosen = entries[len(entries) * part // parts : len(entries) * (part + 1) // parts]
        headers = dict.fromkeys(header for _, found in chosen for header in found)
        text = _PRELUDE + "".join(f'#include "{header}"\n' for header in headers) + "".join(code for code, _ in chosen)
        (folder / f"part{part}.cpp").write_text(text + ("" if part else _FAILURE))
    own = dict.fromkeys(path for kernel in kernels for path in kernel.family.sources)
    command = ("g++", *flags, *includes)
    with ThreadPoolExecutor(parts) as pool:
        made = list(pool.map(lambda part: _object(command, folder / f"part{part}.cpp", folder), range(parts)))
    objects = [*made, *(_shared_object(command, path) for path in own)]
    library = folder / LIBRARY
    link = ["g++", "-shared", "-o", str(library), *map(str, objects), f"-L{prefix / 'lib'}", *HOST.link_flags]
    subprocess.run([*link, f"-Wl,-rpath,{prefix / 'lib'}"], check=True)
    return library


def _object(command: tuple[str, ...], source: Path, folder: Path) -> Path:
    """In a folder of its own, unless it is there."""
    target = folder / f"{source.stem}.o"
    if target.exists():
        return target
    done = subprocess.run([*command, "-c", source, "-o", target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:6000]
    return target


def _shared_object(command: tuple[str, ...], source: Path) -> Path:
    """A family's own source, which takes most of a library's time."""
    with entered(f"family-object-{digest([*command, str(source)])[:16]}") as folder:
        return _object(command, source, folder)


def _expressions(kernel: Kernel) -> StepExpressions:
    problem: KernelProblem = kernel.step.problem
    inputs = tuple(
        "r.output(0)" if index == kernel.shared else f"r.weight({index})" if operand.constant else f"r.input({index})"
        for index, operand in enumerate(problem.inputs)
    )
    prepare = tuple(f"p.weight({i})" if operand.constant else None for i, operand in enumerate(problem.inputs))
    return StepExpressions(inputs, ("r.output(0)",), prepare)


def _entry(index: int, kernel: Kernel) -> tuple[str, tuple[str, ...]]:
    problem = kernel.step.problem
    ((candidate, *_), refused) = kernel.family.candidates(problem, HOST)
    assert not refused
    code = kernel.family.emit(problem, candidate, HOST, _expressions(kernel))
    sizes = ", ".join(str(operand.nbytes) for operand in problem.inputs)
    body = code.call
    made = "" if code.member_type is None else f"{code.member_type} kernel(p, {code.member_arguments});"
    scratch = "0" if code.member_type is None else "kernel.scratch_bytes()"
    text = f"""
// {kernel.label}
extern "C" int kernel_{index}(const void* const* inputs, void* output, int threads) {{
  return guarded([&] {{
    omp_set_num_threads(threads);
    Preparing p(inputs, {{{sizes}}}, threads);
    {made}
    p.forget();
    Running r(inputs, output, {scratch}, threads);
    {body}
    r.check();
  }});
}}
"""
    return text, code.includes


_FAILURE = """
std::string message;
std::string keys;
extern "C" const char* failure() { return message.c_str(); }
extern "C" const char* shared_keys() { return keys.c_str(); }
"""

_PRELUDE = """
#include <omp.h>
#include <cstring>
#include <stdexcept>
#include <vector>
#include "bolt/plan.h"

extern std::string message;
extern std::string keys;

namespace {

// Weights live in copies that are spoilt once the kernel is made, as a loader may do.
class Preparing : public bolt::Prepare {
 public:
  Preparing(const void* const* inputs, std::vector<std::size_t> sizes, int threads) : threads_(threads) {
    keys.clear();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const char* from = static_cast<const char*>(inputs[i]);
      copies_.emplace_back(from, from + sizes[i]);
    }
  }
  int threads() const override { return threads_; }
  const void* weight(int index) const override { return copies_[index].data(); }
  std::shared_ptr<const void> shared(const std::string& key, std::size_t bytes,
                                     bolt::FunctionRef<void(void*)> fill) const override {
    keys += key + "\\n";
    void* memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    fill(memory);
    return {memory, std::free};
  }
  void forget() {
    for (auto& copy : copies_) std::memset(copy.data(), 0xff, copy.size());
  }

 private:
  std::vector<std::vector<char>> copies_;
  int threads_;
};

class Running : public bolt::Run {
 public:
  Running(const void* const* given, void* output, std::size_t scratch, int count)
      : bytes_((scratch + 63) / 64 * 64), memory_(static_cast<std::byte*>(std::aligned_alloc(64, bytes_ + 64))) {
    std::memset(memory_, 0xa5, bytes_ + 64);
    output_ = output;
    arena_base = nullptr;
    scratch_base = memory_;
    inputs = given;
    weights = given;
    outputs = &output_;
    stream = nullptr;
    threads = count;
  }
  ~Running() { std::free(memory_); }
  void check() const {
    for (std::size_t i = 0; i < 64; ++i)
      if (memory_[bytes_ + i] != std::byte{0xa5}) throw std::runtime_error("wrote behind its scratch memory");
  }

 private:
  std::size_t bytes_;
  std::byte* memory_;
  void* output_;
};

template <typename Body>
int guarded(const Body& body) {
  try {
    body();
    return 0;
  } catch (const std::exception& error) {
    message = error.what();
    return 1;
  }
}

}  // namespace
"""
