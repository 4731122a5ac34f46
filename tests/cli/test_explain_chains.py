"""What `explain` says of products that one kernel could compute: what that would gain, and where from."""

from __future__ import annotations

import json
import re

import pytest
from pair_fakes import Joining, with_policy
from planner_checks import graph
from planner_fakes import recipe

from bolt_build.families import load
from bolt_build.families.base import Candidate, Family
from bolt_build.planner.plan_engine import plan_engine, search_spaces
from bolt_build.planner.selection import Selection, Winner
from bolt_build.report.explained.explain import as_json, of_layer, render, render_layer
from bolt_build.report.explained.explainer import explain
from bolt_build.report.explained.explanation import Explanation
from bolt_build.schema.recipe import LayerSpec, Recipe, TargetSpec
from bolt_build.targets import target_named
from bolt_build.tuning.trials.tuning_set import tuning_set
from bolt_build.workflows.evidence import Evidence

H200 = target_named("h200")
SPEC = TargetSpec("h200", "fp16")
# What lies between /a and /b is 2048 x 1024 halves, 4 MiB, written and read once: 8.39 MB, 1.95 us at 4.3 TB/s.
NET = """
    graph net batch=1 (%x: f32[2048,64]) -> (%q) {
      const %w: f32[64,1024] #
      const %v: f32[1024,64] #
      const %t: f32[64,64] #
      %y = matmul(%x, %w) | relu // "/a"
      %z = matmul(%y, %v) // "/b"
      %r = softmax(%z) axis=1 // "/r"
      %s = matmul(%r, %t) // "/c"
      %p = relu(%s) // "/p"
      %q = matmul(%s, %t, %p) | add(%p) // "/d"
    }"""


def explained(
    family: Family, times: tuple[float | None, float, float] | None = None, of: Recipe | None = None, net: str = NET
) -> Explanation:
    """`times`: microseconds that the chain, its first and its second product were measured to take."""
    made = (graph(net),), of or recipe(), SPEC, H200, (family,)
    problems = tuning_set(search_spaces(*made), (family,), H200, 3)
    engine = plan_engine(*made)
    selection = Selection("net.lock")
    if times is not None:
        (outcome,) = engine.chains
        asked = dict(zip((outcome.chain.problem, *outcome.chain.apart), times, strict=True))
        known = ((each.problem, asked.get(each.problem, 1.0)) for each in problems.problems)
        winners = [
            Winner(problem.digest, Candidate(family.name), time * 1e-6) for problem, time in known if time is not None
        ]
        selection = Selection("net.lock", tuple(winners))
        engine = plan_engine(*made, selection)
    return explain(Evidence(engine, H200, (family,), problems, selection.source))


def section(explanation: Explanation) -> list[str]:
    """The part of the text that is about chains."""
    lines = render(explanation).splitlines()
    begin = next(i for i, line in enumerate(lines) if "chains that one kernel" in line)
    end = next(i for i, line in enumerate([*lines[begin:], ""], begin) if not line)
    return [line.rstrip() for line in lines[begin:end]]


def test_the_gain_is_split() -> None:
    text = section(explained(Joining(conversion=1e-6), (6.0, 5.0, 4.0)))
    assert [re.sub(" {2,}", " ", line) for line in text] == [
        "batch 1: fused 1 of 1 chains that one kernel can compute",
        "gain = traffic between them at 4.30 TB/s + a launch - what one kernel loses; us, ~ predicted",
        "first then computes one kernel apart gain traffic launch lost became",
        "/a /b 2048x64 by 64x1024 + relu then 2048x1024 by 1024x64 6.00 5.00 + 4.00 +3.00 1.95 2.00 0.95 fused",
        "chains left apart:",
        " 1 joining: 2 nodes read what lies between",
    ]


def test_a_chain_that_is_bound_by_arithmetic_is_shown_with_what_it_loses() -> None:
    explanation = explained(Joining(conversion=1e-6), (12.0, 5.0, 4.0))
    (chain,) = explanation.batches[0].chains.legal if explanation.batches[0].chains else ()
    assert (chain.fused, chain.together, chain.apart) == (False, 12.0, (5.0, 4.0))
    split = chain.split
    assert split is not None
    assert (split.nbytes, split.launch) == (2 * 2048 * 1024 * 2, 2.0)
    assert split.gain == pytest.approx(-3.0)
    assert split.gain == pytest.approx(split.traffic + split.launch - split.lost)
    assert split.lost > split.traffic + split.launch
    assert "  /a then /b: measured 12.00 us in one kernel, measured 5.00 us and measured 4.00 us apart" in section(
        explanation
    )


def test_predictions_are_marked() -> None:
    (row,) = [line for line in section(explained(Joining(conversion=1e-6))) if line.startswith("/a")]
    assert "~1.50" in row
    assert "~1.00 + ~1.00" in row


def test_a_prediction_is_not_set_against_measurements() -> None:
    explanation = explained(Joining(conversion=1e-6), (None, 5.0, 4.0))
    (chain,) = explanation.batches[0].chains.legal if explanation.batches[0].chains else ()
    assert (chain.fused, chain.measured, chain.split) == (False, (False, True, True), None)
    (row,) = [line for line in section(explanation) if line.startswith("/a")]
    assert re.sub(" {2,}", " ", row).endswith(" ~1.50 5.00 + 4.00 apart")


def test_what_the_recipe_decided_is_said() -> None:
    always = section(explained(Joining(conversion=1e-6, together=9e-6), of=with_policy("always")))
    assert next(line for line in always if line.startswith("/a")).endswith("fused (always)")
    never = section(explained(Joining(conversion=1e-6), of=with_policy("never")))
    assert never == [
        "batch 1: fused 0 of 0 chains that one kernel can compute",
        "chains left apart:",
        "  1 joining: policy.fusion.persistent is never",
        "  1 joining: 2 nodes read what lies between",
    ]
    layer = with_policy("auto", (LayerSpec("/b", persistent="never"),))
    assert "  1 joining: layers['/b'].persistent is never" in section(explained(Joining(conversion=1e-6), of=layer))


def test_always_says_of_each_that_it_is_not() -> None:
    text = render(explained(Joining(conversion=1e-6, joins=False), of=with_policy("always")))
    assert (
        "  persistent: /b: declined (behind '/a', policy.fusion.persistent is always: no kernel family of 'h200' "
        "computes both in one kernel)"
    ) in text.splitlines()


def test_a_layer_names_its_chain() -> None:
    for times, how in (((6.0, 5.0, 4.0), "in one kernel"), ((12.0, 5.0, 4.0), "apart")):
        (found,) = of_layer([explained(Joining(conversion=1e-6), times)], "/b")
        (line,) = [line.strip() for line in render_layer(found).splitlines() if line.startswith("  chain ")]
        gain = 9.0 - times[0]
        assert line.startswith(f"chain       /a and /b {how}: measured {times[0]:.2f} us in one kernel, ")
        assert f"; gain {gain:+.2f} us: traffic 1.95 (8.4 MB at 4.30 TB/s), launch 2.00, lost " in line


def test_the_json_has_these_keys() -> None:
    data = as_json(explained(Joining(conversion=1e-6), (6.0, 5.0, 4.0)), attempts=False)
    assert json.loads(json.dumps(data)) == data
    chains = data["batches"][0]["chains"]
    assert set(chains) == {"is", "legal", "illegal", "bandwidth"}
    (chain,) = chains["legal"]
    assert set(chain) == {
        "is", "nodes", "words", "fused", "wish", "together", "apart", "measured", "split", "reason",
    }  # fmt: skip
    assert set(chain["split"]) == {"is", "gain", "nbytes", "traffic", "launch", "lost"}
    assert chain["nodes"] == ["/a", "/b"]


def test_a_gpu_s_own_reasons_are_counted() -> None:
    net = """
        graph net batch=32 (%x: f32[32,64,28,28]) -> (%u) {
          const %w: f32[64,64,3,3] #
          const %v: f32[64,64,1,1] #
          const %t: f32[2048,64,1,1] #
          %y = conv(%x, %w) pads_begin=[1,1] pads_end=[1,1] | relu // "/a"
          %z = conv(%y, %w) pads_begin=[1,1] pads_end=[1,1] | relu // "/b"
          %p = conv(%z, %v) | relu // "/c"
          %u = conv(%p, %t) | relu // "/d"
        }"""
    made = (graph(net),), recipe(), SPEC, H200, load(H200)
    problems = tuning_set(search_spaces(*made), load(H200), H200, 3)
    explanation = explain(Evidence(plan_engine(*made), H200, load(H200), problems, "predictions"))
    found = explanation.batches[0].chains
    assert found is not None
    assert [each.nodes for each in found.legal] == [("/b", "/c")]
    assert [(each.count, each.reason) for each in found.illegal] == [
        (1, "cutlass: the second convolution is not 1x1 with a stride of one, without padding and without groups"),
        (1, "cutlass: whole rows of 64 and 2048 do not fit one WGMMA tile"),
        (1, "cutlass: whole rows of 64 and 2048 do not fit one tile of warps"),
        (1, "cutlass: weights stay in registers for larger windows than 1x1"),
        (1, "cutlass: a warp keeps 96 channels at most, here are 64 and 2048"),
    ]
