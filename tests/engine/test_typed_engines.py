"""Engines whose tensors are integers, booleans and doubles: one of the host, of many small models, against NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from shared_folders import SharedFolder

from benchmarks.correctness.merged_engine import NAME, Workshop, merged, outputs_of
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Array, Graph
from bolt_build.graph.onnx_import import load_model
from bolt_build.runtime.loader import Engine, EngineError

DRAW = np.random.RandomState(7)
WHOLE = (np.int8, np.int64, np.uint16, np.uint32)


@dataclass(frozen=True)
class Small:
    """A model of one node: inputs of run time, constants behind them, and what it makes."""

    label: str
    op_type: str
    inputs: tuple[Array, ...]
    wanted: Array
    constants: tuple[Array, ...] = ()
    attributes: dict[str, object] = field(default_factory=dict)

    def graph(self, folder: Path) -> Graph:
        given = [f"x{index}" for index in range(len(self.inputs))]
        fixed = [f"c{index}" for index in range(len(self.constants))]
        kinds = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in (*self.inputs, self.wanted)]
        graph = helper.make_graph(
            [helper.make_node(self.op_type, [*given, *fixed], ["y"], "n", **self.attributes)], "small",
            [helper.make_tensor_value_info(n, k, a.shape) for n, k, a in zip(given, kinds, self.inputs, strict=False)],
            [helper.make_tensor_value_info("y", kinds[-1], self.wanted.shape)],
            [numpy_helper.from_array(array, name) for name, array in zip(fixed, self.constants, strict=True)],
        )  # fmt: skip
        path = folder / "small.onnx"
        path.write_bytes(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
        )
        first = next((array.shape[0] for array in self.inputs if array.ndim), 1)
        return load_model(path).bind(first)


def numbers(shape: tuple[int, ...], dtype: object, low: float = -100, high: float = 100) -> Array:
    least = max(low, 0) if np.dtype(dtype).kind == "u" else low
    return DRAW.uniform(least, high, shape).astype(dtype)


def arithmetic() -> list[Small]:
    """Of every type of integers, where it wraps around and where it is cut off; nothing traps on a zero divisor."""
    found = []
    for dtype in WHOLE:
        a, b = numbers((3, 17), dtype), numbers((17,), dtype)
        b[:2] = 0
        name = np.dtype(dtype).name
        with np.errstate(all="ignore"):
            exact = np.where(b == 0, 0, np.trunc(a.astype(np.float64) / np.where(b == 0, 1, b))).astype(dtype)
            functions: dict[str, Array] = {
                "Add": a + b, "Sub": a - b, "Mul": a * b, "Div": exact, "Mod": np.where(b == 0, 0, np.mod(a, b)),
                "Max": np.maximum(a, b), "Min": np.minimum(a, b),
            }  # fmt: skip
        found += [Small(f"{op}-{name}", op, (a, b), wanted.astype(dtype)) for op, wanted in functions.items()]
    low = np.asarray([[np.iinfo(np.int32).min, 7, -7, 0]], np.int32)
    found.append(
        Small("div-least", "Div", (low, np.full((1,), -1, np.int32)), (0 - low.astype(np.int64)).astype(np.int32))
    )
    found.append(Small("abs", "Abs", (low,), np.abs(low)))
    found.append(Small("neg", "Neg", (low,), -low))
    found.append(Small("sign", "Sign", (low,), np.sign(low)))
    base = np.asarray([[2, -3, 1, -1, 0, 5]], np.int64)
    powers = np.asarray([[10, 3, -4, -3, -1, 0]], np.int64)
    found.append(Small("pow", "Pow", (base, powers), np.asarray([[1024, -27, 1, -1, 0, 1]], np.int64)))
    roots = np.asarray([[4, 9, 2]], np.int32)
    found.append(Small("pow-float", "Pow", (roots, np.full((1,), 0.5, np.float32)), np.asarray([[2, 3, 1]], np.int32)))
    wide = numbers((4, 5), np.float64)
    found.append(Small("doubles", "Mul", (wide, wide), wide * wide))
    return found


def doubles() -> list[Small]:
    """Beside constants, which stay doubles: in single precision they would be off by a millionth of a millionth."""
    x, c = numbers((2, 3, 4), np.float64), numbers((4,), np.float64, 0.5, 2)
    exact: dict[str, Array] = {
        "Add": x + c, "Sub": x - c, "Mul": x * c, "Div": x / c, "Max": np.maximum(x, c), "Min": np.minimum(x, c),
    }  # fmt: skip
    found = [Small(f"doubles-{op}", op, (x,), wanted, (c,)) for op, wanted in exact.items()]
    found += [
        Small("doubles-Less", "Less", (x,), x < c, (c,)),
        Small("doubles-Where", "Where", (x > 0, x), np.where(x > 0, x, c), (c,)),
        Small("doubles-Concat", "Concat", (x,), np.concatenate([x, x[:1]]), (x[:1],), {"axis": 0}),
        Small("doubles-Pow", "Pow", (x,), x * x, (np.full((4,), 2.0),)),
        Small("doubles-Clip", "Clip", (x,), np.clip(x, -0.1, 0.7), (np.asarray(-0.1), np.asarray(0.7))),
    ]
    return found


def products() -> list[Small]:
    """Matrices of types that no kernel of products takes. Doubles are whole: their sums are exact in any order."""
    found = []
    for dtype in (np.int64, np.uint32, np.float64):
        a, b, c = (np.trunc(numbers(shape, dtype)).astype(dtype) for shape in ((2, 1, 3, 5), (4, 5, 6), (6,)))
        name = np.dtype(dtype).name
        found += [
            Small(f"product-{name}", "MatMul", (a, b), a @ b),
            Small(f"product-constant-{name}", "MatMul", (a,), a @ b, (b,)),
            Small(f"gemm-{name}", "Gemm", (a[0, 0].T,), a[0, 0] @ b[0] + c, (b[0].T, c), {"transA": 1, "transB": 1}),
            Small(f"einsum-{name}", "Einsum", (a[0, 0], b[0]), a[0, 0] @ b[0], (), {"equation": "mk,kn->mn"}),
        ]
    return found


def casts() -> list[Small]:
    """To the nearest that an integer type holds, towards zero; low bits of integers; a boolean is what is not zero."""
    reals = np.asarray([[0, -0.5, 1.9, -1.9, 127.5, 300, -300, 1e20, -1e20, np.inf, -np.inf, np.nan]], np.float32)
    found = [
        Small(
            "f32-i8", "Cast", (reals,), np.asarray([[0, 0, 1, -1, 127, 127, -128, 127, -128, 127, -128, 0]], np.int8)
        ),
        Small("f32-u8", "Cast", (reals,), np.asarray([[0, 0, 1, 0, 127, 255, 0, 255, 0, 255, 0, 0]], np.uint8)),
        Small("f32-bool", "Cast", (reals,), np.asarray([[0] + [1] * 11], np.bool_)),
    ]
    far = np.iinfo(np.int64)
    last = [far.max, far.min, far.max, far.min, 0]
    found.append(Small("f32-i64", "Cast", (reals,), np.asarray([[0, 0, 1, -1, 127, 300, -300, *last]], np.int64)))
    whole = np.asarray([[0, 1, -1, 255, 256, 65537, -2049]], np.int64)
    for to in (np.int8, np.uint8, np.int32, np.uint64, np.bool_, np.float16, np.float32, np.float64):
        with np.errstate(all="ignore"):
            found.append(Small(f"i64-{np.dtype(to).name}", "Cast", (whole,), whole.astype(to)))
    truth = np.asarray([[True, False]])
    bits = truth.astype(ml_dtypes.bfloat16)
    found += [Small("bool-f32", "Cast", (truth,), truth.astype(np.float32)), Small("bool-bf16", "Cast", (truth,), bits)]
    kinds = {"bfloat16": TensorProto.BFLOAT16}
    for small in found:
        kind = kinds.get(small.wanted.dtype.name) or helper.np_dtype_to_tensor_dtype(small.wanted.dtype)
        small.attributes["to"] = kind
    return found


def left_open() -> list[Small]:
    """What ONNX leaves open, as docs/limits.md has it: shifts beyond all bits, NaN and scales of zero."""
    byte, by = np.asarray([[0x81, 0x81, 0x81, 1, 255]], np.uint8), np.asarray([[1, 7, 8, 64, 255]], np.uint8)
    left, right = np.asarray([[2, 128, 0, 0, 0]], np.uint8), np.asarray([[0x40, 1, 0, 0, 0]], np.uint8)
    found = [
        Small("shift-left", "BitShift", (byte, by), left, (), {"direction": "LEFT"}),
        Small("shift-right", "BitShift", (byte, by), right, (), {"direction": "RIGHT"}),
    ]
    x = np.asarray([[np.nan, np.inf, -np.inf, 0.0, 1.0, -1.0, 1e30]], np.float32)
    middle, byte_middle = np.asarray(3, np.int8), np.asarray(128, np.uint8)
    for name, scale, signed, unsigned in (
        ("zero", 0.0, [3, 127, -128, 3, 127, -128, 127], [128, 255, 0, 128, 255, 0, 255]),
        ("nan", np.nan, [3] * 7, [128] * 7),
        ("one", 1.0, [3, 127, -128, 3, 4, 2, 127], [128, 255, 0, 128, 129, 127, 255]),
    ):
        by_scale = np.asarray(scale, np.float32)
        found += [
            Small(f"quantise-{name}", "QuantizeLinear", (x,), np.asarray([signed], np.int8), (by_scale, middle)),
            Small(f"quantise-u8-{name}", "QuantizeLinear", (x,), np.asarray([unsigned], np.uint8),
                  (by_scale, byte_middle)),
        ]  # fmt: skip
    stored = np.asarray([[3, 4, -128]], np.int8)
    for name, scale in (("zero", 0.0), ("nan", np.nan)):
        real = np.full((1, 3), scale, np.float32)
        found.append(
            Small(f"dequantise-{name}", "DequantizeLinear", (stored,), real, (np.asarray(scale, np.float32), middle))
        )
    other = np.asarray([[1.0, np.nan, 2.0, np.nan, 0.0, -2.0, np.inf]], np.float32)
    found += [Small("max-nan", "Max", (x, other), np.maximum(x, other))]
    found += [Small("min-nan", "Min", (x, other), np.minimum(x, other))]
    return found


def logic() -> list[Small]:
    found = []
    a, b = DRAW.randint(0, 3, (2, 5, 1, 6)), DRAW.randint(0, 3, (5, 4, 6))
    asked: dict[str, Callable[..., Array]] = {
        "Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
        "GreaterOrEqual": np.greater_equal,
    }  # fmt: skip
    for op, function in asked.items():
        found += [
            Small(f"{op}-{np.dtype(dtype).name}", op, (a.astype(dtype), b.astype(dtype)), function(a, b))
            for dtype in (np.int64, np.float16)
        ]
    p, q = a > 0, b > 1
    found += [
        Small("and", "And", (p, q), p & q), Small("or", "Or", (p, q), p | q), Small("xor", "Xor", (p, q), p ^ q),
        Small("not", "Not", (p,), ~p), Small("equal-bool", "Equal", (p, q), p == q),
        Small("bits", "BitwiseXor", (a, b), a ^ b), Small("bits-not", "BitwiseNot", (a,), ~a),
    ]  # fmt: skip
    for dtype in WHOLE:
        x, by = numbers((3, 17), dtype), numbers((17,), dtype, -3, 70)
        width = 8 * x.itemsize
        steps = np.where((by < 0) | (by.astype(object) > width), width, by.astype(object))
        shifts = {"LEFT": x.astype(object) << steps, "RIGHT": x.astype(object) >> steps}
        for direction, exact in shifts.items():
            low = exact & (1 << width) - 1
            made = low.astype(np.uint64).astype(f"u{x.itemsize}").view(dtype)
            label = f"shift-{direction.lower()}-{np.dtype(dtype).name}"
            found.append(Small(label, "BitShift", (x, by), made, (), {"direction": direction}))
    odd = np.asarray([[np.nan, np.inf, -np.inf, 1.0]], np.float32)
    found += [
        Small("nan", "IsNaN", (odd,), np.isnan(odd)), Small("inf", "IsInf", (odd,), np.isinf(odd)),
        Small("inf-positive", "IsInf", (odd,), np.isposinf(odd), attributes={"detect_negative": 0}),
        Small("inf-none", "IsInf", (odd,), np.zeros((1, 4), np.bool_),
              attributes=dict.fromkeys(("detect_negative", "detect_positive"), 0)),
    ]  # fmt: skip
    real = numbers((2, 5, 4, 6), np.float32)
    other = np.float32(-1e9)
    found.append(Small("where", "Where", (p, real), np.where(p, real, other), (np.asarray(other),)))
    found.append(Small("where-whole", "Where", (p, a, b), np.where(p, a, b)))
    return found


def moved() -> list[Small]:
    found = []
    table = numbers((9, 6), np.float32)
    ids = np.asarray([[0, -1, 8], [3, 3, -9]], np.int64)
    halves = table.astype(np.float16)
    found += [
        Small("gather", "Gather", (table, ids), table[ids]),
        Small("gather-inner", "Gather", (halves, ids[:, :2] % 6), halves[:, ids[:, :2] % 6], attributes={"axis": -1}),
        Small("gather-i32", "Gather", (ids, np.asarray([1, 0], np.int32)), ids[:, [1, 0]], attributes={"axis": 1}),
    ]
    picks = DRAW.randint(-9, 9, (4, 6))
    found.append(Small("elements", "GatherElements", (table, picks), np.take_along_axis(table, picks % 9, 0)))
    rows = np.asarray([[[8, 5], [0, -6]]], np.int64)
    found.append(Small("nd", "GatherND", (table, rows), table[[8, 0], [5, 0]][None]))
    cube = numbers((2, 3, 4), np.int32)
    inner = np.asarray([[2], [0]], np.int64)
    found.append(Small("nd-batch", "GatherND", (cube, inner), cube[[0, 1], [2, 0]], attributes={"batch_dims": 1}))
    found += [
        Small("expand", "Expand", (cube[:, :1],), np.repeat(cube[:, :1], 5, 1), (np.asarray([2, 5, 4]),)),
        Small("expand-rank", "Expand", (halves[:1],), np.tile(halves[:1], (3, 2, 1)), (np.asarray([3, 2, 6]),)),
        Small("tile", "Tile", (cube,), np.tile(cube, (2, 1, 3)), (np.asarray([2, 1, 3]),)),
        Small("triu", "Trilu", (cube,), np.triu(cube, 1), (np.asarray(1),)),
        Small("tril", "Trilu", (table,), np.tril(table, -1), (np.asarray(-1),), {"upper": 0}),
        Small("wrap", "Pad", (cube,), np.pad(cube, ((0, 0), (4, 7), (1, 0)), "wrap"),
              (np.asarray([0, 4, 1, 0, 7, 0]),), {"mode": "wrap"}),
        Small("pad-whole", "Pad", (cube,), np.pad(cube, ((0, 0), (0, 1), (2, 0)), constant_values=-7),
              (np.asarray([0, 0, 2, 0, 1, 0]), np.asarray(-7, np.int32))),
        Small("reversed", "Slice", (cube,), cube[:, ::-2, ::-1],
              (np.asarray([-1, -1]), np.asarray([-9, -9]), np.asarray([1, 2]), np.asarray([-2, -1]))),
    ]  # fmt: skip
    return found


def reductions() -> list[Small]:
    """Sums of integers wrap around; their means are cut off towards zero; the greatest of booleans is any of them."""
    modes: dict[str, Callable[..., Array]] = {
        "Sum": np.sum, "Prod": np.prod, "Max": np.max, "Min": np.min,
        "L1": lambda x, **axes: np.abs(x).sum(**axes), "SumSquare": lambda x, **axes: (x * x).sum(**axes),
        "Mean": lambda x, **axes: np.trunc(x.astype(np.float64).mean(**axes)),
    }  # fmt: skip
    found, axes = [], ((1,), (0, 2), (0, 1, 2))
    for dtype in (*WHOLE, np.int32):
        x = numbers((3, 5, 7), dtype)
        found += [
            Small(f"{mode}-{x.dtype.name}", f"Reduce{mode}", (x,),
                  function(x, axis=over, keepdims=bool(i % 2)).astype(dtype), (np.asarray(over),), {"keepdims": i % 2})
            for i, (mode, function) in enumerate(modes.items()) for over in axes[i % 2 :: 2]
        ]  # fmt: skip
    truth = DRAW.randint(0, 4, (3, 5, 7)) > 1
    wide = numbers((3, 5, 7), np.float64, 0.5, 1.5)
    exact = np.floor(wide * 8) / 8
    return [
        *found,
        Small("any", "ReduceMax", (truth,), truth.any(1), (np.asarray([1]),), {"keepdims": 0}),
        Small("all", "ReduceMin", (truth,), truth.all((0, 2)), (np.asarray([0, 2]),), {"keepdims": 0}),
        Small("sum-f64", "ReduceSum", (exact,), exact.sum((0, 2)), (np.asarray([0, 2]),), {"keepdims": 0}),
        Small("max-f64", "ReduceMax", (wide,), wide.max(2), (np.asarray([2]),), {"keepdims": 0}),
        Small("l2-f64", "ReduceL2", (exact,), np.sqrt((exact * exact).sum(1)), (np.asarray([1]),), {"keepdims": 0}),
    ]


@functools.cache
def smalls() -> list[Small]:
    return [*arithmetic(), *doubles(), *products(), *casts(), *left_open(), *logic(), *moved(), *reductions()]


@pytest.fixture(scope="module")
def folder(shared_folder: SharedFolder) -> Path:
    with shared_folder("typed-engines") as place:
        if not (place / "engine").exists():
            Workshop(place, [Portable()]).built(merged([small.graph(place) for small in smalls()]), "engine")
    return place / "engine"


def test_agree_with_numpy(folder: Path) -> None:
    tried = smalls()
    given = {f"{i}/x{j}": array for i, small in enumerate(tried) for j, array in enumerate(small.inputs)}
    found = outputs_of(folder, given)
    for i, small in enumerate(tried):
        made, wanted = found[f"{i}/y"], small.wanted
        assert made.shape == wanted.shape, small.label
        if wanted.dtype.name != "bfloat16":
            assert made.dtype == wanted.dtype, small.label
        np.testing.assert_array_equal(made.astype(np.float64), wanted.astype(np.float64), small.label)


def test_an_index_outside_ends_the_run_and_the_next_is_fine(folder: Path) -> None:
    tried = smalls()
    given = {f"{i}/x{j}": array for i, small in enumerate(tried) for j, array in enumerate(small.inputs)}
    which = next(i for i, small in enumerate(tried) if small.label == "gather")
    outside = np.asarray([[0, 1, 9], [0, 0, 0]], np.int64)
    engine = Engine(folder / f"lib{NAME}.so")
    (weights,) = folder.glob("*.weights*")
    with engine.create(weights) as model, model.context(1) as context:
        with pytest.raises(EngineError) as raised:
            context.run({**given, f"{which}/x1": outside})
        assert raised.value.status == 1
        message = str(raised.value)
        assert message.startswith("step ")
        assert message.endswith(
            f"'{which}/n' of batch 1: its index 9 (element 2 of the indices) lies outside of an axis of 9"
            " (invalid argument)"
        )
        context.run(given)
