"""Verification as a JUnit file, which CI services show as tests: a suite an engine, a case a layer and an output.

The form is what GitLab, Jenkins and GitHub's actions for it read: `testsuites`, `testsuite`, `testcase` with `failure`,
`error` or `skipped` inside.
"""

from __future__ import annotations

import xml.etree.ElementTree as xml
from collections.abc import Sequence

from bolt_build.errors import Diagnostic
from bolt_build.report.printable import printable
from bolt_build.sizes import sizes_of
from bolt_build.verify.judgement import SPREAD
from bolt_build.verify.report import BatchReport, LayerReport, OutputReport, VerifyReport
from bolt_build.workflows.outcome import EngineOutcome, Outcome, RecipeOutcome


def junit_xml(outcome: Outcome) -> str:
    """The whole outcome. What kept an engine from being compared is an error; what cannot run here is skipped."""
    root = xml.Element("testsuites", name=f"bolt-build {outcome.verb}")
    if outcome.diagnostics:
        _stopped(_suite(root, "bolt-build"), "bolt-build", "recipes", outcome.diagnostics)
    for recipe in outcome.recipes:
        for engine in recipe.engines:
            _engine(_suite(root, f"{recipe.recipe}/{engine.target}"), recipe, engine)
        if not recipe.engines:
            _stopped(_suite(root, recipe.recipe), recipe.recipe, "plan", recipe.diagnostics)
    for suite in root:
        for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(attribute, str(len(suite.findall(f"testcase/{kind}"))))
        suite.set("tests", str(len(suite)))
    xml.indent(root, " ")
    return '<?xml version="1.0" encoding="utf-8"?>\n' + xml.tostring(root, encoding="unicode") + "\n"


def _suite(root: xml.Element, name: str) -> xml.Element:
    return xml.SubElement(root, "testsuite", name=printable(name))


def _engine(suite: xml.Element, recipe: RecipeOutcome, engine: EngineOutcome) -> None:
    where = f"{recipe.recipe}.{engine.target}"
    seconds = sum(event.seconds for event in recipe.tasks if (event.target, event.task) == (engine.target, "verify"))
    suite.set("time", f"{seconds:.3f}")
    failed = [event for event in recipe.failed if event.target == engine.target]
    for event in failed:
        case = _case(suite, where, event.label)
        xml.SubElement(case, "error", message=printable(event.text)).text = printable(f"{event.log}\n{event.command}")
    if engine.obstacles:
        _stopped(suite, where, "plan", engine.obstacles)
    elif engine.verification is not None:
        for batch in engine.verification.batches:
            _batch(suite, f"{where}.{sizes_of(batch)}", batch)
        _whole(suite, where, engine.verification)
    elif not failed:
        reason = engine.elsewhere or "it was not compared"
        xml.SubElement(_case(suite, where, "verification"), "skipped", message=printable(reason))


def _batch(suite: xml.Element, where: str, batch: BatchReport) -> None:
    for layer in batch.layers:
        case = _case(suite, where, f"layer {layer.name}")
        if layer.blind:
            message = "rounding alone could make a tensor as large as the reference's: nothing judges it"
            xml.SubElement(case, "skipped", message=message)
        elif not layer.ok:
            xml.SubElement(case, "failure", message=_departure(layer)).text = printable(f"kernel: {layer.kernel}")
    for output in batch.outputs:
        case = _case(suite, where, f"output {output.name}")
        if not output.ok:
            xml.SubElement(case, "failure", message=_output(output))
    if not batch.repeatable:
        case = _case(suite, where, "the same bits twice")
        xml.SubElement(case, "failure", message="an observed run gave other bits than a plain one")


def _whole(suite: xml.Element, where: str, report: VerifyReport) -> None:
    """The verdict of all, for what stands with no layer."""
    case = _case(suite, where, f"agrees with {report.against}")
    wrong = [each for each in report.problems if each.severity == "error"]
    if not report.ok:
        xml.SubElement(
            case, "failure", message=printable(wrong[0].message if wrong else "it departs")
        ).text = printable("\n".join(_text(each) for each in wrong))


def _departure(layer: LayerReport) -> str:
    if layer.shape != layer.reference_shape:
        return f"shape {list(layer.shape)}, the model has {list(layer.reference_shape)}"
    if layer.tolerance is not None:
        return f"error {layer.error:.2e} of {layer.tolerance:.2g} that the recipe allows"
    return (
        f"off by {layer.largest:.3g} of {layer.limit:.2g} times what rounding does, spread {layer.spread:.3g} of"
        f" {SPREAD:g}; max |error| {layer.max_abs:.2e}"
    )


def _output(output: OutputReport) -> str:
    return (
        f"max |error| {output.max_abs:.2e}, error {output.error:.2e} of {output.tolerance:.2e}, cosine"
        f" {output.cosine:.7f}"
    )


def _stopped(suite: xml.Element, where: str, name: str, diagnostics: Sequence[Diagnostic]) -> None:
    wrong = [each for each in diagnostics if each.severity == "error"]
    case = _case(suite, where, name)
    if wrong:
        text = printable("\n".join(_text(each) for each in wrong))
        xml.SubElement(case, "error", message=printable(wrong[0].message)).text = text


def _case(suite: xml.Element, where: str, name: str) -> xml.Element:
    return xml.SubElement(suite, "testcase", classname=printable(where), name=printable(name))


def _text(each: Diagnostic) -> str:
    place = f"{each.mark.file}:{each.mark.line}:{each.mark.column}: " if each.mark else ""
    hint = f"\n  hint: {each.hint}" if each.hint else ""
    return f"{place}{each.severity}[{each.code}]: {each.message}{hint}"
