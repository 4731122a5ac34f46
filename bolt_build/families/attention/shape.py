"""A problem as the kernels compute it: extents, strides of rows, the mask; and which problems are none of theirs."""

from __future__ import annotations

from dataclasses import dataclass
from math import e, log2, prod

from bolt_build.dtypes import DType
from bolt_build.families.base import KernelProblem, StepExpressions
from bolt_build.families.common.attention import mask_images, mask_steps
from bolt_build.families.common.cxx import boolean, braces, literal, struct
from bolt_build.families.common.element_types import COMPUTED, HALVES, element
from bolt_build.families.reason import Reason
from bolt_build.graph.ir import Layout
from bolt_build.graph.ops.attention.attention import Attention

SPACE = "bolt::attention"
MOST = 256
"""Elements of the longest heads that kernels have."""
_LEAST_SCALE = 2**-8
"""Of scores whose constant mask is kept in half precision: its least number is -256 beside the largest of its row."""


@dataclass(frozen=True)
class Shape:
    """Attention of `heads` heads, of which `group` neighbours share keys and values. Heads of queries and keys have
    `depth` elements, those of values `columns`; `widths` are the elements of one access to queries and keys, to values
    and to the output. `mask` is the C++ type of the mask's elements, empty where there is none. `nbytes` are all that
    must move once. `dtype` is the type of queries, keys, values and results. `counted`: a run tells how many keys are
    no padding. Images of one mask are `masks` apart: 1 where all share it or have none. `by_query`: queries have rows
    of the mask of their own. `prepared`: these are a constant, which is put in the kernels' order ahead. `of_keys`: all
    queries of a head share the mask. `window` and `capped` are as in the operator. `sinks` is the C++ type of sinks,
    empty where there are none. `twice`: there is a further constant mask, of images.
    `relative`: the mask has one number for each distance."""

    batch: int
    heads: int
    group: int
    queries: int
    keys: int
    depth: int
    columns: int
    widths: tuple[int, int, int]
    causal: bool
    mask: str
    nbytes: int
    dtype: DType = DType.F16
    counted: bool = False
    masks: int = 1
    by_query: bool = False
    prepared: bool = False
    of_keys: bool = False
    window: int = 0
    capped: bool = False
    sinks: str = ""
    twice: bool = False
    relative: bool = False

    @property
    def of_heads(self) -> tuple[int, int]:
        """`depth` and `columns` with the zeros that make them whole instructions."""
        return aligned(self.depth), aligned(self.columns)

    @property
    def mask_type(self) -> str:
        """What the kernels are instantiated with."""
        if self.prepared:
            return f"{SPACE}::Prepared{'Twice' if self.twice else ''}"
        mask = f"{SPACE}::Relative" if self.relative else self.mask
        seen = mask or f"{SPACE}::{'Counted' if self.counted else 'Unmasked'}"
        for bound, name in ((self.window, "Windowed"), (self.capped, "Capped")):
            seen = f"{SPACE}::{name}<{seen}>" if bound else seen
        return f"{SPACE}::Sunk<{seen}, {self.sinks}>" if self.sinks else seen

    @property
    def element(self) -> str:
        """What C++ types of tiles end with that do not compute in f16: `, bolt::portable::bf16`."""
        return element(self.dtype)

    @property
    def staged(self) -> bool:
        """Whether a step's part of the mask is copied to shared memory where kernels have room for it."""
        return self.by_query and not self.prepared and not self.relative

    @property
    def staged_element(self) -> str:
        """The same of tiles that are told whether a mask is staged."""
        return f", {COMPUTED[self.dtype]}, true" if self.staged else self.element

    @property
    def mask_size(self) -> int:
        """Bytes of an element of the mask as kernels load it."""
        return 4 if self.mask == COMPUTED[DType.F32] and not self.prepared else 2

    @property
    def pairs(self) -> int:
        """Heads of all images."""
        return self.batch * self.heads

    def span(self, first: int, rows: int) -> tuple[int, int]:
        """The first key that any of `rows` queries from `first` on reads, in whole sixteens, and the end of them: what
        a block goes through."""
        begin = max(0, first - self.window + 1) // 16 * 16 if self.window else 0
        last = first + rows
        end = last if self.causal else last - 1 + self.window if self.window else self.keys
        return begin, min(self.keys, end)

    def tile_steps(self, rows: int, keys: int) -> list[int]:
        """Steps of `keys` keys that each tile of `rows` queries takes."""
        spans = (self.span(first, rows) for first in range(0, self.queries, rows))
        return [-(-(end - begin) // keys) for begin, end in spans]

    def steps(self, rows: int, keys: int) -> float:
        """Steps of `keys` keys that a tile of `rows` queries takes, on average."""
        if not self.causal and not self.window:
            return float(-(-self.keys // keys))
        found = self.tile_steps(rows, keys)
        return sum(found) / len(found)

    def most_steps(self, rows: int, keys: int) -> int:
        """Those of the tile that takes most."""
        return max(self.tile_steps(rows, keys)) if self.window else -(-self.keys // keys)


def refuse(problem: KernelProblem) -> str | None:
    """A reason why no kernel of this family computes the attention."""
    op = problem.op
    assert isinstance(op, Attention)
    if problem.epilogue:
        return "takes no epilogue"
    own, dtype = problem.inputs[: op.sources], problem.outputs[0].format.dtype
    for operand in (*own, *problem.outputs):
        if operand.format.dtype not in HALVES:
            return f"takes tensors in f16 or bf16, not in {operand.format.dtype.value}"
        if operand.format.dtype is not dtype:
            return f"stores {dtype.value} where it reads that, not {operand.format.dtype.value}"
    for operand in problem.inputs[op.sources :]:
        if operand.format.dtype not in (dtype, DType.F32):
            what = "masks" if operand in op.masks(problem.inputs) else "sinks"
            return f"adds {what} in {dtype.value} or f32, not in {operand.format.dtype.value}"
    if any(operand.format.layout is not Layout.ROW for operand in (*problem.inputs, *problem.outputs)):
        return "reads and writes row-major tensors alone"
    if op.counted and len(problem.inputs) > op.sources:
        what = "a mask" if op.masks(problem.inputs) else "sinks"
        return f"takes {what} or the number of keys, not both"
    if len(op.masks(problem.inputs)) > 1 and not (all(mask_steps(problem)[2:]) and _prepared(problem)):
        return "adds one mask, or two that are constants"
    if op.sunk and op.masks(problem.inputs) and not mask_steps(problem)[3]:
        return "leaves out of scores what all keys of a query share, which sinks do not"
    if op.relative and not _constant_masks(problem):
        return "reads a mask by distance where it is a constant, and neither keys nor values are"
    by_query = mask_steps(problem)[2] and not (op.relative and not op.cap)
    if (op.window or op.cap) and (op.counted or by_query):
        return f"has {'a window' if op.window else 'a cap'}, or a mask by queries or the number of keys, not both"
    if not op.scale > 0:
        return Reason("scales scores by a number above 0, not by {}", op.scale)
    shape = op.extents([operand.type for operand in problem.inputs])
    if (longest := max(shape.depth, shape.columns)) > MOST:
        return Reason("has heads of at most {} elements, not of {}", MOST, longest)
    if (largest := max(prod(operand.shape) for operand in problem.inputs)) >= 1 << 31:
        return Reason("a tensor of {} elements is beyond the reach of 32-bit indices", largest)
    return None


def shape_of(problem: KernelProblem) -> Shape:
    """The shape of a problem that `refuse` does not refuse."""
    op = problem.op
    assert isinstance(op, Attention)
    found = op.extents([operand.type for operand in problem.inputs])
    rows = [operand.row for operand in problem.inputs[: op.sources]] * (3 // op.sources)
    widths = (wide(found.depth, rows[0], rows[1]), wide(found.columns, rows[2]), wide(found.columns))
    masks, sinks, steps = op.masks(problem.inputs), op.sinks(problem.inputs), _mask_steps(problem)
    by_query = all(steps[2:])
    heads, group, queries = _heads(problem)
    return Shape(
        found.batch, heads, group, queries, found.keys, found.depth, found.columns, widths,
        op.causal, COMPUTED[masks[0].format.dtype] if masks else "", problem.nbytes,
        problem.outputs[0].format.dtype, op.counted > 0, max(mask_images(problem, which) for which in (0, 1)),
        by_query, by_query and _prepared(problem), bool(masks) and steps[2] == 0, op.window, op.cap > 0.0,
        COMPUTED[sinks[0].format.dtype] if sinks else "", len(masks) > 1, op.relative,
    )  # fmt: skip


def heads_are_rows(problem: KernelProblem) -> bool:
    """Whether heads that share keys and values are taken as queries of one head, as where a decoder writes one token:
    a block has them all as its rows, and reads their keys once. For several queries they would be rows of two kinds."""
    op = problem.op
    assert isinstance(op, Attention)
    found = op.extents([operand.type for operand in problem.inputs])
    alike = op.heads > op.kv_heads and found.queries == 1 and not op.causal and not op.window
    return alike and not op.relative and not (op.cap and mask_steps(problem)[1])


def _heads(problem: KernelProblem) -> tuple[int, int, int]:
    """Heads, those that share keys and values, and queries, as kernels compute them."""
    op = problem.op
    assert isinstance(op, Attention)
    group = op.heads // op.kv_heads
    if heads_are_rows(problem):
        return op.kv_heads, 1, group
    return op.heads, group, op.extents([operand.type for operand in problem.inputs]).queries


def _mask_steps(problem: KernelProblem, which: int = 0) -> tuple[int, ...]:
    """`mask_steps` along image, head, query and key as kernels compute them."""
    steps, op = mask_steps(problem, which), problem.op
    assert isinstance(op, Attention)
    if heads_are_rows(problem):
        return (steps[0], steps[1] * (op.heads // op.kv_heads), steps[1], steps[3])
    return steps


def _sink_steps(problem: KernelProblem) -> tuple[int, int]:
    """Elements from a head's sink to the next, and from that of a query, as kernels compute them."""
    op = problem.op
    assert isinstance(op, Attention)
    each = int(problem.inputs[-1].shape[0] > 1)
    return (op.heads // op.kv_heads * each, each) if heads_are_rows(problem) else (each, 0)


def _prepared(problem: KernelProblem) -> bool:
    """Whether the mask is put in the kernels' order when the model is created. Divided by a smaller scale, half
    precision would not hide what is far below the rest of its row. Beside sinks rows could not be what is left of their
    largest element."""
    op = problem.op
    assert isinstance(op, Attention)
    masks = op.masks(problem.inputs)
    if op.sunk or op.relative or not masks or any(mask_images(problem, which) > 1 for which in range(len(masks) - 1)):
        return False
    return _constant_masks(problem) and op.scale >= _LEAST_SCALE


def _constant_masks(problem: KernelProblem) -> bool:
    """Whether masks can be read when the model is created: then a kernel reads no constant but input 0 later."""
    op = problem.op
    assert isinstance(op, Attention)
    others = problem.inputs[1 : op.sources]
    return all(mask.constant for mask in op.masks(problem.inputs)) and not any(operand.constant for operand in others)


def arguments(problem: KernelProblem, at: StepExpressions, which: int = 0) -> str:
    """`bolt::attention::Arguments{...}` with one of the masks, all but the pointers."""
    op = problem.op
    assert isinstance(op, Attention)
    shape = op.extents([operand.type for operand in problem.inputs])
    output = problem.outputs[0]
    extents = (shape.queries, shape.keys, shape.keys)
    heads, group, queries = _heads(problem)
    if op.packed:
        row = at.input_pitch(0) or problem.inputs[0].row
        own, of_keys = op.heads * shape.depth, op.kv_heads * shape.depth
        sources = [_rows(first, shape.queries, row) for first in (0, own, own + of_keys)]
    else:
        sources = [_rows(0, n, at.input_pitch(i) or problem.inputs[i].row) for i, n in enumerate(extents)]
    stored = _rows(0, shape.queries, at.pitch(0) or output.row)
    if heads_are_rows(problem):
        row = at.input_pitch(0) or problem.inputs[0].row
        sources[0] = braces((0, row, shape.depth, queries * shape.depth))
        stored = braces((0, at.pitch(0) or output.row, shape.columns, queries * shape.columns))
    return struct(
        f"{SPACE}::Arguments",
        batch=shape.batch,
        heads=heads,
        group=group,
        queries=queries,
        keys=shape.keys,
        scale=literal((op.cap or op.scale) * log2(e)),
        causal=boolean(op.causal),
        safe=boolean(op.safe),
        tied=boolean(op.tied),
        q_rows=sources[0],
        k_rows=sources[1],
        v_rows=sources[2],
        y_rows=stored,
        mask_steps=braces(_mask_steps(problem, which)),
        mask_images=mask_images(problem, which),
        mask_scale=literal(1 / (op.cap or op.scale)),
        **({"window": op.window} if op.window else {}),
        **({"cap_scale": literal(2 * log2(e) * op.scale / op.cap)} if op.cap else {}),
        **({"sink_steps": braces(_sink_steps(problem))} if op.sunk else {}),
    )


def _rows(first: int, count: int, row: int) -> str:
    return braces((first, count * row, row))


def boxed(value: int) -> int:
    """Elements of boxes of a head, zeros behind the last included: `even_width` of warpgroup.h."""
    return aligned(value, 32) if value > 16 else 16


def wide(*values: int) -> int:
    """Elements of the widest access of up to 16 bytes that suits rows of all these lengths."""
    return next(size for size in (8, 4, 2, 1) if all(value % size == 0 for value in values))


def aligned(value: int, to: int = 16) -> int:
    """The next multiple."""
    return -(-value // to) * to
