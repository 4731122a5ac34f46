"""What installed packages add, and what is said of what cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from graph_models import model, node, saved, tensor
from installed_packages import install
from planner_checks import graph

from bolt_build import plugins
from bolt_build.cli.main import main
from bolt_build.digest import decode, encode
from bolt_build.errors import BoltError
from bolt_build.families import load, plugged_families
from bolt_build.graph.ir import Op
from bolt_build.graph.onnx_import import load_model
from bolt_build.graph.operators import plugged_operators
from bolt_build.graph.ops.products.conv import Conv
from bolt_build.graph.zoo import names, plugged_models
from bolt_build.planner.pipeline import passes, plugged_passes
from bolt_build.plugins import Found, Offer, guarded
from bolt_build.targets import HOST, all_targets, plugged_targets, target_named
from bolt_build.toolchain import probe
from bolt_build.toolchain.probe import plugged_tools

CONV = Conv((1, 1), (0, 0), (0, 0), (1, 1))
MEND = "upgrade the package, or remove it: python -m pip uninstall more-of-it"


def said(found: Found[object]) -> list[tuple[str, str, str | None, str | None]]:
    return [(each.code, each.message, each.hint, each.subject) for each in found.problems]


def broken(message: str) -> list[tuple[str, str, str | None, str | None]]:
    return [("broken-plugin", message, MEND, "more-of-it")]


def conflicting(message: str) -> list[tuple[str, str, str | None, str | None]]:
    return [("conflicting-plugin", message, MEND, "more-of-it")]


def test_every_door_is_looked_through_by_doctor() -> None:
    from bolt_build.workflows import packages

    assert len(packages._LOOK) == len(plugins.GROUPS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("1 +", "SyntaxError: invalid syntax (more_broken.py, line 1)"),
        ("", "AttributeError: module 'more_broken' has no attribute 'PASS'"),
        ("PASS = 'fold'", "it is no Pass but a str"),
        (
            "from bolt_build.planner.passes.base import Pass\nPASS = Pass('fold', print)",
            "it calls itself 'fold': call the entry point so",
        ),
    ],
    ids=["import", "exit", "syntax", "nothing", "kind", "name"],
)
def test_what_cannot_be_loaded_names_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    install(tmp_path, monkeypatch, {"more_broken.py": text}, {"passes": {"more": "more_broken:PASS"}})
    message = f"the package more-of-it 1.0 cannot add its pass 'more' (more_broken:PASS): {reason}"
    assert said(plugged_passes()) == broken(message)
    with pytest.raises(BoltError, match="cannot add its pass 'more'"):
        passes()


def test_names_that_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported for it: the module is not there."""
    entries = {
        group: {name: "more_absent:X"}
        for group, name in (
            ("passes", "fold-constants"), ("families", "portable"), ("targets", "host"), ("tools", "nvcc"),
            ("zoo", "vgg16"),
        )
    }  # fmt: skip
    install(tmp_path, monkeypatch, {}, entries)
    what = "the package more-of-it 1.0 adds the {}, which bolt-build itself has"
    assert said(plugged_passes()) == conflicting(what.format("pass 'fold-constants'"))
    assert said(plugged_families()) == conflicting(what.format("kernel family 'portable'"))
    assert said(plugged_targets()) == conflicting(what.format("target 'host'"))
    assert said(plugged_tools()) == conflicting(what.format("tool 'nvcc'"))
    assert said(plugged_models()) == conflicting(what.format("zoo model 'vgg16'"))
    with pytest.raises(BoltError):
        load(HOST)
    with pytest.raises(BoltError):
        all_targets()
    assert target_named("host") is HOST  # what is built in needs no other package
    assert names().count("vgg16") == 1


def test_two_packages_of_one_mind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {}, {"targets": {"mine": "more_absent:MINE"}})
    install(tmp_path, monkeypatch, {}, {"targets": {"mine": "less_absent:MINE"}}, name="less-of-it", version="0.3")
    assert said(plugged_targets()) == conflicting(
        "the package more-of-it 1.0 adds the target 'mine', which the package less-of-it 0.3 adds too"
    )
    with pytest.raises(BoltError):
        target_named("mine")


OPERATOR = """\
from dataclasses import dataclass
from bolt_build.graph.importing import Importer
from bolt_build.graph.ops.lines.softmax import Softmax


@dataclass(frozen=True)
class {name}(Softmax):
    kind = "{kind}"


IMPORTERS = ({importer})
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OPERATOR.format(name="Conv", kind="x", importer=""), "an operator Conv, which bolt-build itself has"),
        (OPERATOR.format(name="Mine", kind="conv", importer=""), "a kind 'conv', which bolt-build itself has"),
        (
            OPERATOR.format(name="Mine", kind="mine", importer="Importer('Relu', (14,), print),"),
            "an importer for version 14 of Relu, which bolt-build itself has",
        ),
    ],
    ids=["class", "kind", "importer"],
)
def test_operators_that_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str) -> None:
    install(tmp_path, monkeypatch, {"more_ops.py": text}, {"ops": {"more": "more_ops"}})
    message = f"the package more-of-it 1.0 cannot add its operator 'more' (more_ops): it has {reason}"
    assert said(plugged_operators()) == broken(message)
    decoded = decode(Op, encode(CONV))  # whose name the package's class may have too
    assert decoded == CONV


TARGET = """\
from dataclasses import replace
from bolt_build.targets import HOST, Compiler

MINE = replace(HOST, name="mine", {changes})
"""


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ("tools=('onednn',)", "lacks the tool 'cxx', which compiles the runtime and links engines"),
        ("compiler=Compiler('minecc', 'mine')", "lacks the tool 'minecc', its compiler's, among its tools"),
        ("where='hip'", "has tensors in the memory of 'hip': engines know cpu and cuda"),
        ("families=()", "has no precisions or no kernel families"),
        ("precisions=('fp16',)", "states no rate (flops) for fp16"),
    ],
)
def test_rows_that_no_build_can_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: str, reason: str) -> None:
    install(
        tmp_path, monkeypatch, {"more_targets.py": TARGET.format(changes=changes)},
        {"targets": {"mine": "more_targets:MINE"}},
    )  # fmt: skip
    message = f"the package more-of-it 1.0 cannot add its target 'mine' (more_targets:MINE): it {reason}"
    assert said(plugged_targets()) == broken(message)


FAMILY = """\
from bolt_build.families.portable.family import RuleFamily
from pathlib import Path


class Stumbling(RuleFamily):
    def propose(self, graph, node, target, precision):
        raise KeyError(node.op.kind)


MINE = Stumbling("mine", {}, Path(__file__).parent, joins=("host",))
"""


def test_a_family_that_raises_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, {"more_mine.py": FAMILY}, {"families": {"mine": "more_mine:MINE"}})
    *_, mine = load(HOST)
    assert mine.name == "mine"
    assert [family.name for family in load(target_named("h200"))] == ["cutlass", "grouped", "attention", "portable"]
    relu = graph("""
        graph g batch=1 (%x: f32[2]) -> (%y) {
          %y = relu(%x) // "y"
        }""")
    with pytest.raises(BoltError) as raised:
        mine.propose(relu, relu.nodes[0], HOST, relu.type("x").dtype)
    (found,) = raised.value.diagnostics
    assert (found.code, found.message) == (
        "failed-plugin", "the kernel family 'mine' of the package more-of-it 1.0 failed: KeyError: 'activation'",
    )  # fmt: skip


TWINS = """\
from dataclasses import dataclass
from bolt_build.graph.importing import Importer
from bolt_build.graph.ir import Op


@dataclass(frozen=True)
class Twins(Op):
    kind = "twins"

    def infer(self, inputs):
        return (inputs[0], inputs[0])

    def evaluate(self, inputs):
        return (inputs[0], inputs[0])


def take(node):
    node.emit(Twins(), [node.input(0)], 0)


IMPORTERS = (Importer("Twins", (1,), take, domain="more"),)
"""


def test_an_importer_that_emits_two_outputs_at_once_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, {"more_twins.py": TWINS}, {"ops": {"twins": "more_twins"}})
    proto = model([node("Twins", "x", "y z", domain="more")], [tensor("x", [1, 4])], opsets=[("more", 1)])
    with pytest.raises(BoltError) as raised:
        load_model(saved(tmp_path, proto)).graphs((), (), ())
    (found,) = raised.value.diagnostics
    assert found.message == (
        "Twins 'Twins_0': cannot be imported: twins has 2 outputs: emit an operator for each output that is wanted"
    )


def test_what_is_guarded_answers_as_what_it_guards() -> None:
    offer = Offer("bolt_build.families", "mine", "more:MINE", "more-of-it", "1.0")
    assert guarded(offer, "text").upper() == "TEXT"


def test_a_tool_whose_probe_raises_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "def look(around, memory):\n    raise OSError('no such place')\n"
    install(tmp_path, monkeypatch, {"more_tools.py": text}, {"tools": {"minecc": "more_tools:look"}})
    (tool,) = probe(["minecc"]).tools
    assert (tool.problem, tool.mend) == (
        "the tool 'minecc' of the package more-of-it 1.0 failed: OSError: no such place", MEND,
    )  # fmt: skip


def test_doctor_lists_packages_and_what_is_wrong_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "from bolt_build.planner.passes.base import Pass\nNOTHING = Pass('nothing', print)\n"
    entries = {"passes": {"nothing": "more_passes:NOTHING"}, "peers": {"rival": "more_rival:RIVAL"}}
    install(tmp_path, monkeypatch, {"more_passes.py": text}, entries)
    assert main(["doctor", "--target", "host"]) == 7
    shown = capsys.readouterr().out
    assert shown.endswith(
        """
package     version  adds
more-of-it  1.0      pass 'nothing'
more-of-it  1.0      1 that cannot be used

more-of-it: the package more-of-it 1.0 cannot add its peer 'rival' (more_rival:RIVAL): ModuleNotFoundError: No module \
named 'more_rival'
  upgrade the package, or remove it: python -m pip uninstall more-of-it
"""
    )
    main(["doctor", "--target", "host", "--format", "json"])
    (package,) = json.loads(capsys.readouterr().out)["packages"]
    assert (package["name"], package["version"], package["adds"]) == ("more-of-it", "1.0", ["pass 'nothing'"])
    assert [each["code"] for each in package["problems"]] == ["broken-plugin"]
