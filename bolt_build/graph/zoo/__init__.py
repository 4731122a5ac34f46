"""Models that are written here instead of downloaded: `{zoo: resnet50}` in a recipe.

A zoo model is its graph (an ONNX model whose weights are zero) with calibrated seeded weights, or a `Seeded` one: an
encoder, whose weights need no calibration. The same bytes are written on every machine. Importing this package imports
neither NumPy nor onnx.
Another package adds models through the entry-point group `bolt_build.zoo`: each entry point is called as the model and
names the function that gives its graph.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from bolt_build.errors import BoltError, Diagnostic
from bolt_build.plugins import Found, guarded_call, offers, plugged

if TYPE_CHECKING:
    from onnx import ModelProto

    from bolt_build.graph.zoo.seeded import Seeded

_BUILDERS = {
    "bert_base": ("bert", "build_base"),
    "bert_base_masked": ("bert", "build_base_masked"),
    "bert_large": ("bert", "build_large"),
    "clip_vision": ("vit", "build_clip"),
    "convnext_tiny": ("convnext_tiny", "build"),
    "densenet121": ("densenet121", "build"),
    "distilbert": ("bert", "build_distil"),
    "efficientnet_b0": ("efficientnet_b0", "build"),
    "mobilenet_v2": ("mobilenet_v2", "build"),
    "mobilenet_v3_small": ("mobilenet_v3_small", "build"),
    "repvgg_a0": ("repvgg", "build_a0"),
    "repvgg_a1": ("repvgg", "build_a1"),
    "repvgg_b0": ("repvgg", "build_b0"),
    "resnet18": ("resnet18", "build"),
    "resnet50": ("resnet50", "build"),
    "resnext50_32x4d": ("resnet50", "build_resnext"),
    "vgg16": ("vgg16", "build"),
    "vgg19": ("vgg16", "build_19"),
    "vit_b16": ("vit", "build_b16"),
    "whisper_tiny_encoder": ("whisper", "build_tiny"),
    "wide_resnet50_2": ("resnet50", "build_wide"),
}
"""Of each model: the module here and the function in it that gives its graph."""
_SEED = 50


def names() -> tuple[str, ...]:
    """What `write` can write, where the packages that add models are sound."""
    return (*_BUILDERS, *(offer.name for offer in offers("bolt_build.zoo") if offer.name not in _BUILDERS))


def module(name: str) -> str | None:
    """The module of bolt-build that the graph of model `name` is built in, None for another package's model.

    Raises BoltError ("unknown-zoo-model").
    """
    _known(name)
    return f"{__name__}.{_BUILDERS[name][0]}" if name in _BUILDERS else None


def write(name: str, path: Path, change: Callable[[ModelProto], ModelProto] | None = None) -> None:
    """Writes model `name` as an ONNX file, all at once or not at all. `change` is made before it is calibrated.

    Raises BoltError ("unknown-zoo-model", or where another package's model cannot be used), what `change` raises, and
    OSError where the file cannot be written.
    """
    _known(name)
    graph = _builder(name)()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            _write(graph, file, change)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def blank(name: str) -> ModelProto:
    """The graph of model `name` with weights that are zero: for what does not depend on them. Raises what `write`
    does."""
    # As in writing.
    from bolt_build.graph.zoo.seeded import Seeded

    _known(name)
    graph = _builder(name)()
    return graph.zeros() if isinstance(graph, Seeded) else graph


def _write(graph: ModelProto | Seeded, file: IO[bytes], change: Callable[[ModelProto], ModelProto] | None) -> None:
    # Writing loads onnx and NumPy: the models' names need neither.
    from bolt_build.graph.zoo.calibrate import calibrate
    from bolt_build.graph.zoo.seeded import Seeded

    if not isinstance(graph, Seeded):
        model = calibrate(graph if change is None else change(graph), _SEED)
    elif change is None:
        graph.write(file, _SEED)
        return
    else:
        changed = change(graph.drawn(_SEED))
        new = frozenset(item.name for item in changed.graph.initializer) - graph.spreads.keys()
        model = calibrate(changed, _SEED, only=new) if new else changed
    file.write(model.SerializeToString(deterministic=True))


def plugged_models(only: tuple[str, ...] | None = None) -> Found[Callable[[], ModelProto]]:
    """The models of other packages, or those of them called as one of `only`, and what is wrong with some."""
    return plugged(group="bolt_build.zoo", own=_BUILDERS, check=_is_function, only=only)


def _is_function(thing: Any) -> str | None:
    return None if callable(thing) else f"is no function but a {type(thing).__name__}"


def _builder(name: str) -> Callable[[], ModelProto | Seeded]:
    if name not in _BUILDERS:
        (added,) = plugged_models((name,)).checked()
        return guarded_call(added.offer, added.thing)
    within, function = _BUILDERS[name]
    build: Callable[[], ModelProto | Seeded] = getattr(importlib.import_module(f"{__name__}.{within}"), function)
    return build


def _known(name: str) -> None:
    if name not in names():
        hint = f"known models: {', '.join(names())}"
        raise BoltError([Diagnostic("unknown-zoo-model", f"unknown zoo model '{name}'", hint=hint)])
