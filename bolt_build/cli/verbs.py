"""The verbs, their modules, and which of them a word could have meant."""

from __future__ import annotations

import argparse
import difflib
import importlib
from typing import Protocol, cast

VERBS = {
    "init": (
        "write a first recipe for an ONNX file, a zoo model or a PyTorch module, and say what would not build and why"
    ),
    "build": "build and verify the engines of recipes (the default verb)",
    "check": (
        "validate recipes, and with --model also their models; every mistake at once; --expand writes out every default"
    ),
    "plan": "print the steps, kernels and memory of an engine, and what the planner decided and why",
    "graph": "print the graph of a recipe's model, as imported or as optimised",
    "explain": (
        "say of each layer which kernel was chosen, over which others and why, and how near it is to the roofline"
    ),
    "report": "write one HTML page of engines: layers and rooflines, chains, tuning, errors, sizes, memory",
    "why": "say why tasks would run now, or why they ran last: all of recipes, or those of a task, a file or a layer",
    "explore": "build a recipe's model and each of its variants, time them in turns, and compare speed and parameters",
    "tune": "measure the kernels that a recipe's engine could use, and write the fastest to its lock",
    "verify": "compare built engines with the reference again, layer by layer",
    "emulate": "build GPU engines from the same sources for an emulated GPU, and verify them there, without a GPU",
    "run": "run a built engine on .npy, .npz or plain inputs",
    "bench": (
        "time built engines for each batch and, where they run on CPU threads, number of threads; also against peers"
    ),
    "diff": "compare two builds, two locks, or a build and a lock: kernels, sizes, errors, measured times",
    "package": (
        "pack built engines for those who use them: an archive for CMake and pkg-config with an example, a Python wheel"
    ),
    "clean": (
        "remove what was generated for recipes and their variants, or (--orphaned) for none that is there any more"
    ),
    "cache": "say what lies in the local cache or a team's store, check it, or make room in it",
    "operators": (
        "list the ONNX operators that can be imported, from which operator sets, and the kernels that compute them"
    ),
    "schema": "print the JSON Schema of recipes, with the targets and zoo models that are known here, for editors",
    "completion": "print what makes bash, zsh or fish complete verbs, options, targets, keys for --set and files",
    "doctor": "show the tools that building needs and the packages that add to it, and how to mend what is amiss",
}
"""What each verb does. Each is a module of this package. Only the one that is asked for is imported: `--help` none."""


class Verb(Protocol):
    """What a verb's module offers: its options, and what it does with them. `run` gives the exit code."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def verb_named(name: str) -> Verb:
    """The module of a verb of `VERBS`."""
    return cast("Verb", importlib.import_module(f"bolt_build.cli.{name}"))


def nearest_verb(word: str) -> str | None:
    """The verb that `word` could be a slip of; None where none is near."""
    near = difflib.get_close_matches(word.lower(), VERBS, 1, 0.6)
    return near[0] if near else None
