"""Targets as rows of data: everything that planning and building must know of a machine.

A recipe names a row ("host"). Another package adds rows through the entry-point group `bolt_build.targets` (each entry
point names a `Target` of its own name). Only this file and `families/` know what kind of machine a row describes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.plugins import Found, plugged


@dataclass(frozen=True)
class Gpu:
    """What planning and building must know of a CUDA GPU.

    `sm` is the compute capability times ten, `sms` the number of multiprocessors. `shared_memory` is the most bytes
    that one block may use, `registers` the 32-bit registers of a multiprocessor, `l2` in bytes. `instructions` gives
    the (m, n, k) of the tensor-core instruction per precision. `overlaps` says that a kernel may begin before the one
    in front of it has ended (programmatic dependent launch). `gencode` are nvcc's flags for the code to embed;
    `embeds_ptx` says that they include PTX, which later GPUs can compile too. `device_names`: the driver's name of such
    a GPU begins with one of them. `memory` is the most bytes that a GPU of these names has, 0 where the row does not
    say: nothing that needs more is planned.
    """

    sm: int
    sms: int
    shared_memory: int
    registers: int
    l2: int
    instructions: tuple[tuple[str, tuple[int, int, int]], ...]
    warp_mma_share: float
    warpgroup_mma: bool
    async_copies: bool
    overlaps: bool
    gencode: tuple[str, ...]
    embeds_ptx: bool
    device_names: tuple[str, ...] = ()
    memory: int = 0

    def instruction(self, precision: str) -> tuple[int, int, int] | None:
        """Shape of the tensor-core instruction for a precision, None where the GPU has none."""
        return dict(self.instructions).get(precision)

    def is_device(self, name: str) -> bool:
        """True where the driver calls a GPU of this row so: "NVIDIA A100 80GB PCIe" is an "NVIDIA A100", not an A10.

        A row without names takes any.
        """
        found = (name.startswith(known) and not name[len(known) :][:1].isalnum() for known in self.device_names)
        return not self.device_names or any(found)


@dataclass(frozen=True)
class Compiler:
    """What compiles the files of an engine that hold kernels (its plans, and units of kernels), where neither the C++
    compiler nor nvcc does.

    `tool` is one of the target's tools, `suffix` ends the names of the files. `arguments` stand behind the program; of
    them `{source}` and `{output}` are a file and the object that is made of it. The target's `compile_flags` follow,
    and a flag `include` for each folder of headers. The object is linked by the C++ compiler.
    """

    tool: str
    suffix: str
    arguments: tuple[str, ...] = ("-c", "{source}", "-o", "{output}", "-fPIC", "-std=c++17")
    include: str = "-I"


@dataclass(frozen=True)
class Target:
    """One machine to build for.

    `where` is the memory that tensors live in ("cpu"; `bolt_where` of the engine's ABI). `families` are kernel
    families in order of preference. `tools` name what the toolchain probe must find. `queues` is the number of
    steps that may run at once: 1 makes the order of steps total, more leaves it partial. Bandwidth is in bytes/s,
    `flops` in operations/s per precision; both only rank alternatives where nothing was measured. `compile_flags` are
    those of the compiler of its kernels, `cxx_flags` those of its other C++ files. `runs_on_threads` says that a run
    takes as many CPU threads as the engine is given, so that its time depends on them.
    """

    name: str
    description: str
    arch: str
    where: str
    precisions: tuple[str, ...]
    families: tuple[str, ...]
    tools: tuple[str, ...]
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    queues: int
    bandwidth: float
    flops: tuple[tuple[str, float], ...]
    launch_seconds: float
    runs_where_built: bool
    cxx_flags: tuple[str, ...] = ()
    gpu: Gpu | None = None
    runs_on_threads: bool = False
    compiler: Compiler | None = None

    @property
    def kernel_suffix(self) -> str:
        """What ends the names of an engine's files that hold kernels or launch them."""
        if self.compiler is not None:
            return self.compiler.suffix
        return "cu" if self.where == "cuda" else "cpp"

    @property
    def tuned(self) -> bool:
        """True where a family has several kernels for a problem, so that measuring them pays."""
        return self.gpu is not None

    def is_device(self, name: str) -> bool:
        """True where a GPU that the driver calls `name` is one of the target's."""
        return self.gpu is not None and self.gpu.is_device(name)

    def rate(self, precision: str) -> float:
        """Peak operations/s for a precision name of `precisions`."""
        return dict(self.flops)[precision]


_HOST_FLAGS = (
    "-march=x86-64-v3", "-fopenmp", "-O3", "-fno-math-errno", "-fno-trapping-math",
    # g++ 12 takes some steps for functions without effect, and leaves out their calls: it loses track of what a loop
    # writes whose two arrays lie in the same arena. Without these it asks no function what it does.
    "-fno-ipa-pure-const", "-fno-ipa-modref",
)  # fmt: skip

HOST = Target(
    name="host",
    description="this kind of CPU (x86-64-v3), through oneDNN",
    arch="x86-64-v3",
    where="cpu",
    precisions=("fp32", "bf16"),
    families=("onednn", "portable"),
    tools=("cxx", "onednn"),
    compile_flags=_HOST_FLAGS,
    cxx_flags=_HOST_FLAGS,
    link_flags=("-ldnnl", "-fopenmp"),
    queues=1,
    bandwidth=20e9,
    flops=(("fp32", 200e9), ("bf16", 400e9)),
    launch_seconds=2e-6,
    runs_where_built=True,
    runs_on_threads=True,
)

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class _Architecture:
    """What all GPUs of one compute capability have in common: flags, shared memory a block, instruction shapes."""

    sm: int
    shared_memory: int
    instruction: tuple[int, int, int]
    async_copies: bool
    gencode: tuple[str, ...]
    warp_mma_share: float = 1.0
    warpgroup_mma: bool = False
    overlaps: bool = False
    embeds_ptx: bool = True


def _with_ptx(sm: int) -> tuple[str, ...]:
    return "-gencode", f"arch=compute_{sm},code=[sm_{sm},compute_{sm}]"


_SM75 = _Architecture(75, 64 * _KIB, (16, 8, 8), async_copies=False, gencode=_with_ptx(75))
_SM80 = _Architecture(80, 163 * _KIB, (16, 8, 16), async_copies=True, gencode=_with_ptx(80))
_SM86 = _Architecture(86, 99 * _KIB, (16, 8, 16), async_copies=True, gencode=_with_ptx(86))
_SM89 = _Architecture(89, 99 * _KIB, (16, 8, 16), async_copies=True, gencode=_with_ptx(89))
# Code for sm_90a runs on Hopper alone, whatever is embedded beside it. Its peak rate takes WGMMA.
_SM90 = _Architecture(
    90, 227 * _KIB, (16, 8, 16), async_copies=True, gencode=("-gencode", "arch=compute_90a,code=sm_90a"),
    warp_mma_share=0.62, warpgroup_mma=True, overlaps=True, embeds_ptx=False,
)  # fmt: skip
# Blackwell lacks Hopper's WGMMA, and there are no kernels for its own (tcgen05): engines have
# those of one warp. What these reach of a B200's peak is reckoned from what a multiprocessor did before.
_SM100 = _Architecture(
    100, 227 * _KIB, (16, 8, 16), async_copies=True, gencode=_with_ptx(100), warp_mma_share=0.26, overlaps=True,
)  # fmt: skip
_SM120 = _Architecture(120, 99 * _KIB, (16, 8, 16), async_copies=True, gencode=_with_ptx(120), overlaps=True)


def _cuda(
    name: str,
    description: str,
    architecture: _Architecture,
    *,
    devices: tuple[str, ...],
    sms: int,
    l2_mib: int,
    memory_gib: int,
    bandwidth: float,
    fp16: float,
    fp32: float,
) -> Target:
    # Tensor cores multiply bf16 from sm_80 on, as fast as fp16 on every row.
    halves = ("fp16", "bf16") if architecture.sm >= 80 else ("fp16",)
    gpu = Gpu(
        sm=architecture.sm,
        sms=sms,
        shared_memory=architecture.shared_memory,
        registers=65536,
        l2=l2_mib * _MIB,
        instructions=tuple((name, architecture.instruction) for name in halves),
        warp_mma_share=architecture.warp_mma_share,
        warpgroup_mma=architecture.warpgroup_mma,
        async_copies=architecture.async_copies,
        overlaps=architecture.overlaps,
        gencode=architecture.gencode,
        embeds_ptx=architecture.embeds_ptx,
        device_names=devices,
        memory=memory_gib * _GIB,
    )
    return Target(
        name=name,
        description=description,
        arch=f"sm_{architecture.sm}",
        where="cuda",
        precisions=(*halves, "fp32"),
        families=("cutlass", "grouped", "attention", "portable"),
        tools=("cxx", "nvcc", "cutlass"),
        compile_flags=("-O3", "-DNDEBUG", "--expt-relaxed-constexpr", "--extended-lambda", *architecture.gencode),
        link_flags=("-lcudart_static", "-ldl", "-lrt", "-lpthread"),
        queues=1,
        bandwidth=bandwidth,
        flops=(*((name, fp16) for name in halves), ("fp32", fp32)),
        launch_seconds=2e-6,
        runs_where_built=False,
        cxx_flags=("-O3",),
        gpu=gpu,
    )


# Memory is that of the largest GPU of a name: an A100 has 40 or 80 GB, and is planned for as one of 80.
# Rates are the vendor's: dense products of half precision with fp32 sums on tensor cores, fp32 without them.
CUDA = (
    _cuda(
        "t4", "NVIDIA T4", _SM75, devices=("Tesla T4", "NVIDIA T4"),
        sms=40, l2_mib=4, memory_gib=16, bandwidth=320e9, fp16=65e12, fp32=8.1e12,
    ),
    _cuda(
        "a100", "NVIDIA A100", _SM80, devices=("NVIDIA A100",),
        sms=108, l2_mib=40, memory_gib=80, bandwidth=2.0e12, fp16=312e12, fp32=19.5e12,
    ),
    _cuda(
        "a10", "NVIDIA A10", _SM86, devices=("NVIDIA A10",),
        sms=72, l2_mib=6, memory_gib=24, bandwidth=600e9, fp16=125e12, fp32=31.2e12,
    ),
    _cuda(
        "rtx3090", "NVIDIA RTX 3090", _SM86, devices=("NVIDIA GeForce RTX 3090",),
        sms=82, l2_mib=6, memory_gib=24, bandwidth=936e9, fp16=71e12, fp32=35.6e12,
    ),
    _cuda(
        "l4", "NVIDIA L4", _SM89, devices=("NVIDIA L4",),
        sms=58, l2_mib=48, memory_gib=24, bandwidth=300e9, fp16=121e12, fp32=30.3e12,
    ),
    _cuda(
        "l40s", "NVIDIA L40S", _SM89, devices=("NVIDIA L40S",),
        sms=142, l2_mib=96, memory_gib=48, bandwidth=864e9, fp16=362e12, fp32=91.6e12,
    ),
    _cuda(
        "h100", "NVIDIA H100 (SXM)", _SM90, devices=("NVIDIA H100",),
        sms=132, l2_mib=50, memory_gib=96, bandwidth=3.35e12, fp16=989e12, fp32=67e12,
    ),
    # Its copies measure 4.3 TB/s of the 4.8 that are stated.
    _cuda(
        "h200", "NVIDIA H200", _SM90, devices=("NVIDIA H200",),
        sms=132, l2_mib=60, memory_gib=141, bandwidth=4.3e12, fp16=989e12, fp32=67e12,
    ),
    # No kernel was measured on these two: kernels are chosen by rules that were fitted to earlier GPUs.
    _cuda(
        "b200", "NVIDIA B200", _SM100, devices=("NVIDIA B200",),
        sms=148, l2_mib=126, memory_gib=192, bandwidth=8.0e12, fp16=2250e12, fp32=75e12,
    ),
    _cuda(
        "rtx5090", "NVIDIA RTX 5090", _SM120, devices=("NVIDIA GeForce RTX 5090",),
        sms=170, l2_mib=96, memory_gib=32, bandwidth=1.79e12, fp16=209e12, fp32=104e12,
    ),
)  # fmt: skip

_BUILT_IN = (HOST, *CUDA)
_PLACES = ("cpu", "cuda")
"""Kinds of memory that the runtime has a device layer for."""


def all_targets() -> tuple[Target, ...]:
    """Every known target, built in first. Raises BoltError where another package's row cannot be used."""
    return (*_BUILT_IN, *(each.thing for each in plugged_targets().checked()))


def sound_targets() -> tuple[Target, ...]:
    """Every target that can be used, whatever is wrong with other packages' rows."""
    return (*_BUILT_IN, *(each.thing for each in plugged_targets().plugged))


def plugged_targets(only: tuple[str, ...] | None = None) -> Found[Target]:
    """The rows of other packages, or those of them called as one of `only`, and what is wrong with some."""
    own = [target.name for target in _BUILT_IN]
    return plugged(group="bolt_build.targets", own=own, check=_why_no_row, only=only)


def _why_no_row(thing: Any) -> str | None:
    """What another package's row lacks of what every build asks of one."""
    if not isinstance(thing, Target):
        return f"is no Target but a {type(thing).__name__}"
    if "cxx" not in thing.tools:
        return "lacks the tool 'cxx', which compiles the runtime and links engines"
    if thing.where not in _PLACES:
        return f"has tensors in the memory of '{thing.where}': engines know {' and '.join(_PLACES)}"
    if thing.compiler is not None and thing.compiler.tool not in thing.tools:
        return f"lacks the tool '{thing.compiler.tool}', its compiler's, among its tools"
    if not thing.precisions or not thing.families:
        return "has no precisions or no kernel families"
    unrated = [name for name in ("fp32", *thing.precisions) if name not in dict(thing.flops)]
    return f"states no rate (flops) for {unrated[0]}" if unrated else None


def target_named(name: str) -> Target:
    """The row called `name`. Raises BoltError ("unknown-target") listing the known ones, or where another package's row
    of that name cannot be used."""
    # Built-in rows first: planning asks often.
    for target in _BUILT_IN:
        if target.name == name:
            return target
    for added in plugged_targets((name,)).checked():
        return added.thing
    known = ", ".join(t.name for t in all_targets())
    raise BoltError([Diagnostic("unknown-target", f"unknown target '{name}'", hint=f"known targets: {known}")])
