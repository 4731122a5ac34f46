"""Folding into weights: batch normalisation and arithmetic by channel. Every run also compares all values."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import body, graph, run, said

from bolt_build.planner.passes.fold import channels
from bolt_build.planner.passes.fold.affine import FOLD_AFFINE
from bolt_build.planner.passes.fold.batch_norm import FOLD_BATCH_NORM

# --- pads ---------------------------------------------------------------------------------------------------------


# --- batch norm and arithmetic --------------------------------------------------------------------------------------

NORM = """
          const %g: f32[4] #
          const %b: f32[4] #
          const %m: f32[4] #
          const %v: f32[4] positive"""


@pytest.mark.parametrize("bias", ["", ", %bias"])
def test_batch_norm_goes_into_the_convolution_before_it(bias: str) -> None:
    before = graph(
        f"""
        graph g batch=1 (%x: f32[2,3,5,5]) -> (%y) {{
          const %w: f32[4,3,3,3] #
          const %bias: f32[4] #{NORM}
          %a = conv(%x, %w{bias}) // "conv1"
          %y = batch_norm(%a, %g, %b, %m, %v) epsilon=1e-5 // "bn1"
        }}"""
        if bias
        else f"""
        graph g batch=1 (%x: f32[2,3,5,5]) -> (%y) {{
          const %w: f32[4,3,3,3] #{NORM}
          %a = conv(%x, %w) // "conv1"
          %y = batch_norm(%a, %g, %b, %m, %v) epsilon=1e-5 // "bn1"
        }}"""
    )
    result = run(FOLD_BATCH_NORM, before)
    name = "bias.folded" if bias else "conv1.bias"
    assert body(result.graph).startswith(f"%y = conv(%x, %'w.folded, %'{name})")
    assert result.graph.nodes[0].name == "bn1"
    assert result.graph.nodes[0].covers == ("conv1", "bn1")
    assert said(result) == [("bn1", "folded", "into the weights of 'conv1'")]


@pytest.mark.parametrize(("weight", "flag"), [("f32[3,4]", ""), ("f32[4,3]", " transpose_b=true")])
def test_batch_norm_goes_into_a_matrix_product(weight: str, flag: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2,3]) -> (%y) {{
          const %w: {weight} #{NORM}
          %a = matmul(%x, %w){flag} // "fc"
          %y = batch_norm(%a, %g, %b, %m, %v) epsilon=1e-5 // "bn"
        }}""")
    result = run(FOLD_BATCH_NORM, before)
    assert [node.op.kind for node in result.graph.nodes] == ["matmul"]
    assert said(result) == [("bn", "folded", "into the weights of 'fc'")]


def test_batch_norm_is_rounded_once_from_float64() -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[1,3,1,1]) -> (%y) {{
          const %w: f32[4,3,1,1] #{NORM}
          %a = conv(%x, %w) // "conv1"
          %y = batch_norm(%a, %g, %b, %m, %v) epsilon=1e-5 // "bn1"
        }}""")
    after = run(FOLD_BATCH_NORM, before).graph
    w, g, v = (before.constant(name) for name in ("w", "g", "v"))
    assert w is not None
    assert g is not None
    assert v is not None
    scale = g.astype(np.float64) / np.sqrt(v.astype(np.float64) + 1e-5)
    wanted = (w.astype(np.float64) * scale[:, None, None, None]).astype(np.float32)
    np.testing.assert_array_equal(after.constant("w.folded"), wanted)


@pytest.mark.parametrize(
    ("head", "outputs", "reason"),
    [
        ('%a = relu(%x) // "a"', "%y", "no Conv or MatMul stands before it"),
        ('%a = conv(%x, %w) // "a"', "%y, %a", "'a' is a graph output"),
        ('%a = conv(%x, %w) // "a"\n %z = relu(%a) // "z"', "%y, %z", "'a' is read by 2 nodes"),
        ('%w2 = mul(%s, %w) // "w2"\n %a = conv(%x, %w2) // "a"', "%y", "the weight of 'a' is not constant"),
    ],
)
def test_batch_norm_that_cannot_fold_is_a_multiplication_and_an_addition(head: str, outputs: str, reason: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2,4,5,5], %s: f32[1]) -> ({outputs}) {{
          {"const %w: f32[4,4,1,1] #" if "%w" in head else ""}{NORM}
          {head}
          %y = batch_norm(%a, %g, %b, %m, %v) epsilon=1e-5 // "bn"
        }}""")
    result = run(FOLD_BATCH_NORM, before)
    assert said(result) == [("bn", "made a multiplication and an addition", reason)]
    assert "mul(%a, %'bn.scale)" in body(result.graph)
    assert "%y = add(%'y.scaled, %'bn.shift)" in body(result.graph)


@pytest.mark.parametrize(
    "arithmetic", ["add(%a, %c)", "add(%c, %a)", "sub(%a, %c)", "sub(%c, %a)", "mul(%c, %a)", "div(%a, %c)"]
)
@pytest.mark.parametrize("shape", ["[]", "[1]", "[4,1,1]", "[1,4,1,1]"])
def test_arithmetic_by_channel_goes_into_the_weights(arithmetic: str, shape: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2,3,5,5]) -> (%y) {{
          const %w: f32[4,3,3,3] #
          const %bias: f32[4] #
          const %c: f32{shape} positive
          %a = conv(%x, %w, %bias) // "a"
          %y = {arithmetic} // "y"
        }}""")
    result = run(FOLD_AFFINE, before)
    assert [node.op.kind for node in result.graph.nodes] == ["conv"]
    assert said(result) == [("y", "folded", "into the weights of 'a'")]


@pytest.mark.parametrize("weight", ["f32[3,4]", "f32[4,3]"])
def test_a_chain_of_arithmetic_goes_into_a_matrix_product(weight: str) -> None:
    flag = " transpose_b=true" if weight == "f32[4,3]" else ""
    before = graph(f"""
        graph g batch=1 (%x: f32[2,5,3]) -> (%y) {{
          const %w: {weight} #
          const %c: f32[4] #
          const %d: f32[] {{0.5}}
          %a = matmul(%x, %w){flag} // "a"
          %b = add(%a, %c) // "b"
          %y = mul(%d, %b) // "y"
        }}""")
    result = run(FOLD_AFFINE, before)
    assert result.graph.nodes[0].covers == ("a", "b", "y")
    assert said(result) == [("b", "folded", "into the weights of 'a'"), ("y", "folded", "into the weights of 'b'")]


def test_arithmetic_behind_a_reshape_that_keeps_rows_goes_into_the_product() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,5,3]) -> (%y) {
          const %w: f32[3,4] #
          const %c: f32[1,4] positive
          const %d: f32[4] #
          %a = matmul(%x, %w) // "a"
          %rows = reshape(%a) shape=[10,4] // "rows"
          %b = div(%rows, %c) // "b"
          %e = sub(%d, %b) // "e"
          %y = reshape(%e) shape=[2,5,4] // "y"
        }""")
    result = run(FOLD_AFFINE, before)
    assert [node.op.kind for node in result.graph.nodes] == ["matmul", "reshape", "reshape"]
    assert result.graph.nodes[0].covers == ("a", "b", "e")
    moved = "the reshape 'rows', where a product can do it"
    assert said(result) == [
        ("b", "computed before", moved), ("b", "folded", "into the weights of 'a'"),
        ("e", "computed before", moved), ("e", "folded", "into the weights of 'b'"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reshape", "operand", "outputs"),
    [
        ("shape=[5,8]", "f32[8]", "%y"),  # other rows
        ("shape=[10,4]", "f32[10,1]", "%y"),  # one number a row
        ("shape=[10,4]", "f32[4]", "%y, %rows"),
        ("shape=[10,4]", "f32[4]", "%y, %a"),
        ("shape=[2,5,1,4]", "f32[3,4]", "%y"),  # it enlarges
    ],
)
def test_arithmetic_stays_behind_a_reshape(reshape: str, operand: str, outputs: str) -> None:
    before = graph(f"""
        graph g batch=2 (%x: f32[2,5,3]) -> ({outputs}) {{
          const %w: f32[3,4] #
          const %c: {operand} #
          %a = matmul(%x, %w) // "a"
          %rows = reshape(%a) {reshape} // "rows"
          %y = add(%rows, %c) // "y"
        }}""")
    assert run(FOLD_AFFINE, before).graph == before


def test_arithmetic_stays_behind_the_reshape_of_a_convolution() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,3,5,4]) -> (%y) {
          const %w: f32[3,3,1,1] #
          const %c: f32[4] #
          %a = conv(%x, %w) // "a"
          %rows = reshape(%a) shape=[15,4] // "rows"
          %y = mul(%rows, %c) // "y"
        }""")
    assert run(FOLD_AFFINE, before).graph == before


@pytest.mark.parametrize(
    ("arithmetic", "outputs", "reason"),
    [
        ("div(%c, %a)", "%y", "'a' is the divisor"),
        ("add(%a, %c)", "%y, %a", "'a' is a graph output"),
    ],
)
def test_arithmetic_that_cannot_fold_says_why(arithmetic: str, outputs: str, reason: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2,3,5,5]) -> ({outputs}) {{
          const %w: f32[4,3,1,1] #
          const %c: f32[] {{2}}
          %a = conv(%x, %w) // "a"
          %y = {arithmetic} // "y"
        }}""")
    result = run(FOLD_AFFINE, before)
    assert result.graph == before
    assert said(result) == [("y", "declined", reason)]


def test_a_constant_that_enlarges_the_output_does_not_fold() -> None:
    before = graph("""
        graph g batch=1 (%x: f32[1,3,5,5]) -> (%y) {
          const %w: f32[1,3,1,1] #
          const %c: f32[4,1,1] #
          %a = conv(%x, %w) // "a"
          %y = add(%a, %c) // "y"
        }""")
    assert run(FOLD_AFFINE, before).graph == before


@pytest.mark.parametrize(
    ("weight", "product"),
    [("f32[3,2,3,3]", "conv(%x, %w)"), ("f32[4,3]", "matmul(%x, %w)"), ("f32[3,4]", "matmul(%x, %w) transpose_b=true")],
)
def test_a_weight_is_scaled_in_pieces_to_the_same_bits(
    weight: str, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape, count = ("[1,2,5,5]", "[3,1,1]") if "conv" in product else ("[1,4]", "[3]")
    before = graph(f"""
        graph g batch=1 (%x: f32{shape}) -> (%y) {{
          const %w: {weight} #
          const %s: f32{count} #
          %a = {product} // "a"
          %y = mul(%a, %s) // "y"
        }}""")
    whole = run(FOLD_AFFINE, before).graph
    monkeypatch.setattr(channels, "PIECE", 1)
    assert run(FOLD_AFFINE, before).graph == whole
    assert [node.name for node in whole.nodes] == ["y"]


# --- behind normalisations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "behind"),
    [("axes=[2,3]", ("mul(%n, %w)", "add(%v, %a)")), ("axes=[1,2,3]", ("div(%n, %w)", "sub(%v, %a)"))],
)
def test_factors_behind_a_normalisation_become_its_own(norm: str, behind: tuple[str, str]) -> None:
    """torch writes GroupNorm of as many groups as channels so."""
    before = graph(f"""
        graph g batch=1 (%x: f32[2,4,3,5]) -> (%y) {{
          const %s: f32[4,1,1] #
          const %w: f32[4,1,1] #
          const %v: f32[4,1,1] #
          %n = norm(%x, %s) statistic=variance {norm} epsilon=1e-05 // "n"
          %a = {behind[0]} // "a"
          %y = {behind[1]} // "y"
        }}""")
    result = run(FOLD_AFFINE, before)
    assert body(result.graph).count("%y = norm(%x, ") == 1
    assert body(result.graph).endswith(f'statistic=variance {norm} epsilon=1e-05 @y  // "n", "a", "y"')
    assert said(result) == [
        ("a", "folded", "into the scale and bias of 'n'"), ("y", "folded", "into the scale and bias of 'a'"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("scale", "behind"),
    [
        ("f32[4,1,1]", "mul(%n, %wide)"),  # one a column, beside one a channel
        ("f32[5]", "mul(%n, %w)"),
        ("f32[4,1,1]", "div(%w, %n)"),
        ("f32[4,1,1]", "mul(%n, %x)"),
    ],
)
def test_what_is_no_factor_of_its_channels_stays_behind_a_normalisation(scale: str, behind: str) -> None:
    before = graph(f"""
        graph g batch=1 (%x: f32[2,4,3,5]) -> (%y) {{
          const %s: {scale} #
          const %w: f32[4,1,1] #
          const %wide: f32[5] #
          %n = norm(%x, %s) statistic=variance axes=[2,3] epsilon=1e-05 // "n"
          %y = {behind} // "y"
        }}""")
    assert run(FOLD_AFFINE, before).graph == before
