"""Pipelines of scikit-learn and boosted trees, as their converters write them. Data are drawn, not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.exporters.export_frameworks import written

_RANDOM = np.random.default_rng(0)
X = _RANDOM.normal(size=(300, 6)).astype(np.float32)
CATEGORIES = _RANDOM.integers(0, 4, (300, 3)).astype(np.int64)
HOLES = np.where(_RANDOM.random(X.shape) < 0.1, np.nan, X).astype(np.float32)
TWO = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)
THREE = np.digitize(X[:, 0] + X[:, 2], [-0.5, 0.7])
NUMBER = (X @ _RANDOM.normal(size=6) + np.sin(3 * X[:, 0])).astype(np.float32)
NUMBERS = np.stack([NUMBER, X[:, 1] * 2], 1)

_Fitted = tuple[str, Any, Any, Any]
"""What a model is called, itself, its data and what it is to learn of them."""


def _estimators() -> Iterator[_Fitted]:
    from sklearn import (
        calibration,
        compose,
        cross_decomposition,
        decomposition,
        discriminant_analysis,
        ensemble,
        impute,
        linear_model,
        multiclass,
        multioutput,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )  # fmt: skip

    line = linear_model.LogisticRegression()
    for name, model, target in (
        ("TreeC", tree.DecisionTreeClassifier(max_depth=4), THREE), ("TreeR2", tree.DecisionTreeRegressor(), NUMBERS),
        ("ForestC", ensemble.RandomForestClassifier(7, max_depth=5), THREE),
        ("ForestR", ensemble.RandomForestRegressor(7, max_depth=5), NUMBER),
        ("ExtraC", ensemble.ExtraTreesClassifier(7, max_depth=5), TWO),
        ("GBC", ensemble.GradientBoostingClassifier(n_estimators=5), THREE),
        ("GBC2", ensemble.GradientBoostingClassifier(n_estimators=5), TWO),
        ("AdaC", ensemble.AdaBoostClassifier(n_estimators=4), TWO),
        ("AdaR", ensemble.AdaBoostRegressor(n_estimators=4), NUMBER),
        ("Bagging", ensemble.BaggingClassifier(n_estimators=3), TWO),
        ("Stack", ensemble.StackingClassifier([("a", line), ("b", tree.DecisionTreeClassifier(max_depth=3))]), TWO),
        ("LogReg3", line, THREE), ("SGDC", linear_model.SGDClassifier(loss="log_loss"), TWO),
        ("RidgeC", linear_model.RidgeClassifier(), THREE), ("Poisson", linear_model.PoissonRegressor(), abs(NUMBER)),
        ("LDA", discriminant_analysis.LinearDiscriminantAnalysis(), THREE),
        ("QDA", discriminant_analysis.QuadraticDiscriminantAnalysis(), THREE),
        ("SVRrbf", svm.SVR(), NUMBER), ("NuSVR", svm.NuSVR(kernel="poly"), NUMBER),
        ("OneClass", svm.OneClassSVM(), None),
        ("LinSVC3", svm.LinearSVC(), THREE), ("BNB", naive_bayes.BernoulliNB(), THREE),
        ("KNNR", neighbors.KNeighborsRegressor(3), NUMBER), ("PLS", cross_decomposition.PLSRegression(2), NUMBER),
        ("MLPC3", neural_network.MLPClassifier((8, 4), max_iter=30, activation="tanh"), THREE),
        ("OvR", multiclass.OneVsRestClassifier(line), THREE),
        ("Outputs", multioutput.MultiOutputRegressor(linear_model.Ridge()), NUMBERS),
        ("Calibrated", calibration.CalibratedClassifierCV(line, cv=2, method="isotonic"), TWO),
        ("Pipeline", pipeline.make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(3), line), THREE),
        ("PipelineOfColumns", pipeline.make_pipeline(
            compose.ColumnTransformer([("a", preprocessing.StandardScaler(), [0, 1, 2])], remainder="passthrough"),
            ensemble.GradientBoostingRegressor(n_estimators=4)), NUMBER),
    ):  # fmt: skip
        yield name, model, X, target
    for name, model, data in (
        ("OneHot", preprocessing.OneHotEncoder(sparse_output=False, handle_unknown="ignore"), CATEGORIES),
        ("Ordinal", preprocessing.OrdinalEncoder(), CATEGORIES), ("Imputer", impute.SimpleImputer(), HOLES),
        ("Bins", preprocessing.KBinsDiscretizer(3, encode="onehot-dense", strategy="uniform"), X),
        ("Quantile", preprocessing.QuantileTransformer(n_quantiles=20), X),
        ("KernelPCA", decomposition.KernelPCA(3, kernel="rbf"), X),
    ):  # fmt: skip
        yield name, model, data, None


def _boosted() -> Iterator[tuple[str, str, Callable[[], bytes]]]:
    """Package, name and what makes the file's bytes."""
    import catboost
    import lightgbm
    import onnxmltools
    import xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType

    rows = [("x", FloatTensorType([None, X.shape[1]]))]

    def by_tools(convert: Any, model: Any, target: Any, **options: Any) -> bytes:
        model.fit(X, target)
        return bytes(convert(model, initial_types=rows, **options).SerializeToString())

    def by_catboost(model: Any, target: Any, path: str = "catboost.tmp") -> bytes:
        model.fit(X, target, verbose=False)
        model.save_model(path, format="onnx")
        made = Path(path).read_bytes()
        Path(path).unlink()
        return made

    few: dict[str, Any] = {"n_estimators": 6, "max_depth": 3}
    for name, model, target in (
        ("C2", xgboost.XGBClassifier(**few), TWO), ("C3", xgboost.XGBClassifier(**few), THREE),
        ("R", xgboost.XGBRegressor(**few), NUMBER), ("Forest", xgboost.XGBRFRegressor(**few), NUMBER),
        ("Poisson", xgboost.XGBRegressor(objective="count:poisson", **few), abs(NUMBER).round()),
        ("Deep", xgboost.XGBRegressor(n_estimators=40, max_depth=8), NUMBER),
    ):  # fmt: skip
        yield "xgboost", name, lambda model=model, target=target: by_tools(onnxmltools.convert_xgboost, model, target)
    quiet: dict[str, Any] = {"n_estimators": 6, "verbose": -1}
    for name, model, target, options in (
        ("C2", lightgbm.LGBMClassifier(**quiet), TWO, {"zipmap": False}),
        ("C3", lightgbm.LGBMClassifier(**quiet), THREE, {"zipmap": False}),
        ("Tweedie", lightgbm.LGBMRegressor(objective="tweedie", **quiet), abs(NUMBER), {}),
        ("Split", lightgbm.LGBMRegressor(n_estimators=20, verbose=-1), NUMBER, {"split": 5}),
    ):
        yield (
            "lightgbm",
            name,
            lambda model=model, target=target, options=options: by_tools(
                onnxmltools.convert_lightgbm, model, target, **options
            ),
        )
    for name, model, target in (
        ("C2", catboost.CatBoostClassifier(iterations=5, depth=3), TWO),  # its file ends in maps
        ("R", catboost.CatBoostRegressor(iterations=5, depth=3), NUMBER),
    ):
        yield "catboost", name, lambda model=model, target=target: by_catboost(model, target)


def learned(folder: Path) -> None:
    from skl2onnx import to_onnx

    for name, model, data, target in _estimators():
        model.fit(data, target)
        options = {id(model): {"zipmap": False}} if hasattr(model, "predict_proba") else None
        written(
            folder, "skl2onnx", name,
            lambda path, model=model, data=data, options=options: Path(path).write_bytes(
                to_onnx(model, data[:1], options=options).SerializeToString()
            ),
        )  # fmt: skip
    for package, name, make in _boosted():
        written(folder, package, name, lambda path, make=make: Path(path).write_bytes(make()))
