"""A lock as text: the same lock gives the same bytes, one line a fact, so that a diff shows which kernel changed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import yaml

from bolt_build.families.base import Candidate
from bolt_build.lockfile.contents import Lock, LockedEngine, LockedTarget, LockEntry
from bolt_build.lockfile.fingerprint import Fingerprint
from bolt_build.planner.selection import ChosenAlternative, ChosenCover
from bolt_build.schema.document import CoreLoader, resolve_plain
from bolt_build.sizes import Dims, Sizes, sizes_of

_HEAD = """\
# The fastest kernels, as `bolt-build tune` measured them; `bolt-build build` takes them from here.
# Times are microseconds of one launch. A target's part is written anew when it is tuned, the rest is left alone.
lock: VERSION
targets:
"""
_PLAIN = re.compile(r"[A-Za-z0-9_./](?:[A-Za-z0-9_./+= -]*[A-Za-z0-9_./+=-])?")
_YAML_1_1, _TEXT = yaml.resolver.Resolver(), "tag:yaml.org,2002:str"
_LINE = re.compile("[^\r\n\x85\u2028\u2029]*(?:\r\n|[\r\n\x85\u2028\u2029])|[^\r\n\x85\u2028\u2029]+$")
"""A line with its end, as YAML counts lines."""
_BLANK = re.compile(r"\s*(?:#.*)?$")


def lock_text(lock: Lock) -> str:
    """The whole file."""
    parts = [_target(each) for each in sorted(lock.targets, key=lambda each: each.target)]
    head = _HEAD.replace("VERSION", str(lock.version))
    return head.replace("targets:\n", "targets: {}\n") if not parts else head + "".join(parts)


def with_part(lock: Lock, text: str, part: LockedTarget) -> str:
    """The text of a lock with this part in place of its target's: all else keeps its bytes, comments included.

    Where the targets do not stand below each other in the order of their names, the file is written anew.
    """
    whole = Lock((*(each for each in lock.targets if each.target != part.target), part))
    text = _with_version(text, whole.version)
    lines = _LINE.findall(text)
    places = _places(text, lines)
    if places is None:
        return lock_text(whole)
    start, end = _where(part.target, *places)
    before, after = "".join(lines[:start]), "".join(lines[end:])
    if before and not before.endswith("\n"):
        before += "\n"
    return before + _target(part) + after


def target_names(text: str) -> tuple[str, ...]:
    """The targets of a lock that can be read, in the text's order."""
    node = CoreLoader(text).get_single_node()
    assert isinstance(node, yaml.MappingNode), "a lock is a mapping"
    return tuple(name.value for key, value in node.value if key.value == "targets" for name, _ in value.value)


def _with_version(text: str, version: int) -> str:
    """The text of a lock that says this version."""
    node = CoreLoader(text).get_single_node()
    assert isinstance(node, yaml.MappingNode), "a lock that was loaded is a mapping"
    value = next(value for key, value in node.value if key.value == "lock")
    return text[: value.start_mark.index] + str(version) + text[value.end_mark.index :]


_Places = tuple[int, list[tuple[str, int, int]]]
"""The line behind `targets:`; and each target's name, its first line and the line behind its last."""


def _where(name: str, first: int, places: list[tuple[str, int, int]]) -> tuple[int, int]:
    """The lines that a target has or, in front of the next one's comments, is to get."""
    for known, start, end in places:
        if known == name:
            return start, end
        if known > name:
            break
        first = end
    return first, first


def _places(text: str, lines: list[str]) -> _Places | None:
    """Where targets stand; None where they do not stand below each other in the order of their names."""
    node = CoreLoader(text).get_single_node()
    assert isinstance(node, yaml.MappingNode), "a lock that was loaded is a mapping"
    key, targets = next((key, value) for key, value in node.value if key.value == "targets")
    names = [name.value for name, _ in targets.value]
    if node.flow_style or targets.flow_style or names != sorted(names):
        return None
    starts = [name.start_mark.line for name, _ in targets.value]
    behind = [other.start_mark.line for other, _ in node.value if other.start_mark.line > key.start_mark.line]
    ends = [*starts[1:], min(behind, default=len(lines))]
    found = []
    for name, start, end in zip(names, starts, ends, strict=True):
        while end > start + 1 and _BLANK.match(lines[end - 1]):
            end -= 1
        found.append((name, start, end))
    return key.start_mark.line + 1, found


def _place(each: ChosenCover | LockedEngine) -> tuple[Sizes, str]:
    return sizes_of(each), each.graph


def _target(part: LockedTarget) -> str:
    lines = [f"  {_word(part.target)}:", "    fingerprints:"]
    for name, fingerprint in part.fingerprints:
        lines += _fingerprint(name, fingerprint)
    lines.append("    problems:")
    for entry in sorted(part.entries, key=lambda each: each.problem):
        lines += _entry(entry)
    lines.append("    covers:")
    for cover in sorted(part.covers, key=_place):
        lines += _cover(cover)
    if part.engines:
        lines.append("    engines:")
    for engine in sorted(part.engines, key=_place):
        lines += _engine(engine)
    return "\n".join(_empty(lines)) + "\n"


def _empty(lines: list[str]) -> list[str]:
    """A section without anything below it says what it is."""
    kinds = {"    fingerprints:": "{}", "    problems:": "{}", "    covers:": "[]"}
    return [
        f"{line} {kinds[line]}" if line in kinds and not below.startswith("      ") else line
        for line, below in zip(lines, [*lines[1:], ""], strict=True)
    ]


def _fingerprint(name: str, fingerprint: Fingerprint) -> list[str]:
    # A lock says what was measured with what. Which records still hold is a question that it does not answer.
    device, tools = fingerprint.device, replace(fingerprint.tools, families=())
    return [
        f"      {_word(name)}:",
        f"        device: {_flow(_fields(device))}",
        f"        tools: {_flow(_fields(tools))}",
    ]


def _fields(value: object) -> list[tuple[str, object]]:
    """A dataclass's fields in order, without empty tuples."""
    return [(name, each) for name, each in vars(value).items() if each != ()]


def _entry(entry: LockEntry) -> list[str]:
    lines = [f"      {_word(entry.problem)}:", f"        what: {_quoted(entry.what)}"]
    lines.append(f"        winner: {_candidate(entry.winner, entry.median)}")
    if entry.runner_up is not None and entry.runner_up_median is not None:
        lines.append(f"        runner_up: {_candidate(entry.runner_up, entry.runner_up_median)}")
    lines.append(f"        predicted: {_time(entry.predicted)}")
    lines.append(f"        measured: {entry.measured}")
    lines.append(f"        fingerprint: {_word(entry.fingerprint)}")
    return lines


def _candidate(candidate: Candidate, median: float) -> str:
    parts = [f"family: {_word(candidate.family)}"]
    parts += [
        f"{name}: {_flow(values)}"
        for name, values in (("parameters", candidate.parameters), ("settings", candidate.settings))
        if values
    ]
    return "{" + ", ".join([*parts, f"median: {_time(median)}"]) + "}"


def _cover(cover: ChosenCover) -> list[str]:
    return [
        f"      - batch: {cover.batch}",
        *_dims(cover.dims),
        f"        graph: {_word(cover.graph)}",
        "        alternatives:" if cover.alternatives else "        alternatives: []",
        *(f"          - {_alternative(each)}" for each in cover.alternatives),
    ]


def _dims(dims: Dims) -> list[str]:
    """The extents that a plan is for, of dimensions that have several."""
    return [f"        dims: {_flow(dims)}"] if dims else []


def _engine(engine: LockedEngine) -> list[str]:
    return [
        f"      - batch: {engine.batch}",
        *_dims(engine.dims),
        f"        graph: {_word(engine.graph)}",
        f"        table: {_word(engine.table)}",
        *([] if engine.in_place_of is None else [f"        in_place_of: {_word(engine.in_place_of)}"]),
        f"        before: {_time(engine.before)}",
        f"        after: {_time(engine.after)}",
        f"        gain: {engine.gain:.5f}",
        f"        tried: {engine.tried}",
        f"        plans: {engine.plans}",
        f"        fingerprint: {_word(engine.fingerprint)}",
        "        swaps:" if engine.swaps else "        swaps: {}",
        *(f"          {_word(problem)}: {_candidate(kernel, median)}" for problem, kernel, median in engine.swaps),
    ]


def _alternative(chosen: ChosenAlternative) -> str:
    nodes, problems = (", ".join(map(_word, each)) for each in (chosen.region, chosen.problems))
    return f"{{nodes: [{nodes}], family: {_word(chosen.family)}, problems: [{problems}]}}"


def _flow(values: Iterable[tuple[str, object]]) -> str:
    return "{" + ", ".join(f"{_word(name)}: {_word(value)}" for name, value in values) + "}"


def _time(microseconds: float) -> str:
    return f"{microseconds:.3f}"


def _word(value: object) -> str:
    """A number as it is; text bare where readers of YAML 1.1 and of 1.2 take it for text."""
    if isinstance(value, int):
        return str(value)
    text = str(value)
    older = _YAML_1_1.resolve(yaml.ScalarNode, text, (True, False)) == _TEXT  # type: ignore[no-untyped-call]
    return text if _PLAIN.fullmatch(text) and isinstance(resolve_plain(text), str) and older else _quoted(text)


def _quoted(text: str) -> str:
    """In double quotes, with an escape for each character that a YAML file may not hold."""
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isprintable():
        return character
    return f"\\u{ord(character):04x}" if ord(character) <= 0xFFFF else f"\\U{ord(character):08x}"
