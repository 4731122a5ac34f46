"""The recipe as the rest of the program sees it: validated, frozen, with every default filled in.

Keys are said here and nowhere else (`keys.py`); `recipe.schema.json` has what holds of a mapping as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bolt_build.errors import Mark
from bolt_build.schema.keys import Form, key, section

RECIPE_VERSION = 1

Value = bool | int | float | tuple["Value", ...]
"""A number, true or false, or rows of them, as a recipe gives it to an input of the model."""


@dataclass(frozen=True)
class ModelSpec:
    """Exactly one of `onnx` (absolute path) and `zoo` is set. `sizes` has the extents of symbolic dimensions other than
    the batch. `batch` is empty where the recipe leaves it to the model (`OnnxModel.batches`).

    `variant` names the one of the recipe's variants that is built in place of the model itself.
    """

    onnx: str | None = field(
        default=None,
        metadata=key("An ONNX file, relative to the recipe that names it.", form=Form.PATH, optional=True, minLength=1),
    )
    zoo: str | None = field(
        default=None,
        metadata=key(
            "A model that bolt-build writes itself, with seeded weights and calibrated statistics.",
            optional=True, minLength=1, examples=["resnet18", "resnet50", "vgg16", "vgg19", "repvgg_a0"],
        ),
    )  # fmt: skip
    batch: tuple[int, ...] = field(
        default=(),
        metadata=key(
            "Batch sizes: one engine with one plan for each of them, and one table of weights. Default: the model's "
            "own first dimension, 1 where that is symbolic.",
            form=Form.EXTENTS, kind="batches", optional=True,
        ),
    )  # fmt: skip
    sizes: tuple[tuple[str, tuple[int, ...]], ...] = field(
        default=(),
        metadata=key(
            "Sizes of the model's symbolic dimensions other than the batch, by name. Where one has several, the engine "
            "has a plan for each of them with each batch. Inputs with a dimension of size 0 are left out.",
            form=Form.EXTENTS_BY_NAME, kind="sizes", name="dims",
        ),
    )  # fmt: skip
    fixed: tuple[tuple[str, Value], ...] = field(
        default=(),
        metadata=key(
            "Values of inputs of the model, by name, that become constants of it: a sample rate, say. A number in "
            "place of a list stands for all elements.",
            form=Form.VALUES_BY_NAME, kind="value",
        ),
    )  # fmt: skip
    inputs: tuple[str, ...] = field(
        default=(),
        metadata=key(
            "Tensors of the model that are given to it, in place of the nodes that compute them: random numbers, say.",
            form=Form.NAMES, kind="names",
        ),
    )  # fmt: skip
    outputs: tuple[str, ...] = field(
        default=(),
        metadata=key(
            "Tensors of the model that are its outputs in place of its own: those in front of a post-processing, say.",
            form=Form.NAMES, kind="names",
        ),
    )  # fmt: skip
    variant: str | None = field(
        default=None,
        metadata=key(
            "The one of 'variants' that is built in place of the model itself. On the command line, RECIPE@VARIANT.",
            minLength=1,
        ),
    )

    @property
    def changed(self) -> bool:
        """Whether inputs or outputs are other than those of its file."""
        return bool(self.fixed or self.inputs or self.outputs or self.empty)

    @property
    def dims(self) -> tuple[tuple[str, int], ...]:
        """Symbolic dimensions that have one extent, but for those that are `empty`."""
        return tuple((name, extents[0]) for name, extents in self.sizes if len(extents) == 1 and extents != (0,))

    @property
    def empty(self) -> tuple[str, ...]:
        """Symbolic dimensions of the extent 0: inputs with one are left out of the model."""
        return tuple(name for name, extents in self.sizes if extents == (0,))

    @property
    def lengths(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Those that have several, ascending."""
        return tuple((name, extents) for name, extents in self.sizes if len(extents) > 1)

    @property
    def largest(self) -> tuple[tuple[str, int], ...]:
        """The extents of `dims` and `lengths`, the largest of those with several."""
        return tuple((name, extents[-1]) for name, extents in self.sizes if extents != (0,))


@dataclass(frozen=True)
class ActivationChange:
    """`to` in place of the activations whose node's name matches the glob `match`; without one, of every Relu."""

    to: str = field(metadata=key(kind="activation"))
    match: str | None = field(default=None, metadata=key("A glob of ONNX node names.", optional=True, minLength=1))


@dataclass(frozen=True)
class Deepening:
    """A convolution `behind` the block of each that the glob names."""

    behind: str = field(metadata=key("A glob of the names of 3x3 Conv nodes.", minLength=1))


@dataclass(frozen=True)
class Alignment:
    """Hidden channels rounded up to a multiple of `channels`."""

    channels: int = field(metadata=key("The number.", minimum=2, maximum=1024))


@dataclass(frozen=True)
class VariantSpec:
    """Changes of the model, None where there is none."""

    name: str
    activation: ActivationChange | None = field(
        default=None,
        metadata=section(
            "What takes the place of the model's activations: of every Relu, or of the nodes that 'match' names.",
            short="to",
        ),
    )
    deepen: Deepening | None = field(
        default=None,
        metadata=section(
            "A 1x1 convolution with as many channels, a bias and the same activation, behind the activation that "
            "follows a 3x3 convolution."
        ),
    )
    align: Alignment | None = field(
        default=None,
        metadata=section("Hidden channels that are no multiple of a number are rounded up to one."),
    )


@dataclass(frozen=True)
class TargetSpec:
    """A target by the name of its row in `bolt_build.targets`, and what it computes in: the first of the row's
    precisions where the recipe does not say.

    `batch`: sizes of its own, empty where the model's hold (`Recipe.batches` says which).
    """

    name: str
    precision: str = field(
        metadata=key(
            "What layers compute in. Default: what the target is best at, fp32 on the host and fp16 on GPUs.",
            kind="precision", optional=True,
        ),
    )  # fmt: skip
    batch: tuple[int, ...] = field(
        default=(),
        metadata=key(
            "Batch sizes of this target, in place of the model's.", form=Form.EXTENTS, kind="batches", optional=True
        ),
    )


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
    skip: tuple[str, ...] = field(
        default=(),
        metadata=key(
            "Passes of the planner that are left out, by name: 'bolt-build plan' says what each pass did.",
            form=Form.NAMES, kind="names",
        ),
    )  # fmt: skip


@dataclass(frozen=True)
class LayerSpec:
    """Overrides for ONNX nodes whose name matches the glob `match`, None where it has none; of several that match, the
    last one that says something of a key wins. `tolerance` is that of `VerifySpec`, for these layers. What it says of
    padding is in `PaddingPolicy.layers` too, where passes find it."""

    match: str
    precision: str | None = field(default=None, metadata=key(kind="precision", optional=True))
    persistent: str | None = field(default=None, metadata=key(kind="persistent", optional=True))
    tolerance: float | None = field(
        default=None,
        metadata=key(
            "How far verification lets these layers be off: see 'verify.tolerance'.",
            optional=True, minimum=1e-9, maximum=1000,
        ),
    )  # fmt: skip
    padding: str | None = field(default=None, metadata=key(kind="padding", optional=True))


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


VERIFIERS = ("onnxruntime",)
"""Tools that compute what an engine is compared with."""


@dataclass(frozen=True)
class VerifySpec:
    """At most `samples` inputs for each batch, compared with `against`: those of the archive `inputs` (absolute path of
    a .npz), or seeded random ones."""

    against: str = field(
        default=VERIFIERS[0], metadata=key("What computes the expected outputs.", enum=list(VERIFIERS))
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
    engine: EngineSpec = field(metadata=section("Inputs and outputs of the engine."))
    verify: VerifySpec = field(metadata=section("How the built engine is checked."))
    marks: tuple[tuple[str, Mark], ...]
    tuning: TuningSpec = field(
        default=TuningSpec(),
        metadata=section("How kernels are measured on a GPU ('bolt-build tune') and where the choice is kept."),
    )
    variants: tuple[VariantSpec, ...] = ()

    @property
    def writes_model(self) -> bool:
        """Whether its ONNX file is written here: a zoo model, a variant, or one with inputs that are fixed or empty, or
        other inputs or outputs."""
        return self.model.zoo is not None or self.variant is not None or self.model.changed

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
