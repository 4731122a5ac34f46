"""Variants of a model, made on its ONNX graph: deepened, with other activations, with aligned channels."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from bolt_build.graph.variants.activation import swap_activations
from bolt_build.graph.variants.align import align_channels
from bolt_build.graph.variants.deepen import deepen
from bolt_build.graph.variants.edited import EditedModel
from bolt_build.graph.variants.mistake import Mistake, VariantError
from bolt_build.schema.recipe import VariantSpec
from bolt_build.wording import many

SEED = 50


@dataclass(frozen=True)
class Variation:
    """A changed model, and what was done to it and what not, in sentences."""

    model: onnx.ModelProto
    changes: tuple[str, ...]


def vary(
    model: onnx.ModelProto, variant: VariantSpec, dims: tuple[tuple[str, int], ...] = (), *, draw: bool = True
) -> Variation:
    """`model` with the changes of a variant, made in the order of deepen, activation, align.

    New convolutions get seeded weights that are calibrated on what reaches them (`zoo.calibrate`), unless `draw` is
    false: then they are zeros, for whoever calibrates the whole model afterwards. Everything else keeps its values, and
    aligning keeps what they compute, until that is done: a zoo model's variant is drawn and calibrated as a whole.
    `dims` binds symbolic dimensions other than the batch. Raises VariantError with what does not fit the model.
    """
    edited, changes = EditedModel(model), []
    mistakes: list[Mistake] = []
    new: tuple[str, ...] = ()
    try:
        if variant.deepen is not None:
            new = deepen(edited, variant.deepen.behind)
            changes.append(f"deepened by {many(len(new) // 2, '1x1 convolution')}")
    except VariantError as error:
        mistakes += error.mistakes
    try:
        if variant.activation is not None:
            count = swap_activations(edited, variant.activation)
            changes.append(f"{variant.activation.to} in the place of {many(count, 'activation')}")
    except VariantError as error:
        mistakes += error.mistakes
    if mistakes:
        raise VariantError(mistakes)
    varied = edited.finish()
    if new and draw:
        # Calibrating runs the network in NumPy: only what draws weights loads that.
        from bolt_build.graph.zoo.calibrate import calibrate

        varied = calibrate(varied, SEED, dims, only=frozenset(new))
    if variant.align is not None:
        edited = EditedModel(varied)
        changes += _aligned(edited, variant.align.channels)
        varied = edited.finish()
    return Variation(varied, tuple(changes))


def _aligned(edited: EditedModel, multiple: int) -> list[str]:
    found = align_channels(edited, multiple)
    widened = [each for each in found if each.reason is None]
    said = [f"{many(each.before, 'channel')} of '{each.tensor}' widened to {each.after}" for each in widened]
    if not widened:
        said.append(f"no hidden channels to round up to a multiple of {multiple}")
    left = [each for each in found if each.reason is not None]
    return said + [f"{many(each.before, 'channel')} of '{each.tensor}' left: {each.reason}" for each in left]
