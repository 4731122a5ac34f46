"""What one Python file depends on, read from its text: modules, entry points and files. Nothing of it is run."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_PATH_ITSELF = frozenset(("resolve", "absolute"))
_GROUPS_OF_OFFERS = frozenset(("plugged", "offers"))
"""Functions of `bolt_build.plugins` that look a group of entry points up: it is their first argument."""
_READERS = frozenset(("read_text", "read_bytes", "open"))


@dataclass(frozen=True)
class Imports:
    """What some of a file's code depends on; what only type checkers see is left out.

    `names` are dotted names of modules or of something in them; one whose last part only a run knows has `*` there, as
    `import_module(f"bolt_build.cli.{verb}")`. `groups` are the groups of entry points that it looks up. `reads` are
    files that it reads, as posix paths from its own folder, perhaps with `*`: a folder stands for all that lies below.
    """

    names: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModuleImports:
    """What importing a module takes, and what calling its functions may take beside."""

    at_once: Imports = Imports()
    later: Imports = Imports()


def imports_of(text: str, module: str, *, package: bool) -> ModuleImports:
    """What the file of `module` depends on; `package` says that it is a package's `__init__.py`.

    Raises SyntaxError.
    """
    tree = ast.parse(text)
    folder = module if package else module.rpartition(".")[0]
    constants = _constants(tree)
    at_once, later = _Reader(module, folder, constants), _Reader(module, folder, constants)
    for node, called in _walk(tree, called=False):
        # Entry points name what they stand for, and are loaded in functions.
        (later if called or _is_entry_point(node) else at_once).visit(node)
    return ModuleImports(at_once.found(), later.found())


def _walk(node: ast.AST, *, called: bool) -> Iterator[tuple[ast.AST, bool]]:
    """Every node but those that only type checkers see; True with those in functions."""
    yield node, called
    called = called or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    children: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and _for_type_checkers(node.test):
        children = node.orelse
    for child in children:
        yield from _walk(child, called=called)


def _is_entry_point(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _last_name(node.func) == "EntryPoint"


def _for_type_checkers(test: ast.expr) -> bool:
    return _last_name(test) == "TYPE_CHECKING"


def _last_name(node: ast.expr) -> str:
    """`c` of `a.b.c`; empty for what is no name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    """What the names of the module stand for that are given one value, at its top, and are used only below it."""
    found: dict[str, ast.expr] = {}
    seen: set[str] = set()
    for node in tree.body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        seen |= {part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)}
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for name in [target.id for target in targets if isinstance(target, ast.Name)]:
            if name in seen:
                found.pop(name, None)
            else:
                found[name] = node.value
            seen.add(name)
    return found


class _Reader:
    """Collects what the nodes of one file say."""

    def __init__(self, module: str, folder: str, constants: dict[str, ast.expr]) -> None:
        self._module, self._folder, self._constants = module, folder, constants
        self._names: set[str] = set()
        self._groups: set[str] = set()
        self._reads: set[str] = set()

    def found(self) -> Imports:
        return Imports(tuple(sorted(self._names)), tuple(sorted(self._groups)), tuple(sorted(self._reads)))

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            self._names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = self._absolute(node.module or "", node.level)
            self._names.update(base if alias.name == "*" else f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            self._call(node)

    def _absolute(self, name: str, level: int) -> str:
        """A relative import's module by its full name."""
        parts = self._folder.split(".")
        base = parts[: len(parts) - level + 1] if level else []
        return ".".join([*base, *([name] if name else [])])

    def _call(self, node: ast.Call) -> None:
        called = _last_name(node.func)
        if called in ("import_module", "__import__") and node.args:
            self._names.add(self._text(node.args[0]))
        elif called == "EntryPoint" and len(node.args) > 1:
            self._names.add(self._text(node.args[1]).partition(":")[0])
        elif called in _GROUPS_OF_OFFERS:
            given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "group")]
            self._groups.update(self._text(each) for each in given)
        elif called == "PackageLoader" and len(node.args) > 1:
            self._read(posixpath.join(self._package(node.args[0]), self._text(node.args[1])))
        elif called in _READERS:
            opened = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0] if node.args else None
            self._read(None if opened is None else self._path(opened))

    def _read(self, path: str | None) -> None:
        if path is not None:
            self._reads.add(posixpath.normpath(path))

    def _text(self, node: ast.expr) -> str:
        """The string that an expression gives, `*` for what only a run knows."""
        if isinstance(node, ast.Constant):
            return str(node.value)
        if isinstance(node, ast.JoinedStr):
            return "".join(self._text(part) for part in node.values)
        if isinstance(node, ast.FormattedValue):
            return self._text(node.value)
        if isinstance(node, ast.Name) and node.id == "__name__":
            return self._module
        value = self._constant(node)
        return "*" if value is None else self._text(value)

    def _constant(self, node: ast.expr) -> ast.expr | None:
        """What a name of the module stands for."""
        return self._constants.get(node.id) if isinstance(node, ast.Name) else None

    def _package(self, node: ast.expr) -> str:
        """The folder of a package as a path from this file's own."""
        name = self._text(node)
        return posixpath.join(*[".."] * len(self._folder.split(".")), *name.split("."))

    def _path(self, node: ast.expr) -> str | None:
        """The path that an expression gives, from this file's folder; None for one that has nothing to do with it."""
        if isinstance(node, ast.Name):
            value = self._constant(node)
            return None if value is None else self._path(value)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._joined(node.left, [node.right])
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            return self._above(node.value, 1)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
            levels = self._text(node.slice)
            return self._above(node.value.value, 1 + int(levels)) if levels.isdecimal() else None
        return self._path_of_call(node) if isinstance(node, ast.Call) else None

    def _path_of_call(self, node: ast.Call) -> str | None:
        called = _last_name(node.func)
        if called == "Path" and [_last_name(each) for each in node.args] == ["__file__"]:
            return "__file__"
        if called == "files" and node.args:
            return self._package(node.args[0])
        if not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr in _PATH_ITSELF:
            return self._path(node.func.value)
        if node.func.attr == "joinpath":
            return self._joined(node.func.value, node.args)
        if node.func.attr == "with_name":
            return self._joined(ast.Attribute(node.func.value, "parent", ast.Load()), node.args)
        return None

    def _joined(self, base: ast.expr, more: list[ast.expr]) -> str | None:
        path = self._path(base)
        return None if path is None else posixpath.join(path, *(self._text(each) for each in more))

    def _above(self, base: ast.expr, levels: int) -> str | None:
        path = self._path(base)
        return None if path is None else posixpath.normpath(posixpath.join(path, *[".."] * levels))
