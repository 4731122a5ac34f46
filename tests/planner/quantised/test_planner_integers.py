"""Quantised tensors on hosts: what is multiplied, rounded, moved and mapped as integers, and what is not, as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graph_models import model, node, tensor
from planner_checks import body, graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Array, Graph, Stored
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.ops.moves.shape import Reshape, Transpose
from bolt_build.planner.passes.base import Pass
from bolt_build.planner.passes.fuse.epilogues import FUSE_EPILOGUES
from bolt_build.planner.passes.quantised.map_integers import MAP_INTEGERS
from bolt_build.planner.passes.quantised.move_integers import MOVE_INTEGERS
from bolt_build.planner.passes.quantised.multiply_integers import MULTIPLY_INTEGERS
from bolt_build.planner.passes.quantised.round_products import ROUND_PRODUCTS
from bolt_build.planner.pipeline import optimize
from bolt_build.targets import CUDA, HOST

CONSTANTS = """
  const %s: f32[] {0.02}
  const %t: f32[] {0.5}
  const %u: f32[6,1,1] positive
  const %z: u8[] {128}
  const %zz: u8[] {9}
  const %z6: u8[6,1,1]
  const %zi: i16[] {0}
  const %w: i8[6,4,1,1]
  const %ws: f32[6,1,1,1] positive
  const %wk: f32[1,4,1,1] positive
  const %wz: i8[] {0}
  const %wz2: i8[] {2}
  const %b: f32[6]
  const %bi: i32[6]
  const %m: i8[8,6]
  const %ms: f32[6] positive
  const %h: f32[] {3}
  const %o: f32[] {0}
  const %below: f32[] {-0.5}
"""


def net(inputs: str, lines: str, output: str = "%y") -> Graph:
    """A graph with the constants that its lines read; a node is called as its output."""
    named = [f"  {line.strip()} // {line.split()[0].strip().lstrip('%')}" for line in lines.strip().splitlines()]
    named = [line.rpartition("// ")[0] + f'// "{line.rpartition("// ")[2]}"' for line in named]
    return graph(f"graph g batch=2 ({inputs}) -> ({output}) {{{CONSTANTS}" + "\n".join(named) + "\n}")


def passed(before: Graph, *passes: Pass) -> Graph:
    for each in passes:
        before = run(each, before).graph
    return before


BACK = """
    %x = dequantize(%q, %s, %z) to=f32
    %v = dequantize(%w, %ws, %wz) to=f32"""


def test_a_convolution_of_dequantised_tensors_multiplies_integers() -> None:
    result = run(MULTIPLY_INTEGERS, net("%q: u8[2,4,3,3]", BACK + "\n%y = conv(%x, %v, %b)"))
    assert body(result.graph) == (
        "%y = quantised-product(%q, %'v.stored, %s, %z, %'v.scale, %'v.zero, %b) product=conv(strides=[1,1] "
        'pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]) biased=true  // "y"'
    )
    assert result.graph.type("v.scale").shape == (6,)
    assert said(result) == [("y", "made", "a product of integers of 'q' and the weights")]


def test_what_follows_it_is_computed_before_the_result_is_rounded() -> None:
    lines = BACK + "\n%c = conv(%x, %v)\n%a = add(%c, %r)\n%e = relu(%a)\n%y = quantize(%e, %t, %zz) to=u8"
    before = net("%q: u8[2,4,3,3], %r: f32[2,6,3,3]", lines)
    assert body(passed(before, MULTIPLY_INTEGERS, FUSE_EPILOGUES, ROUND_PRODUCTS)) == (
        "%y = quantised-product(%q, %'v.stored, %s, %z, %'v.scale, %'v.zero, %t, %zz, %r) product=conv(strides=[1,1] "
        "pads_begin=[0,0] pads_end=[0,0] dilations=[1,1]) to=u8 stages=[add,relu] @y"
        '  // "c", "a", "e", "y"'
    )


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("%v = dequantize(%w, %ws, %wz2) to=f32", "weights less their zero points are no numbers of 8 bits"),
        ("%v = dequantize(%w, %wk, %wz) to=f32", "scales of 'v' differ along what is summed"),
    ],
)
def test_weights_of_other_kinds_are_multiplied_as_numbers(lines: str, why: str) -> None:
    before = net("%q: u8[2,4,3,3]", f"%x = dequantize(%q, %s, %z) to=f32\n{lines}\n%y = conv(%x, %v)")
    result = run(MULTIPLY_INTEGERS, before)
    assert result.graph == before
    assert said(result) == [("y", "declined", why)]


@pytest.mark.parametrize(
    ("behind", "why"),
    [
        ("%p = quantize(%c, %t, %zz) to=u8\n%y = neg(%c)", "stays out of 'c': 'c' is read by 2 nodes"),
        ("%p = quantize(%c, %t, %zi) to=i16", "stays out of 'c': its integers are of i16"),
        ("%p = quantize(%c, %u, %z6) to=u8", "stays out of 'c': parts of it have scales of their own"),
    ],
)
def test_a_quantisation_stays_behind_it(behind: str, why: str) -> None:
    before = net("%q: u8[2,4,3,3]", f"{BACK}\n%c = conv(%x, %v)\n{behind}", "%p, %y" if "%y" in behind else "%p")
    result = run(ROUND_PRODUCTS, passed(before, MULTIPLY_INTEGERS))
    assert said(result) == [("p", "declined", why)]


def test_sums_that_are_scaled_at_run_time_take_their_bias() -> None:
    lines = "%i = integer-matmul(%q, %m, %az, %wz)\n%f = scale-sums(%i, %as, %ms) to=f32\n%y = add(%b, %f)"
    result = run(MULTIPLY_INTEGERS, net("%q: u8[2,5,8], %as: f32[], %az: u8[]", lines))
    assert body(result.graph) == (
        "%y = quantised-product(%q, %m, %as, %az, %'f.scale, %wz, %'b.bias) product=matmul biased=true @y"
        '  // "i", "f", "y"'
    )
    assert said(result) == [
        ("f", "made", "one step of the product 'i' and what scales its sums"), ("y", "taken", "as the bias of 'f'"),
    ]  # fmt: skip


def test_sums_that_are_rounded_again_are_one_step() -> None:
    lines = "%i = integer-matmul(%q, %m, %z, %wz)\n%a = add(%i, %bi)\n%y = requantize(%a, %s, %ms, %t, %zz) to=u8"
    assert body(run(MULTIPLY_INTEGERS, net("%q: u8[5,8]", lines)).graph) == (
        "%y = quantised-product(%q, %m, %s, %z, %'y.scale, %wz, %'y.bias, %t, %zz) product=matmul to=u8 biased=true @y"
        '  // "i", "a", "y"'
    )


def test_two_tensors_of_integers_are_multiplied_where_their_scales_are_known() -> None:
    lines = "%i = integer-matmul(%q, %k, %z, %z)\n%y = requantize(%i, SCALE, %t, %t, %zz) to=u8"
    result = run(MULTIPLY_INTEGERS, net("%q: u8[5,8], %k: u8[8,3]", lines.replace("SCALE", "%s")))
    assert body(result.graph) == (
        '%y = quantised-product(%q, %k, %s, %z, %\'y.scale, %z, %t, %zz) product=matmul to=u8 @y  // "i", "y"'
    )
    result = run(MULTIPLY_INTEGERS, net("%q: u8[5,8], %k: u8[8,3], %f: f32[]", lines.replace("SCALE", "%f")))
    why = "'k' is no constant, and scales are found at run time or differ"
    assert said(result) == [("y", "declined", why)]


def test_one_zero_point_of_a_products_weights_may_be_any() -> None:
    """Of filters it is taken away first."""
    lines = "%x = dequantize(%q, %s, %z) to=f32\n%v = dequantize(%m, %ms, %wz2) to=f32\n%y = matmul(%x, %v)"
    result = run(MULTIPLY_INTEGERS, net("%q: u8[5,8]", lines))
    assert [node.op.kind for node in result.graph.nodes] == ["quantised-product"]


WINDOW = "mode=max kernel=[3,3] strides=[1,1] pads_begin=[1,1] pads_end=[1,1] dilations=[1,1]"


def test_what_moves_numbers_moves_the_integers_that_they_are_made_of() -> None:
    lines = """
        %x = dequantize(%q, %s, %z) to=f32
        %p = pool(%x) mode=max kernel=[3,3] pads_begin=[1,1] pads_end=[1,1]
        %r = reshape(%p) shape=[2,4,9]
        %y = quantize(%r, %s, %z) to=u8"""
    result = run(MOVE_INTEGERS, net("%q: u8[2,4,3,3]", lines))
    assert body(result.graph).splitlines() == [
        f"%'p.integers = pool(%q) {WINDOW}  // \"p\"", "%y = reshape(%'p.integers) shape=[2,4,9]  // \"r\"",
    ]  # fmt: skip
    assert said(result) == [
        ("p", "moved", "integers in place of numbers"), ("r", "moved", "integers in place of numbers"),
        ("y", "removed", "it undoes 'r.numbers'"),
    ]  # fmt: skip


def test_numbers_are_made_behind_what_moves_and_integers_in_front_of_it() -> None:
    """As around a convolution of images whose channels come last."""
    lines = """
        %x = dequantize(%q, %s, %z) to=f32
        %a = transpose(%x) perm=[0,2,1]
        %e = exp(%a)
        %c = transpose(%e) perm=[0,2,1]
        %y = quantize(%c, %t, %z) to=u8"""
    result = run(MOVE_INTEGERS, net("%q: u8[2,3,4]", lines))
    assert body(result.graph).splitlines() == [
        '%\'a.integers = transpose(%q) perm=[0,2,1]  // "a"',
        '%a = dequantize(%\'a.integers, %s, %z) to=f32 @a.numbers  // "x"',
        '%e = exp(%a)  // "e"',
        '%\'e.integers = quantize(%e, %t, %z) to=u8  // "y"',
        '%y = transpose(%\'e.integers) perm=[0,2,1]  // "c"',
    ]


RESCALED = "function=clip(alpha=-inf beta=inf) to=u8 quantised=[true]"


def test_parts_of_a_concatenation_are_rounded_one_by_one() -> None:
    """Those of the result's scale are its integers; others are made into such in one step."""
    parts = "%x = dequantize(%q, %s, %z) to=f32\n%v = dequantize(%k, SCALE, %z) to=f32"
    lines = parts + "\n%c = concat(%x, %v) axis=1\n%y = quantize(%c, %s, %z) to=u8"
    inputs = "%q: u8[2,4], %k: u8[2,3]"
    moved = run(MOVE_INTEGERS, net(inputs, lines.replace("SCALE", "%s"))).graph
    assert body(moved) == '%y = concat(%q, %k) axis=1  // "c"'
    assert body(passed(net(inputs, lines.replace("SCALE", "%t")), MOVE_INTEGERS, MAP_INTEGERS)).splitlines() == [
        f'%\'v.integers = quantised-map(%k, %t, %z, %s, %z) {RESCALED} @y.1  // "v", "y"',
        '%y = concat(%q, %\'v.integers) axis=1  // "c"',
    ]


@pytest.mark.parametrize("scale", ["below", "o"])
def test_scales_that_are_not_positive_turn_no_order_around(scale: str) -> None:
    lines = f"%x = dequantize(%q, %{scale}, %z) to=f32\n%p = pool(%x) mode=max kernel=[3,3]\n"
    before = net("%q: u8[2,4,3,3]", lines + f"%y = quantize(%p, %{scale}, %z) to=u8")
    assert run(MOVE_INTEGERS, before).graph == before


def test_integers_are_taken_and_repeated_as_numbers_are_and_not_made_of_more_than_is_read() -> None:
    lines = "%e = exp(%f)\n%g = gather(%e, %i) axis=1\n%y = quantize(%g, %s, %z) to=u8"
    larger = body(run(MOVE_INTEGERS, net("%f: f32[2,3], %i: i64[6]", lines)).graph).splitlines()
    assert larger == ['%e = exp(%f)  // "e"', "%'e.integers = quantize(%e, %s, %z) to=u8  // \"y\"",
                      "%y = gather(%'e.integers, %i) axis=1  // \"g\""]  # fmt: skip
    smaller = net("%f: f32[2,3], %i: i64[2]", lines)
    assert run(MOVE_INTEGERS, smaller).graph == smaller


def test_a_largest_of_integers_that_import_computes_of_numbers_is_one_of_integers() -> None:
    lines = "%x = cast(%q) to=f32\n%p = pool(%x) mode=max kernel=[3,3] pads_begin=[1,1] pads_end=[1,1]"
    moved = run(MOVE_INTEGERS, net("%q: u8[2,4,3,3]", lines + "\n%y = cast(%p) to=u8")).graph
    assert body(moved) == f'%y = pool(%q) {WINDOW} @y  // "x", "p", "y"'


def test_integers_that_are_made_into_numbers_and_back_stay() -> None:
    lines = "%a = neg(%f)\n%q = quantize(%a, %s, %z) to=u8\n%x = dequantize(%q, %s, %z) to=f32\n"
    lines += "%p = quantize(%x, %s, %z) to=u8\n%y = dequantize(%p, %s, %z) to=f32"
    assert body(run(MOVE_INTEGERS, net("%f: f32[2,3]", lines)).graph).splitlines() == [
        '%a = neg(%f)  // "a"', '%q = quantize(%a, %s, %z) to=u8  // "q"', '%y = dequantize(%q, %s, %z) to=f32  // "y"',
    ]  # fmt: skip


def test_a_sum_of_integers_is_one_step() -> None:
    lines = """
        %x = dequantize(%q, %s, %z) to=f32
        %v = dequantize(%k, %t, %zz) to=f32
        %a = add(%x, %v)
        %e = relu(%a)
        %y = quantize(%e, %t, %z) to=u8"""
    result = run(MAP_INTEGERS, passed(net("%q: u8[2,4], %k: u8[2,4]", lines), FUSE_EPILOGUES))
    assert body(result.graph) == (
        "%y = quantised-map(%q, %s, %z, %k, %t, %zz, %t, %z) function=add to=u8 quantised=[true,true] stages=[relu] @y"
        '  // "a", "e", "y"'
    )
    assert said(result) == [("y", "made", "one step of 'e' and the quantisation, of integers")]


def test_a_number_that_is_read_elsewhere_is_stored() -> None:
    lines = "%x = dequantize(%q, %s, %z) to=f32\n%a = mul(%x, %h)\n%y = quantize(%a, %t, %z) to=u8\n%n = neg(%a)"
    result = run(MAP_INTEGERS, net("%q: u8[2,4]", lines, "%y, %n"))
    assert said(result) == [("y", "declined", "stays behind 'a': 'a' is read by 2 nodes")]


@pytest.mark.parametrize(("on", "precision"), [("host", "fp32"), ("host", "bf16"), ("h200", "fp16")])
def test_only_hosts_with_numbers_in_fp32_multiply_integers(on: str, precision: str) -> None:
    lines = "%i = integer-matmul(%q, %m, %z, %wz)\n%y = requantize(%i, %s, %ms, %t, %zz) to=u8"
    target = HOST if on == "host" else next(each for each in CUDA if each.name == on)
    nodes = optimize(net("%q: u8[5,8]", lines), POLICY, target, precision).graph.nodes
    multiplied = ["quantised-product"] if precision == "fp32" else ["integer-matmul", "requantize"]
    assert [node.op.kind for node in nodes] == multiplied


def test_weights_keep_their_integers_where_they_only_move() -> None:
    stored = Stored(np.arange(6, dtype=np.int8).reshape(2, 3), np.float32([1, 2, 3]), np.int8(0).reshape(()))
    turned = Transpose((1, 0)).of_stored(stored)
    np.testing.assert_array_equal(turned.q, stored.q.T)
    np.testing.assert_array_equal(turned.q * turned.scale, (stored.q * stored.scale).T)
    assert Reshape((6,)).of_stored(stored) is None


def test_queries_keys_and_values_of_integers_are_one_product(tmp_path: Path) -> None:
    """Weights that an exporter transposes, and those that it does not, keep their integers side by side."""
    draw = np.random.RandomState(4)
    nodes = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "r")]
    constants: dict[str, Array] = {"s": np.float32(0.02), "z": np.uint8(128), "shape": np.int64([2, 5, 2, 4])}
    for name, scale in (
        ("a", np.float32(0.01)),
        ("b", np.linspace(0.01, 0.02, 8, dtype=np.float32)),
        ("c", np.float32(0.03)),
    ):
        constants |= {f"w{name}": draw.randint(-127, 128, (8, 8)).astype(np.int8), f"s{name}": scale}
        nodes.append(node("DequantizeLinear", f"w{name} s{name}", f"v{name}", axis=0))
        nodes.append(node("Transpose", f"v{name}", f"t{name}", perm=[1, 0]))
        nodes.append(node("MatMul", f"r t{name}", f"p{name}"))
        nodes.append(node("Reshape", f"p{name} shape", f"h{name}"))
        nodes.append(node("Transpose", f"h{name}", f"u{name}", perm=[0, 2, 3, 1] if name == "b" else [0, 2, 1, 3]))
    nodes += [node("MatMul", "ua ub", "scores"), node("Softmax", "scores", "powers"), node("MatMul", "powers uc", "y")]
    onnx.save(model(nodes, [tensor("x", [2, 5, 8])], ("y",), constants), tmp_path / "net.onnx")
    before = load_model(tmp_path / "net.onnx").bind(2)
    after = optimize(before, POLICY, HOST, "fp32").graph
    assert [each.op.kind for each in after.nodes][:3] == ["quantize", "quantised-product", "attention"]
    same_values(before, after)


@pytest.mark.parametrize(
    "lines",
    [
        "%a = add(%i, %rows)\n%y = requantize(%a, %s, %s, %t, %zz) to=u8",
        "%y = scale-sums(%i, %s, %s, %each) to=f32",
        "%y = scale-sums(%i, %s, %each) to=f32",
        "%y = requantize(%i, %s, %each, %t, %zz) to=u8",
    ],
)
def test_numbers_of_rows_are_none_of_columns(lines: str) -> None:
    """Also where there are as many rows as columns."""
    before = graph(f"""
        graph g batch=4 (%q: u8[4,6]) -> (%y) {{
          const %m: i8[6,4]
          const %z: u8[] {{3}}
          const %wz: i8[] {{0}}
          const %rows: i32[4,1] {{100,-200,300,5}}
          const %each: f32[4,1] {{1,2,3,4}}
          const %s: f32[] {{0.05}}
          const %t: f32[] {{0.3}}
          const %zz: u8[] {{10}}
          %i = integer-matmul(%q, %m, %z, %wz)
          {lines}
        }}""")
    result = MULTIPLY_INTEGERS.run(before, POLICY)
    assert result.graph == before
    assert [action for _, action, _ in said(result)] == ["declined"]
