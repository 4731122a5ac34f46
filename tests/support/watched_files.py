"""Which files of bolt-build a process opens, and which a folder of it has."""

from __future__ import annotations

from recipe_projects import ROOT

WATCHED = """\
import atexit, json, os, runpy, sys
package, told, *sys.argv = sys.argv[1:]
opened = set()
sys.addaudithook(lambda event, found: event == "open" and isinstance(found[0], str) and opened.add(found[0]))
def tell():
    loaded = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    root = os.path.dirname(os.path.dirname(package))
    files = {os.path.relpath(file, root) for file in opened | loaded if file.startswith(package)}
    with open(told, "w") as stream:
        json.dump(sorted(file for file in files if "__pycache__" not in file), stream)
atexit.register(tell)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""A program: PACKAGE/ TOLD SCRIPT [ARGUMENT...] runs the script, and writes what it opened of the package to TOLD."""


def files_of(path: str) -> list[str]:
    """The files of a folder that an action reads, or the file itself."""
    place = ROOT / path
    return [str(file.relative_to(ROOT)) for file in place.rglob("*")] if place.is_dir() else [path]
