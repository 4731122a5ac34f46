"""The recipe as the rest of the program sees it: validated, frozen, with every default filled in.

Sections of keys (`policy`, `engine`, `verify`, `tuning`) say here what their keys are, and nowhere else (`keys.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bolt_build.errors import Mark
from bolt_build.schema.keys import Form, key, section

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
    """`persistent`: two products, or a Conv and the MaxPool behind it, in one kernel where that is faster ("auto"),
    wherever it is possible ("always") or nowhere ("never")."""

    epilogue: bool = field(
        default=True,
        metadata=key("Bias, residual and activation ride in the kernel of the Conv or Gemm before them."),
    )
    persistent: str = field(default="auto", metadata=key(kind="persistent"))


@dataclass(frozen=True)
class PaddingPolicy:
    """Channels that are no multiple of `alignment`, filled up with zeros: where that is faster ("auto"), wherever it is
    possible ("always") or nowhere ("never"). `layers` are globs of ONNX nodes with a mode of their own; of several that
    match, the last one holds."""

    mode: str = field(default="auto", metadata=key(kind="padding"))
    alignment: int = field(
        default=8,
        metadata=key(
            "Channels are padded to a multiple of it: the elements that a kernel loads at once, 16 bytes in half "
            "precision where it is 8.",
            enum=[2, 4, 8],
        ),
    )
    layers: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Policy:
    fusion: FusionPolicy = field(
        default=FusionPolicy(), metadata=section("Which operations ride together in one kernel.")
    )
    padding: PaddingPolicy = field(
        default=PaddingPolicy(),
        metadata=section(
            "Channels that are no whole loads, filled up with zeros: stored so by the kernel before, or copied so by "
            "the kernel that reads them."
        ),
    )


@dataclass(frozen=True)
class LayerSpec:
    """Overrides for ONNX nodes whose name matches the glob `match`, None where it has none; of several that match, the
    last one that says something of a key wins. `tolerance` is that of `VerifySpec`, for these layers. What it says of
    padding is in `PaddingPolicy.layers` too, where passes find it."""

    match: str
    precision: str | None = field(default=None, metadata=key(kind="precision"))
    persistent: str | None = field(default=None, metadata=key(kind="persistent"))
    tolerance: float | None = field(
        default=None,
        metadata=key(
            "How far verification lets these layers be off: see 'verify.tolerance'.", minimum=1e-9, maximum=1000
        ),
    )
    padding: str | None = field(default=None, metadata=key(kind="padding"))


@dataclass(frozen=True)
class IoSpec:
    """Inputs and outputs."""

    dtype: str = field(
        default="model",
        metadata=key(
            "Element type of floating-point inputs and outputs; 'model' is the model's own.",
            enum=["model", "fp32", "fp16", "bf16"],
        ),
    )
    layout: str = field(
        default="model",
        metadata=key(
            "Order of the axes of inputs and outputs; 'model' is the model's own.",
            enum=["model", "row", "channels_last"],
        ),
    )


@dataclass(frozen=True)
class EngineSpec:
    io: IoSpec = field(default=IoSpec(), metadata=section("The engine's inputs and outputs."))


@dataclass(frozen=True)
class VerifySpec:
    """At most `samples` inputs for each batch, compared with `against`: those of the archive `inputs` (absolute path of
    a .npz), or seeded random ones."""

    against: str = field(
        default="onnxruntime", metadata=key("What computes the expected outputs.", enum=["onnxruntime"])
    )
    samples: int = field(default=4, metadata=key("Seeded random inputs for each batch size.", minimum=1, maximum=1024))
    seed: int = field(default=0, metadata=key("Seed of the random inputs.", minimum=0, maximum=4294967295))
    tolerance: float | None = field(
        default=None,
        metadata=key(
            "The largest difference allowed, as a part of the root mean square of the reference's tensor, in layers "
            "and outputs. Without it, layers are judged by what rounding of their own inputs can do.",
            minimum=1e-9, maximum=1000,
        ),
    )  # fmt: skip
    inputs: str | None = field(
        default=None,
        metadata=key(
            "A .npz file, relative to the recipe that names it, with an array for each input, to verify on in place of "
            "random inputs: rows along the first axis, as many as there are.",
            form=Form.PATH, minLength=1,
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class TuningSpec:
    """How kernels are measured and chosen. `budget` is in seconds of the GPU's time, `lock` an absolute path."""

    candidates: int = field(
        default=6,
        metadata=key(
            "Kernels to compile and measure for each problem at most, those predicted fastest.",
            minimum=1, maximum=10000,
        ),
    )  # fmt: skip
    budget: int = field(
        default=1200,
        metadata=key(
            "Time that measuring kernels may take, and playing whole engines again: a number and its unit, such as "
            "90s, 20min or 2h.",
            form=Form.DURATION,
        ),
    )
    lock: str | None = field(
        default=None,
        metadata=key(
            "The file, relative to the recipe that names it, that 'bolt-build tune' writes what it chose to and that "
            "every build takes kernels from. Without it, or while it is not there, kernels are chosen by prediction.",
            form=Form.PATH, minLength=1,
        ),
    )  # fmt: skip
    engine: bool = field(
        default=True,
        metadata=key("Measure whole engines too, and take what is faster in them in place of what is fastest alone."),
    )
    foreign: bool = field(
        default=False, metadata=key("Take kernels that were measured on another GPU than the target's, too.")
    )


@dataclass(frozen=True)
class Recipe:
    """A whole recipe. `path` is the file it came from; `marks` say where each dotted key stands in it."""

    path: str
    name: str
    model: ModelSpec
    targets: tuple[TargetSpec, ...]
    policy: Policy = field(metadata=section("How the planner may change the graph."))
    layers: tuple[LayerSpec, ...]
    engine: EngineSpec = field(metadata=section("The border of the engine."))
    verify: VerifySpec = field(metadata=section("How the built engine is checked."))
    marks: tuple[tuple[str, Mark], ...]
    tuning: TuningSpec = field(
        default=TuningSpec(),
        metadata=section("How kernels are measured on a GPU ('bolt-build tune') and where the choice is kept."),
    )
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
