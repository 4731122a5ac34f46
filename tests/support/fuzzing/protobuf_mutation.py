"""Changes of any protobuf message that know its structure and not its meaning."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

_INTEGERS = (
    0, 1, 2, 3, 5, 7, 8, 9, 16, 17, 28, 64, 1000, -1, -2, 2**16, 2**31 - 1, 2**31, 2**32, 2**35, 2**40, 2**62,
    2**63 - 1, -(2**31), -(2**63),
)  # fmt: skip
_REALS = (0.0, 1.0, -1.0, 0.5, 1e-45, 3e38, float("inf"), float("-inf"), float("nan"))
_TEXTS = (
    "", "x", "y", "w", "ai.onnx", "ai.onnx.ml", ".", "..", "/", "/dev/zero", "/etc/passwd", "net.onnx", "w.bin", "a/b",
    "a\nb", '"; }', "*/", "\\", "\x1b[2J", "\0", "\u202e", "é" * 40, "n" * 5000, "Conv", "Relu", "If", "Loop", "Add",
    "Einsum", "0", "-1", "9" * 30, "value", "location", "offset", "SAME_UPPER", "edge",
)  # fmt: skip

_Place = tuple[Message, FieldDescriptor]


def changed(random: Random, message: Message, others: Sequence[Message]) -> str:
    """Changes one field somewhere in `message`, perhaps to what one of `others` has there. Says which."""
    places = [(inside, field) for inside in _messages(message) for field, _ in inside.ListFields()]
    # One kind of field as likely as another: most of a model's fields are the same few.
    kinds = sorted({field.full_name for _, field in places})
    if random.random() < 0.6:
        # Values rather than names and structure: what of a message is then still most of what it was.
        kinds = sorted({field.full_name for _, field in places if _is_value(field)}) or kinds
    kind = random.choice(kinds)
    inside, field = random.choice([place for place in places if place[1].full_name == kind])
    if random.random() < 0.1:
        inside, field = inside, random.choice(inside.DESCRIPTOR.fields)
    how = _change_several if field.is_repeated else _change_one
    return f"{how(random, inside, field, others)} {field.full_name.removeprefix('onnx.')}"


def _is_value(field: FieldDescriptor) -> bool:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return True
    return field.cpp_type in _NUMBERS and not field.name.endswith("version")


_NUMBERS = (
    FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64,
    FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE,
)  # fmt: skip


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)


def _change_one(random: Random, inside: Message, field: FieldDescriptor, others: Sequence[Message]) -> str:
    if random.random() < 0.15:
        inside.ClearField(field.name)
        return "without"
    if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
        getattr(inside, field.name).CopyFrom(_another(random, field, others))
        return "another"
    setattr(inside, field.name, _value(random, field, getattr(inside, field.name), others))
    return "other"


def _change_several(random: Random, inside: Message, field: FieldDescriptor, others: Sequence[Message]) -> str:
    held: Any = getattr(inside, field.name)
    is_message = field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE
    kind = random.randrange(6)
    if kind == 0 and held:
        del held[random.randrange(len(held))]
        return "one less of"
    if kind == 1 and held:
        again = held[random.randrange(len(held))]
        held.extend([again] * random.choice((1, 1, 1, 2, 8)))
        return "more of the same"
    if kind == 2 and len(held) > 1:
        items = [_copied(item) if is_message else item for item in held]
        random.shuffle(items)
        del held[:]
        held.extend(items)
        return "in another order"
    if kind == 3 and held:
        del held[:]
        return "no"
    if is_message:
        held.extend([_another(random, field, others)])
        return "one more"
    if held and kind == 4:
        index = random.randrange(len(held))
        held[index] = _value(random, field, held[index], others)
        return "another one of"
    held.append(_value(random, field, held[0] if held else None, others))
    return "one more"


def _another(random: Random, field: FieldDescriptor, others: Sequence[Message]) -> Message:
    """A message of the field's type from somewhere else, or an empty one."""
    found = [
        inner
        for inner in _messages(random.choice(others))
        if inner.DESCRIPTOR.full_name == field.message_type.full_name
    ]
    if found and random.random() < 0.9:
        return _copied(random.choice(found))
    return field.message_type._concrete_class()


def _copied(message: Message) -> Message:
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


def _value(random: Random, field: FieldDescriptor, old: Any, others: Sequence[Message]) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        return random.choice([value.number for value in field.enum_type.values])
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return random.choice(_REALS)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _bytes(random, old or b"") if field.type == FieldDescriptor.TYPE_BYTES else _text(random, field, others)
    bits = 31 if kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32) else 63
    lowest = 0 if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64) else -(2**bits)
    number = (
        random.choice(_INTEGERS) if random.random() < 0.8 or not isinstance(old, int) else old + random.choice((-1, 1))
    )
    return min(max(number, lowest), 2**bits - 1)


def _text(random: Random, field: FieldDescriptor, others: Sequence[Message]) -> str:
    """Text that stands in some field of the kind, or that readers are known to stumble over."""
    found = [
        value for inner in _messages(random.choice(others)) for other, value in inner.ListFields()
        if other.full_name == field.full_name and isinstance(value, str)
    ]  # fmt: skip
    return random.choice(found) if found and random.random() < 0.5 else random.choice(_TEXTS)


def _bytes(random: Random, old: bytes) -> bytes:
    """Raw data with another number in it, or of another length."""
    kind = random.randrange(4)
    if kind < 2 and len(old) >= 8:
        at = 8 * random.randrange(len(old) // 8)
        return old[:at] + struct.pack("<q", random.choice(_INTEGERS)) + old[at + 8 :]
    if kind == 2:
        return old[: random.randint(0, len(old))]
    return old + random.randbytes(random.randint(1, 8))
