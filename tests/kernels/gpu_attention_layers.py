"""Attention that is tried on a GPU: every way in which its kernels differ."""

from __future__ import annotations

import random
from dataclasses import replace

from families_harness import Input, Layer, graph_with
from gpu_asked import asked
from gpu_harness import TARGET, Trial
from gpu_products import TOLERANCE

from bolt_build.dtypes import DType
from bolt_build.families.attention.family import Attention as Family
from bolt_build.families.attention.kind import candidate_of
from bolt_build.families.attention.registry import KINDS
from bolt_build.families.attention.shape import shape_of
from bolt_build.families.base import Candidate, KernelProblem, ProposedStep
from bolt_build.graph.ops.attention.attention import Attention

FAMILY = Family()
HIDING = -150_000.0
"""Masks from here to 0 are minus infinity in half precision in more than half of their places."""


def attention(
    label: str,
    extents: tuple[int, int, int, int],
    depth: int,
    columns: int | None = None,
    *,
    kv_heads: int | None = None,
    causal: bool = False,
    safe: bool = False,
    endless: bool = False,
    mask: Input | None = None,
    peaked: float = 1.5,
    window: int = 0,
    cap: float = 0.0,
    unbounded: int = 0,
    sinks: Input | None = None,
    more: Input | None = None,
    relative: bool = False,
) -> Layer:
    """Attention of [batch, heads, queries, keys] whose inputs lie apart. Where scores are `peaked` by 30 and more the
    powers of later keys are often beyond half precision as long as earlier ones are told from, by 200 beyond fp32. So
    many elements of the last head's queries of the first image are `unbounded`, half as many of the next: their scores
    are no numbers."""
    batch, heads, queries, keys = extents
    kv = kv_heads or heads
    op = Attention(
        heads, kv, peaked * depth**-0.5, causal, False, safe, endless=endless, window=window, cap=cap,
        sunk=sinks is not None, relative=relative,
    )  # fmt: skip
    shapes = ((batch, queries, heads * depth), (batch, keys, kv * depth), (batch, keys, kv * (columns or depth)))
    hidden = (unbounded, 0, 0)
    inputs = tuple(Input(shape, hidden=count) for shape, count in zip(shapes, hidden, strict=True))
    others = [each for each in (mask, more, sinks) if each is not None]
    return Layer(label, op, (*inputs, *others), (), DType.F16, TOLERANCE)


def packed(label: str, batch: int, heads: int, rows: int, depth: int, *, kv_heads: int | None = None) -> Layer:
    """Self-attention whose inputs lie side by side."""
    kv = kv_heads or heads
    op = Attention(heads, kv, 1.5 * depth**-0.5, packed=True)
    return Layer(label, op, (Input((batch, rows, (heads + 2 * kv) * depth)),), (), DType.F16, TOLERANCE)


LAYERS = [
    *(attention(f"at-{d}", (2, 2, 70, 70), d) for d in (8, 16, 32, 64, 80, 96, 128)),
    *(attention(f"at-odd-{d}", (1, 3, 33, 50), d) for d in (1, 7, 10, 20, 40, 72, 100)),
    attention("at-256", (1, 1, 40, 70), 256),
    attention("at-200", (1, 1, 17, 33), 200),
    attention("at-columns", (1, 2, 40, 60), 64, 24),
    attention("at-columns-odd", (1, 2, 20, 30), 30, 75),
    *(
        attention(f"at-{s}x{t}", (1, 2, s, t), 64)
        for s, t in ((1, 1), (1, 300), (5, 3), (40, 40), (197, 197), (129, 16))
    ),
    attention("at-causal", (1, 2, 150, 150), 64, causal=True),
    attention("at-causal-wide", (1, 1, 60, 200), 32, causal=True),
    attention("at-causal-high", (1, 1, 200, 60), 32, causal=True),
    attention("at-groups", (2, 6, 50, 90), 32, kv_heads=2),
    attention("at-mask", (2, 3, 40, 75), 64, mask=Input((2, 3, 40, 75))),
    attention("at-mask-keys", (2, 3, 70, 75), 64, mask=Input((2, 1, 1, 75), low=HIDING, high=0.0)),
    attention("at-mask-heads", (2, 3, 40, 75), 32, mask=Input((3, 1, 75))),
    attention("at-mask-queries", (2, 3, 40, 75), 32, mask=Input((2, 1, 40, 1))),
    attention("at-mask-far", (2, 3, 40, 75), 32, safe=True, mask=Input((2, 1, 40, 1), low=HIDING, high=0.0)),
    attention("at-mask-lines", (1, 2, 100, 196), 96, mask=Input((1, 2, 100, 196))),
    attention("at-mask-odd-lines", (2, 3, 49, 49), 32, mask=Input((1, 3, 49, 49))),
    attention("at-no-number", (3, 2, 40, 49), 32, mask=Input((3, 2, 40, 49)), unbounded=32),
    attention("at-no-number-bias", (3, 2, 40, 49), 32, mask=Input((3, 2, 40, 49), True), unbounded=32),
    attention("at-mask-constant", (2, 2, 40, 75), 32, causal=True, mask=Input((40, 75), True)),
    attention("at-windows", (6, 3, 49, 49), 32, mask=Input((2, 3, 49, 49), True)),
    attention("at-windows-whole", (6, 2, 64, 64), 32, mask=Input((3, 1, 64, 64))),
    attention("at-turns", (450, 3, 49, 49), 32, mask=Input((3, 3, 49, 49), True)),
    attention("at-turns-causal", (1400, 1, 20, 40), 16, causal=True, safe=True,
              mask=Input((1, 40), low=HIDING, high=0.0)),
    attention("at-turns-groups", (661, 2, 33, 64), 24, 40, kv_heads=1),
    attention("at-windows-bias", (2, 2, 64, 64), 32, mask=Input((1, 2, 64, 64), True)),
    attention("at-hidden", (3, 2, 40, 2), 32, mask=Input((3, 2, 40, 2), low=HIDING, high=0.0)),
    attention("at-hidden-safe", (3, 2, 40, 2), 32, safe=True, mask=Input((3, 2, 40, 2), low=HIDING, high=0.0)),
    attention("at-hidden-endless", (3, 2, 40, 2), 32, endless=True, mask=Input((3, 2, 40, 2), low=HIDING, high=0.0)),
    attention("at-hidden-first", (1, 1, 20, 400), 64, mask=Input((400,), low=6 * HIDING, high=0.0)),
    attention("at-bias-causal", (2, 2, 100, 140), 64, causal=True, mask=Input((2, 1, 100, 140), True, HIDING, 0.0)),
    attention("at-bias-low", (2, 3, 40, 75), 32, mask=Input((3, 40, 75), True, -3e38, -1e38)),
    attention("at-bias-hidden", (3, 2, 40, 2), 32, safe=True,
              mask=Input((3, 1, 40, 2), True, HIDING, 0.0, DType.F16)),
    attention("at-rows-ragged", (5, 3, 330, 90), 64),
    attention("at-bias-long", (1, 2, 140, 300), 96, mask=Input((1, 2, 140, 300), True, HIDING, 0.0)),
    attention("at-mask-long", (2, 2, 140, 300), 64, causal=True, mask=Input((2, 1, 1, 300), low=HIDING, high=0.0)),
    attention("at-mask-padded", (3, 2, 140, 300), 64, safe=True,
              mask=Input((3, 1, 1, 300), low=0.0, high=0.0, hidden=300)),
    attention("at-mask-tied", (3, 4, 140, 300), 64, kv_heads=2, causal=True,
              mask=Input((3, 1, 1, 300), low=0.0, high=0.0, hidden=300)),
    attention("at-bias-tied", (3, 2, 49, 49), 32, mask=Input((3, 2, 49, 1), True, HIDING, 0.0, DType.F16)),
    attention("at-window", (2, 2, 200, 200), 64, causal=True, window=70),
    attention("at-window-sides", (1, 2, 200, 260), 64, window=33),
    attention("at-window-far", (1, 1, 330, 330), 32, causal=True, window=3, peaked=30.0),
    attention("at-cap", (2, 4, 140, 300), 64, kv_heads=2, cap=3.0, peaked=6.0),
    attention("at-window-mask", (2, 2, 200, 200), 64, causal=True, window=70,
              mask=Input((2, 1, 1, 200), low=HIDING, high=0.0)),
    attention("at-window-padded", (3, 2, 330, 330), 64, window=33,
              mask=Input((3, 1, 1, 330), low=0.0, high=0.0, hidden=300)),
    attention("at-cap-mask", (2, 2, 200, 200), 64, cap=3.0, peaked=6.0,
              mask=Input((2, 1, 1, 200), low=-2.0, high=0.0)),
    attention("at-cap-window-mask", (2, 2, 200, 200), 96, causal=True, window=50, cap=2.0, peaked=4.0, safe=True,
              mask=Input((2, 2, 1, 200), low=HIDING, high=0.0)),
    attention("at-cap-window", (1, 2, 200, 200), 96, causal=True, window=50, cap=2.0, peaked=4.0),
    attention("at-cap-256", (1, 2, 70, 140), 256, causal=True, cap=30.0, peaked=60.0),
    attention("at-few", (2, 3, 1, 700), 64),
    attention("at-few-groups", (1, 4, 10, 1030), 30, 75, kv_heads=2),
    attention("at-few-rows", (2, 2, 9, 300), 128, mask=Input((2, 2, 9, 300), low=-2.0, high=0.0)),
    attention("at-few-safe", (3, 2, 2, 300), 64, safe=True, mask=Input((3, 1, 1, 300), low=0.0, high=0.0, hidden=300)),
    attention("at-token", (2, 8, 1, 300), 64, kv_heads=2),
    attention("at-token-mask", (2, 6, 1, 300), 32, 40, kv_heads=2, safe=True,
              mask=Input((2, 6, 1, 300), low=HIDING, high=0.0)),
    attention("at-token-bias", (2, 6, 1, 90), 64, kv_heads=2, mask=Input((6, 1, 90), True)),
    attention("at-token-cap", (3, 40, 1, 200), 64, kv_heads=2, cap=3.0, peaked=6.0, mask=Input((3, 1, 1, 200))),
    attention("at-sink", (2, 3, 70, 140), 64, sinks=Input((3,), True, -2.0, 4.0)),
    attention("at-sink-window", (2, 8, 200, 200), 64, kv_heads=2, causal=True, window=70,
              sinks=Input((8,), True, -2.0, 4.0, DType.F16)),
    attention("at-sink-cap", (1, 4, 70, 140), 96, kv_heads=2, causal=True, cap=3.0, peaked=6.0, sinks=Input((1,))),
    attention("at-sink-padded", (3, 2, 140, 300), 64, mask=Input((3, 1, 1, 300), low=0.0, high=0.0, hidden=300),
              sinks=Input((2,))),
    attention("at-sink-mask", (2, 3, 40, 75), 64, mask=Input((2, 3, 40, 75), low=HIDING, high=0.0), sinks=Input((3,))),
    attention("at-sink-bias", (2, 3, 40, 75), 64, mask=Input((3, 40, 75), True), sinks=Input((3,), True)),
    attention("at-sink-turns", (450, 3, 49, 49), 32, sinks=Input((3,), True, -2.0, 4.0)),
    attention("at-sink-token", (2, 8, 1, 300), 64, kv_heads=2, sinks=Input((8,), True, -2.0, 4.0)),
    attention("at-sink-few", (1, 4, 10, 1030), 30, 75, kv_heads=2, sinks=Input((4,))),
    attention("at-sink-far", (1, 2, 70, 140), 64, sinks=Input((2,), True, 4.0, 9.0)),
    attention("at-twice", (8, 3, 70, 144), 32, mask=Input((3, 70, 144), True),
              more=Input((4, 1, 70, 144), True, alike=3)),
    attention("at-twice-windows", (450, 3, 49, 49), 32, mask=Input((3, 49, 49), True),
              more=Input((9, 1, 49, 49), True, -150.0, 0.0, alike=4)),
    attention("at-twice-odd", (4, 2, 40, 75), 30, mask=Input((1, 2, 40, 75), True),
              more=Input((4, 2, 40, 75), True, HIDING, 0.0, DType.F16, alike=2)),
    attention("at-twice-none", (4, 2, 150, 200), 64, mask=Input((2, 150, 200), True),
              more=Input((2, 1, 150, 200), True, alike=1)),
    attention("at-distance", (2, 3, 200, 260), 64, mask=Input((3, 459), True), relative=True),
    attention("at-distance-causal", (2, 4, 150, 150), 64, kv_heads=2, causal=True,
              mask=Input((4, 299), True, dtype=DType.F16), relative=True),
    attention("at-distance-window", (1, 2, 330, 330), 64, window=33, mask=Input((2, 659), True), relative=True),
    attention("at-distance-high", (1, 2, 200, 61), 32, safe=True, mask=Input((1, 260), True, HIDING, 0.0),
              relative=True),
    attention("at-distance-turns", (450, 3, 49, 50), 32, mask=Input((3, 98), True), relative=True),
    attention("at-distance-sink", (2, 2, 70, 140), 64, causal=True, mask=Input((2, 209), True), relative=True,
              sinks=Input((2,), True)),
    packed("at-packed", 2, 3, 90, 64),
    packed("at-packed-groups", 2, 4, 50, 40, kv_heads=2),
    packed("at-packed-odd", 1, 3, 50, 21),
]  # fmt: skip

FORMS = [
    attention("at-form", (1, 2, 150, 210), 64),
    attention("at-form-mask", (1, 1, 70, 140), 64, causal=True, mask=Input((70, 140))),
    attention("at-form-bias", (2, 2, 150, 210), 64, mask=Input((1, 2, 150, 210), True)),
    attention("at-form-128", (1, 1, 70, 140), 128, causal=True),
]


PEAKED = [
    attention("at-peaked", (1, 2, 200, 400), 64, peaked=30.0),
    attention("at-peaked-far", (2, 1, 200, 400), 80, peaked=200.0, causal=True),
    attention("at-peaked-32", (1, 2, 70, 400), 32, peaked=60.0),
    attention("at-peaked-16", (1, 2, 70, 200), 16, peaked=60.0),
    attention("at-peaked-mask", (2, 2, 140, 300), 64, mask=Input((2, 1, 1, 300), low=-60.0, high=0.0)),
    attention(
        "at-peaked-bias", (1, 2, 140, 300), 96, causal=True, mask=Input((1, 2, 140, 300), True, 1e-3 * HIDING, 0.0)
    ),
]


LONG = [
    attention("at-token-long", (1, 8, 1, 4200), 64, kv_heads=2, mask=Input((1, 1, 1, 4200), low=HIDING, high=0.0)),
]


def odd_trials(seed: int, count: int) -> list[Trial]:
    """Attention of random extents, heads and masks, with a random legal kernel of each kind."""
    choose = random.Random(seed)
    found = []
    for number in range(count):
        kv, group = choose.choice((1, 2, 3)), choose.choice((1, 1, 2))
        depth = choose.choice((32, 64, 64, 80, 96, 128, choose.randint(1, 160)))
        queries, keys = (choose.choice((1, 40, 197, choose.randint(1, 260))) for _ in range(2))
        batch, heads = choose.randint(1, 2), kv * group
        shape = tuple(n if choose.random() < 0.6 else 1 for n in (batch, heads, queries, keys))
        hiding = choose.random() < 0.5
        mask = Input(shape, low=HIDING if hiding else -2.0, high=0.0) if choose.random() < 0.4 else None
        layer = attention(
            f"odd-{seed}-{number}", (batch, heads, queries, keys), depth, kv_heads=kv,
            causal=choose.random() < 0.3, safe=hiding and number % 2 == 0, endless=hiding and number % 4 == 1,
            mask=mask,
        )  # fmt: skip
        if choose.random() < 0.4:
            layer = packed(f"odd-{seed}-{number}", batch, heads, queries, depth, kv_heads=kv)
        if choose.random() < 0.2 and (mask is None or mask not in layer.inputs or mask.shape[-1] > 1):
            sinks = Input((choose.choice((1, heads)),), choose.random() < 0.5, -3.0, 4.0)
            layer = replace(layer, op=replace(layer.op, sunk=True), inputs=(*layer.inputs, sinks))
        step = step_of(layer)
        kernels = legal(step.problem)
        for kind in dict.fromkeys(dict(candidate.parameters)["kind"] for candidate in kernels):
            of_kind = [candidate for candidate in kernels if dict(candidate.parameters)["kind"] == kind]
            found.append(Trial(layer, step, choose.choice(of_kind)))
    return found


def step_of(layer: Layer) -> ProposedStep:
    """The step that the family proposes for a layer."""
    graph, node = graph_with(layer)
    (alternative,), _ = FAMILY.propose(graph, node, TARGET, layer.precision)
    (step,) = alternative.steps
    return step


def attention_trials() -> list[Trial]:
    """Every layer with the kernel of each kind that is predicted to be fastest; some with every eighth legal tile of
    each kind; scores that grow behind the first step of their row; and rows of inputs and of the output apart."""
    found = []
    for layer in asked(LAYERS):
        step = step_of(layer)
        first: dict[object, Candidate] = {}
        for candidate in FAMILY.candidates(step.problem, TARGET)[0]:
            first.setdefault(dict(candidate.parameters)["kind"], candidate)
        found += [Trial(layer, step, candidate) for candidate in first.values()]
    for layer in asked(FORMS):
        step = step_of(layer)
        found += [Trial(layer, step, candidate) for candidate in legal(step.problem)[::8]]
    for layer in asked(PEAKED):
        step = step_of(layer)
        staying = [each for each in legal(step.problem) if ("kind", "persistent") in each.parameters]
        found += [Trial(layer, step, candidate) for candidate in staying[4::11]]
    for layer in asked(LONG):
        step = step_of(layer)
        largest = [each for each in legal(step.problem) if ("blocks", 16) in each.parameters]
        found += [Trial(layer, step, candidate) for candidate in largest[::3]]
    for layer in asked((LAYERS[3], FORMS[1])):
        step = step_of(layer)
        row = step.problem.outputs[0].row
        for candidate in FAMILY.candidates(step.problem, TARGET)[0][:1]:
            trial = Trial(layer, step, candidate)
            found += [replace(trial, pitch=row + 8), replace(trial, pitch=row + 8, between=24)]
    return found


def counted_trials() -> list[Trial]:
    """Attention that is told how many keys are no padding: of all, some and none of a step, and nothing told."""
    found = []
    for layer, every in ((attention("at-counted", (2, 3, 70, 75), 64), 16), (FORMS[0], 40)):
        layer = replace(layer, label="at-counted" + layer.label.removeprefix("at-counted").removeprefix("at"),
                        op=replace(layer.op, counted=1))  # fmt: skip
        step = step_of(layer)
        kernels = [*legal(step.problem)[::every], *FAMILY.candidates(step.problem, TARGET)[0][:1]]
        keys = step.problem.inputs[1].shape[1]
        found += [Trial(layer, step, each, there=there) for each in kernels for there in (0, 1, 33, 64, keys)]
    return found


def legal(problem: KernelProblem) -> list[Candidate]:
    """Every legal tile of each kind."""
    shape = shape_of(problem)
    assert TARGET.gpu is not None
    found = []
    for kind in KINDS:
        if kind.serves(shape, TARGET.gpu) is None:
            found += [candidate_of(tile) for tile in kind.tiles(shape) if tile.refuse(shape, TARGET.gpu) is None]
    return found
