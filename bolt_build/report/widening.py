"""Shows which layers are to be kept wide, what that costs, and the patch of the recipe."""

from __future__ import annotations

from bolt_build.report.printable import printable
from bolt_build.verify.models.rounded_model import LARGEST
from bolt_build.verify.wide_layers import WideLayer
from bolt_build.workflows.widening import WIDE, Widening


def render(found: Widening) -> str:
    """Lines for people; the patch at the end can be given to `patch`."""
    proposal, what = found.proposal, f"{found.target}, batch {found.proposal.batch}"
    if not proposal.wide:
        return f"{what}: no layer is to be widened: by rounding alone {_used(proposal.before)}\n"
    count, verb = len(proposal.wide), "is" if len(proposal.wide) == 1 else "are"
    lines = [f"{what}: {count} of {proposal.layers} layers in {found.precision} {verb} to be kept in {WIDE}"]
    width = max(len(printable(each.layer.name)) for each in proposal.wide)
    lines += [f"  {printable(each.layer.name):{width}}  {_why(each)}" for each in proposal.wide]
    lines.append(f"by rounding alone {_used(proposal.before)}; with those layers wide {_used(proposal.used)}")
    if not proposal.passes:
        lines.append(f"that is not enough: the model wants '{found.target}: {{precision: {WIDE}}}'")
    if found.cost is not None:
        (one, other), (weights, others) = found.cost.seconds, found.cost.weights
        lines.append(
            f"cost: {other * 1e6:.1f} us instead of {one * 1e6:.1f} us by prediction ({other / one - 1:+.1%}), "
            f"{(others - weights) / 1e3:+.1f} kB of weights"
        )
    if found.left:
        lines.append(f"not enough in the engine with them, which still wants: {', '.join(map(printable, found.left))}")
    if not found.patch:
        keys = ", ".join(f'"{printable(key)}": {{precision: {WIDE}}}' for key in found.keys)
        lines.append(f"no patch: the recipe's 'layers' are not written line by line; add {keys}")
    return "\n".join(lines) + "\n" + found.patch


def _used(part: float) -> str:
    if part == float("inf"):
        return "an output is not finite"
    return f"outputs use {part:.0%} of what they may be off by"


def _why(each: WideLayer) -> str:
    if each.largest:
        narrow = each.layer.narrow
        return f"numbers up to {each.largest:.3g}, {narrow.value} ends at {LARGEST[narrow]:.5g}"
    if each.error:
        return f"off by {each.error:.3g} times what the recipe allows it"
    return f"its rounding alone uses {each.share:.0%}"
