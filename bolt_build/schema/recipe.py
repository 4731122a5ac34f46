"""The recipe as the rest of the program sees it: validated, frozen, with every default filled in."""

from __future__ import annotations

from dataclasses import dataclass

from bolt_build.errors import Mark

RECIPE_VERSION = 1


@dataclass(frozen=True)
class ModelSpec:
    """Exactly one of `onnx` (absolute path) and `zoo` is set. `dims` binds symbolic dimensions other than the batch
    that have one extent, `lengths` has those with several, ascending. `batch` is empty where the recipe leaves it to
    the model (`OnnxModel.batches`).

    `variant` names the one of the recipe's variants that is built in place of the model itself.
    """

    onnx: str | None
    zoo: str | None
    batch: tuple[int, ...]
    dims: tuple[tuple[str, int], ...]
    variant: str | None = None
    lengths: tuple[tuple[str, tuple[int, ...]], ...] = ()

    @property
    def largest(self) -> tuple[tuple[str, int], ...]:
        """The extents of all these dimensions, the largest of those with several."""
        return (*self.dims, *((name, extents[-1]) for name, extents in self.lengths))


@dataclass(frozen=True)
class ActivationChange:
    """`to` ("relu", "gelu", "hardswish", "silu" or "softplus") in place of the activations whose node's name matches
    the glob `match`; without one, of every Relu."""

    to: str
    match: str | None = None


@dataclass(frozen=True)
class VariantSpec:
    """A change of the model: another `activation`, a 1x1 convolution behind the block of every 3x3 convolution whose
    node's name matches the glob `deepen`, hidden channels rounded up to a multiple of `align`."""

    name: str
    activation: ActivationChange | None = None
    deepen: str | None = None
    align: int | None = None


@dataclass(frozen=True)
class TargetSpec:
    """A target by the name of its row in `bolt_build.targets`, and what it computes in ("fp32", "bf16", "fp16"): the
    first of the row's precisions where the recipe does not say.

    `batch`: sizes of its own, empty where the model's hold (`Recipe.batches` says which).
    """

    name: str
    precision: str
    batch: tuple[int, ...] = ()


@dataclass(frozen=True)
class FusionPolicy:
    """`epilogue`: bias, residual and activation ride in the kernel of the Conv/Gemm before them. `persistent`: two of
    those, or a Conv and the MaxPool behind it, in one kernel where that is faster ("auto"), wherever it is possible
    ("always") or nowhere ("never")."""

    epilogue: bool
    persistent: str = "auto"


@dataclass(frozen=True)
class PaddingPolicy:
    """Channels that are no multiple of `alignment`, filled up with zeros: where that is faster ("auto"), wherever it is
    possible ("always") or nowhere ("never"). `layers` are globs of ONNX nodes with a mode of their own; of several that
    match, the last one holds."""

    mode: str = "auto"
    alignment: int = 8
    layers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Policy:
    fusion: FusionPolicy
    padding: PaddingPolicy = PaddingPolicy()


@dataclass(frozen=True)
class LayerSpec:
    """Overrides for ONNX nodes whose name matches the glob `match`, None where it has none; of several that match, the
    last one that says something of a key wins. `tolerance` is that of `VerifySpec`, for these layers. What it says of
    padding is in `PaddingPolicy.layers`, where passes find it."""

    match: str
    precision: str | None = None
    persistent: str | None = None
    tolerance: float | None = None


@dataclass(frozen=True)
class IoSpec:
    """Inputs and outputs. `dtype`: "model", "fp32", "fp16" or "bf16"; `layout`: "model", "row" or "channels_last"."""

    dtype: str
    layout: str


@dataclass(frozen=True)
class EngineSpec:
    io: IoSpec


@dataclass(frozen=True)
class VerifySpec:
    """At most `samples` inputs for each batch, compared with `against` ("onnxruntime"): those of the archive `inputs`
    (absolute path of a .npz), or seeded random ones.

    `tolerance` is the largest difference allowed, as a part of the root mean square of the reference's tensor, in
    layers and outputs; where it is None, they are judged by what rounding can do.
    """

    against: str
    samples: int
    seed: int
    tolerance: float | None = None
    inputs: str | None = None


@dataclass(frozen=True)
class TuningSpec:
    """How kernels are measured and chosen: at most so many `candidates` a problem, in `budget` seconds of the GPU's
    time, and then in whole engines where `engine` says so. `lock` is the absolute path of the file that holds what was
    chosen; with `foreign` it may be of another GPU.
    """

    candidates: int = 6
    budget: int = 1200
    lock: str | None = None
    foreign: bool = False
    engine: bool = True


@dataclass(frozen=True)
class Recipe:
    """A whole recipe. `path` is the file it came from; `marks` say where each dotted key stands in it."""

    path: str
    name: str
    model: ModelSpec
    targets: tuple[TargetSpec, ...]
    policy: Policy
    layers: tuple[LayerSpec, ...]
    engine: EngineSpec
    verify: VerifySpec
    marks: tuple[tuple[str, Mark], ...]
    tuning: TuningSpec = TuningSpec()
    variants: tuple[VariantSpec, ...] = ()

    @property
    def variant(self) -> VariantSpec | None:
        """The variant that is built, None for the model itself."""
        return next((spec for spec in self.variants if spec.name == self.model.variant), None)

    def batches(self, spec: TargetSpec) -> tuple[int, ...]:
        """The batch sizes that the recipe gives the engine of a target; none where it leaves them to the model."""
        return spec.batch or self.model.batch

    def mark(self, key: str) -> Mark | None:
        """Where the dotted `key` ("model.onnx"), or the nearest key above it that is written, stands."""
        marks = dict(self.marks)
        while key:
            if key in marks:
                return marks[key]
            key = key.rpartition(".")[0]
        return None
