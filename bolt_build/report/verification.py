"""Shows a `VerifyReport` to people: one line a batch, and on failure the layers around the first that departs."""

from __future__ import annotations

from io import StringIO

from rich.console import Console
from rich.text import Text

from bolt_build.report.tables import Column, table
from bolt_build.sizes import sizes_of
from bolt_build.verify.judgement import SPREAD
from bolt_build.verify.report import SEEDED, BatchReport, LayerReport, OutputReport, VerifyReport

AROUND = 3
"""Layers shown before and behind the first that departs."""


_OUTPUTS = (
    Column("batch", right=True), Column("output", name=True), Column("max |error|", right=True, spare=3),
    Column("error", right=True), Column("tolerance", right=True, spare=1), Column("cosine", right=True),
    Column("centred", right=True, spare=1), Column("between inputs", right=True, spare=2),
    Column("layers", right=True), Column("verdict"),
)  # fmt: skip
_LAYERS = (
    Column("step", right=True), Column("layer", name=True), Column("shape", spare=3), Column("error", right=True),
    Column("largest", right=True), Column("spread", right=True, spare=1), Column("rounding", right=True, spare=2),
    Column("kernel", spare=4, name=True), Column(""),
)  # fmt: skip


def render(report: VerifyReport, *, color: bool, width: int | None = None) -> str:
    """The whole report as text, with terminal colours or without; tables are made to fit `width` characters."""
    console = Console(
        file=StringIO(), force_terminal=color, color_system="standard" if color else None, highlight=False,
        soft_wrap=True,
    )  # fmt: skip
    verdict = Text("agrees with", "bold green") if report.ok else Text("DEPARTS FROM", "bold red")
    console.print(
        Text.assemble(
            f"{report.name} for {report.target} in {report.precision} ", verdict, f" {report.against}", _terms(report)
        )
    )
    for line in _summary(report, width):
        console.print(line)
    for batch in report.batches:
        if batch.first_departure is not None:
            console.print(f"\n{sizes_of(batch)}, sample {batch.layers_sample}: layers around the first that departs")
            console.print(f"(deviations are in units of what rounding does; a spread of {SPREAD:g} may be)")
            for line in _layers(batch, batch.first_departure, width):
                console.print(line)
    for problem in report.problems:
        style = "red" if problem.severity == "error" else "yellow"
        console.print(Text.assemble((f"{problem.severity}[{problem.code}]: ", style), problem.message))
        if problem.hint:
            console.print(f"  hint: {problem.hint}", markup=False)
    file = console.file
    assert isinstance(file, StringIO)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


def _terms(report: VerifyReport) -> str:
    """What the recipe says of the comparison, where it says anything."""
    terms = [] if report.inputs == SEEDED else [f"on {report.inputs}"]
    if report.tolerance is not None:
        terms.append(f"errors up to {report.tolerance:g} allowed")
    layers = {layer.name for batch in report.batches for layer in batch.layers if layer.tolerance is not None}
    if layers and report.tolerance is None:
        terms.append(f"{len(layers)} {'layer' if len(layers) == 1 else 'layers'} with a tolerance of the recipe's")
    return f" ({', '.join(terms)})" if terms else ""


def _summary(report: VerifyReport, width: int | None) -> tuple[Text, ...]:
    rows = [
        (
            sizes_of(batch).words, output.name,
            f"{output.max_abs:.2e}", f"{output.error:.2e}", f"{output.tolerance:.2e}",
            f"{output.cosine:.7f}", _cosine(output.cosine_centred, 7), _cosine(output.dependence, 3), _checked(batch),
            _verdict(batch, output),
        )
        for batch in report.batches
        for output in batch.outputs
    ]  # fmt: skip
    return table(_OUTPUTS, rows, width)


def _layers(batch: BatchReport, first: LayerReport, width: int | None) -> tuple[Text, ...]:
    at = batch.layers.index(first)
    shown = batch.layers[max(0, at - AROUND) : at + AROUND + 1]
    return table(_LAYERS, [_layer(layer, layer is first) for layer in shown], width)


def _layer(layer: LayerReport, first: bool) -> tuple[str | Text, ...]:
    if layer.blind:
        mark = Text("not judged", "yellow")
    else:
        mark = Text("first to depart", "bold red") if first else Text("" if layer.ok else "departs", "red")
    allowed = "" if layer.tolerance is None else f" of {layer.tolerance:.2g}"
    rounding = layer.noise / layer.signal if layer.signal else 0.0
    return (
        str(layer.step), layer.name, "x".join(map(str, layer.shape)), f"{layer.error:.2e}{allowed}",
        f"{layer.largest:.3g} of {layer.limit:.2g}", f"{layer.spread:.3g}", f"{rounding:.2e}", layer.kernel, mark,
    )  # fmt: skip


def _checked(batch: BatchReport) -> str:
    """How many layers were compared, how many of them departed, and how many could not be judged."""
    departed, blind = sum(not layer.ok for layer in batch.layers), len(batch.blind)
    told = [f"{departed} depart"] if departed else []
    return ", ".join([str(len(batch.layers)), *told, *([f"{blind} not judged"] if blind else [])])


def _verdict(batch: BatchReport, output: OutputReport) -> Text:
    if not output.ok:
        return Text("output departs", "red")
    if batch.ok and not output.tells:
        return Text("ok by its layers", "yellow")
    return Text("ok", "green") if batch.ok else Text("fails", "red")


def _cosine(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
