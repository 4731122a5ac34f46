"""Digests of bolt-build's own files: what an action makes is only as current as the code that makes it.

Which files these are follows from the code itself: the modules that an action's module imports, at its top or in a
function, and those that they import; the files that they read; what installed packages add at entry points that they
look up; of C++, the headers that are included.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib.util
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bolt_build.build.own_code.facts import Versioned, versioned
from bolt_build.build.own_code.imports import Imports
from bolt_build.build.own_code.source_files import SourceFiles
from bolt_build.digest import digest
from bolt_build.plugins import GROUPS, Offer, offers
from bolt_build.toolchain.memory import memory_file

PACKAGE = Path(__file__).resolve().parents[2]


def code_digest(
    *modules: str, chosen: Sequence[str] = (), counts: Callable[[Offer], bool] = lambda offer: False
) -> str:
    """Digest of everything of bolt-build that running `modules` depends on.

    Where a module imports by a name that only a run knows, as `bolt_build.families.*.family`, those of `chosen` that
    fit count, and all that fit where none of these does. Of what installed packages add in groups that are looked up,
    those offers count that `counts` is true of, each with its package's version and files. Raises OSError.
    """
    return _own().code_digest(modules, chosen, counts)


def package_versions(counts: Callable[[Offer], bool]) -> tuple[Versioned, ...]:
    """Each installed package with an offer that `counts` is true of, by name. The digest is that of all files of what
    its entry points import. Raises OSError."""
    return _own().package_versions(counts)


def family_modules(families: Sequence[str]) -> tuple[str, ...]:
    """The modules that the built-in ones of these families are loaded from."""
    return tuple(f"bolt_build.families.{name}.family" for name in families)


def compiled_digest(families: Sequence[str]) -> str:
    """Digest of all that is compiled for a target of these families, or tells how: each task knows its part of it."""
    folders = [PACKAGE / "runtime", *(PACKAGE / "families" / name for name in families)]
    found = [tree_digest(folder) for folder in folders if folder.is_dir()]
    return digest([found, tree_digest(PACKAGE / "build" / "compile_cuda.py")])


def header_digest(sources: Sequence[Path], folders: Sequence[Path]) -> str:
    """Digest of C++ files and of all that they include, directly or not, from beside them or from `folders`.

    What is included from elsewhere is a tool's, and counts as such. Raises OSError.
    """
    return _own().header_digest(sources, folders)


def tree_digest(path: Path) -> str:
    """Digest of a file, or of the names and contents of all files below a directory but Python's own litter."""
    return _own().tree_digest(path)


@functools.cache
def _own() -> OwnSources:
    known = memory_file()
    name = f"sources-{digest(str(PACKAGE))[:16]}.json"
    return OwnSources(PACKAGE, SourceFiles(None if known is None else known.with_name(name)))


@dataclass(frozen=True)
class _Needs:
    """What code needs: other modules, those that fit patterns, files (digests by path), groups of entry points."""

    modules: tuple[str, ...]
    patterns: tuple[str, ...]
    files: Mapping[str, str]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class _Module:
    """A module's file, and what it needs: to be imported, and when its functions are called."""

    file: tuple[str, str]
    at_once: _Needs
    later: _Needs


@dataclass
class _Walk:
    """A walk along imports. `waiting` are modules to visit, with whether their functions may be called: those of a
    package that is imported because it stands above a module are not. `files` are digests by path."""

    waiting: list[tuple[str, bool]]
    files: dict[str, str] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)
    visited: set[tuple[str, bool]] = field(default_factory=set)


class OwnSources:
    """Digests of the package in the folder `package`. `installed` are the offers of the running environment."""

    def __init__(self, package: Path, files: SourceFiles, installed: Sequence[Offer] | None = None) -> None:
        self._package, self._files, self._installed = package, files, installed
        self._seen: dict[str, _Module] = {}
        self._headers: dict[tuple[tuple[Path, ...], tuple[Path, ...]], str] = {}

    def code_digest(
        self,
        modules: Sequence[str],
        chosen: Sequence[str] = (),
        counts: Callable[[Offer], bool] = lambda offer: False,
    ) -> str:
        """See `code_digest`."""
        files = self.code_files(modules, chosen, counts)
        found = digest([sorted(files.items())])
        self._files.save()
        return found

    def package_versions(self, counts: Callable[[Offer], bool]) -> tuple[Versioned, ...]:
        """See `package_versions`."""
        found: dict[tuple[str, str], dict[str, str]] = {}
        for offer in self._offers:
            if counts(offer):
                top = offer.module.partition(".")[0]
                found.setdefault((offer.package, offer.version), {})[top] = self._added(top)
        self._files.save()
        return tuple(
            versioned(name, version, digest(sorted(files.items()))) for (name, version), files in sorted(found.items())
        )

    def code_files(
        self,
        modules: Sequence[str],
        chosen: Sequence[str] = (),
        counts: Callable[[Offer], bool] = lambda offer: False,
    ) -> Mapping[str, str]:
        """What `code_digest` is taken of: digests by path (`bolt_build/digest.py`) or offer."""
        unknown = [module for module in modules if module not in self._modules]
        if unknown:
            raise ValueError(f"{self._package} has no module {', '.join(unknown)}")
        walk = _Walk([(module, True) for module in modules])
        while walk.waiting:
            step = walk.waiting.pop()
            if step not in walk.visited:
                walk.visited.add(step)
                self._visit(*step, walk, chosen)
        for offer in self._offers:
            if offer.group in walk.groups and counts(offer):
                walk.files[f"{offer.source}: {offer.group}: {offer.name} = {offer.value}"] = self._added(offer.module)
        return walk.files

    def header_digest(self, sources: Sequence[Path], folders: Sequence[Path]) -> str:
        """See `header_digest`. Files are looked at once in the life of a process, and so are those they include."""
        asked = tuple(sources), tuple(folders)
        if asked not in self._headers:
            self._headers[asked] = self._reached(*asked)
            self._files.save()
        return self._headers[asked]

    def _reached(self, sources: Sequence[Path], folders: Sequence[Path]) -> str:
        found: dict[Path, str] = {}
        waiting = list(sources)
        while waiting:
            path = waiting.pop()
            if path not in found:
                file = self._files.of(path)
                found[path] = file.digest
                waiting += [
                    there for name in file.includes if (there := _included(name, [path.parent, *folders])) is not None
                ]
        return digest(sorted((path.name, mark) for path, mark in found.items()))

    def tree_digest(self, path: Path) -> str:
        """See `tree_digest`."""
        found = self._tree(path)
        self._files.save()
        return found

    def _tree(self, path: Path) -> str:
        if path.is_file():
            return self._files.of(path).digest
        return digest([[name, self._files.of(path / name).digest] for name in _below(path)])

    @functools.cached_property
    def _modules(self) -> dict[str, str]:
        """Paths of all modules, from the package's parent, by their names."""
        paths = (f"{self._package.name}/{name}" for name in _below(self._package) if name.endswith(".py"))
        return {path[:-3].removesuffix("/__init__").replace("/", "."): path for path in paths}

    @property
    def _offers(self) -> tuple[Offer, ...]:
        if self._installed is not None:
            return tuple(self._installed)
        return tuple(offer for group in GROUPS for offer in offers(group))

    def _visit(self, name: str, called: bool, walk: _Walk, chosen: Sequence[str]) -> None:
        if name not in self._seen:
            self._seen[name] = self._look(name)
        module = self._seen[name]
        walk.files.update([module.file])
        above = name.rpartition(".")[0]
        if above:
            walk.waiting.append((above, False))
        for needs in (module.at_once, module.later) if called else (module.at_once,):
            walk.files |= needs.files
            walk.groups.update(needs.groups)
            fitting = (each for pattern in needs.patterns for each in self._resolved(pattern, chosen))
            walk.waiting += [(each, True) for each in (*needs.modules, *fitting)]

    def _look(self, name: str) -> _Module:
        path = self._modules[name]
        file = self._files.of(self._package.parent / path, name)
        folder = posixpath.dirname(path)
        at_once, later = (self._needs(found, folder) for found in (file.imports.at_once, file.imports.later))
        return _Module((path, file.digest), at_once, later)

    def _needs(self, imports: Imports, folder: str) -> _Needs:
        files: dict[str, str] = {}
        for read in imports.reads:
            files |= self._read(posixpath.normpath(posixpath.join(folder, read)))
        patterns = tuple(name for name in imports.names if "*" in name)
        modules = {each for name in imports.names if "*" not in name for each in self._resolved(name, ())}
        return _Needs(tuple(sorted(modules)), patterns, files, imports.groups)

    def _resolved(self, name: str, chosen: Sequence[str]) -> tuple[str, ...]:
        """The modules that a dotted name means; none for what is not of the package."""
        if "*" in name:
            fitting = fnmatch.filter(self._modules, name)
            return tuple(each for each in fitting if each in chosen) or tuple(fitting)
        # The last part may be something in a module.
        above = name.rpartition(".")[0]
        return next(((each,) for each in (name, above) if each in self._modules), ())

    def _read(self, pattern: str) -> dict[str, str]:
        """Digests of what a module reads, by path; nothing for what lies outside of the package."""
        if not pattern.startswith(f"{self._package.name}/"):
            return {}
        root = self._package.parent
        paths = root.glob(pattern) if "*" in pattern else [root / pattern]
        return {path.relative_to(root).as_posix(): self._tree(path) for path in paths if path.exists()}

    def _added(self, module: str) -> str:
        """Digest of the package that adds something at an entry point, empty where it is not there any more."""
        try:
            spec = importlib.util.find_spec(module.partition(".")[0])
        except (ImportError, ValueError):
            return ""
        if spec is None:
            return ""
        places = list(spec.submodule_search_locations or [spec.origin or ""])
        return digest([self._tree(Path(place)) for place in places if os.path.exists(place)])


def _below(directory: Path) -> list[str]:
    """All files below a directory but Python's own litter, as sorted posix paths from it."""
    found = []
    root = str(directory)
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        inside = folder[len(root) + 1 :]
        found += [f"{inside}/{name}" if inside else name for name in names]
    return sorted(found)


def _included(name: str, folders: Iterable[Path]) -> Path | None:
    """The file that `#include` finds; None for one of the system's or of a tool."""
    return next((Path(path) for folder in folders if os.path.isfile(path := f"{folder}/{name}")), None)
