"""GroupQueryAttention of the domain com.microsoft: decoders with a cache of keys and values, as they are exported.

Defined in onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.example import Data, Example, Integers
from bolt_build.graph.importing import Importer, NodeImport, Refusal
from bolt_build.graph.ir import Array, ShapeError
from bolt_build.graph.ops.attention.attention import Attention
from bolt_build.graph.ops.attention.attention_import import Sizes, rows_of, spelled, together
from bolt_build.graph.ops.attention.rotary import rotated
from bolt_build.graph.ops.contrib.contrib_attention import by_head
from bolt_build.graph.ops.contrib.contrib_rotary import angles
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.logic import Compare, Where
from bolt_build.graph.ops.moves.gather import Gather, GatherND
from bolt_build.graph.ops.moves.shape import Cast, Concat, Pad, Reshape, Slice

_PAST_KEY, _PAST_VALUE, _LENGTHS, _TOTAL, _COS, _SIN, _PLACES, _BIAS, _SINK = range(3, 12)
_UNSUPPORTED = {
    12: "k_scale", 13: "v_scale", 14: "q_norm_weight", 15: "k_norm_weight", 16: "query_seqlens",
}  # fmt: skip


@dataclass(frozen=True)
class _Step:
    """One call: rows of `queries` that are the last of `total`, behind what of a cache of `room` rows is in use.

    `first`: all rows are new. `lengths`: of each image, [N] of i64, how many rows there are with the new ones, at run
    time; its new rows are the last of these.
    """

    batch: int
    queries: int
    total: int
    room: int
    lengths: str

    @property
    def first(self) -> bool:
        return self.queries == self.total

    @property
    def keys(self) -> int:
        """Rows of keys that attention reads."""
        return self.queries if self.first else max(self.total, self.room)


def import_grouped_attention(node: NodeImport) -> None:
    """The total length decides shapes and must be a constant; how long each image is may be data."""
    for name in ("qk_norm_epsilon", "q_norm_epsilon", "k_norm_epsilon"):
        node.real(name, 1e-6)  # of no effect without weights of norms
    for index, name in _UNSUPPORTED.items():
        if node.has(index):
            raise Refusal("unsupported-attribute", f"{name} is not supported")
    for name in ("sliding_window_cache", "qk_output", "kv_cache_bit_width"):
        if node.integer(name, 0):
            raise Refusal("unsupported-attribute", f"{name} is not supported")
    for name in ("k_quant_type", "v_quant_type"):
        if node.text(name, "NONE") != "NONE":
            raise Refusal("unsupported-attribute", f"{name} '{node.text(name)}' is not supported")
    heads, kv_heads = node.integer("num_heads"), node.integer("kv_num_heads")
    if heads < 1 or kv_heads < 1 or heads % kv_heads:
        raise ShapeError(f"{heads} heads cannot share {kv_heads} heads of keys and values equally")
    q, k, v = _sources(node, heads, kv_heads)
    step = _step(node, *node.type_of(q).shape[:2])
    q, k = (_turned(node, name, step) for name in (q, k))
    q, k, v = (_joined(node, name) for name in (q, k, v))
    k, v = (_cached(node, step, name, index, kv_heads) for index, name in enumerate((k, v)))
    _attended(node, step, (q, k, v), heads, kv_heads)


def _joined(node: NodeImport, name: str) -> str:
    """[N, S, heads, D] as rows."""
    batch, rows, heads, depth = node.type_of(name).shape
    return node.emit(Reshape((batch, rows, heads * depth)), [name])


def _step(node: NodeImport, batch: int, queries: int) -> _Step:
    (total,) = (node.static_ints(_TOTAL, "the total length") or (0,))[:1]
    if node.has(_PAST_KEY) != node.has(_PAST_VALUE):
        raise Refusal("invalid-node", "past_key and past_value are given together, or neither is")
    room = node.type(_PAST_KEY).shape[2] if node.has(_PAST_KEY) else 0
    if total < queries or (total > queries and not room):
        raise ShapeError(f"a total length of {total} does not fit {queries} new rows and a cache of {room}")
    if node.type(_LENGTHS).elements != batch:
        raise ShapeError(f"lengths {list(node.type(_LENGTHS).shape)} must be one for each of {batch} images")
    less = node.emit(Cast(DType.I64), [node.emit(Reshape((batch,)), [node.input(_LENGTHS)])])
    lengths = node.emit(Binary("add"), [less, node.helper(np.ones((1,), np.int64), "one")])
    return _Step(batch, queries, total, room, lengths)


def _sources(node: NodeImport, heads: int, kv_heads: int) -> tuple[str, str, str]:
    """Queries, keys and values as [N, S, heads, D]."""
    counts = (heads, kv_heads, kv_heads)
    if node.has(1) and node.has(2):
        names = [node.input(index) for index in range(3)]
        widths = [node.type(index).shape[-1] for index in range(3)]
    elif node.has(1) or node.has(2):
        raise Refusal("invalid-node", "key and value are given together, or neither is")
    else:
        shape = node.type(0).shape
        depth = shape[-1] // sum(counts)
        widths = [count * depth for count in counts]
        begins = (0, widths[0], widths[0] + widths[1])
        names = [
            node.emit(Slice((0, 0, begin), (*shape[:2], width), (1, 1, 1)), [node.input(0)])
            for begin, width in zip(begins, widths, strict=True)
        ]
    found = []
    for name, width, count in zip(names, widths, counts, strict=True):
        shape = node.type_of(name).shape
        if len(shape) != 3 or width % count or not width:
            raise ShapeError(f"rows {list(shape)} cannot be cut in {count} heads")
        found.append(node.emit(Reshape((*shape[:2], count, width // count)), [name]))
    return found[0], found[1], found[2]


def _turned(node: NodeImport, name: str, step: _Step) -> str:
    interleaved = bool(node.integer("rotary_interleaved", 0))
    if not node.integer("do_rotary", 0):
        return name
    half = node.type(_COS).shape[-1]
    counted = np.tile(np.arange(step.queries, dtype=np.int64), (step.batch, 1))
    if node.has(_PLACES) and not step.first:
        places = node.input(_PLACES)
        if node.type(_PLACES).shape != (step.batch, step.queries):
            raise ShapeError(f"positions {list(node.type(_PLACES).shape)} must be {[step.batch, step.queries]}")
    elif node.has(_PLACES):
        # Rows count from the first position of all.
        flat = node.emit(Reshape((node.type(_PLACES).elements,)), [node.input(_PLACES)])
        first = node.emit(Slice((0,), (1,), (1,)), [flat])
        places = node.emit(Binary("add"), [node.helper(counted, "rows"), first])
    elif step.first:
        places = node.helper(counted, "rows")
    else:
        lengths = node.emit(Reshape((step.batch, 1)), [step.lengths])
        places = node.emit(Binary("add"), [node.helper(counted - step.queries, "rows"), lengths])
    cos, sin = (angles(node, node.input(index), places, (step.batch, step.queries, 1, half)) for index in (_COS, _SIN))
    return rotated(node, name, cos, sin, interleaved)


def _cached(node: NodeImport, step: _Step, rows: str, index: int, kv_heads: int) -> str:
    """The rows of keys (`index` 0) or values (1) that attention reads: new ones behind those of the cache. The cache as
    the next step takes it is output `index` + 1, zero where there is nothing yet."""
    wanted = len(node.node.outputs) > index + 1 and bool(node.node.outputs[index + 1])
    if step.first:
        if wanted:
            new = by_head(node, rows, kv_heads)
            rest = max(step.room - step.queries, 0)
            node.emit(Pad((0,) * 4, (0, 0, rest, 0)), [new], index + 1)
        return rows
    table = node.emit(Concat(1), [rows_of(node, node.input(_PAST_KEY + index)), rows])
    found = _placed(node, step, table)
    if wanted:
        heads = by_head(node, _ended(node, step, found), kv_heads)
        node.emit(Reshape(node.type_of(heads).shape), [heads], index + 1)
    return found


def _ended(node: NodeImport, step: _Step, rows: str) -> str:
    """`rows`, zero behind the end of each image."""
    count = np.arange(node.type_of(rows).shape[1], dtype=np.int64)[None, :, None]
    ends = node.emit(Reshape((step.batch, 1, 1)), [step.lengths])
    there = node.emit(Compare("less"), [node.helper(count, "count"), ends])
    return node.emit(Where(), [there, rows, node.scalar_like(0.0, rows)])


def _placed(node: NodeImport, step: _Step, table: str) -> str:
    """Of `table`, a cache and the new rows behind it, those of every image in order: row j is row j of the cache in
    front of the new ones, and then one of these."""
    count = np.arange(step.keys, dtype=np.int64)[None]
    ends = node.emit(Reshape((step.batch, 1)), [step.lengths])
    new = node.emit(Binary("sub"), [node.helper(count + step.queries + step.room, "shifted"), ends])
    last = node.helper(np.asarray(step.room + step.queries - 1), "last")
    new = node.emit(Binary("min"), [new, last])
    before = node.emit(Compare("less"), [node.helper(count + step.queries, "ahead"), ends])
    taken = node.emit(Where(), [before, node.helper(count, "places"), new])
    if step.batch == 1:
        return node.emit(Gather(1), [table, node.emit(Reshape((step.keys,)), [taken])])
    return node.emit(GatherND(1), [table, node.emit(Reshape((step.batch, step.keys, 1)), [taken])])


def _attended(node: NodeImport, step: _Step, sources: tuple[str, str, str], heads: int, kv_heads: int) -> None:
    q, k, v = sources
    depth = node.type_of(q).shape[2] // heads
    scale = node.real("scale", 0.0) or 1 / sqrt(depth)
    causal, window = bool(node.integer("causal", 1)), node.integer("local_window_size", -1)
    plain = step.first and causal and window < 0
    masks = [] if plain else _seen(node, step, q, causal, window)
    known = node.array(step.lengths)
    if step.first and causal and (known is None or (known < step.queries).any()):
        # Rows behind an image's end read those in front of it, as they do in onnxruntime.
        masks.append(_compared(node, step, q, "less", np.arange(step.keys, dtype=np.int64)))
    if node.has(_BIAS):
        masks.append(_bias(node, step))
    masks = together(node, masks)
    cap, smooth = node.real("softcap", 0.0), bool(node.integer("smooth_softmax", 0))
    if not cap and not smooth and not node.has(_SINK):
        node.emit(Attention(heads, kv_heads, scale, plain, safe=window >= 0), [q, k, v, *masks], 0)
        return
    if plain:
        masks = together(node, [*masks, *_seen(node, step, q, causal, window)])
    sink = None
    if node.has(_SINK) or smooth:
        given = node.input(_SINK) if node.has(_SINK) else node.helper(np.zeros((heads,), np.float32), "sink")
        sink = node.emit(Cast(DType.F32), [node.emit(Reshape((heads, 1, 1)), [given])])
    sizes = Sizes(step.batch, heads, kv_heads, step.queries, step.keys, depth, depth, 0)
    by = (by_head(node, q, heads), by_head(node, k, kv_heads), by_head(node, v, kv_heads))
    result = spelled(node, sizes, by, masks, scale, cap, sink=sink)
    node.emit(Reshape((step.batch, step.queries, heads * depth)), [result], 0)


def _bias(node: NodeImport, step: _Step) -> str:
    """What is added to the scores, of as many keys as are read: the cache may have more room than there are rows."""
    shape = node.type(_BIAS).shape
    if len(shape) != 4 or shape[3] < min(step.total, step.keys):
        raise ShapeError(f"attention_bias {list(shape)} must have four axes, the last of {step.total}")
    if shape[3] == step.keys:
        return node.input(_BIAS)
    if shape[3] > step.keys:
        return node.emit(Slice((0,) * 4, (*shape[:3], step.keys), (1,) * 4), [node.input(_BIAS)])
    rest = np.zeros((*shape[:3], step.keys - shape[3]), numpy_dtype(node.type(_BIAS).dtype))
    return node.emit(Concat(3), [node.input(_BIAS), node.helper(rest, "rest")])


def _seen(node: NodeImport, step: _Step, like: str, causal: bool, window: int) -> list[str]:
    """What hides keys behind a query's own, and those `window` and more in front of it."""
    behind = np.arange(step.keys, dtype=np.int64) - np.arange(step.queries, dtype=np.int64)[:, None]
    if step.first and causal:
        seen = (behind <= 0) & ((behind > -window) | (window < 0))
        hidden = np.where(seen, 0.0, -np.inf).astype(numpy_dtype(node.type_of(like).dtype))
        return [node.helper(hidden, "seen")]
    # A query's own key is that of the end of its image, less the queries behind it and itself.
    own = behind + step.queries
    found = [_compared(node, step, like, "less_equal", own)] if causal else []
    if not causal:
        found.append(_compared(node, step, like, "less", np.arange(step.keys, dtype=np.int64)))
    if window >= 0:
        found.append(_compared(node, step, like, "greater", own + window))
    return found


def _compared(node: NodeImport, step: _Step, like: str, question: str, places: Array) -> str:
    """What hides keys unless their `places` are `question` the end of their image."""
    ends = node.emit(Reshape((step.batch, 1, 1, 1)), [step.lengths])
    asked = node.emit(Compare(question), [node.helper(places, "places"), ends])
    return node.emit(Where(), [asked, node.scalar_like(0.0, like), node.scalar_like(-np.inf, like)])


_ROWS = Data((1, 4, 8))

IMPORTERS = (
    Importer(
        "GroupQueryAttention", (1,), import_grouped_attention, domain="com.microsoft",
        example=Example(
            (
                _ROWS, Data((1, 4, 4)), Data((1, 4, 4)), Data((1, 1, 2, 4)), Data((1, 1, 2, 4)), Data((1,), DType.I32),
                Integers((6,)),
            ),
            (("num_heads", 2), ("kv_num_heads", 1)),
        ),
        note="a constant total length; no quantised caches",
    ),
)  # fmt: skip
