"""What people read when a recipe's values are wrong: whole texts, carets included."""

from __future__ import annotations

from pathlib import Path

import pytest
from recipe_complaints import HEAD, complaint_about

from bolt_build.targets import all_targets


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


VALUES = {
    "newer format": (
        "bolt: 2\nwhatever: 1\n",
        """\
recipe.yaml:1:7: error[newer-version]: recipe format 2 is newer than this bolt-build, which reads format 1
  1 | bolt: 2
    |       ^ update the checkout that bolt-build was installed from, and install it again
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
    "products in one kernel": (
        HEAD
        + "policy: {fusion: {persistent: true}}\nlayers:\n  /a: {persistent: sometimes}\n  /b: {persistant: never}\n",
        """\
recipe.yaml:4:31: error[bad-value]: 'policy.fusion.persistent' must be auto, always or never, found true
  4 | policy: {fusion: {persistent: true}}
    |                               ^^^^
recipe.yaml:6:20: error[bad-value]: 'layers./a.persistent' must be auto, always or never, found the string 'sometimes'
  6 |   /a: {persistent: sometimes}
    |                    ^^^^^^^^^
recipe.yaml:7:8: error[unknown-key]: 'persistant' is not a key of 'layers./b'
  7 |   /b: {persistant: never}
    |        ^^^^^^^^^^ did you mean 'persistent'?
""",
    ),
    "padding": (
        HEAD
        + "policy: {padding: {mode: allways, alignment: 16}}\nlayers:\n  /a: {padding: true}\n  /b: {pading: never}\n",
        """\
recipe.yaml:4:26: error[bad-value]: 'policy.padding.mode' must be auto, always or never, found the string 'allways'
  4 | policy: {padding: {mode: allways, alignment: 16}}
    |                          ^^^^^^^ did you mean 'always'?
recipe.yaml:4:46: error[bad-value]: 'policy.padding.alignment' must be 2, 4 or 8, found the integer 16
  4 | policy: {padding: {mode: allways, alignment: 16}}
    |                                              ^^
recipe.yaml:6:17: error[bad-value]: 'layers./a.padding' must be auto, always or never, found true
  6 |   /a: {padding: true}
    |                 ^^^^
recipe.yaml:7:8: error[unknown-key]: 'pading' is not a key of 'layers./b'
  7 |   /b: {pading: never}
    |        ^^^^^^ did you mean 'padding'?
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
    "tuning": (
        HEAD + 'tuning:\n  candidates: 0\n  budget: 20 min\n  lock: ""\n  foreign: yes\n',
        """\
recipe.yaml:5:15: error[bad-value]: 'tuning.candidates' must be at least 1, found 0
  5 |   candidates: 0
    |               ^
recipe.yaml:6:11: error[bad-value]: 'tuning.budget' may not be '20 min': a duration is a whole number and its unit: \
90s, 20min or 2h
  6 |   budget: 20 min
    |           ^^^^^^
recipe.yaml:7:9: error[bad-value]: 'tuning.lock' must not be empty
  7 |   lock: ""
    |         ^^
recipe.yaml:8:12: error[wrong-type]: 'tuning.foreign' must be true or false, found the string 'yes'
  8 |   foreign: yes
    |            ^^^ write true: in YAML 1.2, yes is a string
""",
    ),
    "lock with a NUL": (
        HEAD + 'tuning: {lock: "a\\0b"}\n',
        """\
recipe.yaml:4:16: error[bad-value]: 'tuning.lock' holds a NUL
  4 | tuning: {lock: "a\\0b"}
    |                ^^^^^^
""",
    ),
    "variants": (
        """\
bolt: 1
model: {zoo: repvgg_a0, variant: dep}
targets: {host: {precision: fp32}}
variants:
  B d: {activation: relu}
  deep: {deepen: {behind: 3}, align: {channels: 1}}
  other: {activation: hardswich}
  some: {activation: {match: "/head/*"}}
  none: {}
  deep: {activation: relu}
""",
        """\
recipe.yaml:2:34: error[unknown-variant]: the recipe has no variant 'dep'
  2 | model: {zoo: repvgg_a0, variant: dep}
    |                                  ^^^ did you mean 'deep'?
recipe.yaml:5:3: error[bad-value]: 'B d' may not be a key of 'variants': a name is letters, digits, '_', '-' and '.', \
a letter or digit first
  5 |   B d: {activation: relu}
    |   ^^^
recipe.yaml:6:27: error[wrong-type]: 'variants.deep.deepen.behind' must be a string, found the integer 3
  6 |   deep: {deepen: {behind: 3}, align: {channels: 1}}
    |                           ^ write it in quotes
recipe.yaml:6:49: error[bad-value]: 'variants.deep.align.channels' must be at least 2, found 1
  6 |   deep: {deepen: {behind: 3}, align: {channels: 1}}
    |                                                 ^
recipe.yaml:7:23: error[bad-value]: 'variants.other.activation' must be relu, gelu, hardswish, silu or softplus, \
found the string 'hardswich'
  7 |   other: {activation: hardswich}
    |                       ^^^^^^^^^ did you mean 'hardswish'?
recipe.yaml:8:10: error[missing-key]: 'variants.some.activation' needs the key 'to'
  8 |   some: {activation: {match: "/head/*"}}
    |          ^^^^^^^^^^
recipe.yaml:9:3: error[bad-value]: 'variants.none' must not be empty
  9 |   none: {}
    |   ^^^^
recipe.yaml:10:3: error[duplicate-key]: 'deep' is here a second time
  10 |   deep: {activation: relu}
     |   ^^^^ first at line 6
""",
    ),
    "variant of a recipe that has none": (
        "bolt: 1\nmodel: {zoo: resnet50, variant: deep}\ntargets: {host: }\n",
        """\
recipe.yaml:2:33: error[unknown-variant]: the recipe has no variant 'deep'
  2 | model: {zoo: resnet50, variant: deep}
    |                                 ^^^^ it has no 'variants'
""",
    ),
    "variant whose engine's name would be too long": (
        HEAD + f"variants: {{{'v' * 60}: {{activation: gelu}}}}\n",
        f"""\
recipe.yaml:4:12: error[bad-name]: the engine of this variant would be called 'recipe_{"v" * 50}...', 67 characters
  4 | variants: {{{"v" * 60}: {{activation: gelu}}}}
    |            {"^" * 60} at most 64 are allowed
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
    "inputs and tolerances to verify with": (
        (
            "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {host: }\nverify: {inputs: real.npz, tolerance: .nan}\n"
            "layers: {a: {tolerance: 2000}, b: {tolerance: high}, c: {tolerance: .nan}}\n"
        ),
        """\
recipe.yaml:4:18: error[no-such-inputs]: the file of inputs 'real.npz' does not exist
  4 | verify: {inputs: real.npz, tolerance: .nan}
    |                  ^^^^^^^^
recipe.yaml:4:39: error[bad-value]: 'verify.tolerance' must be a number, found NaN
  4 | verify: {inputs: real.npz, tolerance: .nan}
    |                                       ^^^^
recipe.yaml:5:25: error[bad-value]: 'layers.a.tolerance' must be at most 1000, found 2000
  5 | layers: {a: {tolerance: 2000}, b: {tolerance: high}, c: {tolerance: .nan}}
    |                         ^^^^
recipe.yaml:5:47: error[wrong-type]: 'layers.b.tolerance' must be a number, found the string 'high'
  5 | layers: {a: {tolerance: 2000}, b: {tolerance: high}, c: {tolerance: .nan}}
    |                                               ^^^^
recipe.yaml:5:69: error[bad-value]: 'layers.c.tolerance' must be a number, found NaN
  5 | layers: {a: {tolerance: 2000}, b: {tolerance: high}, c: {tolerance: .nan}}
    |                                                                     ^^^^
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
        f"""\
recipe.yaml:3:11: error[unknown-target]: unknown target 'hots'
  3 | targets: {{hots: , tpu: {{precision: fp32}}}}
    |           ^^^^ did you mean 'host'?
recipe.yaml:3:19: error[unknown-target]: unknown target 'tpu'
  3 | targets: {{hots: , tpu: {{precision: fp32}}}}
    |                   ^^^ known targets: {", ".join(target.name for target in all_targets())}
""",
    ),
    "words of other tools": (
        "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {cpu: {}, t4: {precision: Float16}}\nengine: {io: {layout: nhwc}}\n",
        """\
recipe.yaml:3:11: error[unknown-target]: unknown target 'cpu'
  3 | targets: {cpu: {}, t4: {precision: Float16}}
    |           ^^^ did you mean 'host'?
recipe.yaml:3:36: error[bad-value]: 'targets.t4.precision' must be fp32, fp16 or bf16, found the string 'Float16'
  3 | targets: {cpu: {}, t4: {precision: Float16}}
    |                                    ^^^^^^^ did you mean 'fp16'?
recipe.yaml:4:23: error[bad-value]: 'engine.io.layout' must be model, row or channels_last, found the string 'nhwc'
  4 | engine: {io: {layout: nhwc}}
    |                       ^^^^ did you mean 'channels_last'?
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
    "precision that the GPU's instructions lack": (
        "bolt: 1\nmodel: {zoo: resnet50}\ntargets: {a100: {precision: bf16}, t4: {precision: bf16}}\n",
        """\
recipe.yaml:3:52: error[unsupported-precision]: the target 't4' does not compute in bf16
  3 | targets: {a100: {precision: bf16}, t4: {precision: bf16}}
    |                                                    ^^^^ it computes in 'fp16' and 'fp32': tensor cores of \
compute capability 7.5 have no bf16, those from 8.0 on have
""",
    ),
    "name": (
        HEAD + "name: -ResNet 50\n",
        """\
recipe.yaml:4:7: error[bad-value]: 'name' may not be '-ResNet 50': a name is letters, digits, '_', '-' and '.', \
a letter or digit first
  4 | name: -ResNet 50
    |       ^^^^^^^^^^ did you mean 'ResNet_50'?
""",
    ),
    "name that a line break would slip past": (
        HEAD + 'name: "x\\n"\n',
        """\
recipe.yaml:4:7: error[bad-value]: 'name' may not be 'x ': a name is letters, digits, '_', '-' and '.', \
a letter or digit first
  4 | name: "x\\n"
    |       ^^^^^ did you mean 'x'?
""",
    ),
    "fixed inputs": (
        "bolt: 1\nmodel: {zoo: resnet50, fixed: {r: k, on: []}, outputs: [y]}\ntargets: {host: }\n",
        """\
recipe.yaml:2:24: error[bad-value]: 'model.fixed' gives values to inputs of an ONNX file, and the model is the zoo's
  2 | model: {zoo: resnet50, fixed: {r: k, on: []}, outputs: [y]}
    |                        ^^^^^ leave it out
recipe.yaml:2:35: error[wrong-type]: 'model.fixed.r' must be a number or true or false or a list, found the string 'k'
  2 | model: {zoo: resnet50, fixed: {r: k, on: []}, outputs: [y]}
    |                                   ^
recipe.yaml:2:42: error[bad-value]: 'model.fixed.on' must not be empty
  2 | model: {zoo: resnet50, fixed: {r: k, on: []}, outputs: [y]}
    |                                          ^^
recipe.yaml:2:47: error[bad-value]: 'model.outputs' chooses outputs of an ONNX file, and the model is the zoo's
  2 | model: {zoo: resnet50, fixed: {r: k, on: []}, outputs: [y]}
    |                                               ^^^^^^^ leave it out
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


@pytest.mark.parametrize(("text", "expected"), VALUES.values(), ids=VALUES)
def test_wrong_values(text: str, expected: str) -> None:
    assert complaint_about(text) == expected


def test_a_model_file_with_nearly_that_name() -> None:
    Path("resnet50.onnx").touch()
    assert complaint_about("bolt: 1\nmodel: {onnx: resnet5.onnx}\ntargets: {host: }\n") == (
        """\
recipe.yaml:2:15: error[no-such-model]: the model file 'resnet5.onnx' does not exist
  2 | model: {onnx: resnet5.onnx}
    |               ^^^^^^^^^^^^ did you mean 'resnet50.onnx'?
"""
    )
