"""C++ spellings: string literals, comments, and the words by which generated comments name ops and tensors."""

from __future__ import annotations

import dataclasses
from enum import Enum

from bolt_build.families.base import Candidate, KernelProblem, Operand
from bolt_build.graph.ir import EpilogueOp, Op

_WIDTH = 118


def c_string(text: str) -> str:
    """`text` as a C string literal of its UTF-8 bytes."""
    out = []
    for byte in text.encode():
        char = chr(byte)
        if char in '"\\':
            out.append("\\" + char)
        elif char == "\n":
            out.append("\\n")
        elif 32 <= byte < 127 and char != "?":
            out.append(char)
        elif char == "?":  # no trigraphs
            out.append("\\?")
        else:
            out.append(f"\\{byte:03o}")
    return '"' + "".join(out) + '"'


def raw_string(text: str) -> str:
    """`text` as a C++ raw string literal, whatever it contains."""
    mark, count = "text", 0
    while f"){mark}" in text:
        count += 1
        mark = f"text{count}"
    return f'R"{mark}({text}){mark}"'


def comment(text: str) -> str:
    """`text` for a `//` comment: one line, printable, and not ending in what would swallow the next line."""
    return "".join(_printable(char) for char in text)


def _printable(char: str) -> str:
    if char == "\\":
        return "\\x5c"  # doubled it would still join the next line to the comment
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def wrapped(code: str, indent: int) -> str:
    """C++ arguments, or a call, on lines of `indent` spaces where they would not fit one: one argument a line, and the
    members of an argument that is still too long as many a line as fit.

    Of the text only where it may break is found, nothing of what it says: families of other packages hand over C++.
    """
    if len(code) + indent <= _WIDTH:
        return code
    level = 1 if code.endswith(";") else 0  # a call's arguments stand in its brackets
    lines = []
    for piece in _pieces(code, level):
        lines.extend(_filled(piece, indent) if len(piece) + indent > _WIDTH else [piece])
    return ("\n" + " " * indent).join(lines)


def _filled(piece: str, indent: int) -> list[str]:
    lines = [""]
    for part in _pieces(piece, 1):
        if lines[-1] and len(lines[-1]) + 1 + len(part) + indent > _WIDTH:
            lines.append("   ")
        lines[-1] += f" {part}" if lines[-1] else part
    return lines


def _pieces(code: str, level: int) -> list[str]:
    """`code` cut behind its commas inside `level` brackets; strings and blanks elsewhere as they are."""
    pieces, depth, start, quoted = [], 0, 0, False
    for at, char in enumerate(code):
        if char == '"' and code[at - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (char in "([{") - (char in ")]}")
            if char == "," and depth == level:
                pieces.append(code[start : at + 1].strip())
                start = at + 1
    return [*pieces, code[start:].strip()]


def op_text(op: Op) -> str:
    """The op's kind and attributes: "conv strides=(2, 2) groups=1"."""
    fields = [f"{f.name}={_value(getattr(op, f.name))}" for f in dataclasses.fields(op) if f.init]
    return " ".join([op.kind, *fields])


def _value(value: object) -> str:
    return str(value.value) if isinstance(value, Enum) else str(value)


def problem_text(problem: KernelProblem) -> tuple[str, ...]:
    """One line for the op, one for each stage of the epilogue; of products in one kernel, those of all behind each
    other."""
    lines: list[str] = []
    for call in problem.calls:
        lines += [f"then {op_text(call.op)}" if lines else op_text(call.op), *map(_stage, call.stages)]
    return tuple(lines)


def _stage(stage: EpilogueOp) -> str:
    side = " on the left" if stage.swapped else ""
    operand = "" if stage.operand is None else f" with in{stage.operand}{side}"
    return f"then {op_text(stage.op)}{operand}"


def kernel_text(candidate: Candidate) -> str:
    """Family and parameters: "onednn algorithm=direct"."""
    return " ".join([candidate.family, *(f"{name}={value}" for name, value in candidate.parameters)])


def operand_text(operand: Operand) -> str:
    """Type, layout and shape: "f32/row [32, 3, 224, 224]"."""
    return f"{operand.format} {list(operand.shape)}"
