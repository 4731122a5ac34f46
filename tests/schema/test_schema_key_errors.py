"""What people read when a recipe's keys or types are wrong: whole texts, carets included."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_complaints import HEAD, complaint_about


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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
        HEAD + "policy:\n  fusion: {streams: auto}\n",
        """\
recipe.yaml:5:12: error[unknown-key]: 'streams' is not a key of 'policy.fusion'
  5 |   fusion: {streams: auto}
    |            ^^^^^^^ its keys: epilogue, persistent
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
    | ^^^^^^ its keys: bolt, extend, name, model, variants, targets, policy, layers, engine, verify, tuning
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
recipe.yaml:5:3: error[bad-value]: 'layers.conv*' must not be empty
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
    |   ^ write targets: {host: {}}
""",
    ),
    "names for mappings": (
        "bolt: 1\nmodel: net.onnx\ntargets: {h200: fp16}\n",
        """\
recipe.yaml:2:8: error[wrong-type]: 'model' must be a mapping, found the string 'net.onnx'
  2 | model: net.onnx
    |        ^^^^^^^^ write model: {onnx: net.onnx}
recipe.yaml:3:17: error[wrong-type]: 'targets.h200' must be a mapping, found the string 'fp16'
  3 | targets: {h200: fp16}
    |                 ^^^^ write {precision: fp16}
""",
    ),
    "a name and a list of numbers": (
        "bolt: 1\nmodel: resnet50\ntargets: [1]\n",
        """\
recipe.yaml:2:8: error[wrong-type]: 'model' must be a mapping, found the string 'resnet50'
  2 | model: resnet50
    |        ^^^^^^^^ write model: {zoo: resnet50}
recipe.yaml:3:10: error[wrong-type]: 'targets' must be a mapping, found a list
  3 | targets: [1]
    |          ^^^
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


@pytest.mark.parametrize(("text", "expected"), KEYS.values(), ids=KEYS)
def test_wrong_keys(text: str, expected: str) -> None:
    assert complaint_about(text) == expected


@pytest.mark.parametrize(("text", "expected"), TYPES.values(), ids=TYPES)
def test_wrong_types(text: str, expected: str) -> None:
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
