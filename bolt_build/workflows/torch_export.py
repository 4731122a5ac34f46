"""A PyTorch module as an ONNX file: of a function that returns it, where torch is installed."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bolt_build.errors import BoltError, Diagnostic, ExitCode
from bolt_build.wording import suggest

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
BATCH = "N"
"""What the first dimension of every input is called."""


def is_function(text: str) -> bool:
    """True of `package.module:function`."""
    return _FUNCTION.fullmatch(text) is not None and not Path(text).exists()


def export_function(name: str, shapes: Mapping[str, tuple[int, ...]], path: Path) -> None:
    """Calls the function called `package.module:function`, and writes what it returns to `path` as ONNX.

    It returns a torch.nn.Module, or a pair of it and a tuple of example inputs. Without a pair, inputs are random fp32
    tensors of `shapes`, in the order of the module's forward. The first dimension of every input is symbolic.

    Raises BoltError: "missing-tool" without torch, "no-such-function" where there is none, "model-failed" where it or
    the export raises, "no-module" where it returns something else, "no-inputs" and "other-inputs" where `shapes` do not
    fit.
    """
    found = _called(name)
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError as error:
        message = f"{name} is exported by PyTorch, which cannot be imported ({error})"
        hint = "python -m pip install torch, or export it to ONNX where torch is"
        raise BoltError([Diagnostic("missing-tool", message, hint=hint)], ExitCode.TOOL_MISSING) from None
    module, given = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    if not isinstance(module, torch.nn.Module):
        message = f"{name} returns {type(module).__name__}, which is no torch.nn.Module"
        hint = "let it return the module, or the module and a tuple of example inputs"
        raise BoltError([Diagnostic("no-module", message, hint=hint)])
    names = _input_names(name, module, None if given is None else len(given), shapes)
    if given is None:
        torch.manual_seed(0)
        given = tuple(torch.randn(*shapes[each]) for each in names)
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        torch.onnx.export(
            module.eval(), tuple(given), str(partial), input_names=list(names), dynamo=False,
            dynamic_axes={each: {0: BATCH} for each in names},
        )  # fmt: skip
        partial.replace(path)
    except Exception as error:
        raise BoltError([_failed(f"exporting {name}", error)]) from error
    finally:
        partial.unlink(missing_ok=True)


def _called(name: str) -> Any:
    place, _, path = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(place)
    except ImportError as error:
        message = f"{place} cannot be imported: {error}"
        raise BoltError([Diagnostic("no-such-function", message, hint="run it where Python finds it")]) from None
    except Exception as error:
        raise BoltError([_failed(f"importing {place}", error)]) from error
    for word in path.split("."):
        if not hasattr(found, word):
            near = suggest(word, [each for each in dir(found) if callable(getattr(found, each))])
            raise BoltError([Diagnostic("no-such-function", f"{place} has no '{path}'", hint=near)])
        found = getattr(found, word)
    try:
        return found()
    except Exception as error:
        raise BoltError([_failed(f"{name}()", error)]) from error


def _input_names(name: str, module: Any, given: int | None, shapes: Mapping[str, tuple[int, ...]]) -> tuple[str, ...]:
    """Names of the inputs, in order: of so many that are `given`, or of those that `shapes` has."""
    parameters = inspect.signature(module.forward).parameters
    known = [each.name for each in parameters.values() if each.kind is not each.KEYWORD_ONLY]
    if given is not None:
        return tuple(known[:given]) if len(known) >= given else tuple(f"input_{index}" for index in range(given))
    wrong = [each for each in shapes if each not in known]
    if wrong:
        hint = f"its forward takes: {', '.join(known)}"
        raise BoltError([Diagnostic("other-inputs", f"{name} has no input '{each}'", hint=hint) for each in wrong])
    wanted = [each for each in known if each in shapes or parameters[each].default is inspect.Parameter.empty]
    missing = [each for each in wanted if each not in shapes]
    if missing:
        shape = "1x3x224x224"
        hint = f"say it with --input {missing[0]}={shape}, or let the function return the module and example inputs"
        raise BoltError(
            [
                Diagnostic("no-inputs", f"the shape of {name}'s input '{each}' is not known", hint=hint)
                for each in missing
            ]
        )
    return tuple(wanted)


def _failed(what: str, error: Exception) -> Diagnostic:
    text: Sequence[str] = str(error).strip().splitlines() or [""]
    return Diagnostic("model-failed", f"{what} raised {type(error).__name__}: {text[0][:300]}")
