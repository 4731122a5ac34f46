"""What may stand at the end of a command line that is not finished: what shells offer for it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bolt_build.cli.common_arguments import OneOf, file_name
from bolt_build.cli.schema import schema_text
from bolt_build.cli.verb_parser import VerbParser
from bolt_build.cli.verbs import VERBS
from bolt_build.errors import BoltError
from bolt_build.schema.load import load_recipe
from bolt_build.targets import all_targets

_FIXED = ("bolt", "extend", "targets")
"""Keys that --set does not take, and that whose keys are the recipe's own."""


@dataclass(frozen=True)
class Offer:
    """Words that begin as the last one does, and whether names of files may stand there too. A word with "=" at its end
    goes on."""

    words: tuple[str, ...]
    files: bool = False


def offer(words: Sequence[str]) -> Offer:
    """What may stand in place of the last of the words behind `bolt-build`, which may be empty."""
    *before, last = words or ("",)
    verb = before[0] if before and before[0] in VERBS else "build"
    parser = VerbParser(verb)
    if before:
        action = parser.option(before[-1])
        if action is not None and action.nargs != 0:
            return _of(_value(action, before, last), last)
    if last.startswith("-"):
        return _of(Offer(tuple(parser.options())), last)
    found = _first(verb) if not before or before == [verb] else Offer((), files=True)
    return _of(Offer((*VERBS, *found.words) if not before else found.words, found.files), last)


def _of(found: Offer, last: str) -> Offer:
    """Those that begin as the last word does."""
    return Offer(tuple(word for word in dict.fromkeys(found.words) if word.startswith(last)), found.files)


def _first(verb: str) -> Offer:
    """What may be the first word behind a verb."""
    if verb == "init":
        # It loads onnx: other verbs need it not.
        from bolt_build.graph import zoo

        return Offer(zoo.names(), files=True)
    positional = VerbParser(verb).positional()
    if positional is not None and (choices := _choices(positional)):
        return Offer(choices)
    return Offer((), files=positional is not None)


def _value(action: argparse.Action, before: Sequence[str], last: str) -> Offer:
    """What may be the value of an option."""
    if action.dest == "target":
        return Offer(_targets(before))
    if action.dest == "set":
        key, equals, _ = last.partition("=")
        keys = dict(_keys(json.loads(schema_text()), _targets(before)))
        return Offer(tuple(f"{key}={value}" for value in _values(keys.get(key, {}))) if equals else _assigned(keys))
    return Offer(_choices(action), files=action.type is file_name)


def _choices(action: argparse.Action) -> tuple[str, ...]:
    """The words that an argument takes, where these are some."""
    return action.type.words if isinstance(action.type, OneOf) else ()


def _targets(before: Sequence[str]) -> tuple[str, ...]:
    """Targets of the recipes that are named, or all that are known where none can be read."""
    found: list[str] = []
    for word in before:
        if word.endswith((".yaml", ".yml")) and Path(word).is_file():
            try:
                found += [spec.name for spec in load_recipe(Path(word)).targets]
            except BoltError:
                continue
    return tuple(found) or tuple(target.name for target in all_targets())


def _assigned(keys: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{key}=" for key in keys)


def _keys(schema: Mapping[str, Any], targets: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Dotted keys of recipes, with what the schema says of each."""
    kinds = schema["$defs"]

    def below(prefix: str, part: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        for name, found in part.get("properties", {}).items():
            if prefix + name in _FIXED:
                continue
            known = kinds[found["$ref"].rpartition("/")[2]] if "$ref" in found else found
            if "properties" in known:
                yield from below(f"{prefix}{name}.", known)
            elif "additionalProperties" not in known:
                yield prefix + name, known

    yield from below("", schema)
    for target in targets:
        yield from below(f"targets.{target}.", kinds["target"])


def _values(key: Mapping[str, Any]) -> tuple[str, ...]:
    """The values of a key that has few."""
    if key.get("type") == "boolean":
        return ("true", "false")
    return tuple(value if isinstance(value, str) else json.dumps(value) for value in key.get("enum", ()))
