"""Why a task would run, as data, a class a cause; `text` is the sentence that people read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from bolt_build.build.own_code.facts import LockedKernel
from bolt_build.build.staleness.up_to_date import Fault
from bolt_build.errors import Mark

_TOOL_NAMES = {"cxx": "the C++ compiler", "cutlass": "CUTLASS", "onednn": "oneDNN"}
_ABSENT = "absent"
NEVER_BUILT = "not built yet"
"""The reason of a task that nothing is known of."""
NEVER_VERIFIED = "not verified yet"
"""That of verification: the engine may be built, elsewhere or where no GPU ran it."""


@dataclass(frozen=True)
class Change(ABC):
    """A cause."""

    @property
    @abstractmethod
    def text(self) -> str:
        """A sentence without its full stop."""


@dataclass(frozen=True)
class NeverBuilt(Change):
    """Nothing is known of the task, which may be verification."""

    verification: bool = False

    @property
    def text(self) -> str:
        return NEVER_VERIFIED if self.verification else NEVER_BUILT


@dataclass(frozen=True)
class OutputFault(Change):
    """An output is gone, or not what was made."""

    name: str
    fault: Fault

    @property
    def text(self) -> str:
        return f"output {self.name} " + ("is missing" if self.fault is Fault.MISSING else "was changed by hand")


@dataclass(frozen=True)
class RecipeChange(Change):
    """A key of the recipe has another value; None where the recipe does not have it."""

    key: str
    old: str | None
    new: str | None
    mark: Mark | None

    @property
    def text(self) -> str:
        return f"{self.key} changed{_where(self.mark)}: {_or_absent(self.old)} -> {_or_absent(self.new)}"


class Part(Enum):
    """What of a model has changed: it, its weights alone, or more than that."""

    SOMETHING = "changed"
    WEIGHTS = "weights alone"
    LAYERS = "other layers or shapes"


@dataclass(frozen=True)
class ModelChange(Change):
    """`name` is its file's, or "the model"."""

    name: str
    part: Part = Part.SOMETHING

    @property
    def text(self) -> str:
        return f"{self.name} changed" if self.part is Part.SOMETHING else f"{self.name}: {self.part.value}"


@dataclass(frozen=True)
class KernelChange:
    """A kernel of the engine, by the layers that it computes. Of two of one family only what differs is said."""

    place: str
    old: LockedKernel | None
    new: LockedKernel | None

    @property
    def text(self) -> str:
        if self.old is None or self.new is None:
            old, new = (_ABSENT if each is None else each.text for each in (self.old, self.new))
            return f"{self.place}: {old} -> {new}"
        before, now = self.old.kernel.split(), self.new.kernel.split()
        times = [f"{each.microseconds:.3f} us" for each in (self.old, self.new)]
        if before == now:
            return f"{self.place}: {self.new.kernel}: {times[0]} -> {times[1]}"
        left, right = [word for word in before if word not in now], [word for word in now if word not in before]
        if before[0] != now[0] or not left or not right:
            return f"{self.place}: {self.old.text} -> {self.new.text}"
        return f"{self.place}: {before[0]} {' '.join(left)}, {times[0]} -> {' '.join(right)}, {times[1]}"


@dataclass(frozen=True)
class LockChange(Change):
    """The lock called `key` in the recipe says otherwise: some kernels by name, and how many more choices."""

    key: str
    mark: Mark | None
    kernels: tuple[KernelChange, ...]
    more: int

    @property
    def text(self) -> str:
        named = [kernel.text for kernel in self.kernels]
        if self.more:
            named.append(f"{self.more} {'other ' if named else ''}choice{'s' * (self.more != 1)}")
        return f"{self.key} changed{_where(self.mark)}: {'; '.join(named)}"


@dataclass(frozen=True)
class ToolChange(Change):
    """Of a tool: its versions before and now; None where it took no part before."""

    name: str
    old: str | None
    new: str | None

    @property
    def text(self) -> str:
        name = _TOOL_NAMES.get(self.name, self.name)
        if self.old is not None and self.old != self.new:
            return f"{name} changed {self.old} -> {_or_absent(self.new)}"
        return f"{name} changed (still {_or_absent(self.new)})"


@dataclass(frozen=True)
class PackageChange(Change):
    """Of an installed package that adds to bolt-build: its versions before and now, None where it was or is not
    there."""

    name: str
    old: str | None
    new: str | None

    @property
    def text(self) -> str:
        old, new = _or_absent(self.old), _or_absent(self.new)
        return (
            f"package {self.name} changed {old} -> {new}"
            if old != new
            else f"package {self.name} changed (still {new})"
        )


@dataclass(frozen=True)
class OwnChange(Change):
    """Of bolt-build itself: its versions before and now."""

    old: str | None = None
    new: str | None = None

    @property
    def text(self) -> str:
        versions = f" {self.old} -> {_or_absent(self.new)}" if self.old is not None and self.old != self.new else ""
        return f"bolt-build itself changed{versions}"


class Of(Enum):
    """What of a task changed where no more is known."""

    COMMAND = "its command"
    INPUTS = "its inputs"


@dataclass(frozen=True)
class TaskChange(Change):
    """The task itself changed, and nothing says through what."""

    of: Of

    @property
    def text(self) -> str:
        return f"{self.of.value} changed"


@dataclass(frozen=True)
class FileChange(Change):
    """A file that is nobody's result."""

    path: str

    @property
    def text(self) -> str:
        return f"{self.path} changed"


def _where(mark: Mark | None) -> str:
    return f" ({mark.file}:{mark.line})" if mark is not None else ""


def _or_absent(value: str | None) -> str:
    return _ABSENT if value is None else value


def texts(changes: Sequence[Change]) -> tuple[str, ...]:
    """Their sentences, each once."""
    return tuple(dict.fromkeys(change.text for change in changes))
