"""What installed packages add through their entry points, loaded and checked.

The name of an entry point is the name of what it adds, so that what there is, and whether two packages add the same, is
known without running anybody's code; only what is asked for is imported. What is built in has no entry point and is
looked up in the same tables. Whatever is wrong with an offer is a `Diagnostic` that names the package.
"""

from __future__ import annotations

import functools
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from importlib.metadata import distributions
from typing import Any, Generic, TypeVar, cast

from bolt_build.errors import BoltError, Diagnostic

T = TypeVar("T")

GROUPS = {
    "bolt_build.ops": "operator",
    "bolt_build.families": "kernel family",
    "bolt_build.passes": "pass",
    "bolt_build.targets": "target",
    "bolt_build.tools": "tool",
    "bolt_build.zoo": "zoo model",
    "bolt_build.peers": "peer",
}
"""What a package adds through each group of entry points."""
_IDENTIFIERS = ("bolt_build.families", "bolt_build.tools")
"""Groups whose names stand in the commands of tasks."""


def names_below(package: str, folders: Iterable[str]) -> list[str]:
    """Of what is built in by lying in a folder: the modules below `package`, whose `__path__` is `folders`, as
    `norms.lrn` of `norms/lrn.py`. Their order is that of the files' own names, so moving a file changes nothing."""
    found = pkgutil.walk_packages(folders, f"{package}.")
    names = (each.name.removeprefix(f"{package}.") for each in found if not each.ispkg)
    return sorted(names, key=lambda name: name.rpartition(".")[2])


@dataclass(frozen=True)
class Offer:
    """One entry point of an installed package: of its group, its name, and the object that `value` names."""

    group: str
    name: str
    value: str
    package: str
    version: str

    @property
    def module(self) -> str:
        """The module that is imported for it."""
        return self.value.partition(":")[0].strip()

    @property
    def what(self) -> str:
        """`pass 'fold-twice'`"""
        return f"{GROUPS[self.group]} '{self.name}'"

    @property
    def source(self) -> str:
        """`package bolt-build-example 1.0`"""
        return f"package {self.package} {self.version}"


@dataclass(frozen=True)
class Plugged(Generic[T]):
    """What an offer names, loaded and of the right kind."""

    offer: Offer
    thing: T


@dataclass(frozen=True)
class Found(Generic[T]):
    """What could be loaded of a group, by name, and what is wrong with the rest."""

    plugged: tuple[Plugged[T], ...]
    problems: tuple[Diagnostic, ...]

    def checked(self) -> tuple[Plugged[T], ...]:
        """All that was asked for. Raises BoltError with every problem."""
        if self.problems:
            raise BoltError(self.problems)
        return self.plugged


def remembered(call: Callable[[], T]) -> Callable[[], T]:
    """`call`, once for each `sys.path`: that decides which packages there are, and looking takes milliseconds."""
    known: dict[tuple[str, ...], T] = {}

    @functools.wraps(call)
    def run() -> T:
        path = tuple(sys.path)
        if path not in known:
            known[path] = call()
        return known[path]

    return run


def offers(group: str) -> tuple[Offer, ...]:
    """The offers of all installed packages in a group of `GROUPS`, by name and package. Imports none of them."""
    return tuple(offer for offer in _installed() if offer.group == group)


def plugged(
    *,
    group: str,
    own: Collection[str],
    check: Callable[[Any], str | None],
    only: Collection[str] | None = None,
) -> Found[Any]:
    """What packages add in `group`, or of that what is called as one of `only`.

    `own` are the names of what is built in. `check` says why an object is not what the group is for ("is no Pass but a
    str"), None where it is. An offer of a name that is taken, one that cannot be imported, and one that is something
    else are problems.
    """
    asked = [offer for offer in offers(group) if only is None or offer.name in only]
    problems = conflicts(asked, own)
    taken = {offer.name for offer in asked if sum(each.name == offer.name for each in asked) > 1} | set(own)
    found: list[Plugged[Any]] = []
    for offer in asked:
        if offer.name in taken:
            continue
        try:
            thing = load(offer)
            reason = check(thing) or _misnamed(offer, thing)
        except BoltError as error:
            problems += error.diagnostics
        else:
            if reason is None:
                found.append(Plugged(offer, thing))
            else:
                problems.append(refused(offer, f"it {reason}"))
    return Found(tuple(found), tuple(problems))


def load(offer: Offer) -> Any:
    """The object that the offer names. Raises BoltError ("broken-plugin") for whatever importing it raises."""
    try:
        return pkgutil.resolve_name(offer.value)
    except (Exception, SystemExit) as error:  # another package's code
        raise BoltError([refused(offer, _said(error))]) from error


def conflicts(asked: Iterable[Offer], own: Collection[str]) -> list[Diagnostic]:
    """One diagnostic for each name that several packages add, or one adds that is built in."""
    by_name: dict[str, list[Offer]] = {}
    for offer in asked:
        by_name.setdefault(offer.name, []).append(offer)
    found = []
    for name, same in by_name.items():
        (first, *others) = same
        if name in own:
            found += [_conflict(offer, "bolt-build itself has") for offer in same]
        elif others:
            found += [_conflict(offer, f"the {first.source} adds too") for offer in others]
    return found


def refused(offer: Offer, reason: str) -> Diagnostic:
    """That an offer cannot be used, and what to do about it."""
    return Diagnostic(
        "broken-plugin", f"the {offer.source} cannot add its {offer.what} ({offer.value}): {reason}",
        hint=_mend(offer), subject=offer.package,
    )  # fmt: skip


def failed(offer: Offer, error: BaseException) -> BoltError:
    """That the code behind an offer raised what it may not raise."""
    message = f"the {offer.what} of the {offer.source} failed: {_said(error)}"
    return BoltError([Diagnostic("failed-plugin", message, hint=_mend(offer), subject=offer.package)])


def guarded(offer: Offer, thing: T) -> T:
    """`thing` with all exceptions of its methods turned into `failed`, but BoltError."""
    return cast("T", _Guarded(offer, thing))


class _Guarded:
    def __init__(self, offer: Offer, thing: object) -> None:
        self._offer, self._thing = offer, thing

    def __getattr__(self, name: str) -> Any:
        try:
            value = getattr(self._thing, name)
        except Exception as error:  # a property of another package's class
            raise failed(self._offer, error) from error
        return guarded_call(self._offer, value) if callable(value) else value


def guarded_call(offer: Offer, call: Callable[..., T]) -> Callable[..., T]:
    """`call` with all exceptions turned into `failed`, but BoltError."""

    @functools.wraps(call)
    def run(*given: Any, **named: Any) -> T:
        try:
            return call(*given, **named)
        except BoltError:
            raise
        except Exception as error:  # another package's code
            raise failed(offer, error) from error

    return run


def is_a(kind: type) -> Callable[[Any], str | None]:
    """A check for `plugged`: an object of class `kind`."""

    def check(thing: Any) -> str | None:
        return None if isinstance(thing, kind) else f"is no {kind.__name__} but a {type(thing).__name__}"

    return check


def has(what: str, *attributes: str) -> Callable[[Any], str | None]:
    """A check for `plugged`: an object, no class, with the attributes of the protocol `what`."""

    def check(thing: Any) -> str | None:
        if isinstance(thing, type):
            return f"is a class: name an object of {thing.__name__}"
        lacks = [name for name in attributes if not hasattr(thing, name)]
        return f"is no {what}: it has no {', '.join(lacks)}" if lacks else None

    return check


def _misnamed(offer: Offer, thing: object) -> str | None:
    """A reason where an object calls itself otherwise than its entry point does."""
    if offer.group in _IDENTIFIERS and not offer.name.isidentifier():
        return "must have a name of letters, digits and underscores"
    name = getattr(thing, "name", offer.name)
    return None if name == offer.name else f"calls itself '{name}': call the entry point so"


def _conflict(offer: Offer, other: str) -> Diagnostic:
    message = f"the {offer.source} adds the {offer.what}, which {other}"
    return Diagnostic("conflicting-plugin", message, hint=_mend(offer), subject=offer.package)


def _mend(offer: Offer) -> str:
    return f"upgrade the package, or remove it: python -m pip uninstall {offer.package}"


def _said(error: BaseException) -> str:
    """What was raised, in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@remembered
def _installed() -> tuple[Offer, ...]:
    """All offers of installed packages, by group, name and package. Of a package that is there twice the first counts,
    as for imports."""
    found: dict[str, tuple[Offer, ...]] = {}
    for package in distributions():
        entries = [entry for entry in package.entry_points if entry.group in GROUPS]
        if entries:
            name, version = package.metadata["Name"], package.version
            of_this = tuple(Offer(entry.group, entry.name, entry.value, name, version) for entry in entries)
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), of_this)
    every = {offer for of_one in found.values() for offer in of_one}
    return tuple(sorted(every, key=lambda offer: (offer.group, offer.name, offer.package)))
