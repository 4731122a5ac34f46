"""The elements that TopK finds and their places are one kernel on GPUs."""

from __future__ import annotations

import numpy as np
import pytest
from planner_checks import graph

from bolt_build.dtypes import DType
from bolt_build.families.base import Alternative, KernelProblem, Operand, StepExpressions, TensorFormat
from bolt_build.families.portable.family import Portable
from bolt_build.graph.ir import Layout, TensorType
from bolt_build.graph.ops.lines.lines import Places, TopElements
from bolt_build.targets import HOST, Target, target_named

FAMILY, H200 = Portable(), target_named("h200")


def proposed(
    how: str = "count=30", data: str = "%x", axis: int = 2, outputs: str = "%y", target: Target = H200
) -> list[Alternative]:
    """Alternatives of several nodes that begin with places along axis 2 and the elements of `data` there."""
    net = graph(
        f"""graph g batch=2 (%x: f32[2,8,400], %z: f32[2,8,400]) -> ({outputs}) {{
          %found = places(%x) axis=2 {how} // "found"
          %y = gather_elements({data}, %found) axis={axis} // "taken"
        }}"""
    )
    found, _ = FAMILY.propose(net, net.nodes[0], target, DType.F16)
    return [each for each in found if len(each.region) > 1]


@pytest.mark.parametrize(
    ("outputs", "names"), [("%y", ("y",)), ("%y, %found", ("y", "found"))], ids=["elements", "places too"]
)
def test_both_are_one_step(outputs: str, names: tuple[str, ...]) -> None:
    (both,) = proposed(outputs=outputs)
    (step,) = both.steps
    assert (both.region, step.inputs, step.outputs) == (("found", "taken"), ("x",), names)
    assert step.problem.op == TopElements(2, 30, True, False, len(names) == 2)
    assert [str(each.format) for each in step.problem.outputs] == ["f16/row", "i64/row"][: len(names)]
    assert len(both.apart) == 2
    candidate = FAMILY.candidates(step.problem, H200)[0][0]
    at = StepExpressions(("x",), ("v", "p")[: len(names)], (None,))
    written = "x, nullptr, v);" if len(names) == 1 else "x, p, v);"
    assert FAMILY.emit(step.problem, candidate, H200, at).call.endswith(written)


@pytest.mark.parametrize(
    "given",
    [{"how": "count=1"}, {"data": "%z"}, {"target": HOST}],
    ids=["one element", "of another tensor", "on a host"],
)  # fmt: skip
def test_others_stay_two_steps(given: dict[str, str]) -> None:
    assert proposed(**given) == []  # type: ignore[arg-type]


@pytest.mark.parametrize("with_places", [True, False])
def test_the_reference_takes_what_the_places_name(with_places: bool) -> None:
    x = np.asarray([[3.0, np.nan, 5.0, 3.0], [-0.0, 0.0, 7.0, -1.0]], np.float32)
    op = TopElements(1, 3, with_places=with_places)
    values, *places = op.evaluate([x])
    np.testing.assert_array_equal(values, [[np.nan, 5.0, 3.0], [7.0, -0.0, 0.0]])
    assert [each.tolist() for each in places] == ([[[1, 2, 0], [2, 0, 1]]] if with_places else [])
    made = op.infer([TensorType(DType.F32, (2, 4))])
    assert made == (TensorType(DType.F32, (2, 3)), TensorType(DType.I64, (2, 3)))[: 2 if with_places else 1]


@pytest.mark.parametrize(("lines", "pairs"), [(1 << 20, True), (1 << 21, False)])
@pytest.mark.parametrize("algorithm", ["selected", "sifted"])
def test_more_elements_than_numbers_of_32_bits_tell_apart_are_read_one_by_one(
    algorithm: str, lines: int, pairs: bool
) -> None:
    """Words of several elements are numbered."""
    x = Operand((lines, 1024), TensorFormat(DType.F16, Layout.ROW))
    y = Operand((lines, 30), TensorFormat(DType.I64, Layout.ROW))
    problem = KernelProblem(Places(1, 30), (x,), (y,), (), DType.F32, "h200")
    found = [dict(each.parameters) | {"whole": each} for each in FAMILY.candidates(problem, H200)[0]]
    kernels = [each["whole"] for each in found if each["algorithm"] == algorithm]
    calls = [FAMILY.emit(problem, each, H200, StepExpressions(("x",), ("p",), (None,))).call for each in kernels]
    assert [", true>(r" in each for each in calls] == [pairs] * len(calls)
    assert calls
