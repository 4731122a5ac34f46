"""C++ spellings: string literals, comments, and the words by which generated comments name ops and tensors."""

from __future__ import annotations

import dataclasses
from enum import Enum

from bolt_build.families.base import Candidate, KernelProblem, Operand
from bolt_build.graph.ir import Op


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
    plain = (char.isprintable() and char != "\\" for char in text)
    return "".join(
        char if keep else char.encode("unicode_escape").decode() for char, keep in zip(text, plain, strict=True)
    )


def op_text(op: Op) -> str:
    """The op's kind and attributes: "conv strides=(2, 2) groups=1"."""
    fields = [f"{f.name}={_value(getattr(op, f.name))}" for f in dataclasses.fields(op) if f.init]
    return " ".join([op.kind, *fields])


def _value(value: object) -> str:
    return str(value.value) if isinstance(value, Enum) else str(value)


def problem_text(problem: KernelProblem) -> tuple[str, ...]:
    """One line for the op, one for each stage of the epilogue."""
    lines = [op_text(problem.op)]
    for stage in problem.epilogue:
        side = " on the left" if stage.swapped else ""
        operand = "" if stage.operand is None else f" with in{stage.operand}{side}"
        lines.append(f"then {op_text(stage.op)}{operand}")
    return tuple(lines)


def kernel_text(candidate: Candidate) -> str:
    """Family and parameters: "onednn algorithm=direct"."""
    return " ".join([candidate.family, *(f"{name}={value}" for name, value in candidate.parameters)])


def operand_text(operand: Operand) -> str:
    """Type, layout and shape: "f32/row [32, 3, 224, 224]"."""
    return f"{operand.format} {list(operand.shape)}"
