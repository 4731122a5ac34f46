"""Shows an `Explanation`: a table of all steps with totals, one layer at length, or JSON of either."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bolt_build.digest import encode
from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.families.reason import within
from bolt_build.planner.padded_dims import STAGE as LENGTHS
from bolt_build.report.brief import wrapped
from bolt_build.report.explained.chains import of_nodes, render_chains
from bolt_build.report.explained.changes import render_changes
from bolt_build.report.explained.explanation import ELSEWHERE, Batch, Explanation, Layer
from bolt_build.report.explained.whole_engine import engine_lines
from bolt_build.report.printable import printable
from bolt_build.report.reasons import all_of, counted, listed
from bolt_build.report.tables import Column, byte_text, table
from bolt_build.sizes import Dims, sizes_of
from bolt_build.wording import many

_STEPS = (
    Column("step", right=True), Column("layer", name=True),
    Column("computes", name=True, spare=3), Column("kernel", name=True, spare=1),
    Column("chosen by", name=True, spare=4), Column("us", right=True), Column("share", right=True, spare=2),
    Column("predicted", right=True, spare=5), Column("roofline", right=True),
    Column("runner-up", name=True, spare=6), Column("margin", right=True, spare=2),
    Column("padding", right=True, spare=7),
)  # fmt: skip
_LEGEND = (
    "us: measured, or ~ predicted; share: of the sum; roofline: bound / us; margin: how much longer the runner-up takes"
)
_ATTEMPTS = (
    Column("kernel", name=True), Column("us", right=True), Column("slower", right=True),
    Column("predicted", right=True), Column("status"), Column("message", name=True, spare=1),
)  # fmt: skip
_UNTRIED = (Column("not tried", name=True), Column("because", name=True))

_SHOWN = 8
"""Layers that a message names, of an engine that may have thousands."""


def of_sizes(explanation: Explanation, batch: int | None, only: Dims) -> Explanation:
    """The explanation of one batch alone, where it is given, and of these extents."""
    kept = tuple(each for each in explanation.batches if sizes_of(each).is_of(batch, only))
    return replace(explanation, batches=kept)


def of_layer(explanations: Sequence[Explanation], name: str) -> tuple[Explanation, ...]:
    """Of each explanation the steps alone that are called `name` or cover an ONNX node of that name; those without such
    a step are left out.

    Raises BoltError ("unknown-layer") with the nearest names where none has one.
    """
    found = []
    for explanation in explanations:
        batches = tuple(replace(batch, layers=_named(batch, name)) for batch in explanation.batches)
        batches = tuple(batch for batch in batches if batch.layers)
        if batches:
            found.append(replace(explanation, batches=batches))
    if found:
        return tuple(found)
    batches = tuple(batch for explanation in explanations for batch in explanation.batches)
    known = dict.fromkeys(each for batch in batches for layer in batch.layers for each in (layer.name, *layer.nodes))
    near = difflib.get_close_matches(name, known, 3, 0.6) or [each for each in known if name in each][:3]
    hint = f"did you mean {' or '.join(repr(each) for each in near)}?" if near else f"its layers: {_some(list(known))}"
    message = f"{explanations[0].name} has no layer '{name}'"
    raise BoltError([Diagnostic("unknown-layer", message, hint=hint)], ExitCode.USAGE)


def _some(names: Sequence[str]) -> str:
    """The first of many names; `plan` lists all."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more, which 'bolt-build plan' lists" if more > 0 else "")


def as_json(explanation: Explanation, *, attempts: bool) -> Any:
    """Plain data of the whole explanation; `attempts` keeps the lists of other candidates of every step."""
    if not attempts:
        batches = tuple(
            replace(batch, layers=tuple(replace(layer, attempts=(), untried=()) for layer in batch.layers))
            for batch in explanation.batches
        )
        explanation = replace(explanation, batches=batches)
    return encode(explanation)


def render(explanation: Explanation, *, width: int | None = None) -> str:
    """All steps of every batch in tables that fit `width` characters (None: no limit), totals and decisions."""
    lines = wrapped([_title(explanation), _LEGEND], width)
    for batch in explanation.batches:
        views = sum(layer.kernel == "view" for layer in batch.layers)
        lines += ["", f"{sizes_of(batch)}: {many(len(batch.layers), 'step')}, {views} of them views"]
        lines += [line.plain for line in table(_STEPS, [_row(layer, batch) for layer in batch.layers], width)]
        said = [*_totals(batch), *map(str, batch.slow)]
        said += engine_lines(batch.engine) if batch.engine is not None else []
        lines += wrapped([*said, *_others(batch)], width)
    said = listed(f"families did not offer {all_of(explanation.refusals)} alternatives", explanation.refusals)
    lines += wrapped([*_fusion(explanation), *said], width)
    for batch in explanation.batches:
        lines += render_chains(sizes_of(batch), batch.chains, width)
        lines += render_changes(sizes_of(batch), batch.changes, width)
    return printable("\n".join(lines) + "\n")


def render_layer(explanation: Explanation, *, width: int | None = None) -> str:
    """Every step of an explanation that `of_layer` gave, with all that is known of it."""
    lines = [_title(explanation)]
    for batch in explanation.batches:
        for layer in batch.layers:
            lines += ["", f"{sizes_of(batch)}, step {layer.step}: {layer.name}"]
            said = [f"  {title:<11} {text}" for title, text in _facts(layer) if text]
            said += [f"  {'others' if not index else '':<11} {line}" for index, line in enumerate(_fell(layer))]
            said += [f"  {'decided' if not i else '':<11} {line}" for i, line in enumerate(_decisions(layer))]
            said += [f"  {'chain':<11} {line}" for line in of_nodes(batch.chains, (layer.name, *layer.nodes))]
            lines += wrapped(said, width, inset=14)
            if layer.attempts:
                lines.append("")
                lines += [f"  {line.plain}" for line in table(_ATTEMPTS, _attempts(layer), width and width - 2)]
            if layer.untried:
                rows = [(f"{each.family}: {each.kernel}", each.reason) for each in layer.untried]
                lines.append("")
                lines += [f"  {line.plain}" for line in table(_UNTRIED, rows, width and width - 2)]
    return printable("\n".join(lines) + "\n")


def _named(batch: Batch, name: str) -> tuple[Layer, ...]:
    return tuple(layer for layer in batch.layers if name == layer.name or name in layer.nodes)


def _title(explanation: Explanation) -> str:
    layers = [layer for batch in explanation.batches for layer in batch.layers if layer.kernel != "view"]
    if explanation.source == "predictions":
        measured = any(layer.measured is not None for layer in layers)
        kernels = "kernels as predicted" if measured else "kernels as predicted: nothing was measured"
    else:
        chosen = sum(layer.source != "prediction" for layer in layers)
        many = "kernels" if chosen == len(layers) else f"{chosen or 'none'} of {len(layers)} kernels"
        kernels = f"{many} from {explanation.source}"
    return f"{explanation.name} for {explanation.target} in {explanation.precision}, {kernels}"


def _row(layer: Layer, batch: Batch) -> tuple[str, ...]:
    if layer.kernel == "view":
        return (str(layer.step), layer.name, layer.words, "view", *[""] * 8)
    runner, roofline = layer.runner_up, layer.roofline
    return (
        str(layer.step), layer.name, layer.words, layer.kernel, layer.source,
        f"{layer.measured:.2f}" if layer.measured is not None else f"~{layer.time:.2f}",
        f"{layer.time / batch.totals.time:.1%}" if batch.totals.time else "",
        "" if layer.predicted is None else f"{layer.predicted:.2f}",
        "" if roofline is None else _percent(roofline.share), "" if runner is None else runner.kernel,
        "" if runner is None else _margin(runner.margin),
        "" if layer.padding is None else f"{layer.padding.time:.2f}",
    )  # fmt: skip


def _totals(batch: Batch) -> list[str]:
    totals = batch.totals
    part = f"{totals.measured} of {totals.measured + totals.predicted} measured, the others predicted"
    if not totals.measured or not totals.predicted:
        part = "all measured" if totals.measured else "all predicted"
    converted, padded = (_share(part, totals.time) for part in (totals.conversion_time, totals.padding_time))
    conversions, padding = "no conversions", "no padding"
    if totals.conversions:
        conversions = f"{many(totals.conversions, 'conversion')} {totals.conversion_time:.2f} us ({converted})"
    if totals.padded:
        padding = f"padding of {many(totals.padded, 'step')} {totals.padding_time:.2f} us ({padded})"
    return [
        f"sum {totals.time:.2f} us ({part}), bound {totals.bound:.2f} us ({_share(totals.bound, totals.time)} of it)",
        f"{conversions}, {padding}",
    ]


def _others(batch: Batch) -> list[str]:
    """What became of the candidates of a batch's problems, each problem counted once."""
    distinct = list({layer.digest: layer for layer in batch.layers if layer.kernel != "view"}.values())
    failed = counted(attempt.status for layer in distinct for attempt in layer.attempts if _failed(attempt.status))
    parts = [
        f"{sum(layer.timed for layer in distinct)} measured",
        *(f"{each.count} {each.reason}" for each in failed),
        f"{sum(layer.untimed for layer in distinct)} without a time",
    ]
    reasons = counted(within(each.family, each.reason) for layer in distinct for each in layer.untried)
    lines = [f"{many(len(distinct), 'problem')}; other candidates: {', '.join(parts)}"]
    return lines + listed(f"{many(all_of(reasons), 'candidate')} not tried", reasons)


def _failed(status: str) -> bool:
    return status not in ("ok", "not measured", ELSEWHERE)


def _fusion(explanation: Explanation) -> list[str]:
    fusion = [each for each in explanation.fusion if each.stage != LENGTHS]
    done = counted(f"{each.stage}: {each.action}" for each in fusion if each.action != "declined")
    lines = ["", "fusion: " + (", ".join(f"{each.reason} {each.count}" for each in done) or "nothing was fused")]
    lines += [
        f"  {each.stage}: {each.subject}: declined ({each.reason})" for each in fusion if each.action == "declined"
    ]
    lengths = [each for each in explanation.fusion if each.stage == LENGTHS]
    return lines + [f"{LENGTHS}: {each.subject}: {each.action} ({each.reason})" for each in lengths]


def _facts(layer: Layer) -> list[tuple[str, str]]:
    """What is known of a step, a title and a line each; empty lines are left out."""
    return [
        ("covers", ", ".join(layer.nodes)),
        ("computes", layer.words),
        ("problem", layer.problem),
        ("kernel", "none: its bytes are there already" if layer.kernel == "view" else _kernel(layer)),
        ("C++", ", ".join(layer.headers)),
        ("time", _time(layer)),
        ("runner-up", _runner(layer)),
        ("roofline", _roofline(layer)),
        ("padding", _padding(layer)),
        ("formats", f"{', '.join(layer.reads) or 'constants'} -> {', '.join(layer.writes)}"),
        ("conversions", _conversions(layer)),
    ]


def _kernel(layer: Layer) -> str:
    source = "by prediction" if layer.source == "prediction" else f"from {layer.source}"
    return f"{layer.kernel} ({source})"


def _time(layer: Layer) -> str:
    if layer.predicted is None:
        return ""
    if layer.measured is None:
        return f"{layer.predicted:.2f} us predicted, not measured"
    ratio = f", {layer.predicted / layer.measured:.2f} of it" if layer.measured else ""
    return f"{layer.measured:.2f} us measured; {layer.predicted:.2f} us predicted{ratio}"


def _runner(layer: Layer) -> str:
    if layer.kernel == "view":
        return ""
    if layer.runner_up is None:
        return "none has a time" if layer.attempts else "none: there is no other candidate"
    how = "measured" if layer.runner_up.measured else "predicted"
    return f"{layer.runner_up.kernel}, {layer.runner_up.time:.2f} us {how} ({_margin(layer.runner_up.margin)})"


def _roofline(layer: Layer) -> str:
    r = layer.roofline
    if r is None:
        return ""
    memory = f"{byte_text(r.nbytes)} at {r.bandwidth / 1e12:.2f} TB/s take {r.memory:.2f} us"
    arithmetic = f"{_operations(r.flops)} at {r.rate / 1e12:.1f} TFLOP/s {r.arithmetic:.2f} us"
    return f"{memory}, {arithmetic}: bound by {r.by}, {_percent(r.share)} of it reached"


def _padding(layer: Layer) -> str:
    p = layer.padding
    if p is None:
        return "" if layer.kernel == "view" else "none"
    cost = f"{byte_text(p.nbytes)} and {_operations(p.flops)} more, {p.time:.2f} us" + (f" ({p.why})" if p.why else "")
    if p.without is None:
        return cost
    how = "measured" if p.without.measured else "predicted"
    return f"{cost}; without it {p.without.kernel} takes {p.without.time:.2f} us {how} ({_margin(p.without.margin)})"


def _conversions(layer: Layer) -> str:
    if layer.is_conversion:
        return "this step is one"
    return ", ".join(f"reads what step {step} converted" for step in layer.after_conversions)


def _fell(layer: Layer) -> list[str]:
    """Why other candidates were not taken, a line each."""
    lines = []
    ratios = [each.measured / layer.time for each in layer.attempts if each.measured is not None and layer.time]
    if ratios and layer.measured is not None:
        least, most = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        lines.append(f"{layer.timed} measured, at {least if least == most else f'{least} to {most}'} times its time")
    lines += [f"{each.count} {each.reason}" for each in layer.failed]
    if layer.untimed and layer.locked is not None and any(each.status == ELSEWHERE for each in layer.attempts):
        lines.append(f"{layer.locked} were measured, as the lock says; their records are not here")
    elif layer.untimed:
        lines.append(f"{layer.untimed} not measured")
    return lines + [f"{each.count} not tried: {each.reason}" for each in layer.refused]


def _decisions(layer: Layer) -> list[str]:
    return [f"{each.stage}: {each.subject}: {each.action} ({each.reason})" for each in layer.decisions]


def _attempts(layer: Layer) -> list[tuple[str, ...]]:
    return [
        (
            each.kernel, "" if each.measured is None else f"{each.measured:.2f}",
            "" if each.measured is None or not layer.time else _margin(each.measured / layer.time - 1),
            "" if each.predicted is None else f"{each.predicted:.2f}", each.status, each.message,
        )
        for each in layer.attempts
    ]  # fmt: skip


def _percent(part: float) -> str:
    return f"{part * 100:.0f} %"


def _share(part: float, whole: float) -> str:
    return _percent(part / whole) if whole else "0 %"


def _margin(margin: float) -> str:
    return f"{margin * 100:+.1f} %"


def _operations(count: int) -> str:
    """A number of operations with its unit, in powers of 1000."""
    size = float(count)
    for unit in ("operations", "kFLOP", "MFLOP"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "operations" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GFLOP"
