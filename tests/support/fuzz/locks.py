"""Locks of a small model that was tuned for the H200, changed by structure and by bytes, read and planned with."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import yaml
from fuzzing.bytes_mutation import mutated
from fuzzing.case import Case, Violation
from fuzzing.commands import bolt_build, shown
from fuzzing.json_mutation import exchanged, spoiled
from locked_net import RECIPE, new_net

from bolt_build.errors import BoltError
from bolt_build.lockfile.reading import Lock, load_lock, lock_text, updated_lock_text

LONG, SHORT = 2500, 25


@functools.cache
def _right() -> tuple[Lock, bytes, bytes]:
    """The lock of the model with its fastest kernels, its text, and the model's file."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            net = new_net()
            lock = Lock((net.tuned(),))
            return lock, lock_text(lock).encode(), Path("net.onnx").read_bytes()
        finally:
            os.chdir(before)


def case(random: Random) -> Case:
    """Most are changed by structure, and so are still YAML."""
    _, text, model = _right()
    if random.random() < 0.25:
        about, data = "bytes", mutated(random, text, [text, RECIPE.encode(), b"- &a [*a]\n"])
    else:
        change = random.choice((spoiled, exchanged))
        about, data = change.__name__, _dump(random, change(random, yaml.safe_load(text)))
    return Case(about, (("net.onnx", model), ("net.yaml", RECIPE.encode()), ("net.lock.yaml", data)))


def _dump(random: Random, data: Any) -> bytes:
    text: str = yaml.safe_dump(
        data, default_flow_style=random.choice((None, True, False)), allow_unicode=random.random() < 0.5,
        sort_keys=False, default_style=random.choice((None,) * 8 + ("'", '"')),
    )  # fmt: skip
    return text.encode("utf-8", "surrogatepass")


def check(case: Case, folder: Path) -> str:
    """A lock that is taken says the same when it is written again, can be tuned on, and can be planned with."""
    case.write(folder)
    path = folder / "net.lock.yaml"
    try:
        found = load_lock(path)
    except BoltError as error:
        said = bolt_build("plan", "net.yaml", codes=(3,))
        if not said.err.strip():
            raise Violation("a lock that is refused is planned with") from error
        return shown(error.diagnostics)
    again = folder / "again.lock"
    again.write_text(lock_text(found), encoding="utf-8")
    if load_lock(again) != found:
        raise Violation("written and read again it is another lock")
    (part,) = _right()[0].targets
    again.write_text(updated_lock_text(path, part), encoding="utf-8")
    others = [each for each in found.targets if each.target != part.target]
    if [each for each in load_lock(again).targets if each.target != part.target] != others:
        raise Violation("tuning one target changes another's part")
    done = bolt_build("plan", "net.yaml", codes=(0, 3, 6), most_text=None)
    return f"taken, exit {done.code}"
