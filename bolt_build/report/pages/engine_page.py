"""The page of `report`: layers with kernels and rooflines, chains, tuning, errors, sizes and memory of engines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bolt_build.planner.engine_plan import BatchPlan
from bolt_build.report.explained.chains import ShownChain
from bolt_build.report.explained.explainer import explain
from bolt_build.report.explained.explanation import Batch, Layer, Totals
from bolt_build.report.explained.whole_engine import engine_lines
from bolt_build.report.pages.arena import live_bytes
from bolt_build.report.pages.chart import VIEW, kernel_colors, kernels_of
from bolt_build.report.pages.page import Cell, PageTable, page_table, rendered
from bolt_build.report.pages.time_pictures import RooflinePicture, Strip, roofline_picture, strip
from bolt_build.report.tables import byte_text
from bolt_build.sizes import sizes_of
from bolt_build.verify.report import BatchReport, LayerReport, VerifyReport
from bolt_build.workflows.engine_report import ReportedEngine

_WIDTH, _HEIGHT = 1000.0, 120.0


@dataclass(frozen=True)
class _Bar:
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True)
class _Batch:
    """`tables` have a title each, and are shut until somebody opens them."""

    title: str
    place: str
    facts: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]
    strip: tuple[Strip, ...]
    kernels: PageTable
    roofline: RooflinePicture | None
    layers: PageTable
    tables: tuple[tuple[str, PageTable], ...]
    bars: tuple[_Bar, ...]
    memory: PageTable
    overview: tuple[Cell | str, ...]


@dataclass(frozen=True)
class _Engine:
    title: str
    facts: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    tables: tuple[PageTable, ...]
    batches: tuple[_Batch, ...]


def engine_page(name: str, engines: Sequence[ReportedEngine]) -> str:
    """The whole page of a recipe's engines, as HTML."""
    shown = [_engine(each, f"e{index}") for index, each in enumerate(engines)]
    columns = (
        "engine", "whole engine, us", "sum of kernels, us", "how", "bound, us", "bound / sum", "arena", "verification"
    )  # fmt: skip
    overview = page_table(
        "Every engine and batch. The whole engine is measured as one, the kernels one by one.", columns,
        [batch.overview for engine in shown for batch in engine.batches], (1, 2, 4, 5, 6),
    )  # fmt: skip
    return rendered("engine.html.j2", title=f"Report of {name}", overview=overview, engines=shown)


def _engine(reported: ReportedEngine, place: str) -> _Engine:
    explanation, plan = explain(reported.evidence), reported.evidence.engine.plan
    where, report = f"{explanation.name} for {explanation.target}", reported.verification
    facts = [("precision", explanation.precision), ("kernels from", explanation.source)]
    if reported.evidence.lock is not None:
        devices = dict.fromkeys(each.device.name for _, each in reported.evidence.lock.fingerprints)
        facts.append(("measured on", ", ".join(devices)))
    facts += [(each.name, byte_text(int(each.value))) for each in reported.sizes]
    if report is not None:
        facts.append(("verification", f"{'agrees with' if report.ok else 'departs from'} {report.against}"))
    notes = [f"Sizes and errors are not here: {reported.unbuilt}."] if reported.unbuilt else []
    if report is None and not reported.unbuilt:
        notes.append("It was built, and not verified here.")
    checked = {sizes_of(each): each for each in report.batches} if report is not None else {}
    batches = tuple(
        _batch(
            where, f"{place}b{sizes_of(batch).key}", batch, steps, checked.get(sizes_of(batch)), bool(reported.unbuilt)
        )
        for batch, steps in zip(explanation.batches, plan.plans, strict=True)
    )
    tables = (_outputs(where, report),) if report is not None else ()
    return _Engine(where, tuple(facts), tuple(notes), tables, batches)


def _batch(where: str, place: str, batch: Batch, plan: BatchPlan, checked: BatchReport | None, unbuilt: bool) -> _Batch:
    title, totals, colors = f"{where}, {sizes_of(batch)}", batch.totals, kernel_colors(kernels_of(batch))
    facts = [
        ("steps", f"{len(batch.layers)}, {sum(layer.kernel == VIEW for layer in batch.layers)} of them views"),
        ("sum of the kernels alone", f"{totals.time:.2f} us, {totals.measured} measured, {totals.predicted} predicted"),
        ("bound", f"{totals.bound:.2f} us"),
        ("arena", f"{byte_text(plan.arena_bytes)}, largest live set {byte_text(plan.live_peak)}"),
    ]  # fmt: skip
    tables = [("Tuning: winners and runners-up", _tuning(title, batch))]
    if batch.chains is not None and batch.chains.legal:
        tables.append(("Chains that one kernel can compute", _chains(title, batch.chains.legal)))
    if checked is not None:
        tables.append(("Errors by layer", _errors(title, checked)))
    lines = engine_lines(batch.engine) if batch.engine is not None else []
    bars, memory = _memory(title, plan)
    return _Batch(
        title, place, tuple(facts), tuple(lines), strip(batch, colors), _kernels(title, batch, colors),
        roofline_picture(batch, colors), _layers(title, batch, colors), tuple(tables), bars, memory,
        _overview(title, place, batch, plan, Cell("not built", "dim") if unbuilt else _checked(checked)),
    )  # fmt: skip


def _overview(title: str, place: str, batch: Batch, plan: BatchPlan, verdict: Cell) -> tuple[Cell | str, ...]:
    totals = batch.totals
    part = totals.bound / totals.time if totals.time else 0.0
    return (
        Cell(title, link=place), "" if batch.engine is None else f"{batch.engine.after:.1f}", f"{totals.time:.2f}",
        _how(totals), f"{totals.bound:.2f}", Cell(f"{part:.1%}", bar=min(part, 1.0)), byte_text(plan.arena_bytes),
        verdict,
    )  # fmt: skip


def _checked(checked: BatchReport | None) -> Cell:
    if checked is None:
        return Cell("not verified", "dim")
    return _verdict(all(each.ok for each in checked.layers) and all(each.ok for each in checked.outputs))


def _how(totals: Totals) -> str:
    if totals.measured and totals.predicted:
        return f"{totals.measured} measured, {totals.predicted} predicted"
    return "measured" if totals.measured else "predicted"


def _kernels(title: str, batch: Batch, colors: Mapping[str, str]) -> PageTable:
    rows = [
        (
            Cell(each.name, color=colors[each.name]), str(each.steps), f"{each.time:.2f}",
            Cell(f"{each.share:.1%}", bar=each.share),
        )
        for each in kernels_of(batch)
    ]  # fmt: skip
    return page_table(f"Kernels of {title}, by time.", ("kernel", "steps", "us", "share of the time"), rows, (1, 2, 3))


def _layers(title: str, batch: Batch, colors: Mapping[str, str]) -> PageTable:
    columns = (
        "step", "layer", "computes", "kernel", "chosen by", "us", "how", "share of the time", "bound", "bound / us",
        "us above it", "bound by",
    )  # fmt: skip
    caption = f"Layers of {title}. The bound is what the problem's bytes or operations take at the target's rates."
    rows = [_layer(each, batch, colors) for each in batch.layers]
    return page_table(caption, columns, rows, (0, 5, 7, 8, 9, 10), (1, 2, 3))


def _layer(each: Layer, batch: Batch, colors: Mapping[str, str]) -> tuple[Cell | str, ...]:
    if each.kernel == VIEW:
        return (str(each.step), each.name, each.words, Cell("view", "dim"), *[""] * 8)
    roofline, most = each.roofline, max(layer.time for layer in batch.layers)
    bound, part, above = "", Cell(""), ""
    if roofline is not None:
        bound, above = f"{roofline.bound:.2f}", f"{each.time - roofline.bound:.2f}"
        part = Cell(f"{roofline.share:.1%}", bar=min(roofline.share, 1.0))
    how = "predicted" if each.measured is None else "measured"
    share = each.time / batch.totals.time if batch.totals.time else 0.0
    return (
        str(each.step), each.name, each.words, Cell(each.kernel, color=colors[each.kernel]), each.source,
        f"{each.time:.2f}", how, Cell(f"{share:.1%}", bar=each.time / most if most else 0.0), bound, part, above,
        "" if roofline is None else roofline.by,
    )  # fmt: skip


def _tuning(title: str, batch: Batch) -> PageTable:
    """A row a problem: equal layers share one."""
    distinct: dict[str, list[Layer]] = {}
    for layer in batch.layers:
        if layer.kernel != VIEW:
            distinct.setdefault(layer.digest, []).append(layer)
    rows = []
    for layers in distinct.values():
        first, other = layers[0], layers[0].runner_up
        timed = first.locked if first.locked is not None else first.timed
        runner = ("none", "", "", "")
        if other is not None:
            how = "measured" if other.measured else "predicted"
            runner = (other.kernel, f"{other.time:.2f}", how, f"{other.margin:+.1%}")
        names = first.name if len(layers) == 1 else f"{first.name} and {len(layers) - 1} more"
        rows.append((names, first.kernel, f"{first.time:.2f}", *runner, str(timed)))
    columns = ("layers", "winner", "us", "runner-up", "us of it", "how", "margin", "measured")
    return page_table(
        f"Tuning of {title}. Margin: how much longer the runner-up takes; measured: how many candidates were.",
        columns, rows, (2, 4, 6, 7), (0, 1, 3),
    )  # fmt: skip


def _chains(title: str, chains: Sequence[ShownChain]) -> PageTable:
    rows = []
    for each in chains:
        apart = " + ".join("none" if time is None else f"{time:.2f}" for time in each.apart)
        rows.append(
            (
                " then ".join(each.nodes), each.words, "one kernel" if each.fused else "apart", f"{each.together:.2f}",
                apart, "measured" if all(each.measured) else "predicted" if not any(each.measured) else "both",
                "" if each.split is None else f"{each.split.gain:+.2f}", each.reason,
            )
        )  # fmt: skip
    columns = ("layers", "computes", "became", "us in one kernel", "us apart", "how", "gain", "because")
    return page_table(f"Chains of {title} that one kernel can compute.", columns, rows, (3, 4, 6), (0, 1, 7))


def _outputs(where: str, report: VerifyReport) -> PageTable:
    rows = [
        (
            sizes_of(batch).words, each.name, f"{each.max_abs:.3e}", f"{each.error:.3e}", f"{each.tolerance:.3e}",
            f"{each.cosine:.7f}", _verdict(each.ok),
        )
        for batch in report.batches
        for each in batch.outputs
    ]  # fmt: skip
    columns = ("batch", "output", "max |error|", "error", "tolerance", "cosine", "verdict")
    return page_table(f"Outputs of {where} against {report.against}.", columns, rows, (0, 2, 3, 4, 5))


def _errors(title: str, checked: BatchReport) -> PageTable:
    columns = ("step", "layer", "tensor", "kernel", "max |error|", "error", "part of its limit", "verdict")
    caption = f"Errors by layer of {title}, of sample {checked.layers_sample}, each of the engine's own inputs."
    return page_table(caption, columns, [_error(each) for each in checked.layers], (0, 4, 5, 6), (1, 2, 3))


def _error(each: LayerReport) -> tuple[Cell | str, ...]:
    used = Cell(f"{each.used:.1%}", bar=min(each.used, 1.0))
    verdict = Cell("not judged", "dim") if each.blind else _verdict(each.ok)
    return (
        str(each.step), each.name, each.tensor, each.kernel, f"{each.max_abs:.3e}", f"{each.error:.3e}", used, verdict
    )  # fmt: skip


def _verdict(ok: bool) -> Cell:
    return Cell("passes", "good") if ok else Cell("departs", "bad")


def _memory(title: str, plan: BatchPlan) -> tuple[tuple[_Bar, ...], PageTable]:
    live, width = live_bytes(plan), _WIDTH / max(len(plan.steps), 1)
    bars, rows = [], []
    for index, (step, nbytes) in enumerate(zip(plan.steps, live, strict=True)):
        part = nbytes / plan.arena_bytes if plan.arena_bytes else 0.0
        height = _HEIGHT * min(part, 1.0)
        text = f"step {step.index}: {step.name}: {byte_text(nbytes)}"
        bars.append(
            _Bar(round(index * width, 2), round(_HEIGHT - height, 2), round(width * 0.9, 2), round(height, 2), text)
        )  # fmt: skip
        rows.append((str(step.index), step.name, str(nbytes), Cell(f"{part:.1%}", bar=min(part, 1.0))))
    caption = f"Arena of {title} over its steps: bytes that hold what is still needed."
    return tuple(bars), page_table(caption, ("step", "layer", "bytes", "part of the arena"), rows, (0, 2, 3), (1,))
