"""How exact a product of normalised rows is where the normalisation is folded into the product, in three ways, on rows
that transformers have and on rows made to be hard. NumPy computes what kernels do, step by step, no GPU is needed.

    python benchmarks/kernels/prenorm_numerics.py

Ways: `stored` normalises in fp32, rounds, and multiplies; `folded` multiplies rows as they are, and takes the mean
times the sums of weights from the sums; `pivot` takes the mean of a row's first 64 numbers first, where that is
more than twice their deviation, as `prenorm_products.h` does. Factors are in half precision. Sums are in fp32: 16
columns are added at a time, and what does not fit is cut off, as by tensor cores. An error is the root of the mean
square over that of what is exact, which is in fp64 and of the same rounded rows and weights.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import record

Array = NDArray[np.float64]
ROWS, DEPTH, COLUMNS, FIRST, STEP, EPSILON = 256, 768, 256, 64, 16, 1e-6
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def rounded(values: Array, kind: str) -> Array:
    with np.errstate(over="ignore"):
        return np.asarray(values.astype(TYPES[kind]), np.float64)


def single(values: Array) -> Array:
    return np.asarray(values.astype(np.float32), np.float64)


def cut(values: Array) -> Array:
    """To fp32, towards zero."""
    nearest = values.astype(np.float32)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(values)
    return np.asarray(np.where(beyond, np.nextafter(nearest, np.float32(0)), nearest), np.float64)


def multiplied(x: Array, weights: Array) -> Array:
    """In fp32, 16 columns at a time."""
    sums = np.zeros((len(x), weights.shape[1]))
    for at in range(0, x.shape[1], STEP):
        sums = cut(sums + x[:, at : at + STEP] @ weights[at : at + STEP])
    return sums


def factors(x: Array) -> tuple[Array, Array]:
    """Mean of each row, and what normalises it, in fp64."""
    mean = x.mean(axis=1, keepdims=True)
    return mean, 1 / np.sqrt(np.square(x - mean).mean(axis=1, keepdims=True) + EPSILON)


def exact(x: Array, scale: Array, weights: Array, _: str) -> Array:
    mean, factor = factors(x)
    return np.asarray((x - mean) * factor * scale @ weights)


def stored(x: Array, scale: Array, weights: Array, kind: str) -> Array:
    mean, factor = factors(x)
    return multiplied(rounded(single((x - mean) * factor) * scale, kind), weights)


def in_one(x: Array, scale: Array, weights: Array, kind: str) -> Array:
    """Of what is multiplied in the place of the rows, statistics in one pass in fp32."""
    both = rounded(weights * scale[:, None], kind)
    mean = single(multiplied(x, np.ones((DEPTH, 1))) / DEPTH)
    squares = single(multiplied(np.square(x), np.ones((DEPTH, 1))) / DEPTH)
    spread = np.maximum(single(squares - single(np.square(mean))), 0)
    return single((multiplied(x, both) - mean * single(both.sum(axis=0))) / np.sqrt(spread + EPSILON))


def folded(x: Array, scale: Array, weights: Array, kind: str) -> Array:
    """With statistics that are known: their own error is not part of this."""
    both = rounded(weights * scale[:, None], kind)
    mean, factor = factors(x)
    return single((multiplied(x, both) - single(single(mean) * single(both.sum(axis=0)))) * single(factor))


def pivot(x: Array, scale: Array, weights: Array, kind: str) -> Array:
    first = x[:, :FIRST].mean(axis=1, keepdims=True)
    near = 1.25 * np.square(first) <= np.square(x[:, :FIRST]).mean(axis=1, keepdims=True)
    about = np.where(near, 0, rounded(first, kind))
    return in_one(rounded(x - about, kind), scale, weights, kind)


def plain(draw: np.random.RandomState) -> Array:
    return draw.normal(size=(ROWS, DEPTH))


def at(mean: float) -> Callable[[np.random.RandomState], Array]:
    return lambda draw: mean + plain(draw)


def outliers(channels: slice) -> Callable[[np.random.RandomState], Array]:
    """Of 100 times, all of one sign."""

    def of(draw: np.random.RandomState) -> Array:
        x = plain(draw)
        x[:, channels] = 100 + x[:, channels]
        return x

    return of


ROWS_OF: dict[str, Callable[[np.random.RandomState], Array]] = {
    "mean 0, deviation 1": plain,
    "mean 3": at(3.0),
    "mean 10": at(10.0),
    "mean 100": at(100.0),
    "mean 1000": at(1000.0),
    "6 channels about 100": outliers(slice(300, 306)),
    "the first 64 about 100": outliers(slice(0, FIRST)),
    "all but the first 64 about 100": outliers(slice(FIRST, DEPTH)),
    "deviation 0.001": lambda draw: plain(draw) / 1000,
}
WAYS = {"stored": stored, "folded": folded, "pivot": pivot}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    found: dict[str, dict[str, dict[str, float]]] = {}
    for kind in TYPES:
        draw = np.random.RandomState(17)
        # Columns of weights have sums, as trained ones do: what is far from zero is multiplied by them.
        weights = rounded(draw.normal(0.01, 0.02, (DEPTH, COLUMNS)), kind)
        scale = single(draw.uniform(0.3, 2.0, DEPTH))
        for name, of in ROWS_OF.items():
            x = rounded(of(draw), kind)
            right = exact(x, scale, weights, kind)
            size = np.sqrt(np.mean(np.square(right)))
            row = found.setdefault(name, {}).setdefault(kind, {})
            for way, function in WAYS.items():
                wrong = function(x, scale, weights, kind) - right
                row[way] = float(f"{np.sqrt(np.mean(np.square(wrong))) / size:.3g}")
            print(f"{name:32} {kind:5}", "  ".join(f"{way} {error:.2e}" for way, error in row.items()), flush=True)
    facts = record.environment("numpy", "ml_dtypes")
    shape = {"rows": ROWS, "depth": DEPTH, "columns": COLUMNS}
    record.write("prenorm_numerics", {**facts, **shape, "errors": found}, arguments.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
