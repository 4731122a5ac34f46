"""What recipe keys, verbs and families of other packages take, counted as in `test_contributing.py`."""

from __future__ import annotations

from pathlib import Path

import pytest
from scratch_package import Scratch, scratch_copy, touches


@pytest.fixture
def scratch(tmp_path: Path) -> Scratch:
    return scratch_copy(tmp_path)


KEY = """\
    greeting: str | None = field(
        default=None, metadata=key("Said at the end of each plan.", maxLength=9)
    )
    layers: tuple"""
RENDER = """\
import json
from pathlib import Path
from bolt_build.schema.schema_file import rendered

path = Path("bolt_build/schema/recipe.schema.json")
path.write_text(rendered(json.loads(path.read_text())))
"""
USE_KEY = """\
from pathlib import Path
from bolt_build.errors import BoltError
from bolt_build.graph.text import parse_graph
from bolt_build.planner.pipeline import optimize
from bolt_build.schema.load import load_recipe
from bolt_build.schema.expand import expand

def loaded(greeting):
    text = "bolt: 1\\nmodel: {onnx: net.onnx}\\ntargets: {host: {}}\\n"
    Path("net.yaml").write_text(f"{text}policy: {{padding: {{{greeting}}}}}\\n")
    return load_recipe(Path("net.yaml"))

Path("net.onnx").write_bytes(b"")
recipe = loaded("greeting: hello")
graph = parse_graph("graph g batch=1 (%x: f32[2]) -> (%y) {\\n  %y = relu(%x) // \\"y\\"\\n}")
print(optimize(graph, recipe.policy).decisions[-1].reason, "greeting: hello" in expand(recipe))
print(loaded("mode: auto").policy.padding.greeting)
for wrong in ("greeting: 3", "greeting: hello there", "greting: hello"):
    try:
        loaded(wrong)
    except BoltError as error:
        print(error.diagnostics[0].message)
"""


def test_a_recipe_key_is_a_field_and_its_reader(scratch: Scratch) -> None:
    """The schema's file is rendered from the field: in a checkout, by `benchmarks/repository/recipe_schema.py`."""
    scratch.edit(
        "bolt_build/schema/recipe.py",
        "    layers: tuple[tuple[str, str], ...] = ()\n",
        f"{KEY}[tuple[str, str], ...] = ()\n",
    )
    scratch.edit(
        "bolt_build/planner/pipeline.py", "    return PassResult(graph, tuple(decisions))\n",
        '    decisions.append(Decision("greeting", graph.name, "said", str(policy.padding.greeting)))\n'
        "    return PassResult(graph, tuple(decisions))\n",
    )  # fmt: skip
    scratch.run(RENDER)
    assert scratch.run(USE_KEY).splitlines() == [
        "hello True", "None", "'policy.padding.greeting' must be a string, found the integer 3",
        "'policy.padding.greeting' has 11 characters, more than 9", "'greting' is not a key of 'policy.padding'",
    ]  # fmt: skip
    touches(scratch, "recipe key", "greeting")


VERB = """\
from __future__ import annotations

import argparse

from bolt_build.errors import ExitCode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("whom")


def run(args: argparse.Namespace) -> int:
    print("hello,", args.whom)
    return int(ExitCode.OK)
"""
USE_VERB = """\
from bolt_build.cli.main import main

assert main(["greet", "world"]) == 0
main(["--help"])
"""


def test_a_verb_is_a_file_and_a_line(scratch: Scratch) -> None:
    scratch.add("bolt_build/cli/greet.py", VERB)
    scratch.line("bolt_build/cli/verbs.py", '    "schema":', '    "greet": "say hello",')
    said = scratch.run(USE_VERB).splitlines()
    assert said[0] == "hello, world"
    assert "  greet       say hello" in said
    touches(scratch, "verb", "greet")


USE_KEYS = """\
from pathlib import Path
from bolt_build.schema.load import load_recipe
from bolt_build.schema.expand import flatten

text = "bolt: 1\\nmodel: {onnx: net.onnx, MODEL}\\ntargets: {host: {TARGET}}\\nvariants: {a: {VARIANT}}\\n"
def loaded(model, target, variant):
    written = text.replace("MODEL", model).replace("TARGET", target).replace("VARIANT", variant)
    Path("net.yaml").write_text(written)
    return load_recipe(Path("net.yaml"))

Path("net.onnx").write_bytes(b"")
for keys in (("variant: a, note: x", "power: 250", "drop: {nodes: x}"), ("variant: a", "", "align: {channels: 8}")):
    recipe = loaded(*keys)
    (target,), (variant,) = recipe.targets, recipe.variants
    print(recipe.model.note, target.power, variant.drop)
    print([key for key, _ in flatten(recipe) if key.rpartition(".")[2] in ("note", "power", "nodes")])
"""


def test_keys_of_models_targets_and_variants_are_fields_too(scratch: Scratch) -> None:
    """One with a default, one that a recipe need not write, and a change of the model, which is a mapping."""
    path = "bolt_build/schema/recipe.py"
    scratch.edit(
        path, "    variant: str | None = field(\n",
        '    note: str = field(default="none", metadata=key("Of the model."))\n    variant: str | None = field(\n',
    )  # fmt: skip
    scratch.edit(
        path, "\n\n@dataclass(frozen=True)\nclass FusionPolicy:",
        '    power: int | None = field(default=None, metadata=key("In watts.", optional=True, minimum=1))\n'
        "\n\n@dataclass(frozen=True)\nclass FusionPolicy:",
    )  # fmt: skip
    scratch.edit(
        path, "@dataclass(frozen=True)\nclass VariantSpec:",
        '@dataclass(frozen=True)\nclass Drop:\n    nodes: str = field(metadata=key("A glob.", minLength=1))\n\n\n'
        "@dataclass(frozen=True)\nclass VariantSpec:",
    )  # fmt: skip
    scratch.edit(
        path, "    align: Alignment | None = field(\n",
        '    drop: Drop | None = field(default=None, metadata=section("Nodes that are left out."))\n'
        "    align: Alignment | None = field(\n",
    )  # fmt: skip
    scratch.run(RENDER)
    assert scratch.run(USE_KEYS).splitlines() == [
        "x 250 Drop(nodes='x')", "['model.note', 'variants.a.drop.nodes', 'targets.host.power']",
        "none None None", "['model.note']",
    ]  # fmt: skip
    assert set(scratch.changed) == {path}


def test_a_family_of_another_package_touches_nothing(scratch: Scratch) -> None:
    """The operators' and targets' sides of it, with an engine: test_example_package.py."""
    (scratch.folder / "more.py").write_text(
        "from pathlib import Path\n"
        "from bolt_build.families.portable.family import RuleFamily\n"
        "MORE = RuleFamily('more', {}, Path(__file__).parent, joins=('host',))\n"
    )
    info = scratch.folder / "more-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: more\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[bolt_build.families]\nmore = more:MORE\n")
    code = "from bolt_build.families import load; from bolt_build.targets import HOST; print(load(HOST)[-1].name)"
    assert scratch.run(code) == "more\n"
    touches(scratch, "operator, family, pass, target from another package", "more")
