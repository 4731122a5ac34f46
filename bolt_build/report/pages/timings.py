"""The page of `build --timings`: lanes of tasks over time, critical paths, what the cache saved; and all of it as
tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bolt_build.build.timings import Stage, TimedTask, Timings
from bolt_build.report.pages.page import Cell, PageTable, page_table, rendered

_LEFT, _RIGHT, _TOP, _PITCH = 60.0, 995.0, 18, 24
_CHARACTER = 6.2
"""Width of a letter in a bar, in the picture's units."""
_RULES = ("compile", "link", "verify", "manifest", "copy")
"""Each has a colour of its own; any other rule has the last."""
_STAGES = "c6"
_HOW = {
    "run": "ran", "cache": "from the cache", "common": "as for another target", "failed": "failed",
    "stopped": "interrupted",
}  # fmt: skip


@dataclass(frozen=True)
class _Bar:
    x: float
    y: int
    width: float
    color: str
    critical: bool
    title: str
    text: str


@dataclass(frozen=True)
class _Label:
    text: str
    x: float = 0.0
    y: int = 0


@dataclass(frozen=True)
class _Chain:
    title: str
    table: PageTable


def timings_page(timings: Timings) -> str:
    """The whole page, as HTML."""
    rows = lanes(timings.tasks)
    end = max([timings.seconds, *(each.ended for each in timings.tasks)])
    first = 1 if timings.stages else 0
    bars = [_stage_bar(each, end) for each in timings.stages]
    bars += [_bar(each, y, end) for y, lane in enumerate((tasks for _, tasks in rows), first) for each in lane]
    names = [*(["before"] if first else []), *(name for name, _ in rows)]
    labels = [_Label(name, y=_TOP + index * _PITCH) for index, name in enumerate(names)]
    chains = [_Chain(*_chain(chain)) for chain in timings.chains if chain]
    recipes = ", ".join(dict.fromkeys(each.recipe for each in timings.tasks)) or "nothing to do"
    return rendered(
        "timings.html.j2", title=f"Build of {recipes}", facts=_facts(timings), lanes=labels, bars=bars,
        ticks=_ticks(end), height=_TOP + len(names) * _PITCH, chains=chains, tasks=_table(timings.tasks),
        stages=_stages(timings.stages), legend=_legend(timings),
    )  # fmt: skip


def _facts(timings: Timings) -> list[tuple[str, str]]:
    count = {how: sum(each.how == how for each in timings.tasks) for how in _HOW}
    found = [
        ("whole build", f"{timings.seconds:.1f} s, planning included"),
        ("tasks", ", ".join(f"{count[how]} {word}" for how, word in _HOW.items() if count[how]) or "none ran"),
        ("all tasks one by one", f"{timings.work:.1f} s"),
    ]
    if timings.stages:
        before = sum(each.seconds for each in timings.stages)
        found.append(("before the tasks", f"{before:.1f} s of planning and what else comes first"))
    if timings.current:
        found.append(("up to date", f"{timings.current} of the tasks that were asked for"))
    if timings.cached:
        known = [each for each in timings.cached if each.before is not None]
        text = f"{timings.saved:.1f} s, by what {len(known)} of {len(timings.cached)} took when they last ran here"
        found.append(("saved by the cache", text if known else "not known: none of these tasks ran here before"))
    return found


def lanes(tasks: Sequence[TimedTask]) -> list[tuple[str, list[TimedTask]]]:
    """Tasks in as few lanes as there were at once; those of a GPU have their own."""
    found = []
    for name, some in (("CPU", [t for t in tasks if not t.on_gpu]), ("GPU", [t for t in tasks if t.on_gpu])):
        taken: list[list[TimedTask]] = []
        for task in some:
            free = next((lane for lane in taken if lane[-1].ended <= task.began), None)
            if free is None:
                taken.append([task])
            else:
                free.append(task)
        found += [(f"{name} {index + 1}", lane) for index, lane in enumerate(taken)]
    return found


def _stages(stages: Sequence[Stage]) -> PageTable | None:
    longest = max((each.seconds for each in stages), default=0.0)
    rows = [(each.label, f"{each.began:.3f}", _seconds(each.seconds, longest)) for each in stages]
    caption = "What the build did before its tasks; times in seconds."
    return page_table(caption, ("stage", "began", "seconds"), rows, (1, 2), (0,)) if rows else None


def _legend(timings: Timings) -> list[tuple[str, str]]:
    """Names and classes of the colours that the lanes have."""
    used = {each.rule for each in timings.tasks}
    found = [(rule, f"c{index}") for index, rule in enumerate(_RULES) if rule in used]
    if used - set(_RULES):
        found.append(("others", f"c{len(_RULES)}"))
    return [*([("before the tasks", _STAGES)] if timings.stages else []), *found]


def _stage_bar(stage: Stage, end: float) -> _Bar:
    x, width = _place(stage.began, stage.began + stage.seconds, end)
    return _Bar(x, _TOP, width, _STAGES, False, f"{stage.label}: {stage.seconds:.3f} s", _fitted(stage.label, width))


def _place(began: float, ended: float, end: float) -> tuple[float, float]:
    """Where a bar begins, and its width."""
    x = _at(began, end)
    return round(x, 2), round(max(_at(ended, end) - x, 1.0), 2)


def _fitted(text: str, width: float) -> str:
    room = int((width - 8) / _CHARACTER)
    if room < 4:
        return ""
    return text if len(text) <= room else f"{text[: room - 1]}\N{HORIZONTAL ELLIPSIS}"


def _bar(task: TimedTask, lane: int, end: float) -> _Bar:
    x, width = _place(task.began, task.ended, end)
    color = f"c{_RULES.index(task.rule) if task.rule in _RULES else len(_RULES)}"
    title = f"{task.recipe}/{task.target}: {task.label}: {_HOW[task.how]}, {task.seconds:.3f} s"
    return _Bar(x, _TOP + lane * _PITCH, width, color, task.critical, title, _fitted(task.label, width))


_SHORTEST = 1e-6
"""Seconds below which a build has no marks: less is no build, and its tenth may be no number."""


def _at(seconds: float, end: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * (seconds / end if end else 0.0)


def _ticks(end: float) -> list[_Label]:
    """A mark every 1, 2 or 5 (times a power of ten) seconds, at most ten."""
    if end < _SHORTEST:
        return []
    power = 10.0 ** math.floor(math.log10(end / 10))
    step = next(each * power for each in (1, 2, 5, 10) if end / (each * power) <= 10)
    return [_Label(f"{n * step:g} s", round(_at(n * step, end), 2)) for n in range(int(end / step) + 1)]


def _chain(chain: Sequence[TimedTask]) -> tuple[str, PageTable]:
    first, total = chain[0], sum(each.seconds for each in chain)
    title = f"Critical path of {first.recipe}/{first.target}: {total:.3f} s"
    caption = "Each task needs what the one before makes: with any number of CPUs the build takes no less."
    rows = [(each.label, _HOW[each.how], _seconds(each.seconds, total)) for each in chain]
    return title, page_table(caption, ("task", "how", "seconds"), rows, (2,), (0,))


def _table(tasks: Sequence[TimedTask]) -> PageTable:
    longest = max((each.seconds for each in tasks), default=0.0)
    columns = ("recipe", "target", "task", "how", "began", "seconds", "last run here", "critical", "why")
    rows = [
        (
            each.recipe, each.target, each.label, Cell(_HOW[each.how], "bad" if each.how == "failed" else ""),
            f"{each.began:.3f}", _seconds(each.seconds, longest), "" if each.before is None else f"{each.before:.3f}",
            "yes" if each.critical else "", Cell("; ".join(each.reasons), "dim"),
        )
        for each in tasks
    ]  # fmt: skip
    return page_table("Every task, by its begin; times in seconds.", columns, rows, (4, 5, 6), (2, 8))


def _seconds(value: float, whole: float) -> Cell:
    return Cell(f"{value:.3f}", bar=value / whole if whole else 0.0)
