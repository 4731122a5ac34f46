"""What bolt-build reads that others wrote, one module a kind of input, each of which makes inputs at random and feeds
them to the code that reads them. `fuzzing` runs them; `test_fuzz.py` a few of each kind,
`benchmarks/endurance/fuzz.py` many.

A kind is a module of this folder with

    LONG, SHORT                  how many cases the long run and the test command take
    case(random) -> Case         one input, of nothing but what `random` says
    check(case, folder) -> str   feeds it to the real entry point, in the empty current folder `folder`, and says in a
                                 few words how that ended ("exit 3"); raises `Violation` for what must not be
    prepare(folder)              optional: what a worker makes once before its first case, such as a program

A case that takes over 10 s of CPU time, 60 s in all or 2 GB, or that ends the process, is a violation without a word
of the module's.
"""

from __future__ import annotations

import importlib
import pkgutil

from fuzzing.case import Kind


def names() -> tuple[str, ...]:
    """Every kind of input, in alphabetical order."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def kind(name: str) -> Kind:
    """The kind called `name`: a module of this folder, or any other by its dotted name. Raises ModuleNotFoundError."""
    module: Kind = importlib.import_module(name if "." in name else f"fuzz.{name}")
    return module
