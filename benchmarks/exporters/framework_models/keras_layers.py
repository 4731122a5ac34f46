"""Layers and functions of Keras and TensorFlow, as tf2onnx writes them at several opsets, from TFLite files too, and as
Keras itself does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exporters.export_frameworks import written


def _models(keras: Any, layers: Any) -> dict[str, Callable[[], Any]]:
    def line(shape: tuple[int, ...], *steps: Any, dtype: str = "float32") -> Any:
        x = given = keras.Input(shape, dtype=dtype)
        for step in steps:
            x = step(x)
        return keras.Model(given, x)

    def several(shape: tuple[int, ...], make: Callable[[Any], list[Any]]) -> Any:
        given = keras.Input(shape)
        return keras.Model(given, make(given))

    def queried(make: Callable[[Any], Any]) -> Any:
        given = keras.Input((6, 32))
        return keras.Model(given, make(given))

    ops = keras.ops
    return {
        "conv_lstm": lambda: line((4, 12, 12, 3), layers.ConvLSTM2D(4, 3, padding="same"), layers.Flatten()),
        "bigru": lambda: line((10, 6), layers.Bidirectional(layers.GRU(8, return_sequences=True)), layers.Dense(3)),
        "gru_before": lambda: line((10, 6), layers.GRU(8, reset_after=False)),
        "lstm_relu": lambda: line((10, 6), layers.LSTM(8, activation="relu", recurrent_activation="hard_sigmoid")),
        "rnn": lambda: line((10, 6), layers.SimpleRNN(8, return_sequences=True), layers.SimpleRNN(4)),
        "masked": lambda: line((10,), layers.Embedding(20, 6, mask_zero=True), layers.LSTM(8), dtype="int32"),
        "frames": lambda: line((5, 16, 16, 3), layers.TimeDistributed(layers.Conv2D(4, 3)),
                               layers.TimeDistributed(layers.GlobalMaxPooling2D()), layers.LSTM(4)),
        "grouped_queries": lambda: queried(
            lambda q: layers.GroupQueryAttention(8, 4, 2)(q, q, use_causal_mask=True)),
        "causal": lambda: queried(lambda q: layers.MultiHeadAttention(4, 8)(q, q, use_causal_mask=True)),
        "turned_1d": lambda: line((20, 4), layers.Conv1DTranspose(8, 4, strides=2), layers.UpSampling1D(2),
                                  layers.ZeroPadding1D(3), layers.Cropping1D(2)),
        "turned_3d": lambda: line((4, 6, 6, 2), layers.Conv3DTranspose(3, 3, strides=2, padding="same"),
                                  layers.UpSampling3D(2), layers.AveragePooling3D(2)),
        "depthwise_1d": lambda: line((20, 4), layers.DepthwiseConv1D(3, depth_multiplier=2),
                                     layers.SeparableConv1D(6, 3), layers.GlobalMaxPooling1D()),
        "norms": lambda: line((12, 12, 8), layers.UnitNormalization(), layers.GroupNormalization(2),
                              layers.SpectralNormalization(layers.Conv2D(4, 3)), layers.RMSNormalization()),
        "resized": lambda: line((7, 9, 3), layers.UpSampling2D((2, 3), interpolation="bilinear"),
                                layers.Resizing(10, 11), layers.CenterCrop(8, 8)),
        "nearest": lambda: line((7, 9, 3), layers.Resizing(10, 11, interpolation="nearest")),
        "merged": lambda: several((4, 6), lambda x: [layers.Dot(2)([x, x]), layers.Maximum()([x, x + 1])]),
        "einsum": lambda: line((6, 8), layers.EinsumDense("abc,cde->abde", (None, 2, 4)), layers.Flatten()),
        "algebra": lambda: several((6, 6), lambda x: [
            ops.einsum("bij,bkj->bik", x, x), ops.norm(x, axis=-1), ops.trace(x, axis1=1, axis2=2), ops.triu(x, k=1),
            ops.cumsum(x, axis=1), ops.roll(x, 2, axis=1), ops.flip(x, axis=2)]),
        "patches": lambda: several((12, 12, 3), lambda x: [
            ops.image.extract_patches(x, 4), ops.image.rgb_to_grayscale(x), ops.image.pad_images(x, 1, 1, 1, 1)]),
    }  # fmt: skip


_OPSETS = {"bigru": (9, 11, 13), "nearest": (11, 13), "norms": (13,), "resized": (13,)}
_BY_KERAS = ("bigru", "norms", "turned_1d", "einsum", "masked", "grouped_queries")
_BY_TFLITE = ("depthwise_1d", "einsum", "turned_1d", "merged")


def _functions(tf: Any) -> dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]:
    def looped(x: Any) -> Any:
        state = tf.zeros_like(x[:, 0])
        for index in tf.range(4):
            state = tf.tanh(state * 0.5 + x[:, index])
        return state

    rows = (tf.TensorSpec((3, 16), tf.float32, name="x"),)
    square = (tf.TensorSpec((2, 5, 5), tf.float32, name="x"),)
    return {
        "loop": (looped, (tf.TensorSpec((3, 4, 5), tf.float32, name="x"),)),
        "map": (lambda x: tf.map_fn(lambda row: tf.reduce_sum(row) * row, x), rows),
        "cond": (lambda x: tf.cond(tf.shape(x)[0] > 2, lambda: x * 2, lambda: x + 1), rows),
        "fft": (lambda x: tf.abs(tf.signal.rfft(x)), rows),
        "band": (lambda x: (tf.linalg.band_part(x, 1, 0), tf.linalg.diag_part(x)), square),
        "pads": (lambda x: (tf.pad(x, [[0, 0], [1, 2]], "REFLECT"), tf.pad(x, [[0, 0], [1, 2]], "SYMMETRIC")), rows),
        "strides": (lambda x: (x[:, ::2, ::-1], x[..., tf.newaxis, 1:3], tf.reverse(x, [1])), square),
    }  # fmt: skip


def layers(folder: Path) -> None:
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    import keras
    import tensorflow as tf
    import tf2onnx

    def by_tf2onnx(model: Any, opset: int) -> Callable[[str], Any]:
        specs = [
            tf.TensorSpec((None, *each.shape[1:]), each.dtype, name=f"x{index}")
            for index, each in enumerate(model.inputs)
        ]
        call = tf.function(lambda *x: model(x[0], training=False), input_signature=specs)
        return lambda path: tf2onnx.convert.from_function(call, specs, opset=opset, output_path=path)

    def by_tflite(model: Any, *, whole: bool) -> Callable[[str], Any]:
        """`whole`: with weights and activations of 8 bits."""

        def write(path: str) -> None:
            converter = tf.lite.TFLiteConverter.from_keras_model(model)
            if whole:
                shape = model.inputs[0].shape[1:]
                converter.optimizations = [tf.lite.Optimize.DEFAULT]
                converter.representative_dataset = lambda: (
                    [np.random.randn(1, *shape).astype("float32")] for _ in range(5)
                )
                converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
            between = Path(f"{path}.tflite")
            between.write_bytes(converter.convert())
            tf2onnx.convert.from_tflite(str(between), opset=17, output_path=path)
            between.unlink()

        return write

    for name, make in _models(keras, keras.layers).items():
        keras.utils.set_random_seed(0)
        model = make()
        for opset in (17, *_OPSETS.get(name, ())):
            written(folder, "tf2onnx", name if opset == 17 else f"{name}_{opset}", by_tf2onnx(model, opset))
        if name in _BY_KERAS:
            written(folder, "keras", name, lambda path, it=model: it.export(path, format="onnx", verbose=False))
        if name in _BY_TFLITE:
            written(folder, "tflite", name, by_tflite(model, whole=False))
    written(
        folder, "tflite", "depthwise_1d_bytes", by_tflite(_models(keras, keras.layers)["depthwise_1d"](), whole=True)
    )
    for name, (function, given) in _functions(tf).items():
        call = tf.function(function, input_signature=given)
        written(
            folder, "tf2onnx", name,
            lambda path, call=call, given=given: tf2onnx.convert.from_function(
                call, given, opset=17, output_path=path
            ),
        )  # fmt: skip
