"""Small transformers and other modules as onnxruntime's tools leave them: fused for one kind of model, also in half
precision, optimised at each level, quantised in each form, with weights of 4 bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

from benchmarks.exporters.export_frameworks import written

_SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128}
_TOKENS = torch.randint(1, 100, (1, 12))
_Made = tuple[nn.Module, tuple[torch.Tensor, ...], tuple[str, ...]]


class _First(nn.Module):
    """The last hidden state of a model whose inputs go in by name."""

    def __init__(self, model: nn.Module, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.inputs = model, inputs

    def forward(self, *given: torch.Tensor) -> Any:
        return self.model(**dict(zip(self.inputs, given, strict=True))).last_hidden_state


class _Denoiser(nn.Module):
    """A block of a diffusion model's network: convolutions in normalised groups, attention and a gated product."""

    def __init__(self, width: int = 320) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.time = nn.Linear(64, width)
        self.norms = nn.ModuleList(nn.GroupNorm(32, width) for _ in range(3))
        self.convolutions = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.inside, self.outside = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
        self.rows = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.sources = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(3))
        self.joined, self.gate = nn.Linear(width, width), nn.Linear(width, 8 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        silu = nn.functional.silu
        x = self.first(x)
        y = self.convolutions[0](silu(self.norms[0](x))) + self.time(silu(t))[:, :, None, None]
        x = x + self.convolutions[1](silu(self.norms[1](y)))
        n, channels, height, width = x.shape
        y = self.inside(self.norms[2](x)).permute(0, 2, 3, 1).reshape(n, height * width, channels)
        normed = self.rows[0](y)
        q, k, v = (source(normed).reshape(n, -1, 8, channels // 8).permute(0, 2, 1, 3) for source in self.sources)
        shares = torch.softmax(q @ k.transpose(-1, -2) * (channels // 8) ** -0.5, -1)
        y = self.joined((shares @ v).permute(0, 2, 1, 3).reshape(n, -1, channels)) + y
        value, gate = self.gate(self.rows[1](y)).chunk(2, -1)
        y = self.narrow(value * nn.functional.gelu(gate)) + y
        return self.last(x + self.outside(y.reshape(n, height, width, channels).permute(0, 3, 1, 2)))


class _Images(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16, padding=1),
            nn.Hardswish(), nn.Conv2d(16, 32, 1), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(4),
        )  # fmt: skip
        self.head = nn.Linear(512, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return torch.softmax(self.head((y * torch.sigmoid(y)).flatten(1)), 1)


def _models() -> Iterator[tuple[str, str | None, Callable[[], _Made]]]:
    """A name, what onnxruntime's tools call such models (None: no such kind), and what makes one."""
    import transformers as hf

    def texts(kind: str, **changed: Any) -> Callable[[], _Made]:
        def make() -> _Made:
            config = getattr(hf, f"{kind}Config")(vocab_size=100, **changed)
            config.use_cache, config._attn_implementation = False, "eager"
            inputs = ("input_ids", "attention_mask")
            name = "T5EncoderModel" if kind == "T5" else f"{kind}Model"
            return _First(getattr(hf, name)(config), inputs).eval(), (_TOKENS, torch.ones_like(_TOKENS)), inputs

        return make

    def images(kind: str) -> Callable[[], _Made]:
        def make() -> _Made:
            config = getattr(hf, f"{kind}Config")(image_size=32, patch_size=8, **_SMALL)
            config._attn_implementation = "eager"
            model = _First(getattr(hf, f"{kind}Model")(config), ("pixel_values",))
            return model.eval(), (torch.randn(1, 3, 32, 32),), ("pixel_values",)

        return make

    yield "bert", "bert", texts("Bert", **_SMALL)
    yield "distilbert", "bert", texts("DistilBert", n_layers=2, dim=64, n_heads=4, hidden_dim=128)
    yield "gpt2", "gpt2", texts("GPT2", n_layer=2, n_embd=64, n_head=4)
    yield "t5", "t5", texts("T5", num_layers=2, d_model=64, num_heads=4, d_kv=16, d_ff=128)
    yield "llama", "gpt2", texts("Llama", num_key_value_heads=2, **_SMALL)
    yield "vit", "vit", images("ViT")
    yield "clip", "clip", images("CLIPVision")
    yield "denoiser", "unet", lambda: (_Denoiser().eval(), (torch.randn(1, 4, 8, 8), torch.randn(1, 64)), ("x", "t"))
    yield "images", None, lambda: (_Images().eval(), (torch.randn(1, 3, 16, 16),), ("x",))


def _fused(source: str, kind: str, *, half: bool = False, apart: bool = False) -> Callable[[str], None]:
    """By the tool for a kind of models; `apart`: attention of queries, keys and values that are products apart."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    def write(path: str) -> None:
        options = FusionOptions(kind)
        options.use_multi_head_attention = apart
        heads, width = (8, 320) if kind == "unet" else (4, 64)
        model = optimize_model(source, kind, heads, width, optimization_options=options, opt_level=0)
        if half:
            model.convert_float_to_float16(keep_io_types=False)
        model.save_model_to_file(path)

    return write


def _optimised(source: str, level: str) -> Callable[[str], None]:
    def write(path: str) -> None:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        options.optimized_model_filepath = path
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])

    return write


def _quantised(source: str) -> Iterator[tuple[str, Callable[[str], None]]]:
    """How files are called, and what writes one."""
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    class Drawn(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            inputs = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"]).get_inputs()
            random = np.random.RandomState(0)
            self._left = [
                {
                    each.name: random.rand(*each.shape).astype(np.float32) if "float" in each.type
                    else random.randint(0, 99 if "ids" in each.name else 2, each.shape)
                    for each in inputs
                }
                for _ in range(3)
            ]  # fmt: skip

        def get_next(self) -> dict[str, Any] | None:
            return self._left.pop() if self._left else None

    def static(form: QuantFormat, activations: QuantType, weights: QuantType, **options: Any) -> Callable[[str], None]:
        return lambda path: quantize_static(
            source, path, Drawn(), quant_format=form, activation_type=activations, weight_type=weights, **options
        )

    def few_bits(path: str) -> None:
        made = MatMulNBitsQuantizer(onnx.load(source), block_size=32, is_symmetric=False)
        made.process()
        made.model.save_model_to_file(path, False)

    signed, unsigned, pairs, plain = QuantType.QInt8, QuantType.QUInt8, QuantFormat.QDQ, QuantFormat.QOperator
    yield "ortdynamicu8", lambda path: quantize_dynamic(source, path, weight_type=unsigned)
    yield "ortdynamicchannels", lambda path: quantize_dynamic(source, path, weight_type=signed, per_channel=True)
    yield "ortqdqsigned", static(pairs, signed, signed, per_channel=True)
    yield "ortqdqw4", static(pairs, unsigned, QuantType.QInt4)
    yield "ortqdqu16", static(pairs, QuantType.QUInt16, signed, extra_options={"UseQDQContribOps": True})
    yield "ortqoperatoru8", static(plain, unsigned, unsigned)
    yield "ortnbits", few_bits


def fused(folder: Path) -> None:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    for name, kind, make in _models():
        source, prepared = (str(folder / f"{name}.{step}") for step in ("source", "prepared"))
        torch.manual_seed(0)
        module, given, inputs = make()
        torch.onnx.export(module, given, source, opset_version=14, dynamo=False, input_names=list(inputs))
        quant_pre_process(source, prepared, skip_symbolic_shape=True)
        if kind:
            written(folder, "ortfused", name, _fused(source, kind))
            written(folder, "ortmulti", name, _fused(source, kind, apart=True))
            written(folder, "orthalf", name, _fused(source, kind, half=True))
        for exporter, level in (("ortbasic", "BASIC"), ("ortextended", "EXTENDED"), ("ortall", "ALL")):
            written(folder, exporter, name, _optimised(source, level))  # the last has layouts of this CPU's own
        for exporter, write in _quantised(prepared):
            written(folder, exporter, name, write)
        for path in (source, prepared):
            Path(path).unlink()
