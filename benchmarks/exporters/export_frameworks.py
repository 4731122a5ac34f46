"""Writes ONNX files as exporters other than PyTorch's do, for `shipped_models.py`. Weights are seeded, not trained.

    python -m venv tf && tf/bin/pip install tensorflow-cpu tf2onnx
    tf/bin/python benchmarks/exporters/export_frameworks.py keras FILES
    python -m venv jax && jax/bin/pip install jax flax jax2onnx scikit-learn skl2onnx onnxslim onnxsim onnxruntime
    jax/bin/python benchmarks/exporters/export_frameworks.py flax FILES
    jax/bin/python benchmarks/exporters/export_frameworks.py sklearn FILES
    # of those before: optimised, quantised, simplified
    jax/bin/python benchmarks/exporters/export_frameworks.py processed FILES
    tf/bin/python benchmarks/exporters/export_frameworks.py layers FILES
    python -m venv learned && learned/bin/pip install skl2onnx onnxmltools xgboost-cpu lightgbm catboost spox ndonnx
    learned/bin/python benchmarks/exporters/export_frameworks.py learned FILES
    learned/bin/python benchmarks/exporters/export_frameworks.py by_hand FILES
    python -m venv paddle && paddle/bin/pip install paddlepaddle paddle2onnx packaging
    paddle/bin/python benchmarks/exporters/export_frameworks.py paddles FILES
    exporters/bin/pip install onnxruntime    # of torch_exporters.py
    exporters/bin/python benchmarks/exporters/export_frameworks.py fused FILES

A file is called `EXPORTER-MODEL.onnx`; `versions.json` has the version of each exporter. Files that are there stay. A
model that its exporter cannot write is named, and left out.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

_MODELS = "benchmarks.exporters.framework_models"
_PACKAGES = {"tflite": "tf2onnx", "xgboost": "xgboost-cpu"}
"""Of exporters that are called otherwise than their package; names that begin with "ort" are onnxruntime's."""


def written(folder: Path, exporter: str, model: str, write: Callable[[str], Any]) -> None:
    """Writes a file, or says why not; notes its exporter's version."""
    path = folder / f"{exporter}-{model}.onnx"
    if path.exists():
        return
    try:
        write(str(path))
    except Exception as error:  # every exporter raises what it likes
        print(f"{path.name}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        path.unlink(missing_ok=True)
        return
    kept = folder / "versions.json"
    versions = json.loads(kept.read_text()) if kept.exists() else {}
    package = "onnxruntime" if exporter.startswith("ort") else _PACKAGES.get(exporter, exporter)
    versions[exporter] = version(package)
    kept.write_text(json.dumps(versions, indent=1) + "\n")
    print(path.name, flush=True)


# -- Keras -------------------------------------------------------------------------------------------------------

_APPLICATIONS = {
    "MobileNetV2": 96, "MobileNetV3Small": 96, "ResNet50V2": 96, "EfficientNetB0": 96, "EfficientNetV2B0": 96,
    "DenseNet121": 96, "InceptionV3": 107, "NASNetMobile": 96, "Xception": 96, "MobileNet": 96,
}  # fmt: skip
"""Networks of keras.applications, and the pixels along each side of their images."""
_BY_KERAS = ("MobileNetV3Small", "ResNet50V2", "EfficientNetV2B0")
"""Those that `Model.export` writes too."""


def keras(folder: Path) -> None:
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    import keras
    import tensorflow
    import tf2onnx

    def by_tf2onnx(model: Any) -> Callable[[str], Any]:
        spec = tensorflow.TensorSpec((None, *model.input_shape[1:]), model.input.dtype, name="x")
        call = tensorflow.function(lambda x: model(x, training=False), input_signature=[spec])
        return lambda path: tf2onnx.convert.from_function(call, [spec], opset=17, output_path=path)

    for name, pixels in _APPLICATIONS.items():
        keras.utils.set_random_seed(0)
        network = getattr(keras.applications, name)
        model = network(weights=None, input_shape=(pixels, pixels, 3), classes=10)
        for weight in model.variables:  # statistics as trained networks have them
            if "moving_mean" in weight.path:
                weight.assign(np.random.normal(0, 0.1, weight.shape))
            if "moving_var" in weight.path:
                weight.assign(np.random.uniform(0.5, 2, weight.shape))
        written(folder, "tf2onnx", name, by_tf2onnx(model))
        if name in _BY_KERAS:
            written(folder, "keras", name, lambda path, it=model: it.export(path, format="onnx", verbose=False))
    for made in (_transformer, _text, _unet, _line, _channels_normalised, _volume):
        keras.utils.set_random_seed(0)
        written(folder, "tf2onnx", made.__name__.strip("_"), by_tf2onnx(made(keras, keras.layers)))


def _transformer(keras: Any, layers: Any) -> Any:
    x = given = keras.Input((16, 64))
    for _ in range(2):
        normed = layers.LayerNormalization(epsilon=1e-6)(x)
        x = layers.Add()([x, layers.MultiHeadAttention(4, 16)(normed, normed)])
        wide = layers.Dense(128, activation="silu")(layers.LayerNormalization(epsilon=1e-6)(x))
        x = layers.Add()([x, layers.Dense(64)(wide)])
    return keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))))


def _text(keras: Any, layers: Any) -> Any:
    given = keras.Input((12,), dtype="int32")
    x = layers.Embedding(50, 16)(given)
    x = layers.GRU(8)(layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x))
    return keras.Model(given, layers.Dense(3, activation="softmax")(x))


def _unet(keras: Any, layers: Any) -> Any:
    given = keras.Input((32, 32, 3))
    high = layers.Conv2D(8, 3, padding="same", activation="swish")(given)
    low = layers.SeparableConv2D(16, 3, padding="same")(layers.MaxPooling2D()(high))
    low = layers.Activation("relu")(layers.GroupNormalization(4)(low))
    joined = layers.Concatenate()([high, layers.Conv2DTranspose(8, 3, strides=2, padding="same")(low)])
    small = layers.Conv2D(4, 3, strides=2, padding="same")(joined)
    grown = layers.UpSampling2D(2, interpolation="bilinear")(small)
    found = layers.Concatenate()([layers.PReLU(shared_axes=[1, 2])(joined), grown])
    return keras.Model(given, layers.Conv2D(1, 1, activation="sigmoid")(found))


def _line(keras: Any, layers: Any) -> Any:
    given = keras.Input((64, 4))
    x = layers.BatchNormalization()(layers.Conv1D(16, 5, padding="causal", activation="relu")(given))
    x = layers.MaxPooling1D(2)(layers.Conv1D(16, 3, dilation_rate=2, padding="same")(x))
    return keras.Model(given, layers.Dense(4)(layers.Flatten()(layers.LayerNormalization()(x))))


def _channels_normalised(keras: Any, layers: Any) -> Any:
    given = keras.Input((32, 32, 3))
    x = layers.LayerNormalization()(layers.Conv2D(16, 4, strides=4)(given))
    for _ in range(2):
        inner = layers.LayerNormalization()(layers.DepthwiseConv2D(7, padding="same")(x))
        x = layers.Add()([x, layers.Dense(16)(layers.Dense(64, activation="silu")(inner))])
    return keras.Model(given, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def _volume(keras: Any, layers: Any) -> Any:
    given = keras.Input((8, 16, 16, 2))
    x = layers.BatchNormalization()(layers.Conv3D(8, 3, padding="same", activation="relu")(given))
    x = layers.Conv3D(8, 3, padding="same")(layers.MaxPooling3D(2)(layers.Activation("hard_sigmoid")(x)))
    return keras.Model(given, layers.Dense(4)(layers.GlobalAveragePooling3D()(x)))


# -- Flax --------------------------------------------------------------------------------------------------------


def flax(folder: Path) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    from flax import nnx
    from jax2onnx import to_onnx

    from benchmarks.exporters.framework_models import flax_modules

    for name, (module, shape) in flax_modules.MODELS.items():
        model = module(nnx.Rngs(0))
        model.eval()
        tokens = len(shape) == 2 and module is flax_modules.Language
        inputs = [jax.ShapeDtypeStruct(shape, jax.numpy.int32)] if tokens else [shape]
        written(
            folder, "jax2onnx", name,
            lambda path, model=model, inputs=inputs: to_onnx(
                model, inputs=inputs, return_mode="file", output_path=path
            ),
        )  # fmt: skip


# -- scikit-learn ------------------------------------------------------------------------------------------------


def sklearn(folder: Path) -> None:
    from skl2onnx import to_onnx
    from sklearn import (
        cluster,
        decomposition,
        ensemble,
        gaussian_process,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        preprocessing,
        svm,
    )  # fmt: skip

    random = np.random.default_rng(0)
    x = random.normal(size=(200, 8)).astype(np.float32)
    label, number = (x[:, 0] + x[:, 1] ** 2 > 0.5).astype(int), x @ random.normal(size=8)
    models = {
        "MLPClassifier": neural_network.MLPClassifier((16, 8), max_iter=50), "PCA": decomposition.PCA(3),
        "SVD": decomposition.TruncatedSVD(3), "StandardScaler": preprocessing.StandardScaler(),
        "MinMaxScaler": preprocessing.MinMaxScaler(), "Robust": preprocessing.RobustScaler(),
        "Normalizer": preprocessing.Normalizer(), "Poly": preprocessing.PolynomialFeatures(2),
        "LogReg": linear_model.LogisticRegression(), "LinReg": linear_model.LinearRegression(),
        "Ridge": linear_model.Ridge(), "SVC": svm.SVC(), "SVR": svm.SVR(), "LinearSVC": svm.LinearSVC(),
        "Forest": ensemble.RandomForestClassifier(5, random_state=0), "GNB": naive_bayes.GaussianNB(),
        "GBR": ensemble.GradientBoostingRegressor(n_estimators=5), "KMeans": cluster.KMeans(3, random_state=0),
        "GPR": gaussian_process.GaussianProcessRegressor(), "KNN": neighbors.KNeighborsClassifier(),
    }  # fmt: skip
    for name, model in models.items():
        model.fit(x, number if name in ("LinReg", "Ridge", "SVR", "GBR", "GPR") else label)
        options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
        written(
            folder, "skl2onnx", name,
            lambda path, model=model, options=options: Path(path).write_bytes(
                to_onnx(model, x[:1], options=options).SerializeToString()
            ),
        )  # fmt: skip


# -- What is made of files ---------------------------------------------------------------------------------------

_PROCESSED = {"MobileNetV3Small": "tf2onnx", "ViT": "jax2onnx"}


def processed(folder: Path) -> None:
    """What onnxruntime's optimiser and quantiser, onnxslim and onnxsim make of some files, at batch 1."""
    from benchmarks.exporters.framework_models import simplified_and_quantised

    for name, exporter in _PROCESSED.items():
        fixed = folder / f"{name}.fixed"
        simplified_and_quantised.with_batch(folder / f"{exporter}-{name}.onnx", fixed, 1)
        for way, write in simplified_and_quantised.WAYS.items():
            written(folder, way, name, lambda path, write=write, fixed=fixed: write(str(fixed), path))
        fixed.unlink()


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.mkdir(parents=True, exist_ok=True)
    own = {"keras": keras, "flax": flax, "sklearn": sklearn, "processed": processed}
    elsewhere = {
        "layers": "keras_layers", "learned": "sklearn_and_boosting", "by_hand": "handwritten_graphs",
        "paddles": "paddle_modules", "fused": "onnxruntime_fused",
    }  # fmt: skip
    what = sys.argv[1]
    (own[what] if what in own else getattr(importlib.import_module(f"{_MODELS}.{elsewhere[what]}"), what))(target)
