"""What tasks do in Python, each in its own process: `python action.py ACTION ARGUMENT...` in the target's directory."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    # The directory of a script would shadow modules of other packages by name; the package itself must be found.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from bolt_build.digest import decode, encode
from bolt_build.emit.manifest import BuildFacts, manifest_json
from bolt_build.errors import BoltError
from bolt_build.planner.engine_plan import EnginePlan
from bolt_build.targets import target_named

_ENGINE, _PROVENANCE, _RECIPE = Path("engine.json"), Path("provenance.json"), Path("recipe.json")
_SELECTION = Path("selection.json")


def emit(out: str) -> None:
    """Write every generated source to `out`/src."""
    from bolt_build.build.emission import emitted_sources

    for name, text in emitted_sources(_engine(), _facts()):
        (Path(out) / name).write_text(text, encoding="utf-8")


def weights(model: str, out: str) -> None:
    """Write the weights file: the constants are found again, and must fit the plan that the engine is built from."""
    from bolt_build.build.engine_planning import parse, plan_parsed
    from bolt_build.emit.weights import write_weights
    from bolt_build.planner.selection import Selection
    from bolt_build.schema.recipe import Recipe

    plan = _engine()
    recipe = decode(Recipe, json.loads(_RECIPE.read_text(encoding="utf-8")))
    spec = next(spec for spec in recipe.targets if spec.name == plan.target)
    selection = decode(Selection, json.loads(_SELECTION.read_text(encoding="utf-8")))
    planned = plan_parsed(parse(Path(model)), recipe, spec, target_named(plan.target), selection)
    if planned.plan.layout_digest != plan.layout_digest or planned.plan.weights != plan.weights:
        sys.exit(f"{_ENGINE} is not what the model and the recipe give now: build again")
    write_weights(Path(out), plan, planned.constants)


def manifest(out: str, library: str, *artifacts: str) -> None:
    """Write the manifest with the digests of the artifacts."""
    plan, found = _engine(), [Path(artifact) for artifact in artifacts]
    text = manifest_json(plan, target_named(plan.target), _facts(), Path(library), found)
    Path(out).write_text(text, encoding="utf-8")


def verify(out: str, library: str, weights_file: str, model: str, question: str) -> None:
    """Run the engine beside the reference and write the report, whatever it says."""
    from bolt_build.schema.recipe import VerifySpec
    from bolt_build.verify import verify_engine

    spec, dims = json.loads(question)
    report = verify_engine(
        Path(library), Path(weights_file), Path(model), _engine(), decode(VerifySpec, spec),
        tuple((str(name), int(extent)) for name, extent in dims),
    )  # fmt: skip
    Path(out).write_text(json.dumps(encode(report), indent=1) + "\n", encoding="utf-8")


def read_engine(text: str) -> EnginePlan:
    """The plan in an `engine.json`. Raises ValueError."""
    import bolt_build.graph.ops  # noqa: F401  (operators are found by name once they are imported)

    return decode(EnginePlan, json.loads(text))


def read_facts(text: str) -> BuildFacts:
    """The facts in a `provenance.json`. Raises ValueError."""
    return decode(BuildFacts, json.loads(text))


def _engine() -> EnginePlan:
    return read_engine(_ENGINE.read_text(encoding="utf-8"))


def _facts() -> BuildFacts:
    return read_facts(_PROVENANCE.read_text(encoding="utf-8"))


_ACTIONS: dict[str, Callable[..., None]] = {"emit": emit, "weights": weights, "manifest": manifest, "verify": verify}


def main(arguments: list[str]) -> None:
    """Run one action. Problems that have a diagnostic are printed as such, to the task's log."""
    try:
        _ACTIONS[arguments[0]](*arguments[1:])
    except BoltError as error:
        sys.exit("\n".join(f"error[{d.code}]: {d.message}" for d in error.diagnostics))


if __name__ == "__main__":
    main(sys.argv[1:])
