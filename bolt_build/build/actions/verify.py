"""Runs the engine beside the reference."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from bolt_build.build.planning.engine_file import engine_here
from bolt_build.digest import decode, encode
from bolt_build.schema.recipe import VerifySpec
from bolt_build.verify import Tolerances, verify_engine


def run(out: str, library: str, weights_file: str, model: str, question: str, inputs: str | None = None) -> None:
    """Write the report to `out`, whatever it says. `inputs` is the recipe's file of inputs."""
    data, dims, layers = json.loads(question)
    spec = replace(decode(VerifySpec, data), inputs=inputs)
    report = verify_engine(
        Path(library), Path(weights_file), Path(model), engine_here(), spec,
        tuple((str(name), int(extent)) for name, extent in dims),
        Tolerances(spec.tolerance, tuple((str(match), float(value)) for match, value in layers)),
    )  # fmt: skip
    Path(out).write_text(json.dumps(encode(report), indent=1) + "\n", encoding="utf-8")
