"""What came of a command as Markdown, for a job's page: a row an engine, then what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bolt_build.errors import Diagnostic, ExitCode
from bolt_build.report.printable import printable
from bolt_build.report.tables import byte_text
from bolt_build.workflows.outcome import EngineOutcome, Outcome, RecipeOutcome

_WORDS = {
    ExitCode.OK: "done", ExitCode.USAGE: "not understood", ExitCode.INVALID: "recipe or model invalid",
    ExitCode.TASK_FAILED: "a task failed", ExitCode.VERIFY_FAILED: "verification failed",
    ExitCode.LOCK: "the lock lacks something", ExitCode.TOOL_MISSING: "a tool is missing",
    ExitCode.INTERRUPTED: "interrupted", ExitCode.INTERNAL: "a bug in bolt-build",
}  # fmt: skip


def summary_markdown(outcome: Outcome) -> str:
    """The whole outcome."""
    word = _WORDS.get(outcome.exit_code, f"exit code {int(outcome.exit_code)}")
    lines = [f"### bolt-build {outcome.verb}: {word}", ""]
    engines = [(recipe, engine) for recipe in outcome.recipes for engine in recipe.engines]
    if engines:
        lines += ["| engine | verified | worst layer | size | tasks run | from the cache | time |"]
        lines += ["| --- | --- | --- | ---: | ---: | ---: | ---: |"]
        lines += [_row(recipe, engine) for recipe, engine in engines]
        lines.append("")
    for each in outcome.all_diagnostics:
        lines.append(_item(each))
    for recipe in outcome.recipes:
        lines += _departures(recipe)
        for event in recipe.failed:
            lines += [
                f"- **error** `{_code(recipe.recipe)}/{event.target}`: {_plain(event.label)}: {_plain(event.text)}",
                "",
            ]
            lines += [*_fenced(event.log), ""]
    return "\n".join(lines).rstrip() + "\n\n"


def _row(recipe: RecipeOutcome, engine: EngineOutcome) -> str:
    tasks = [event for event in recipe.tasks if event.target == engine.target]
    common = sum(bool(event.as_for) for event in tasks)
    cached = sum(event.cached for event in tasks) - common
    run = f"{len(tasks) - cached - common}" + (f", {common} in common" if common else "")
    size = sum(each.nbytes or 0 for each in engine.artifacts)
    cells = (
        f"{recipe.recipe}/{engine.target}", _verdict(engine), _worst(engine), byte_text(size) if size else "",
        run, str(cached), f"{sum(event.seconds for event in tasks):.1f} s",
    )  # fmt: skip
    return f"| {' | '.join(_plain(cell) for cell in cells)} |"


def _verdict(engine: EngineOutcome) -> str:
    if engine.verified is not None:
        return "yes" if engine.verified else "DEPARTS"
    if engine.obstacles:
        return "not built"
    return f"not here: {engine.elsewhere}" if engine.elsewhere else "no"


def _worst(engine: EngineOutcome) -> str:
    batches = engine.verification.batches if engine.verification is not None else ()
    worst = max((batch.worst_layer for batch in batches if batch.worst_layer), key=lambda each: each.used, default=None)
    return f"{worst.name}: {worst.used:.0%} of what rounding may do" if worst is not None else ""


def _departures(recipe: RecipeOutcome) -> Iterator[str]:
    for engine in recipe.engines:
        for each in engine.verification.problems if engine.verification is not None else ():
            yield f"- **{each.severity}** `{_code(recipe.recipe)}/{engine.target}`: {_plain(each.message)}"


def _item(each: Diagnostic) -> str:
    place = f"`{_code(each.mark.file)}:{each.mark.line}` " if each.mark else ""
    about = f"`{_code(each.subject)}` " if each.subject and not each.mark and each.subject not in each.message else ""
    hint = f" *{_plain(each.hint)}*" if each.hint else ""
    return f"- **{each.severity}** {place}{about}{_plain(each.message)}{hint}"


def _plain(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>|~])", r"\\\1", " ".join(printable(text).split()))


def _code(text: str) -> str:
    return printable(text).replace("`", "'").replace("\n", " ").replace("|", "/")


def _fenced(text: str) -> list[str]:
    """As a block of code, whatever the text holds."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, *printable(text).splitlines(), fence]
