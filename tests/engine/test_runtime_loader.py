"""The Python loader against an engine written by hand in C (`data/runtime/relay_engine.c`)."""

from __future__ import annotations

import copy
import ctypes
import pickle
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from bolt_build import runtime
from bolt_build.dtypes import DType
from bolt_build.graph.ir import Array, Layout
from bolt_build.runtime.loader import Context, Engine, EngineError, StepInfo, TensorSpec

SOURCE = Path(__file__).parents[1] / "data" / "runtime" / "relay_engine.c"


def compile_relay(folder: Path, version: int = 1) -> Path:
    library = folder / "librelay.so"
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", f"-DTABLE_VERSION={version}"]
    subprocess.run(["cc", *flags, f"-I{runtime.include_dir()}", str(SOURCE), "-o", str(library)], check=True)
    return library


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_relay(tmp_path_factory.mktemp("relay"))


@pytest.fixture
def context(library: Path) -> Iterator[Context]:
    with Engine(library) as engine, engine.create(b"good weights") as model, model.context(4) as context:
        yield context


def inputs(batch: int = 4) -> dict[str, Array]:
    image = np.arange(batch * 12, dtype=np.float32).reshape(batch, 3, 2, 2)
    return {"image": image, "bias": np.array([0.5, 1.0, -2.0], ml_dtypes.bfloat16)}


def live(library: Path) -> int:
    """100 for each model and 1 for each context that the library has not been asked to destroy."""
    return int(ctypes.CDLL(str(library)).relay_live())


def test_an_engine_describes_itself(library: Path) -> None:
    engine = Engine(library)
    assert (engine.name, engine.target, engine.layout_digest, engine.batches) == ("relay", "host", "abcd", (1, 4))
    assert engine.manifest == {"made": "by hand"}
    assert engine.inputs(4) == (
        TensorSpec("image", DType.F32, Layout.CHANNELS_LAST, "cpu", (4, 3, 2, 2), 192),
        TensorSpec("bias", DType.BF16, Layout.ROW, "cpu", (3,), 6),
    )
    assert [port.name for port in engine.outputs(1)] == ["sum", "copy"]


def test_arrays_are_logical_whatever_the_engine_stores(context: Context) -> None:
    given = inputs()
    outputs = context.run(given)
    expected = given["image"] + given["bias"].astype(np.float32).reshape(1, 3, 1, 1)
    np.testing.assert_array_equal(outputs["sum"], expected)
    assert outputs["sum"].flags.c_contiguous
    assert outputs["copy"].dtype == np.dtype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(outputs["copy"], given["bias"])


def test_inputs_need_not_be_contiguous(context: Context) -> None:
    given = inputs()
    wide = np.repeat(given["image"], 2, axis=3)[..., ::2]
    assert not wide.flags.c_contiguous
    np.testing.assert_array_equal(context.run({**given, "image": wide})["sum"], context.run(given)["sum"])


def test_observers_see_steps_and_copies_in_logical_order(context: Context) -> None:
    seen: list[tuple[StepInfo, str, Array]] = []
    outputs = context.run_observed(inputs(), lambda *step: seen.append(step))
    assert [(step, name) for step, name, _ in seen] == [
        (StepInfo(0, "Add_0", ("Add_0", "Relu_1"), "relay(width=1)"), "sum"),
        (StepInfo(1, "Copy_2", (), "relay"), "copy"),
    ]
    for _, name, array in seen:
        np.testing.assert_array_equal(array, outputs[name])
        assert not np.shares_memory(array, outputs[name])
    seen.clear()
    context.run_observed(inputs(), lambda *step: seen.append(step), only={"copy"})
    assert [name for _, name, _ in seen] == ["copy"]


def test_what_an_observer_raises_arrives(context: Context) -> None:
    calls: list[str] = []

    def observer(step: StepInfo, name: str, array: Array) -> None:
        calls.append(name)
        raise KeyError(name)

    with pytest.raises(KeyError, match="sum"):
        context.run_observed(inputs(), observer)
    assert calls == ["sum"]


def test_every_input_that_does_not_fit_is_named(context: Context) -> None:
    given = inputs()
    wrong = {"image": given["image"].astype(np.float64), "biass": given["bias"]}
    with pytest.raises(ValueError) as caught:
        context.run(wrong)
    assert str(caught.value) == (
        "'biass' is no input of relay; input 'image' is float64 [4, 3, 2, 2], wanted float32 [4, 3, 2, 2]; "
        "input 'bias' is missing"
    )
    with pytest.raises(ValueError, match=r"^input 'image' is float32 \[1, 3, 2, 2\], wanted float32 \[4, 3, 2, 2\]$"):
        context.run(inputs(batch=1) | {"bias": given["bias"]})
    with pytest.raises(ValueError, match=r"^input 'image' is of type list, wanted a NumPy array$"):
        context.run({"image": [[1.0]], "bias": given["bias"]})  # type: ignore[dict-item]
    for what, kind in ((given["image"], "ndarray"), ([given["image"]], "list"), (None, "NoneType")):
        with pytest.raises(TypeError) as unnamed:
            context.run(what)  # type: ignore[arg-type]
        assert str(unnamed.value) == f"inputs are of type {kind}, wanted a mapping: arrays by the names of inputs"


def test_numbers_that_the_border_cannot_hold_are_not_cut_off(context: Context) -> None:
    model = context.model
    create = model.engine.create
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: model.context(2**64 + 1), f"the batch is {2**64 + 1}, which does not fit into 64 bits"),
        (lambda: create(b"good", threads=2**32 + 1), f"threads is {2**32 + 1}, which does not fit into 32 bits"),
        (lambda: create(b"good", device=-(2**32)), f"device is -{2**32}, which does not fit into 32 bits"),
    ]
    for call, said in calls:
        with pytest.raises(ValueError) as caught:
            call()
        assert str(caught.value) == said
    with pytest.raises(TypeError):
        model.context(1.0)  # type: ignore[arg-type]


def test_extents_are_named_and_only_where_there_are_several(context: Context) -> None:
    with pytest.raises(TypeError) as caught:
        context.model.context(4, dims="sequence")  # type: ignore[arg-type]
    assert str(caught.value) == "dims is of type str, wanted a mapping: extents by the names of dimensions"
    with pytest.raises(ValueError) as refused:
        context.model.context(4, dims={"sequence": 8})
    assert str(refused.value) == "relay was given sequence 8; none of its dimensions has several extents"


def test_an_engine_of_several_batches_must_be_told_which(context: Context) -> None:
    with pytest.raises(ValueError) as caught:
        context.model.context()
    assert str(caught.value) == "relay has several batches: give one of (1, 4)"
    context.model.engine.batches = (4,)
    assert context.model.context().batch == 4


def test_what_holds_memory_of_an_engine_is_not_copied(context: Context) -> None:
    """A copy would free the memory a second time."""
    copies: tuple[Callable[[object], object], ...] = (copy.copy, copy.deepcopy, pickle.dumps)
    for each, name in ((context, "Context"), (context.model, "Model"), (context.model.engine, "Engine")):
        for copied in copies:
            with pytest.raises(TypeError) as caught:
                copied(each)
            assert str(caught.value) == (
                f"a {name} cannot be copied or pickled: make another one, in each process its own"
            )


def test_an_engines_refusal_carries_status_and_sentence(library: Path, context: Context) -> None:
    given = inputs()
    given["image"] = given["image"] - 1
    for call in (lambda: context.run(given), lambda: context.run_observed(given, lambda *_: None)):
        with pytest.raises(EngineError) as caught:
            call()
        assert (caught.value.status, str(caught.value)) == (5, "a kernel failed (device error)")
    with pytest.raises(EngineError, match=r"^these weights are not good \(bad weights\)$"):
        Engine(library).create(b"bad weights")
    with pytest.raises(EngineError, match=r"^no plan for this batch \(invalid argument\)$"):
        context.model.context(2)
    with pytest.raises(EngineError, match=r"^no plan for this batch \(invalid argument\)$"):
        Engine(library).inputs(2)


def test_weights_come_from_a_file_or_from_memory(library: Path, tmp_path: Path) -> None:
    path = tmp_path / "relay.weights"
    path.write_bytes(b"good")
    engine = Engine(library)
    for weights in (path, b"good"):
        with engine.create(weights, threads=2) as model, model.context(1) as context:
            assert context.nbytes == 64
    with pytest.raises(EngineError, match="not good"):
        engine.create(tmp_path / "none.weights")


def test_contexts_go_before_their_model_and_nothing_stays(library: Path) -> None:
    with Engine(library) as engine:
        model = engine.create(b"good")
        context = model.context(1)
        model.context(4)
        assert live(library) >= 101
        model.close()
        assert live(library) == 0
        model.close()
        with pytest.raises(ValueError, match=r"^the context is closed$"):
            context.run(inputs(1))
        with pytest.raises(ValueError, match=r"^the model is closed$"):
            model.context(1)
        model = engine.create(b"good")
    assert live(library) == 0


def test_a_library_that_is_no_engine_is_refused(tmp_path: Path, library: Path) -> None:
    other = tmp_path / "libother.so"
    other.write_bytes(library.read_bytes())
    with pytest.raises(ValueError, match=r"libother\.so is not an engine: it exports no 'other_bolt_v1'$"):
        Engine(other)
    with pytest.raises(OSError):
        Engine(tmp_path / "libnone.so")
    newer = compile_relay(tmp_path, version=2)
    with pytest.raises(ValueError) as caught:
        Engine(newer)
    assert str(caught.value) == (
        f"{newer} has ABI version 2 with a table of 288 bytes; this loader knows version 1 with 288"
    )
