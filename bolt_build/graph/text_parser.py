"""Parser of the graph's text form; `graph.text` describes it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import typing
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bolt_build.dtypes import DType
from bolt_build.graph.arrays import numpy_dtype
from bolt_build.graph.ir import (
    Array,
    Constant,
    EpilogueOp,
    Graph,
    Node,
    Op,
    Quantization,
    ShapeError,
    TensorType,
    Value,
    graph_of,
)
from bolt_build.graph.operators import operators
from bolt_build.graph.ops.elementwise.activation import Activation
from bolt_build.graph.ops.elementwise.arithmetic import FUNCTIONS as BINARIES
from bolt_build.graph.ops.elementwise.arithmetic import Binary
from bolt_build.graph.ops.elementwise.functions import FUNCTIONS as ACTIVATIONS
from bolt_build.graph.text_tokens import TextError, Token, tokens_of

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_DTYPES = {dtype.value: dtype for dtype in DType}
_SPATIAL = {"strides": 1, "dilations": 1, "pads_begin": 0, "pads_end": 0}


Number = typing.TypeVar("Number", int, float)


def seeded_array(name: str, t: TensorType, positive: bool = False) -> Array:
    """The array that a constant called `name` stands for when its values are not given.

    Normal values scaled for a fan-in of all axes but the first; `positive`: at least 0.5. Integers are 0 to 3.
    """
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    generator = np.random.default_rng(seed)
    if not t.dtype.is_float:
        return generator.integers(0, 2 if t.dtype is DType.BOOL else 4, t.shape).astype(numpy_dtype(t.dtype))
    values = generator.standard_normal(t.shape)
    if positive:
        return np.asarray(np.abs(values) + 0.5).astype(numpy_dtype(t.dtype))
    fan_in = int(np.prod(t.shape[1:])) if t.rank > 1 else 1
    return np.asarray(values / max(fan_in, 1) ** 0.5).astype(numpy_dtype(t.dtype))


@functools.lru_cache(maxsize=16)
def _seeded(name: str, t: TensorType, positive: bool) -> Constant:
    """The constant of `seeded_array`. Texts of one kind name the same ones, of millions of values, again and again."""
    return Constant(seeded_array(name, t, positive))


@functools.cache
def _hints(cls: type[Op]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


class Parser:
    """Recursive descent over the tokens of one text; used once."""

    def __init__(self, text: str, arrays: Iterable[Array]) -> None:
        self._tokens = tokens_of(text)
        self._at = 0
        self._arrays = {constant.digest: constant for constant in map(Constant, arrays)}
        self._values: dict[str, Value] = {}
        self._nodes: list[Node] = []

    def graph(self) -> Graph:
        self._skip_lines()
        self._expect_word("graph")
        name = self._word()
        self._expect_word("batch")
        self._expect("=")
        batch = self._int()
        inputs = self._list("(", ")", self._input)
        self._expect("->", "arrow")
        outputs_at = self._peek()
        outputs = self._list("(", ")", self._raw_name)
        self._expect("{")
        self._line_end()
        while not self._accept("}"):
            self._constant() if self._peek().text == "const" else self._node()
        self._skip_lines()
        if self._peek().kind != "end":
            raise self._error("the end of the text")
        for output, _ in outputs:
            if output not in self._values:
                raise TextError(f"output '{output}' is not defined", outputs_at.line, outputs_at.column)
        return graph_of(name, batch, inputs, [n for n, _ in outputs], self._values.values(), self._nodes)

    # -- statements --------------------------------------------------------------------------------------------

    def _input(self) -> str:
        at = self._peek()
        name, synthetic = self._raw_name()
        self._expect(":")
        self._define(Value(name, self._type(), synthetic=synthetic), at)
        return name

    def _constant(self) -> None:
        self._expect_word("const")
        at = self._peek()
        name, synthetic = self._raw_name()
        self._expect(":")
        t = self._type()
        self._define(Value(name, t, self._constant_values(name, t), synthetic), at)
        self._line_end()

    def _constant_values(self, name: str, t: TensorType) -> Constant:
        at = self._peek()
        if at.text == "{":
            items = self._list("{", "}", lambda: self._element(t.dtype))
            if len(items) != t.elements:
                raise TextError(f"{len(items)} elements given for {t.elements}", at.line, at.column)
            return Constant(np.asarray(items, dtype=numpy_dtype(t.dtype)).reshape(t.shape))
        if self._accept("#") and self._peek().kind == "word":
            head = self._next().text
            for digest, constant in self._arrays.items():
                if digest.startswith(head):
                    return constant
        positive = self._accept("positive")
        return _seeded(name, t, positive)

    def _node(self) -> None:
        outputs: list[tuple[Token, str, bool, TensorType | None]] = []
        while not outputs or self._accept(","):
            at = self._peek()
            name, synthetic = self._raw_name()
            outputs.append((at, name, synthetic, self._type() if self._accept(":") else None))
        self._expect("=")
        at = self._peek()
        word = self._next_word("an operator")
        inputs = tuple(self._list("(", ")", self._reference))
        op = self._op(word, self._attributes(), at, inputs)
        stages = []
        while self._accept("|"):
            stages.append(self._stage(inputs))
        label = self._word() if self._accept("@") else None
        covers = self._line_end()
        names = tuple(name for _, name, _, _ in outputs)
        node = Node(label or (covers[0] if covers else names[0]), op, inputs, names, tuple(stages), covers)
        types = [t for _, _, _, t in outputs]
        for (token, name, synthetic, _), t in zip(outputs, self._complete(node, types, at), strict=True):
            self._define(Value(name, t, synthetic=synthetic), token)
        self._nodes.append(node)

    def _complete(self, node: Node, types: list[TensorType | None], at: Token) -> list[TensorType]:
        """The declared types, the missing ones inferred."""
        if None not in types:
            return [t for t in types if t is not None]
        try:
            inferred = node.op.infer([self._values[name].type for name in node.op_inputs])
        except ShapeError as error:
            raise TextError(str(error), at.line, at.column) from error
        if len(inferred) != len(types):
            raise TextError(f"the operator has {len(inferred)} outputs, not {len(types)}", at.line, at.column)
        return [given or found for given, found in zip(types, inferred, strict=True)]

    def _stage(self, inputs: tuple[str, ...]) -> EpilogueOp:
        at = self._peek()
        word = self._next_word("an epilogue function")
        operand = None
        if self._accept("("):
            name_at = self._peek()
            name = self._reference()
            places = [index for index, other in enumerate(inputs) if other == name]
            if self._accept("@"):
                index = self._int()
                places = [index] if index in places else []
            if not places:
                raise TextError(f"the operand '{name}' is not an input of the node", name_at.line, name_at.column)
            operand = places[-1]
            self._expect(")")
        op = self._op(word, self._attributes(), at, inputs)
        return EpilogueOp(op, operand, self._accept("swapped"))

    # -- operators ---------------------------------------------------------------------------------------------

    def _attributes(self) -> dict[str, tuple[Token, Any]]:
        """Attributes by name, raw: a word, or nested lists of words."""
        found: dict[str, tuple[Token, Any]] = {}
        while self._peek().kind == "word" and self._peek(1).text == "=":
            at = self._next()
            if at.text in found:
                raise TextError(f"attribute '{at.text}' is given twice", at.line, at.column)
            self._expect("=")
            found[at.text] = (at, self._raw())
        return found

    def _raw(self) -> Any:
        return self._list("[", "]", self._raw) if self._peek().text == "[" else self._word()

    def _op(self, word: str, given: dict[str, tuple[Token, Any]], at: Token, inputs: tuple[str, ...]) -> Op:
        values: dict[str, Any] = {}
        cls = operators().get(word)
        if word in ACTIVATIONS or word in BINARIES:
            cls, values = Activation if word in ACTIVATIONS else Binary, {"function": word}
        if cls is None or (cls in (Activation, Binary) and not values):
            raise TextError(f"unknown operator '{word}'", at.line, at.column)
        hints = _hints(cls)
        for field in dataclasses.fields(cls):
            if field.name in given and field.name not in values:
                token, raw = given.pop(field.name)
                values[field.name] = self._convert(hints[field.name], raw, token)
            elif field.default is dataclasses.MISSING and field.name not in values:
                if field.name not in _SPATIAL or not inputs:
                    raise TextError(f"'{word}' needs the attribute '{field.name}'", at.line, at.column)
                values[field.name] = (_SPATIAL[field.name],) * (self._values[inputs[0]].type.rank - 2)
        for name, (token, _) in given.items():
            raise TextError(f"'{word}' has no attribute '{name}'", token.line, token.column)
        return cls(**values)

    def _convert(self, hint: Any, raw: Any, at: Token) -> Any:
        """`raw` as an attribute of type `hint`."""
        if typing.get_origin(hint) is tuple and isinstance(raw, list):
            return tuple(self._convert(typing.get_args(hint)[0], item, at) for item in raw)
        kinds: dict[Any, Callable[[str], Any]] = {
            int: int, float: float, str: str, DType: _DTYPES.__getitem__,
            bool: {"true": True, "false": False}.__getitem__,
        }  # fmt: skip
        try:
            if isinstance(raw, str) and hint in kinds:
                return kinds[hint](raw)
        except (ValueError, KeyError):
            pass
        raise TextError(f"the value of '{at.text}' is of the wrong kind", at.line, at.column)

    # -- parts -------------------------------------------------------------------------------------------------

    def _raw_name(self) -> tuple[str, bool]:
        self._expect("%")
        synthetic = self._accept("'")
        return self._word(), synthetic

    def _reference(self) -> str:
        at = self._peek()
        name, synthetic = self._raw_name()
        value = self._values.get(name)
        if value is None or value.synthetic != synthetic:
            shown = f"%'{name}" if synthetic else f"%{name}"
            raise TextError(f"'{shown}' is not defined here", at.line, at.column)
        return name

    def _define(self, value: Value, at: Token) -> None:
        if value.name in self._values:
            raise TextError(f"'{value.name}' is defined twice", at.line, at.column)
        self._values[value.name] = value

    def _type(self) -> TensorType:
        at = self._peek()
        word = self._next_word("an element type")
        if word not in _DTYPES:
            raise TextError(f"unknown element type '{word}'", at.line, at.column)
        shape = tuple(self._list("[", "]", self._int))
        if not self._accept("quantized"):
            return TensorType(_DTYPES[word], shape)
        self._expect("(")
        scale = tuple(self._list("[", "]", self._float))
        self._expect(",")
        zero_point = tuple(self._list("[", "]", self._int))
        self._expect(",")
        axis = None if self._accept("None") else self._int()
        self._expect(")")
        return TensorType(_DTYPES[word], shape, Quantization(scale, zero_point, axis))

    def _element(self, dtype: DType) -> Any:
        if dtype is DType.BOOL:
            at = self._peek()
            word = self._word()
            if word not in ("true", "false"):
                raise TextError(f"expected true or false, found '{word}'", at.line, at.column)
            return word == "true"
        return self._float() if dtype.is_float else self._int()

    def _int(self) -> int:
        return self._number(int, "an integer")

    def _float(self) -> float:
        return self._number(float, "a number")

    def _number(self, kind: Callable[[str], Number], what: str) -> Number:
        token = self._peek()
        try:
            value = kind(token.text)
        except ValueError:
            raise self._error(what) from None
        self._at += 1
        return value

    def _list(self, begin: str, end: str, item: Callable[[], Any]) -> list[Any]:
        self._expect(begin)
        found: list[Any] = []
        if self._accept(end):
            return found
        found.append(item())
        while self._accept(","):
            found.append(item())
        self._expect(end)
        return found

    def _line_end(self) -> tuple[str, ...]:
        """The names in the comment that ends the statement; the lines up to the next one are skipped."""
        covers: tuple[str, ...] = ()
        if self._peek().kind == "comment":
            text = self._next().text.removeprefix("//").strip()
            if text.startswith('"'):
                covers = tuple(json.loads(match) for match in _STRING.findall(text))
        if self._peek().kind not in ("newline", "end") and self._peek().text != "}":
            raise self._error("the end of the line")
        self._skip_lines()
        return covers

    def _skip_lines(self) -> None:
        while self._peek().kind in ("newline", "comment"):
            self._at += 1

    # -- tokens ------------------------------------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _accept(self, text: str) -> bool:
        if self._peek().text != text or self._peek().kind == "string":
            return False
        self._at += 1
        return True

    def _expect(self, text: str, kind: str = "punct") -> None:
        if self._peek().text != text or self._peek().kind != kind:
            raise self._error(f"'{text}'")
        self._at += 1

    def _expect_word(self, text: str) -> None:
        self._expect(text, "word")

    def _word(self) -> str:
        """A bare word or a quoted one, as it is meant."""
        token = self._peek()
        if token.kind == "string":
            self._at += 1
            return str(json.loads(token.text))
        return self._next_word("a word")

    def _next_word(self, what: str) -> str:
        if self._peek().kind != "word":
            raise self._error(what)
        return self._next().text

    def _error(self, wanted: str) -> TextError:
        token = self._peek()
        return TextError(f"expected {wanted}, found {token.shown}", token.line, token.column)
