"""Random kernels that are tried on the emulated GPU, each by the number of its draw."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from families_harness import Layer
from gpu_averages import alone
from gpu_averages import step_of as step_of_means
from gpu_bf16 import in_bf16
from gpu_depthwise_chains import averaged_step, expanded
from gpu_depthwise_chains import step_of as step_of_chain
from gpu_harness import TARGET, Trial
from gpu_means import FAMILY as CUTLASS
from gpu_means import step_of as step_of_products
from gpu_moments import ADD_BEHIND, LEAKY
from gpu_moments import step_of as step_of_norms
from gpu_products import RESIDUAL, SILU, conv

from bolt_build.families.base import Candidate, ProposedStep
from bolt_build.families.common.means import LAST
from bolt_build.families.common.text_form import Named
from bolt_build.families.grouped.family import Grouped
from bolt_build.families.grouped.kind import candidate_of
from bolt_build.families.grouped.kinds.sliding import tiles as sliding_tiles
from bolt_build.families.grouped.means import CLUSTER, joined
from bolt_build.families.grouped.neighbours.chain import chain_shape, tiles
from bolt_build.families.grouped.registry import kinds_for
from bolt_build.families.grouped.shape import shape_of

GROUPED = Grouped()
SWISHED = expanded("swished", (1, 16, 9, 9), 32, epilogue=SILU)
SWISHED_TILE: Named = (
    ("kind", "expanded"), ("rows", 8), ("columns", 8), ("pairs", 2), ("across", 1), ("slab", 16), ("parts", 1),
    ("halos", 1),
)  # fmt: skip
KINDS = ("rows", "depthwise", "sliding", "expanded")
EPILOGUES = ((), SILU, RESIDUAL)


def means(seed: int) -> Trial:
    """A depthwise convolution that leaves means, for a random problem. It runs twice: the second launch finds counters
    as the first left them."""
    random = Random(seed)
    wanted, way = KINDS[seed % len(KINDS)], (CLUSTER, LAST)[(seed // 2 + seed // 4) % 2]
    assert TARGET.gpu is not None
    while True:
        window, stride = random.randint(2, 5), random.choice((1, 1, 2))
        channels, batch = random.choice((13, 16, 30, 35, 48, 104)), random.randint(1, 4)
        # Where images are small, blocks of windows that slide have several.
        most = 12 if wanted == "sliding" and seed % 2 else 30
        extent = (random.randint(8, most), random.randint(8, most))
        if wanted == "expanded":
            layer = expanded(f"means-{seed}", (batch, 8, *extent), channels, window | 1, stride, epilogue=SILU)
            whole, step = averaged_step(layer)
            chain = chain_shape(step.problem)
            convs = [
                Candidate("grouped", tile.parameters) for tile in tiles(chain) if tile.refuse(chain, TARGET.gpu) is None
            ]
        else:
            layer = conv(
                f"means-{seed}", (batch, channels, *extent), channels, (window, window), stride, groups=channels,
                epilogue=SILU,
            )  # fmt: skip
            whole, step = step_of_means(layer)
            shape = shape_of(alone(layer))
            convs = [
                candidate_of(tile, random.choice((1, 2, 2, 4)) if wanted == "depthwise" else 1)
                for kind in kinds_for(shape)
                for tile in kind.tiles(shape)
                if kind.header == wanted
            ]
        legal = [c for c in (joined(c, way) for c in convs) if GROUPED.refuse(step.problem, c, TARGET) is None]
        several = [c for c in legal if most < 30 and dict(c.parameters).get("images", 1) != 1]
        if legal := several or legal:
            found = Trial(whole, step, random.choice(legal), launches=2)
            return in_bf16(found) if random.random() < 0.2 else found


def swished(_: int) -> Trial:
    """Not drawn, but in no table either: a depthwise convolution behind a product, whose sigmoids share reciprocals."""
    return Trial(SWISHED, step_of_chain(SWISHED), Candidate("grouped", SWISHED_TILE))


def product_means(seed: int) -> Trial:
    """A kernel on WGMMA that leaves means of images, for a random problem."""
    random, keeps = Random(seed), seed % 2 == 1
    form = ("1x1", "windows", "bands", "groups")[seed // 2 % 4]
    while True:
        window = 1 if form == "1x1" else random.choice((2, 3, 3))
        extent = (random.randint(window, 15), random.randint(window, 15))
        groups = 2 if form == "groups" else 1
        channels, filters = 8 * groups * random.randint(2, 9), 8 * groups * random.randint(2, 12)
        layer = conv(
            f"means-{seed}", (random.randint(1, 9), channels, *extent), filters, (window, window),
            random.choice((1, 1, 2)) if window > 1 else 1, groups=groups, epilogue=random.choice((SILU, RESIDUAL)),
        )  # fmt: skip
        whole, step = step_of_products(layer, keeps=keeps)
        stated = [(each, dict(each.parameters)) for each in CUTLASS.candidates(step.problem, TARGET)[0]]
        if legal := [each for each, of in stated if form == "groups" or ("bands" in of) is (form == "bands")]:
            found = Trial(whole, step, random.choice(legal))
            return in_bf16(found) if random.random() < 0.2 else found


def image_norms(seed: int) -> Trial:
    """A kernel on WGMMA that leaves moments of images, and the pass behind it, for a random problem."""
    random, keeps = Random(seed), seed % 2 == 1
    form = ("windows", "rolling", "bands", "resident", "1x1")[seed % 5]
    while True:
        window = 1 if form == "1x1" else random.choice((2, 3, 3))
        extent = (random.randint(3, 30), random.randint(9, 30))
        channels, filters = 8 * random.randint(2, 8), 8 * random.randint(2, 6 if form == "rolling" else 12)
        layer = conv(
            f"norms-{seed}", (random.randint(1, 5), channels, *extent), filters, (window, window),
            random.choice((1, 2)) if form in ("windows", "1x1") else 1, epilogue=random.choice(((), SILU, RESIDUAL)),
        )  # fmt: skip
        groups = random.choice([0, 0, *(each for each in (1, 2, 3, 4, 8) if filters % each == 0)])
        behind = () if keeps else random.choice((LEAKY, ADD_BEHIND))
        whole, step = step_of_norms(layer, groups, behind=behind, keeps=keeps)
        stated = [(each, dict(each.parameters)) for each in CUTLASS.candidates(step.problem, TARGET)[0]]
        kinds = ("bands", "resident", "rolling")
        legal = [each for each, of in stated if next((kind for kind in kinds if kind in of), None) in (form, None)]
        legal = [each for each in legal if form not in kinds or form in dict(each.parameters)]
        if legal:
            found = Trial(whole, step, random.choice(legal))
            return in_bf16(found) if random.random() < 0.2 else found


def windows_that_slide(seed: int) -> Trial:
    """Windows that slide down an image, for a random problem: one in three times the kernel leaves means too, and one
    in four it is in bf16; rows of the output may lie apart."""
    random = Random(seed)
    while True:
        window = (random.randint(1, 7), random.randint(1, 7))
        stride, dilation = random.choice((1, 1, 2, 3)), random.choice((1, 1, 2, 3))
        channels, batch = random.choice((5, 12, 16, 30, 40, 48, 104)), random.randint(1, 5)
        before, behind = (tuple(random.randint(0, dilation * (size - 1)) for size in window) for _ in range(2))
        extent = tuple(random.randint(1, 24) + dilation * (size - 1) for size in window)
        means = random.random() < 1 / 3
        layer = conv(
            f"sliding-{seed}", (batch, channels, *extent), channels, window, stride, (before, behind), dilation,
            channels, SILU if means else random.choice(EPILOGUES), bias=random.random() < 0.7,
        )  # fmt: skip
        layer = _behind(layer)
        problem = alone(layer)
        names = tuple(f"x{index}" for index in range(len(problem.inputs)))
        whole, step = step_of_means(layer) if means else (layer, ProposedStep(problem, names, ("y",), pitched=(0,)))
        assert TARGET.gpu is not None
        shape = shape_of(problem)
        if shape.out[0] == 1:
            continue
        legal = [tile for tile in sliding_tiles(shape) if tile.refuse(shape, TARGET.gpu) is None]
        if not legal:
            continue
        row = step.problem.outputs[0].row
        pitch = random.choice((0, 0, -(-row // 8) * 8 + 8))
        found = Trial(whole, step, candidate_of(random.choice(legal), 1), pitch=pitch)
        return in_bf16(found) if random.random() < 0.25 else found


def _behind(layer: Layer) -> Layer:
    """The operand of the epilogue is the last input, with a bias or without."""
    last = len(layer.inputs) - 1
    stages = (each if each.operand is None else replace(each, operand=last) for each in layer.epilogue)
    return replace(layer, epilogue=tuple(stages))
