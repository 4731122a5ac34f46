"""Exports randomly initialised models of torchvision, timm and others (`torch_models/catalog.py`) with torch.onnx.

Runs in an environment that has these packages and torch, which none of the project's own have (`torch_exporters.py`
says how to make one and calls this).

    python benchmarks/exporters/export_torch.py MODEL FORM FILE [BATCH]   # FORM is ts14, ts17, dynamo18, dynamo23 or hf
    python benchmarks/exporters/export_torch.py MODEL ts17 FILE any       # for any batch, with uncalibrated weights
    python benchmarks/exporters/export_torch.py --serve                   # such lines come in, answers in JSON go out

Weights are random and calibrated: what is constant when a model is made (biases, scales, gates) is drawn too, and
BatchNorm has the statistics of a random batch. So every part of a model has a share in its outputs, and layers keep
their magnitude.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.exporters.torch_models.catalog import ABSENT, MODELS, NAMED, ONE_FORM
from benchmarks.exporters.torch_models.transformers_deployed_sizes import SIZED

FORMS = {"ts14": (False, 14), "ts17": (False, 17), "dynamo18": (True, 18), "dynamo23": (True, 23)}
"""Whether torch.export traces the model, and the opset."""

ANY = "any"
"""The batch of exports for any."""
SEED = 1
_BATCH = 4


def drawn(model: torch.nn.Module) -> None:
    """Draws parameters whose numbers are all the same around what they are; those next to 0 are made larger."""
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point() or not parameter.numel():
                continue
            value = parameter.flatten()[0].item()
            if (parameter == value).all():
                noise = 0.1 * torch.randn_like(parameter)
                around = value if abs(value) > 1e-2 else 0.2
                parameter.copy_(noise if value == 0 else around * (1 + noise))


def calibrated(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    """Gives every BatchNorm the statistics of what reaches it for a random batch."""
    layers = [each for each in model.modules() if isinstance(each, torch.nn.modules.batchnorm._BatchNorm)]
    if not layers:
        return
    for layer in layers:
        layer.train()
        layer.momentum = None  # the mean of what it sees, which is one batch
    with torch.no_grad():
        model(*(_drawn_like(each) for each in inputs))
    model.eval()


def _drawn_like(given: torch.Tensor) -> torch.Tensor:
    """A random batch of what goes in; what counts or chooses is the same for all of it."""
    if given.is_floating_point():
        return torch.randn(_BATCH, *given.shape[1:])
    return given.repeat(_BATCH, *[1] * (given.ndim - 1))


def plain_masks() -> None:
    """Lets transformers compute masks by broadcasting: torch.jit cannot trace the torch.vmap that it uses."""
    try:
        from transformers import masking_utils
    except ImportError:
        return

    def broadcast(mask_function: Any, bh_indices: bool = True) -> Any:
        def mask(batch: Any, head: Any, query: Any, key: Any) -> torch.Tensor:
            if not bh_indices:
                found: torch.Tensor = mask_function(None, None, query[:, None], key[None, :])
                return found
            indices = batch[:, None, None, None], head[:, None, None], query[:, None], key
            found = mask_function(*indices)
            return found.expand(len(batch), len(head), len(query), len(key))

        return mask

    masking_utils._vmap_for_bhqkv = broadcast
    masking_utils.TransformGetItemToIndex = contextlib.nullcontext


def made(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """A model and its inputs, the same in every process of the same packages."""
    model, inputs = initialised(name)
    drawn(model)
    calibrated(model, inputs)
    return model, inputs


def initialised(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(SEED)
    torch.backends.mha.set_fastpath_enabled(False)  # its operator has no form in ONNX
    model, inputs = (MODELS | {f"sized.{kind}": each for kind, each in SIZED.items()})[name]()
    return model.eval(), inputs


def by_transformers(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: str) -> None:
    """Writes a model of transformers with its own exporter, which names all outputs."""
    import onnx_ir
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    given = dict(zip(model.inputs, inputs, strict=True))
    onnx_ir.save(OnnxExporter().export(model.model, given, config=OnnxConfig()).program, path)


def export(name: str, form: str, path: str, batch: str = "1") -> None:
    if batch == ANY:
        for_any_batch(name, form, path)
        return
    model, inputs = made(name)
    if form == "hf":
        by_transformers(model, inputs, path)
        return
    dynamo, opset = FORMS[form]
    inputs = tuple(each.repeat(int(batch), *[1] * (each.ndim - 1)) for each in inputs)
    with torch.no_grad():
        if dynamo:
            torch.onnx.export(model, inputs, path, dynamo=True, opset_version=opset, external_data=False)
        else:
            plain_masks()
            torch.onnx.export(model, inputs, path, dynamo=False, opset_version=opset)


def for_any_batch(name: str, form: str, path: str) -> None:
    """Writes a model by torchscript whose inputs' first axis is named. What is planned depends on no weight, so these
    are as they were initialised: that takes a tenth of the time."""
    model, inputs = initialised(name)
    dynamo, opset = FORMS[form]
    assert not dynamo, "torch.export needs a dimension for the batch"
    names = [f"x{index}" for index in range(len(inputs))]
    plain_masks()
    with torch.no_grad():
        torch.onnx.export(
            model, inputs, path, dynamo=False, opset_version=opset, input_names=names,
            dynamic_axes={each: {0: "N"} for each in names},
        )  # fmt: skip


def answered(*words: str) -> str:
    """ "ok", or the last line of what is wrong."""
    try:
        export(*words)
    except BaseException as error:
        return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]
    return "ok"


def serve() -> None:
    """A process for each line: one import of the packages serves them all, and what kills one export ends no other."""
    import timm  # noqa: F401
    import transformers  # noqa: F401

    answers = os.dup(1)
    os.dup2(2, 1)  # exporters print to stdout
    for line in sys.stdin:
        receiving, sending = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(sending, answered(*line.split()).encode())
            os._exit(0)
        os.close(sending)
        with os.fdopen(receiving) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        os.write(answers, (json.dumps(said or "the export was killed") + "\n").encode())


def main() -> int:
    if sys.argv[1:] == ["--list"]:
        print(json.dumps({"named": list(NAMED), "all": list(MODELS), "one_form": ONE_FORM, "absent": ABSENT}))
        return 0
    warnings.filterwarnings("ignore")
    if sys.argv[1:] == ["--serve"]:
        serve()
        return 0
    said = answered(*sys.argv[1:])
    print(said)
    return said != "ok"


if __name__ == "__main__":
    sys.exit(main())
