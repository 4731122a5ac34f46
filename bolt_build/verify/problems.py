"""What verification has to say of layers: which departs, by how much, and which could not be judged."""

from __future__ import annotations

from collections.abc import Sequence

from bolt_build.errors import Diagnostic
from bolt_build.sizes import Sizes
from bolt_build.verify.judgement import SPREAD
from bolt_build.verify.layers import unseen
from bolt_build.verify.report import LayerReport, OutputReport
from bolt_build.verify.taps import Tap

MOST_BLIND = 0.02
"""The part of a model's layers that may go without a judgement; one may always."""
NAMED = 4
"""Layers that a message names."""


def layer_problems(sizes: Sizes, taps: tuple[Tap, ...], layers: tuple[LayerReport, ...]) -> list[Diagnostic]:
    """Layers that depart, that were not seen, and that could not be judged."""
    problems = []
    wrong = [layer for layer in layers if not layer.ok]
    if wrong:
        more = f"; so do {_named(wrong[1:])}" if len(wrong) > 1 else ""
        message = f"{sizes}: {departure(wrong[0])}{more}"
        problems.append(Diagnostic("layer-departs", message, hint=_advice(wrong[0]), subject=wrong[0].name))
    for tap in unseen(taps, layers):
        message = (
            f"{sizes}: step {tap.step} ('{tap.name}') should leave tensor '{tap.tensor}', "
            "which was not seen in the engine, is none of the model, or is made from such a tensor"
        )
        problems.append(Diagnostic("layer-unseen", message, subject=tap.name))
    return problems + _blind_problems(sizes, layers)


def _advice(layer: LayerReport) -> str | None:
    """What to do about a layer that departs: whose precision may be too low, or whose kernel is wrong."""
    if layer.shape != layer.reference_shape or layer.tolerance is not None or layer.reference_not_finite:
        return None
    if layer.precision in ("f16", "bf16"):
        return (
            "'bolt-build verify RECIPE --widen' says whether rounding explains it, and which layers to keep in fp32; "
            "where it does not, the kernel is wrong: report it with the model"
        )
    if layer.not_finite:
        return "the kernel is wrong: report it with the model"
    allowed = f'layers: {{"{layer.name}": {{tolerance: {1.5 * layer.error:.2g}}}}}'
    return (
        "either the kernel is wrong, or a rounding is not counted: report it with the model; "
        f"where so much does no harm, the recipe may say {allowed}"
    )


def _blind_problems(sizes: Sizes, layers: tuple[LayerReport, ...]) -> list[Diagnostic]:
    """Warns of layers that could not be judged; more than a few are an error, for then little was verified."""
    blind = [layer for layer in layers if layer.blind]
    if not blind:
        return []
    message = (
        f"{sizes}: rounding alone may make as much as the model does in {len(blind)} of {len(layers)} layers,"
        f" which could not be judged: {_named(blind)}"
    )
    hint = "verify on real inputs ('verify.inputs'), or say what is right: 'tolerance' under 'layers'"
    few = len(blind) <= max(1.0, MOST_BLIND * len(layers))
    return [Diagnostic("layers-not-judged", message, hint=hint, severity="warning" if few else "error")]


def told_by_layers(
    sizes: Sizes, outputs: tuple[OutputReport, ...], layers: tuple[LayerReport, ...]
) -> list[Diagnostic]:
    """Outputs that nothing judges: neither the comparison with the whole model nor that of the layer that makes it."""
    judged = {layer.tensor for layer in layers if not layer.blind}
    return [
        Diagnostic(
            "output-not-judged",
            f"{sizes}, output '{output.name}': rounding alone may make as much as the model does",
            hint="verify on real inputs ('verify.inputs'), or say what is right: 'verify.tolerance'",
        )
        for output in outputs
        if not output.tells and output.name not in judged
    ]


def departure(layer: LayerReport) -> str:
    """A sentence about a layer that departs from what the model makes of the engine's own inputs of it."""
    head = f"'{layer.name}' departs (step {layer.step}, {layer.kernel}, tensor '{layer.tensor}' {list(layer.shape)}): "
    if layer.shape != layer.reference_shape:
        return head + f"the model has {list(layer.reference_shape)} there"
    if layer.reference_not_finite:
        return head + f"the model itself makes {layer.reference_not_finite} elements NaN or infinite of its inputs"
    if layer.not_finite:
        return head + f"{layer.not_finite} elements are NaN or infinite, and finite in the model"
    size = f"{layer.max_abs:.2g} at most, {layer.error:.2g} of the tensor's root mean square"
    if layer.tolerance is not None:
        return f"{head}it is off by {size}, where the recipe allows {layer.tolerance:.2g}"
    if layer.largest / layer.limit >= layer.spread / SPREAD:
        how = f"{layer.largest:.2g} times what rounding does to its own inputs there (limit {layer.limit:.2g})"
    else:
        how = f"all over {layer.spread:.2g} times what rounding does to its own inputs (limit {SPREAD:g})"
    return f"{head}it is off by {size}, {how}"


def _named(layers: Sequence[LayerReport]) -> str:
    names = ", ".join(f"'{layer.name}'" for layer in layers[:NAMED])
    return names if len(layers) <= NAMED else f"{names} and {len(layers) - NAMED} more"
