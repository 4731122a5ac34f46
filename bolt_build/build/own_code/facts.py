"""What a plan was made from, as data. It stands in the plan and in the receipt of every task that ran for it: two of
them say why a task would run."""

from __future__ import annotations

from dataclasses import dataclass, field

from bolt_build.digest import UNSAID
from bolt_build.sizes import Dims

_MARK = 12


@dataclass(frozen=True)
class Versioned:
    """Something installed: a tool, a package, bolt-build itself. `mark` is the beginning of its files' digest."""

    name: str
    version: str
    mark: str


def versioned(name: str, version: str, digest: str) -> Versioned:
    """What is installed under a name, by the digest of its files."""
    return Versioned(name, version, short(digest))


def short(digest: str) -> str:
    """As much of a digest as facts keep: they stand in the receipt of every task."""
    return digest[:_MARK]


@dataclass(frozen=True)
class LockedKernel:
    """The kernel that a lock has for a problem (its digest), and the microseconds that it took."""

    problem: str
    kernel: str
    microseconds: float

    @property
    def text(self) -> str:
        return f"{self.kernel}, {self.microseconds:.3f} us"


@dataclass(frozen=True)
class BatchChoice:
    """What a lock says of the whole plan of a batch: `kind` is "cover" or "engine"; beside it the digest of what it
    says."""

    kind: str
    batch: int
    mark: str
    dims: Dims = field(default=(), metadata=UNSAID)


@dataclass(frozen=True)
class LockFacts:
    """What of a lock a plan is made from. Of the kernels that it could take, those that it takes stand by themselves,
    `others` is a digest of the rest. `other_graphs` is one of what is said of graphs that this engine has not, empty
    where nothing is. Without a `lock` (the file's name) kernels are chosen by prediction, and all else is empty."""

    lock: str | None = None
    gpu: str = ""
    kernels: tuple[LockedKernel, ...] = ()
    others: str = ""
    batches: tuple[BatchChoice, ...] = ()
    other_graphs: str = ""


@dataclass(frozen=True)
class Facts:
    """`recipe` are dotted keys with their values as text, `model` is the digest of its contents. `packages` are those
    that add to bolt-build. `lock` is None for a target that is not tuned."""

    recipe: tuple[tuple[str, str], ...] = ()
    model: str | None = None
    tools: tuple[Versioned, ...] = ()
    packages: tuple[Versioned, ...] = ()
    own: Versioned | None = None
    lock: LockFacts | None = None

    def tool(self, name: str) -> Versioned | None:
        """The tool called so, None where it took no part."""
        return next((tool for tool in self.tools if tool.name == name), None)

    def package(self, name: str) -> Versioned | None:
        """The package called so, None where it took no part."""
        return next((package for package in self.packages if package.name == name), None)


NO_FACTS = Facts()
