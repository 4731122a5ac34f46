"""What every model of the zoo must have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from bolt_build.graph.zoo.samples import sample
from bolt_build.verify.compare import dependence


def assert_depends_on_its_input(path: Path, *, noise_too: bool = True) -> None:
    """Outputs of different images differ, and so do those of noise: a model without that cannot fail a comparison."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    images = sample((3, 3, 224, 224), 1)
    noise = np.random.RandomState(2).standard_normal(images.shape).astype(np.float32)
    for batch in (images, noise) if noise_too else (images,):
        (logits,) = session.run(None, {"input": batch})
        cosine = dependence(logits)
        assert cosine is not None
        assert cosine < 0.9
        assert len(set(logits.argmax(1))) > 1
        assert np.abs(logits).max() < 100
