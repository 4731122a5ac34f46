"""What planning made of one target: the plan, and every file that its tasks read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from bolt_build.build.files import stamp, told, unlink, write_text
from bolt_build.build.layout import TargetDirectory
from bolt_build.build.planning.plan_file import PlanFile, save_plan_file
from bolt_build.digest import digest_bytes
from bolt_build.errors import Diagnostic
from bolt_build.planner.kernel_sources import KernelSource
from bolt_build.toolchain import Tool

if TYPE_CHECKING:
    from bolt_build.emit.weights import WeightsContent


@dataclass(frozen=True)
class PreparedWeights:
    """A weights file that is about to be written: its name, and what is to be in it."""

    name: str
    content: WeightsContent

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file in hex."""
        return self.content.digest()


@dataclass(frozen=True)
class PreparedTarget:
    """The plan of one target. `contents` (text files to write, by name) are there where the plan was just made, and
    `weights` where the model was planned; `obsolete` are files of an earlier plan that this one does not have.

    `touched` says that the model's files have new times but the same contents. `unverified` is the tool that is missing
    to verify the engine, `elsewhere` why it does not run on this machine. `kernels` says where its kernels come from
    (None where that is no question), `notes` and `warnings` what is to be told about it.
    Planning it took `planning` seconds, None where the plan was there.
    """

    directory: TargetDirectory
    plan: PlanFile
    unverified: Tool | None
    elsewhere: str | None = None
    contents: tuple[tuple[str, str], ...] = ()
    weights: PreparedWeights | None = None
    obsolete: tuple[str, ...] = ()
    touched: bool = False
    kernels: KernelSource | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    planning: float | None = None

    @property
    def fresh(self) -> bool:
        """True where the plan differs from what lies in the directory."""
        return bool(self.contents)

    def foreseen(self) -> dict[str, str]:
        """Digests, by name, of the files that are about to be written."""
        found = {name: digest_bytes(text.encode()) for name, text in self.contents}
        return found if self.weights is None else found | {self.weights.name: self.weights.digest}

    def written(self) -> PreparedTarget:
        """Put the plan in its place. `plan.json` goes first and comes last: while it is there the rest is its own.

        Returns the target with nothing left to write. Raises BoltError where it cannot be written.
        """
        if self.touched:
            with told(self.directory.plan):
                save_plan_file(self.directory.plan, self.plan)
        if not self.fresh:
            return self
        with told(self.directory.path):
            self.directory.path.mkdir(parents=True, exist_ok=True)
            unlink(self.directory.plan)
            for name in self.obsolete:
                unlink(self.directory.path / name)
            for name, text in self.contents:
                path = self.directory.path / name
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.is_file() or path.read_bytes() != text.encode():
                    write_text(path, text)
            self._write_weights()
            kept = [file for file in self.plan.made if self.weights is None or file.path != self.weights.name]
            names = [name for name, _ in self.contents] + ([] if self.weights is None else [self.weights.name])
            made = (*(stamp(self.directory.path / name, name) for name in names), *kept)
            plan = replace(self.plan, made=made)
            save_plan_file(self.directory.plan, plan)
        return replace(self, plan=plan, contents=(), weights=None, obsolete=())

    def _write_weights(self) -> None:
        if self.weights is None:
            return
        path = self.directory.path / self.weights.name
        if not path.is_file() or stamp(path).digest != self.weights.digest:
            self.weights.content.write(path)
