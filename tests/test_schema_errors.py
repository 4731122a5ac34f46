"""What people read when a recipe is wrong: whole texts, carets included."""

from __future__ import annotations

from pathlib import Path

import pytest

from bolt_build.errors import BoltError, ExitCode
from bolt_build.report.diagnostics import render
from bolt_build.schema import load_recipe

HEAD = "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: {precision: fp32}}\n"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def complaint(name: str) -> str:
    """Everything that is said about the recipe called `name` in the current directory."""
    with pytest.raises(BoltError) as raised:
        load_recipe(Path(name))
    assert raised.value.exit_code == ExitCode.INVALID
    return render(raised.value.diagnostics, color=False)


def complaint_about(text: str | bytes) -> str:
    Path("recipe.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    return complaint("recipe.yaml")


KEYS = {
    "unknown key": (
        HEAD + "verifi: {samples: 2}\n",
        """\
recipe.yaml:4:1: error[unknown-key]: 'verifi' is not a key of a recipe
  4 | verifi: {samples: 2}
    | ^^^^^^ did you mean 'verify'?
""",
    ),
    "unknown key that resembles none": (
        HEAD + "policy:\n  fusion: {persistent: auto}\n",
        """\
recipe.yaml:5:12: error[unknown-key]: 'persistent' is not a key of 'policy.fusion'
  5 |   fusion: {persistent: auto}
    |            ^^^^^^^^^^ its keys: epilogue
""",
    ),
    "duplicate key": (
        HEAD + "verify: {samples: 2}\nverify: {samples: 3}\n",
        """\
recipe.yaml:5:1: error[duplicate-key]: 'verify' is here a second time
  5 | verify: {samples: 3}
    | ^^^^^^ first at line 4
""",
    ),
    "merge key": (
        HEAD + "x-base: &base {samples: 2}\nverify:\n  <<: *base\n",
        """\
recipe.yaml:4:1: error[unknown-key]: 'x-base' is not a key of a recipe
  4 | x-base: &base {samples: 2}
    | ^^^^^^ its keys: bolt, extend, name, model, targets, policy, layers, engine, verify
recipe.yaml:6:3: error[merge-key]: merge keys ('<<') are not part of YAML 1.2
  6 |   <<: *base
    |   ^^ repeat the keys, or use 'extend'
""",
    ),
    "key that is a list": (
        HEAD + "layers:\n  ? [a, b]\n  : {precision: bf16}\n",
        """\
recipe.yaml:5:5: error[wrong-type]: a key must be text
  5 |   ? [a, b]
    |     ^^^^^^
""",
    ),
    "empty key": (
        HEAD + 'layers: {"": {precision: bf16}}\n',
        """\
recipe.yaml:4:10: error[bad-value]: a key of 'layers' is empty
  4 | layers: {"": {precision: bf16}}
    |          ^^
""",
    ),
    "missing keys": (
        "# nothing yet\nname: x\n",
        """\
recipe.yaml:2:1: error[missing-key]: a recipe needs the key 'bolt'
  2 | name: x
    | ^ add 'bolt: 1'
recipe.yaml:2:1: error[missing-key]: a recipe needs the key 'model'
  2 | name: x
    | ^
recipe.yaml:2:1: error[missing-key]: a recipe needs the key 'targets'
  2 | name: x
    | ^
""",
    ),
    "layer that overrides nothing": (
        HEAD + "layers:\n  conv*: {}\n",
        """\
recipe.yaml:5:3: error[missing-key]: 'layers.conv*' needs the key 'precision'
  5 |   conv*: {}
    |   ^^^^^
""",
    ),
}

TYPES = {
    "YAML 1.1 boolean": (
        HEAD + "policy: {fusion: {epilogue: no}}\n",
        """\
recipe.yaml:4:29: error[wrong-type]: 'policy.fusion.epilogue' must be true or false, found the string 'no'
  4 | policy: {fusion: {epilogue: no}}
    |                             ^^ write false: in YAML 1.2, no is a string
""",
    ),
    "quoted number": (
        HEAD + 'verify: {samples: "4"}\n',
        """\
recipe.yaml:4:19: error[wrong-type]: 'verify.samples' must be an integer, found the string '4'
  4 | verify: {samples: "4"}
    |                   ^^^ write it without quotes
""",
    ),
    "unquoted text": (
        HEAD + "name: 50\n",
        """\
recipe.yaml:4:7: error[wrong-type]: 'name' must be a string, found the integer 50
  4 | name: 50
    |       ^^ write it in quotes
""",
    ),
    "float for an integer": (
        HEAD + "verify: {seed: 1e3}\n",
        """\
recipe.yaml:4:16: error[wrong-type]: 'verify.seed' must be an integer, found the number 1000.0
  4 | verify: {seed: 1e3}
    |                ^^^
""",
    ),
    "nothing": (
        HEAD + "policy:\n",
        """\
recipe.yaml:4:1: error[wrong-type]: 'policy' must be a mapping, found nothing
  4 | policy:
    | ^^^^^^
""",
    ),
    "list for a mapping": (
        "bolt: 1\nmodel: {zoo: resnet50}\ntargets:\n  - host\n",
        """\
recipe.yaml:4:3: error[wrong-type]: 'targets' must be a mapping, found a list
  4 |   - host
    |   ^
""",
    ),
    "neither branch of a union": (
        "bolt: 1\nmodel: {zoo: resnet50, batch: {a: 1}}\ntargets: {host: }\n",
        """\
recipe.yaml:2:31: error[wrong-type]: 'model.batch' must be an integer or a list, found a mapping
  2 | model: {zoo: resnet50, batch: {a: 1}}
    |                               ^^^^^^
""",
    ),
    "inside one branch of a union": (
        'bolt: 1\nmodel: {zoo: resnet50, batch: [1, "x"]}\ntargets: {host: }\n',
        """\
recipe.yaml:2:35: error[wrong-type]: 'model.batch[1]' must be an integer, found the string 'x'
  2 | model: {zoo: resnet50, batch: [1, "x"]}
    |                                   ^^^
""",
    ),
    "unknown tag": (
        HEAD + "verify: {seed: !python/name:os.system 1}\n",
        """\
recipe.yaml:4:16: error[unknown-tag]: the tag '!python/name:os.system' means nothing here
  4 | verify: {seed: !python/name:os.system 1}
    |                ^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "tag that the text denies": (
        HEAD + "verify: {seed: !!int one}\n",
        """\
recipe.yaml:4:16: error[bad-value]: 'one' is not of type int
  4 | verify: {seed: !!int one}
    |                ^^^^^^^^^
""",
    ),
}

VALUES = {
    "newer format": (
        "bolt: 2\nwhatever: 1\n",
        """\
recipe.yaml:1:7: error[newer-version]: recipe format 2 is newer than this bolt-build, which reads format 1
  1 | bolt: 2
    |       ^ python -m pip install --upgrade bolt-build
""",
    ),
    "format that never was": (
        HEAD.replace("bolt: 1", "bolt: 0"),
        """\
recipe.yaml:1:7: error[bad-value]: 'bolt' must be 1, found the integer 0
  1 | bolt: 0
    |       ^
""",
    ),
    "both models": (
        "bolt: 1\nmodel:\n  onnx: recipe.yaml\n  zoo: resnet50\ntargets: {host: }\n",
        """\
recipe.yaml:4:3: error[bad-value]: 'model' has 'onnx' and 'zoo', and may have only one of them
  4 |   zoo: resnet50
    |   ^^^ 'onnx' is at line 3
""",
    ),
    "no model": (
        "bolt: 1\nmodel: {batch: 2}\ntargets: {host: }\n",
        """\
recipe.yaml:2:1: error[missing-key]: 'model' needs one of 'onnx' or 'zoo'
  2 | model: {batch: 2}
    | ^^^^^
""",
    ),
    "model file that is not there": (
        "bolt: 1\nmodel: {onnx: recipe.onnx}\ntargets: {host: }\n",
        """\
recipe.yaml:2:15: error[no-such-model]: the model file 'recipe.onnx' does not exist
  2 | model: {onnx: recipe.onnx}
    |               ^^^^^^^^^^^
""",
    ),
    "batches": (
        "bolt: 1\nmodel: {zoo: resnet50, batch: [0, 8, 8, 3000000000]}\ntargets: {host: }\n",
        """\
recipe.yaml:2:32: error[bad-value]: 'model.batch[0]' must be at least 1, found 0
  2 | model: {zoo: resnet50, batch: [0, 8, 8, 3000000000]}
    |                                ^
recipe.yaml:2:38: error[bad-value]: 'model.batch' has 8 twice
  2 | model: {zoo: resnet50, batch: [0, 8, 8, 3000000000]}
    |                                      ^
recipe.yaml:2:41: error[bad-value]: 'model.batch[3]' must be at most 2147483647, found 3000000000
  2 | model: {zoo: resnet50, batch: [0, 8, 8, 3000000000]}
    |                                         ^^^^^^^^^^
""",
    ),
    "empty collections": (
        "bolt: 1\nmodel: {zoo: resnet50, batch: []}\ntargets: {}\n",
        """\
recipe.yaml:2:31: error[bad-value]: 'model.batch' must not be empty
  2 | model: {zoo: resnet50, batch: []}
    |                               ^^
recipe.yaml:3:1: error[bad-value]: 'targets' must not be empty
  3 | targets: {}
    | ^^^^^^^
""",
    ),
    "misspelt choice": (
        HEAD + "engine: {io: {layout: chanels_last}}\n",
        """\
recipe.yaml:4:23: error[bad-value]: 'engine.io.layout' must be model, row or channels_last, \
found the string 'chanels_last'
  4 | engine: {io: {layout: chanels_last}}
    |                       ^^^^^^^^^^^^ did you mean 'channels_last'?
""",
    ),
    "unknown target": (
        "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {hots: , tpu: {precision: fp32}}\n",
        """\
recipe.yaml:3:11: error[unknown-target]: unknown target 'hots'
  3 | targets: {hots: , tpu: {precision: fp32}}
    |           ^^^^ did you mean 'host'?
recipe.yaml:3:19: error[unknown-target]: unknown target 'tpu'
  3 | targets: {hots: , tpu: {precision: fp32}}
    |                   ^^^ known targets: host
""",
    ),
    "precision that the target lacks": (
        "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: {precision: fp16}}\nlayers: {fc: {precision: fp16}}\n",
        """\
recipe.yaml:3:29: error[unsupported-precision]: the target 'host' does not compute in fp16
  3 | targets: {host: {precision: fp16}}
    |                             ^^^^ it computes in 'fp32' and 'bf16'
recipe.yaml:4:26: error[unsupported-precision]: the target 'host' does not compute in fp16
  4 | layers: {fc: {precision: fp16}}
    |                          ^^^^ it computes in 'fp32' and 'bf16'
""",
    ),
    "name": (
        HEAD + "name: ResNet-50\n",
        """\
recipe.yaml:4:7: error[bad-value]: 'name' may not be 'ResNet-50': a name is lower-case letters, digits and \
underscores, a letter first
  4 | name: ResNet-50
    |       ^^^^^^^^^ did you mean 'resnet_50'?
""",
    ),
    "name that a line break would slip past": (
        HEAD + 'name: "x\\n"\n',
        """\
recipe.yaml:4:7: error[bad-value]: 'name' may not be 'x ': a name is lower-case letters, digits and underscores, \
a letter first
  4 | name: "x\\n"
    |       ^^^^^ did you mean 'x'?
""",
    ),
    "integer without end": (
        HEAD + f"verify: {{seed: {'1' * 5000}}}\n",
        f"""\
recipe.yaml:4:16: error[bad-value]: an integer of 5000 digits is too long
  4 | verify: {{seed: {"1" * 105}...
    |                {"^" * 108}
""",
    ),
}

FILES = {
    "empty": (
        "",
        """\
recipe.yaml:1:1: error[empty-recipe]: the recipe is empty
  1 |
    | ^ a recipe begins with 'bolt: 1'
""",
    ),
    "comments only": (
        "# to do\n",
        """\
recipe.yaml:1:1: error[empty-recipe]: the recipe is empty
  1 | # to do
    | ^ a recipe begins with 'bolt: 1'
""",
    ),
    "not a mapping": (
        "hello\n",
        """\
recipe.yaml:1:1: error[wrong-type]: a recipe must be a mapping, found the string 'hello'
  1 | hello
    | ^^^^^ a recipe begins with 'bolt: 1'
""",
    ),
    "not UTF-8": (
        b"\xef\xbb\xbfbolt: 1\nname: \xc3\xa9\xe9\n",
        """\
recipe.yaml:2:8: error[not-utf8]: byte 0xe9 is not UTF-8
  2 | name: \u00e9\ufffd
    |        ^ a recipe is UTF-8 text
""",
    ),
    "a PNG": (
        b"\x89PNG\r\n\x1a\n",
        """\
recipe.yaml:1:1: error[not-utf8]: byte 0x89 is not UTF-8
  1 | \ufffdPNG
    | ^ a recipe is UTF-8 text
""",
    ),
    "control character": (
        "bolt: 1\nname: \u00e9\x00\n",
        """\
recipe.yaml:2:8: error[yaml-syntax]: character U+0000 is not allowed in YAML
  2 | name: \u00e9\ufffd
    |        ^
""",
    ),
    "tab": (
        "bolt: 1\nmodel:\n\tzoo: resnet50\n",
        """\
recipe.yaml:3:1: error[yaml-syntax]: a tab where only spaces may stand
  3 | \tzoo: resnet50
    | ^ indent with spaces
""",
    ),
    "reserved character": (
        "bolt: 1\nname: @net\n",
        """\
recipe.yaml:2:7: error[yaml-syntax]: text cannot begin with '@'
  2 | name: @net
    |       ^ write it in quotes
""",
    ),
    "bracket left open": (
        "bolt: 1\nmodel: {zoo: [\n",
        """\
recipe.yaml:3:1: error[yaml-syntax]: did not find expected node content, while parsing a flow node
  3 |
    | ^
""",
    ),
    "second document": (
        HEAD + "---\nbolt: 1\n",
        """\
recipe.yaml:4:1: error[yaml-syntax]: a second document begins here
  4 | ---
    | ^ one file holds one recipe
""",
    ),
    "undefined alias": (
        "bolt: 1\nmodel: *base\n",
        """\
recipe.yaml:2:8: error[yaml-syntax]: found undefined alias
  2 | model: *base
    |        ^
""",
    ),
    "value inside itself": (
        "bolt: 1\nmodel: &model [*model]\n",
        """\
recipe.yaml:2:8: error[recursive-alias]: this value contains itself through an alias
  2 | model: &model [*model]
    |        ^^^^^^^^^^^^^^^
""",
    ),
    "aliases that multiply": (
        "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)),
        """\
recipe.yaml:6:5: error[too-large]: more than 100000 values once aliases are expanded
  6 | a5: &a5 [*a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4, *a4]
    |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    "nesting without end": (
        "a:\n" + "[" * 201 + "]" * 201 + "\n",
        f"""\
recipe.yaml:2:200: error[too-large]: more than 200 collections inside one another
  2 | ...{"[" * 41}{"]" * 79}...
    |    {" " * 40}^
""",
    ),
}


@pytest.mark.parametrize(("text", "expected"), KEYS.values(), ids=KEYS)
def test_wrong_keys(text: str, expected: str) -> None:
    assert complaint_about(text) == expected


@pytest.mark.parametrize(("text", "expected"), TYPES.values(), ids=TYPES)
def test_wrong_types(text: str, expected: str) -> None:
    assert complaint_about(text) == expected


@pytest.mark.parametrize(("text", "expected"), VALUES.values(), ids=VALUES)
def test_wrong_values(text: str, expected: str) -> None:
    assert complaint_about(text) == expected


@pytest.mark.parametrize(("text", "expected"), FILES.values(), ids=FILES)
def test_files_that_hold_no_recipe(text: str | bytes, expected: str) -> None:
    assert complaint_about(text) == expected


def test_every_mistake_is_reported_at_once_in_the_order_of_the_text() -> None:
    assert complaint_about("bolt: 1\nmodle: {}\nmodel: {zoo: 5}\ntargets: {hots: }\nverify: {samples: 0}\n") == (
        """\
recipe.yaml:2:1: error[unknown-key]: 'modle' is not a key of a recipe
  2 | modle: {}
    | ^^^^^ did you mean 'model'?
recipe.yaml:3:14: error[wrong-type]: 'model.zoo' must be a string, found the integer 5
  3 | model: {zoo: 5}
    |              ^ write it in quotes
recipe.yaml:4:11: error[unknown-target]: unknown target 'hots'
  4 | targets: {hots: }
    |           ^^^^ did you mean 'host'?
recipe.yaml:5:19: error[bad-value]: 'verify.samples' must be at least 1, found 0
  5 | verify: {samples: 0}
    |                   ^
"""
    )


def test_a_model_file_with_nearly_that_name() -> None:
    Path("resnet50.onnx").touch()
    assert complaint_about("bolt: 1\nmodel: {onnx: resnet5.onnx}\ntargets: {host: }\n") == (
        """\
recipe.yaml:2:15: error[no-such-model]: the model file 'resnet5.onnx' does not exist
  2 | model: {onnx: resnet5.onnx}
    |               ^^^^^^^^^^^^ did you mean 'resnet50.onnx'?
"""
    )


def test_a_file_whose_name_cannot_name_an_engine() -> None:
    Path("Res-Net 50.yaml").write_text(HEAD)
    assert complaint("Res-Net 50.yaml") == (
        """\
Res-Net 50.yaml:1:1: error[bad-name]: the file's name cannot name the engine: a name is lower-case letters, digits and \
underscores, a letter first
  1 | bolt: 1
    | ^ add 'name: res_net_50'
"""
    )


def test_a_recipe_that_is_not_there() -> None:
    assert complaint("gone.yaml") == "gone.yaml: error[no-such-file]: no such recipe\n"


def test_a_directory() -> None:
    Path("recipes").mkdir()
    assert complaint("recipes") == (
        "recipes: error[not-a-file]: is a directory, not a recipe\n  hint: name the recipe's file\n"
    )


def test_a_file_below_a_file() -> None:
    Path("recipe.yaml").write_text(HEAD)
    assert complaint("recipe.yaml/x") == "recipe.yaml/x: error[unreadable]: cannot be read: not a directory\n"
