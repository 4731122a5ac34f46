"""ONNX models: small right ones of every kind and ONNX's own, changed by structure and by bytes, imported and planned
for a target, and the plan emitted."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from random import Random

from fuzzing.bytes_mutation import mutated
from fuzzing.case import Case, Violation
from fuzzing.commands import bolt_build
from fuzzing.model_drawing import drawn, plain
from fuzzing.protobuf_mutation import changed

LONG, SHORT = 20_000, 60

_TARGETS = ("host", "host", "h200", "t4")
_BATCHES = ("", "", "", "batch: 1, ", "batch: [1, 3], ")
_VERBS = ("plan", "check --model")
_SAID = re.compile(r"^.*error\[[a-z-]+\]: .*$", re.MULTILINE)


def case(random: Random) -> Case:
    """Most are changed in one to four places of their structure: those get furthest."""
    model, files = drawn(random)
    about = model.graph.name
    if random.random() < 0.15:
        data = mutated(random, model.SerializeToString(), [other.SerializeToString() for other in plain()])
        about += ", bytes"
    else:
        for _ in range(random.choice((1, 1, 1, 2, 2, 3, 4))):
            about += f"; {changed(random, model, plain())}"
        data = model.SerializeToString()
    open_ = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim[1:]} - {"", "N"}
    dims = json.dumps({name: random.choice((5, 5, 7, 2**31 - 1)) for name in sorted(open_)})
    target, batch = random.choice(_TARGETS), random.choice(_BATCHES)
    recipe = f"bolt: 1\nmodel: {{onnx: net.onnx, {batch}dims: {dims}}}\ntargets: {{{target}: {{}}}}\n"
    return Case(about, (("net.onnx", data), ("net.yaml", recipe.encode()), *files), (target, random.choice(_VERBS)))


def check(case: Case, folder: Path) -> str:
    """A model is planned and its engine's sources are written, or it is said what is wrong with it, each once."""
    case.write(folder)
    planned = bolt_build(*case.arguments[1].split(), "net.yaml", most_text=None)
    if planned.code != 0:
        twice = [text for text, count in Counter(_SAID.findall(planned.err)).items() if count > 1]
        if twice:
            raise Violation(f"said twice: {twice[0]}")
        first = _SAID.search(planned.err)
        return first[0].partition("error[")[2].partition("]")[0] if first else "refused"
    _emit(folder)
    return f"planned for {case.arguments[0]}"


def _emit(folder: Path) -> None:
    """The sources of the engine that was planned, and its weights table."""
    from bolt_build.build.planning.engine_from_model import parse, plan_parsed
    from bolt_build.emit.engine import emit
    from bolt_build.emit.weights import payload_bytes
    from bolt_build.families import load
    from bolt_build.schema.load import load_recipe
    from bolt_build.targets import target_named

    recipe = load_recipe(folder / "net.yaml")
    target = target_named(recipe.targets[0].name)
    planned = plan_parsed(parse(folder / "net.onnx"), recipe, recipe.targets[0], target)
    emit(planned.plan, target, load(target))
    if payload_bytes(planned.plan.weights) < sum(array.nbytes for array in planned.constants):
        raise Violation("the weights table is smaller than the constants in it")
