"""What stands behind a concatenation of channels is computed in front of it. Every run also compares all values."""

from __future__ import annotations

import pytest
from planner_checks import graph, run, said, same_values
from planner_fakes import POLICY

from bolt_build.graph.ir import Graph
from bolt_build.planner.passes.images.staged_parts import STAGE_PARTS
from bolt_build.planner.pipeline import optimize
from bolt_build.targets import target_named


def parts(behind: str, *, front: str = "", joined: str = "%a, %b", outputs: str = "%y", inputs: str = "") -> Graph:
    """A convolution of 8 filters beside one of 16, or what `joined` names."""
    return graph(f"""
        graph g batch=2 (%x: f32[2,4,6,6]{inputs}) -> ({outputs}) {{
          const %v: f32[8,4,3,3] #
          const %w: f32[16,4,1,1] #
          const %s: f32[24,1,1] positive
          const %t: f32[1,24,1,1] #
          const %n: f32[1] positive
          const %r: f32[1,1,6,6] #
          %a = conv(%x, %v) pads_begin=[1,1] pads_end=[1,1] // "a"
          %b = conv(%x, %w) // "b"
          {front}
          %c = concat({joined}) axis=1 // "c"
          {behind}
        }}""")


def kinds(of: Graph) -> str:
    return " ".join(node.op.kind for node in of.nodes)


@pytest.mark.parametrize(
    ("behind", "found"),
    [
        ('%y = relu(%c) // "y"', "conv conv activation activation concat"),
        ('%y = mul(%c, %s) // "y"', "conv conv binary binary concat"),
        ('%y = sub(%t, %c) // "y"', "conv conv binary binary concat"),
        ('%y = div(%c, %n) // "y"', "conv conv binary binary concat"),
        ('%m = prelu(%c, %s) // "m"\n%y = sigmoid(%m) // "y"', "conv conv binary binary activation activation concat"),
    ],
)
def test_functions_and_constants_go_to_each_part(behind: str, found: str) -> None:
    before = parts(behind)
    result = run(STAGE_PARTS, before)
    assert kinds(result.graph) == found
    assert result.graph.nodes[-1].name == "y"
    assert result.graph.nodes[-1].covers[0] == "c"
    assert said(result)[0] == (behind.split('"')[1], "computes before", "'c', where its parts are stored")


def test_a_residual_is_cut_in_parts_that_are_read_where_they_lie() -> None:
    before = parts('%y = add(%z, %c) // "y"', inputs=", %z: f32[2,24,6,6]")
    result = run(STAGE_PARTS, before)
    assert kinds(result.graph) == "conv conv slice binary slice binary concat"
    after = optimize(before, POLICY, target_named("h200"), "fp16").graph
    same_values(before, after)
    assert "binary" not in kinds(after)


def test_normalisation_and_activation_of_joined_convolutions_are_theirs() -> None:
    before = graph("""
        graph g batch=2 (%x: f32[2,8,6,6]) -> (%y) {
          const %v: f32[16,8,3,3] #
          const %g: f32[24] #
          const %h: f32[24] #
          const %m: f32[24] #
          const %d: f32[24] positive
          %a = conv(%x, %v) strides=[2,2] pads_begin=[1,1] pads_end=[1,1] // "a"
          %p = pool(%x) mode=max kernel=[2,2] strides=[2,2] // "p"
          %c = concat(%a, %p) axis=1 // "c"
          %n = batch_norm(%c, %g, %h, %m, %d) epsilon=1e-5 // "n"
          %y = relu(%n) // "y"
        }""")
    after = optimize(before, POLICY, target_named("h200"), "fp16").graph
    same_values(before, after)
    assert sorted(node.op.kind for node in after.nodes) == ["concat", "conv", "pool"]


TOO_FEW = "too few parts are stored by what could do it"
READ_TWICE = '%z = sigmoid(%b) // "z"'


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (
            parts('%y = relu(%c) // "y"', front=READ_TWICE, outputs="%y, %z"),
            TOO_FEW,
        ),
        (parts('%y = relu(%c) // "y"', joined="%a, %a, %b"), None),
        (parts('%y = mul(%c, %r) // "y"'), None),
        (parts('%y = relu(%c) // "y"\n%z = sigmoid(%c) // "z"', outputs="%y, %z"), None),
        (parts('%y = mul(%c, %z) // "y"', inputs=", %z: f32[2,24,6,6]"), None),
        (parts('%y = add(%c, %z) // "y"', inputs=", %z: f32[2,24,1,1]"), None),
        (parts('%y = add(%c, %c) // "y"'), None),
        (
            parts('%y = add(%c, %z) // "y"', inputs=", %z: f32[2,28,6,6]", joined="%x, %a, %b"),
            TOO_FEW,
        ),
    ],
)
def test_what_stays_behind(before: Graph, reason: str | None) -> None:
    result = run(STAGE_PARTS, before)
    assert result.graph == before
    wanted = [] if reason is None else [("y", "declined", f"stays behind 'c': {reason}")]
    assert said(result) == wanted


def test_constants_that_weights_behind_take_stay_where_a_part_would_need_a_step_of_its_own() -> None:
    def of(pads: str) -> Graph:
        behind = f'%m = mul(%c, %u) // "m"\n%y = conv(%m, %f) pads_begin=[{pads}] pads_end=[{pads}] // "y"'
        constants = "const %f: f32[8,28,1,1] #\nconst %u: f32[28,1,1] positive"
        return parts(behind, joined="%x, %a, %b", front=constants)

    result = run(STAGE_PARTS, of("0,0"))
    assert said(result) == [("m", "declined", "stays behind 'c': the weights behind it take its constants")]
    assert run(STAGE_PARTS, of("1,1")).graph != of("1,1")


def test_parts_of_a_residual_begin_with_whole_loads() -> None:
    before = parts(
        '%y = add(%c, %z) // "y"', front="const %u: f32[4,4,1,1] #\n%d = conv(%x, %u) // \"d\"",
        inputs=", %z: f32[2,20,6,6]", joined="%d, %b",
    )  # fmt: skip
    result = run(STAGE_PARTS, before)
    assert said(result) == [("y", "declined", "stays behind 'c': parts of its residual are no whole loads")]


def test_it_pays_on_tensor_cores() -> None:
    pays = STAGE_PARTS.pays_on
    assert pays is not None
    assert [pays(target_named(name), which) for name, which in (("t4", "fp16"), ("host", "fp32"))] == [True, False]
