"""A YAML file as values that know where they stand.

The values follow YAML 1.2's core schema: `no` and `12:30` are strings, `1e3` is a float, `0o17` an integer. A key
is its text, whatever it looks like. Anchors and aliases work; merge keys (`<<`) and unknown tags do not.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from bolt_build.errors import BoltError, Diagnostic, Mark
from bolt_build.schema.values import Entry, Items, Plain, Scalar, Table, Unreadable, Value, describe, shorten
from bolt_build.user_files import (
    LFS_POINTER,
    LFS_PULL,
    UnfitFile,
    binary_kind,
    leads_nowhere,
    open_regular,
    read_regular,
    reason_of,
)

MAX_VALUES = 100_000
"""Values of one document with its aliases expanded; more is a mistake or an attack."""

MAX_BYTES = 16 << 20
"""Of a document; more is no document that anybody wrote."""

_BEGINNING = 512
"""Bytes by which a file that is no document is known."""

MAX_NODES = 2 * MAX_VALUES
"""Keys and values of a document as it is written: a value has one key at most."""

MAX_DEPTH = 200
"""Collections inside one another; more is a mistake or an attack."""

MAX_DIGITS = 100
"""Characters of an integer; Python itself refuses to print very long ones."""


class CoreLoader(yaml.CSafeLoader):
    """PyYAML's composer with the resolvers of YAML 1.2's core schema in place of those of YAML 1.1."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (PyYAML's own attribute, copied on write)


CORE_RESOLVERS = (
    ("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)\Z"), ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)\Z"), list("tTfF")),
    ("tag:yaml.org,2002:int", re.compile(r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)\Z"), list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        re.compile(
            r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
        ),
        list("-+.0123456789"),
    ),
)
"""Tag, text that has it, and first characters of such text: what PyYAML's `add_implicit_resolver` takes."""

for _tag, _pattern, _first in CORE_RESOLVERS:
    CoreLoader.add_implicit_resolver(_tag, _pattern, _first)


def resolve_plain(text: str) -> Plain:
    """What `text` means where it stands unquoted."""
    for tag, pattern, _ in CORE_RESOLVERS:
        if pattern.match(text) and len(text) <= MAX_DIGITS:
            return _scalar(tag, text)
    return text


@dataclass(frozen=True)
class DocumentKind:
    """What a file is to its reader: a noun for messages, how its first line reads, and what to do where a merge was
    not finished."""

    noun: str
    beginning: str
    merged: str = "keep one side, and remove the lines that begin with '<<<<<<<', '=======' and '>>>>>>>'"


RECIPE = DocumentKind("recipe", "bolt: 1")

_CONFLICT = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
"""How lines begin that git writes where two branches changed the same ones."""


def read_document(path: Path, kind: DocumentKind = RECIPE) -> tuple[Table, tuple[Diagnostic, ...]]:
    """The mapping that the YAML file at `path` holds, and what is wrong with its keys and tags.

    Raises BoltError where no mapping can be read: a file that is missing, empty, not text or not YAML.
    """
    text = _read_text(path, kind)
    if (conflict := _CONFLICT.search(text)) is not None:
        mark = Mark(str(path), text.count("\n", 0, conflict.start()) + 1, 1)
        raise BoltError([Diagnostic("merge-conflict", "a merge was not finished here", mark, kind.merged)])
    node = _composed(text, path, kind)
    start = Mark(str(path), 1, 1)
    hint = f"a {kind.noun} begins with '{kind.beginning}'"
    if node is None:
        raise BoltError([Diagnostic(f"empty-{kind.noun}", f"the {kind.noun} is empty", start, hint)])
    conversion = _Conversion(str(path), text)
    value = conversion.convert(node)
    if not isinstance(value, Table):
        message = f"a {kind.noun} must be a mapping, found {describe(value)}"
        conversion.diagnostics.append(Diagnostic("wrong-type", message, value.mark, hint))
        raise BoltError(conversion.diagnostics)
    return value, tuple(conversion.diagnostics)


def read_value(text: str, at: Mark) -> Value:
    """The value that a piece of YAML is, which stands at `at` in one line of something else.

    Raises BoltError with what is wrong with it.
    """
    path = Path(at.file)
    if _lines(text)[1:]:
        raise BoltError([Diagnostic("bad-value", "a value must stand on one line", at)])
    placed = "\n" * (at.line - 1) + " " * (at.column - 1) + text
    try:
        node = _composed(placed, path, RECIPE)
    except BoltError as error:
        # What does not end is found missing on the next line, which is not there.
        raise BoltError([replace(each, mark=_on_line(each.mark, at)) for each in error.diagnostics]) from error
    if node is None:
        return Scalar(None, at)
    conversion = _Conversion(at.file, placed)
    value = conversion.convert(node)
    if conversion.diagnostics:
        raise BoltError(conversion.diagnostics)
    return value


def _on_line(mark: Mark | None, at: Mark) -> Mark:
    return mark if mark is not None and mark.line == at.line else at


def _composed(text: str, path: Path, kind: DocumentKind) -> yaml.Node | None:
    """The one node of a text, None where it is empty. Raises BoltError where the text is not YAML."""
    try:
        _check_events(text, path)
        return CoreLoader(text).get_single_node()
    except yaml.MarkedYAMLError as error:
        raise BoltError([_syntax_error(error, path, text, kind)]) from error
    except yaml.reader.ReaderError as error:
        raise BoltError([_unreadable_character(error, path, text)]) from error


def _read_text(path: Path, kind: DocumentKind) -> str:
    try:
        data = read_regular(path, MAX_BYTES)
    except FileNotFoundError as error:
        target = leads_nowhere(path)
        hint = None if target is None else f"it is a link to '{shorten(target)}', which is not there"
        raise BoltError([Diagnostic("no-such-file", f"no such {kind.noun}", hint=hint, subject=str(path))]) from error
    except IsADirectoryError as error:
        raise BoltError([_no_file(path, "a directory", kind)]) from error
    except UnfitFile as error:
        raise BoltError([_unfit(path, error, kind)]) from error
    except OSError as error:
        raise BoltError([Diagnostic("unreadable", f"cannot be read: {reason_of(error)}", subject=str(path))]) from error
    found = binary_kind(data)
    if found is not None:
        raise BoltError([_other_file(found, None, kind, str(path))])
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        mark = _end_of(data[: error.start].decode(), path)
        message = f"byte 0x{data[error.start]:02x} is not UTF-8"
        raise BoltError([Diagnostic("not-utf8", message, mark, f"a {kind.noun} is UTF-8 text")]) from error


def _no_file(path: Path, found: str, kind: DocumentKind) -> Diagnostic:
    message, hint = f"is {found}, not a {kind.noun}", f"name the {kind.noun}'s file"
    return Diagnostic("not-a-file", message, None, hint, str(path))


def _other_file(found: str, mark: Mark | None, kind: DocumentKind, subject: str | None = None) -> Diagnostic:
    model = "name it in a recipe, as model.onnx; 'bolt-build init' writes one"
    hints = {"an ONNX model": model, LFS_POINTER: LFS_PULL}
    hint = hints.get(found, f"a {kind.noun} is YAML text")
    return Diagnostic("other-file", f"this is {found}, not a {kind.noun}", mark, hint, subject)


def _unfit(path: Path, error: UnfitFile, kind: DocumentKind) -> Diagnostic:
    if error.kind is not None:
        return _no_file(path, error.kind, kind)
    if "larger" in str(error):
        with open_regular(path) as file:
            found = binary_kind(file.read(_BEGINNING))
        if found is not None:
            return _other_file(found, None, kind, str(path))
    hint = f"a {kind.noun} is YAML text that people read" if "larger" in str(error) else None
    return Diagnostic("unreadable", f"cannot be read: {error}", None, hint, str(path))


def _lines(text: str) -> list[str]:
    """Lines as libyaml counts them."""
    return re.split("\r\n|[\r\n\x85\u2028\u2029]", text)


def _end_of(before: str, path: Path) -> Mark:
    """The place behind `before`, the file's first part."""
    lines = _lines(before)
    return Mark(str(path), len(lines), len(lines[-1]) + 1)


def _check_events(text: str, path: Path) -> None:
    """What a document may not be, said before anything is made of it. Raises BoltError ("too-large")."""
    depth, nodes = 0, 0
    for event in yaml.parse(text, Loader=CoreLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        nodes += 1
        depth += isinstance(event, yaml.CollectionStartEvent)
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            at = event.start_mark
            mark = Mark(str(path), at.line + 1, at.column + 1) if at else Mark(str(path), 1, 1)
            deep = f"more than {MAX_DEPTH} collections inside one another"
            message = deep if depth > MAX_DEPTH else f"more than {MAX_NODES} keys and values"
            raise BoltError([Diagnostic("too-large", message, mark)])


def _syntax_error(error: yaml.MarkedYAMLError, path: Path, text: str, kind: DocumentKind) -> Diagnostic:
    at = error.problem_mark or error.context_mark
    mark = Mark(str(path), at.line + 1, at.column + 1) if at else Mark(str(path), 1, 1)
    message = error.problem or "not YAML"
    if error.context and error.context.startswith("while"):
        message += f", {error.context}"
        if error.context_mark and at and error.context_mark.line < at.line < len(_lines(text)):
            message += f" that begins on line {error.context_mark.line + 1}"
    hint = None
    if at and "that cannot start any token" in message:
        character = _lines(text)[at.line][at.column : at.column + 1]
        if character == "\t":
            message, hint = "a tab where only spaces may stand", "indent with spaces"
        else:
            message, hint = f"text cannot begin with '{character}'", "write it in quotes"
    elif message.startswith("found a tab character"):
        message, hint = "a tab where only spaces may stand", "indent with spaces"
    elif "expected a single document" in (error.context or ""):
        message, hint = "a second document begins here", f"one file holds one {kind.noun}"
    return Diagnostic("yaml-syntax", message, mark, hint)


def _unreadable_character(error: yaml.reader.ReaderError, path: Path, text: str) -> Diagnostic:
    before = text.encode()[: error.position].decode(errors="ignore")  # libyaml counts bytes
    mark = _end_of(before, path)
    code = error.character if isinstance(error.character, int) else ord(error.character)
    return Diagnostic("yaml-syntax", f"character U+{code:04X} is not allowed in YAML", mark)


def _scalar(tag: str, text: str) -> Plain:
    """Raises ValueError where `text` is not what `tag` says."""
    kind = tag.removeprefix("tag:yaml.org,2002:")
    if kind == "str":
        return text
    for known, pattern, _ in CORE_RESOLVERS:
        if known == tag and not pattern.match(text):
            raise ValueError(f"'{shorten(text)}' is not of type {kind}")
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() == "true"
    if kind == "int":
        if len(text) > MAX_DIGITS:
            raise ValueError(f"an integer of {len(text)} digits is too long")
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))


class _Conversion:
    """One document's nodes turned to values; `diagnostics` gathers what is wrong on the way."""

    def __init__(self, file: str, text: str) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._file = file
        self._lines = _lines(text)
        self._done: dict[int, tuple[Value, int]] = {}
        self._open: set[int] = set()

    def convert(self, node: yaml.Node) -> Value:
        """Raises BoltError for a value that contains itself, or a document that aliases make too large."""
        value, _ = self._convert(node)
        return value

    def _convert(self, node: yaml.Node) -> tuple[Value, int]:
        """The value and how many values it is made of. An aliased node is converted, and complained of, once."""
        if id(node) in self._done:
            return self._done[id(node)]
        mark = self._mark(node)
        if id(node) in self._open:
            raise BoltError([Diagnostic("recursive-alias", "this value contains itself through an alias", mark)])
        self._open.add(id(node))
        if isinstance(node, yaml.MappingNode):
            value, count = self._table(node, mark)
        elif isinstance(node, yaml.SequenceNode):
            self._check_tag(node, "seq", mark)
            parts = [self._convert(item) for item in node.value]
            value, count = Items(tuple(part for part, _ in parts), mark), sum(n for _, n in parts)
        else:
            assert isinstance(node, yaml.ScalarNode)
            value, count = self._scalar(node, mark), 0
        self._open.discard(id(node))
        if count + 1 > MAX_VALUES:
            message = f"more than {MAX_VALUES} values once aliases are expanded"
            raise BoltError([Diagnostic("too-large", message, mark)])
        self._done[id(node)] = (value, count + 1)
        return self._done[id(node)]

    def _table(self, node: yaml.MappingNode, mark: Mark) -> tuple[Value, int]:
        self._check_tag(node, "map", mark)
        entries: dict[str, Entry] = {}
        count = 0
        for key_node, value_node in node.value:
            key_mark = self._mark(key_node)
            value, parts = self._convert(value_node)
            count += parts
            if not isinstance(key_node, yaml.ScalarNode):
                self.diagnostics.append(Diagnostic("wrong-type", "a key must be text", key_mark))
                continue
            key = key_node.value
            if key == "<<" and not key_node.style:
                hint = "repeat the keys, or use 'extend'"
                self.diagnostics.append(
                    Diagnostic("merge-key", "merge keys ('<<') are not part of YAML 1.2", key_mark, hint)
                )
            elif key in entries:
                first = entries[key].mark
                message = f"'{shorten(key)}' is here a second time"
                hint = f"first at line {first.line}"
                self.diagnostics.append(Diagnostic("duplicate-key", message, key_mark, hint))
            else:
                entries[key] = Entry(key, key_mark, value)
        return Table(tuple(entries.values()), mark), count

    def _scalar(self, node: yaml.ScalarNode, mark: Mark) -> Scalar | Unreadable:
        known = {tag for tag, _, _ in CORE_RESOLVERS} | {"tag:yaml.org,2002:str"}
        if node.tag not in known:
            self._unknown_tag(node.tag, mark)
            return Unreadable(mark)
        try:
            return Scalar(_scalar(node.tag, node.value), mark)
        except ValueError as error:
            self.diagnostics.append(Diagnostic("bad-value", str(error), mark))
            return Unreadable(mark)

    def _check_tag(self, node: yaml.Node, kind: str, mark: Mark) -> None:
        if node.tag != f"tag:yaml.org,2002:{kind}":
            self._unknown_tag(node.tag, mark)

    def _unknown_tag(self, tag: str, mark: Mark) -> None:
        name = shorten(tag.replace("tag:yaml.org,2002:", "!!"))
        self.diagnostics.append(Diagnostic("unknown-tag", f"the tag '{name}' means nothing here", mark))

    def _mark(self, node: yaml.Node) -> Mark:
        """The node's first line: to its end there, or to the end of the text on it."""
        start, end = node.start_mark, node.end_mark
        if end.line == start.line:
            length = end.column - start.column
        elif isinstance(node, yaml.CollectionNode) and not node.flow_style:
            length = 1
        else:
            length = len(self._lines[start.line].rstrip()) - start.column if start.line < len(self._lines) else 1
        return Mark(self._file, start.line + 1, start.column + 1, max(1, length))
