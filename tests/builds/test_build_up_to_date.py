"""The one rule of staleness, and that everyone who asks gets its answer."""

from __future__ import annotations

import ast
import errno
from dataclasses import fields, replace

import pytest

from bolt_build.build.files import FileStamp, trouble
from bolt_build.build.own_code.facts import NO_FACTS
from bolt_build.build.own_code.own_sources import PACKAGE
from bolt_build.build.staleness.receipt import RECEIPT_VERSION, Receipt, task_key
from bolt_build.build.staleness.up_to_date import Fault, judge, output_faults
from bolt_build.build.tasks import Task, Value, ValueKind

TASK = Task(
    "t",
    "rule",
    "do it",
    ("tool", "a.txt"),
    ("a.txt",),
    ("b.txt", "c.txt"),
    (Value(ValueKind.TOOL, "cxx", "1"),),
    ("policy",),
)
FILES = {"a.txt": "aa", "b.txt": "bb", "c.txt": "cc"}


def stamped(*names: str) -> tuple[FileStamp, ...]:
    return tuple(FileStamp(name, FILES[name], 1, 1, 1) for name in names)


RECORD = Receipt(
    RECEIPT_VERSION, task_key(TASK, FILES), TASK.argv, TASK.values, stamped("a.txt"), stamped("b.txt", "c.txt"),
    NO_FACTS, 1.0,
)  # fmt: skip


def test_a_task_is_current_where_its_work_and_its_outputs_are_those_of_its_record() -> None:
    verdict = judge(TASK, RECORD, FILES.get, FILES.get)
    assert verdict.current
    assert verdict.key == RECORD.key


def test_a_task_without_a_record_is_stale() -> None:
    assert not judge(TASK, None, FILES.get, FILES.get).current


OTHER = {
    "name": "u", "rule": "other", "label": "other", "argv": ("tool", "b.txt"), "inputs": ("a.txt", "b.txt"),
    "outputs": ("b.txt",), "values": (Value(ValueKind.TOOL, "cxx", "2"),), "reads": (), "memory_mb": 1, "cached": False,
}  # fmt: skip
SAME_WORK = {"name", "label", "reads", "memory_mb", "cached"}
"""What a task is called, what is said of it, and where and when it runs changes nothing of what it makes."""


@pytest.mark.parametrize("field", [field.name for field in fields(Task)])
def test_every_field_of_a_task_counts_or_is_known_not_to(field: str) -> None:
    changed = replace(TASK, **{field: OTHER[field]})
    assert judge(changed, RECORD, FILES.get, FILES.get).same_work is (field in SAME_WORK)


def test_an_input_that_is_another_or_not_known_makes_it_stale() -> None:
    other, unknown = FILES | {"a.txt": "xx"}, {**FILES, "a.txt": None}
    assert judge(TASK, RECORD, other.get, FILES.get).key not in (None, RECORD.key)
    assert judge(TASK, RECORD, unknown.get, FILES.get).key is None
    for inputs in (other, unknown):
        assert not judge(TASK, RECORD, inputs.get, FILES.get).current


@pytest.mark.parametrize(
    ("record", "outputs", "faults"),
    [
        (RECORD, {"b.txt": "bb"}, (("c.txt", Fault.MISSING),)),
        (RECORD, {"b.txt": "xx", "c.txt": "cc"}, (("b.txt", Fault.EDITED),)),
        (None, {"b.txt": "bb"}, (("b.txt", Fault.UNKNOWN), ("c.txt", Fault.MISSING))),
        (replace(RECORD, outputs=stamped("b.txt")), {"b.txt": "bb", "c.txt": "cc"}, (("c.txt", Fault.UNKNOWN),)),
        (replace(RECORD, outputs=stamped("b.txt")), {"b.txt": "bb"}, (("c.txt", Fault.MISSING),)),
    ],
    ids=["gone", "edited", "no record", "of unknown origin", "not made yet"],
)
def test_what_is_wrong_with_outputs(
    record: Receipt | None, outputs: dict[str, str], faults: tuple[tuple[str, Fault], ...]
) -> None:
    assert output_faults(TASK, record, outputs.get) == faults
    assert not judge(TASK, record, FILES.get, outputs.get).current


def test_nobody_compares_keys_but_the_rule() -> None:
    """The forecast, SCons's decider and the task ask; none of them looks into a receipt's key itself."""
    found = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted((PACKAGE / "build").rglob("*.py"))
        if any(_compares_a_receipt(node) for node in ast.walk(ast.parse(path.read_text())))
    ]
    assert found == ["build/staleness/up_to_date.py"]


def _compares_a_receipt(node: ast.AST) -> bool:
    parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    return any(isinstance(part, ast.Attribute) and ast.unparse(part) == "receipt.key" for part in parts)


@pytest.mark.parametrize(
    ("name", "said"),
    [("a/.r.json.71.tmp", "a/r.json"), (".r.json.7.8.tmp", "r.json"), ("a.tmp", "a.tmp"), (".71.tmp", ".71.tmp")],
)
def test_a_file_that_cannot_be_written_is_called_by_the_name_that_it_would_get(name: str, said: str) -> None:
    assert trouble(OSError(errno.EROFS, "", name)).message == f"cannot write {said}: Read-only file system"
