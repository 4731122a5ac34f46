"""One step of decoders of transformers: a token and caches go in, logits and caches come out.

Caches that grow are concatenated with the token's rows. Static ones have their full length from the start, and rows are
scattered into them. What a cache is made of differs by model: keys and values, states of convolutions and of scans.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn, randint, randn

from benchmarks.exporters.torch_models.transformers_shrunk import Inputs, T, small

Made = tuple[nn.Module, tuple[Tensor, ...]]
Key = tuple[str, int | str | None]
"""An attribute of a layer of a cache, and the entry where it holds several tensors."""


def _tensors(layer: Any) -> Iterator[tuple[Key, Tensor]]:
    for name, value in sorted(vars(layer).items()):
        entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for entry, each in [(None, value), *entries]:
            if isinstance(each, Tensor):
                yield (name, entry), each


def _get(layer: Any, key: Key) -> Tensor:
    name, entry = key
    found: Tensor = getattr(layer, name) if entry is None else getattr(layer, name)[entry]
    return found


def _parts(cache: Any) -> list[Any]:
    """A cache, or those of a decoder's own tokens and of the encoder's."""
    both = hasattr(cache, "self_attention_cache")
    return [cache.self_attention_cache, cache.cross_attention_cache] if both else [cache]


class Step(nn.Module):
    """A model and the form of its cache, whose tensors are inputs and outputs."""

    def __init__(self, model: nn.Module, cache: Any) -> None:
        super().__init__()
        self.model, self.form = model, [cache]
        self.places = [
            (part, index, key)
            for part, each in enumerate(_parts(cache))
            for index, layer in enumerate(each.layers)
            for key, _ in _tensors(layer)
        ]

    def tensors(self, cache: Any) -> tuple[Tensor, ...]:
        return tuple(_get(_parts(cache)[part].layers[index], key) for part, index, key in self.places)

    def filled(self, given: tuple[Tensor, ...]) -> Any:
        """A cache of the form with these tensors."""
        cache = copy.copy(self.form[0])
        parts = [copy.copy(part) for part in _parts(cache)]
        for part in parts:
            part.layers = [copy.copy(layer) for layer in part.layers]
            for layer in part.layers:
                vars(layer).update({k: copy.copy(v) for k, v in vars(layer).items() if isinstance(v, list | dict)})
        if len(parts) > 1:
            cache.self_attention_cache, cache.cross_attention_cache = parts
            cache.is_updated = dict(cache.is_updated)
        else:
            (cache,) = parts
        for (part, index, (name, entry)), value in zip(self.places, given, strict=True):
            layer, own = parts[part].layers[index], value + 0  # caches are written to
            if entry is None:
                setattr(layer, name, own)
            else:
                getattr(layer, name)[entry] = own
        return cache

    def forward(self, ids: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        cache = self.filled(given)
        return (self.model(ids, cache=cache, use_cache=True)["logits"], *self.tensors(cache))


class Answer(Step):
    """The same of a decoder that reads an encoder's rows."""

    def forward(self, ids: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        from transformers.modeling_outputs import BaseModelOutput

        cache, rows = self.filled(given[1:]), BaseModelOutput(last_hidden_state=given[0])
        result = self.model(encoder_outputs=rows, decoder_input_ids=ids, cache=cache, use_cache=True)
        return (result["logits"], *self.tensors(cache))


def _model(name: str, **changed: Any) -> Any:
    kind = getattr(T, name)
    config = small(kind.config_class, **changed)
    config.use_cache = True
    return kind(config).eval()


def _token() -> Tensor:
    return randint(3, 90, (1, 1))


def _copied(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(each.detach().clone() for each in tensors)


def _growing(name: str, **changed: Any) -> Callable[[], Made]:
    def made() -> Made:
        model = _model(name, **changed)
        with torch.no_grad():
            cache = model(randint(3, 90, (1, 9)), use_cache=True).cache
        step = Step(model, cache)
        return step, (_token(), *_copied(step.tensors(cache)))

    return made


def _static(name: str, **changed: Any) -> Callable[[], Made]:
    def made() -> Made:
        model = _model(name, **changed)
        cache = T.StaticCache(config=model.config, max_cache_len=32)
        with torch.no_grad():
            model(randint(3, 90, (1, 9)), cache=cache, use_cache=True)
        step = Step(model, cache)
        return step, (_token(), *_copied(step.tensors(cache)))

    return made


def _answering(name: str, given: Callable[[], Inputs], **changed: Any) -> Callable[[], Made]:
    def made() -> Made:
        model = _model(name, **changed)
        with torch.no_grad():
            result = model(**given(), decoder_input_ids=randint(3, 90, (1, 5)), use_cache=True)
        step = Answer(model, result.cache)
        return step, (_token(), *_copied((result.encoder_last_hidden_state, *step.tensors(result.cache))))

    return made


_SLIDING = {"sliding_window": 8}
_PLAIN = (
    "Bloom", "Falcon", "FalconMamba", "GPTBigCode", "GPTNeoX", "Glm4", "Granite", "Llama", "Mamba", "Mpt", "OPT",
    "Olmo2", "Olmo3", "Phi", "Phi3", "Qwen2", "Qwen3", "SmolLM3", "StableLm",
)  # fmt: skip
_DECODERS: dict[str, dict[str, Any]] = {
    **{name: {} for name in _PLAIN},
    **dict.fromkeys(("Cohere2", "Gemma2", "Gemma3", "Mistral"), _SLIDING),
    "FalconH1": {"mamba_d_ssm": 128}, "GPTJ": {"rotary_dim": 8}, "Lfm2": {"layer_types": ["conv", "full_attention"]},
}  # fmt: skip
STEPS: dict[str, Callable[[], Made]] = {
    **{name: _growing(f"{name}ForCausalLM", **changed) for name, changed in _DECODERS.items()},
    "GPT2": _growing("GPT2LMHeadModel"),
    "T5": _answering("T5ForConditionalGeneration", lambda: {"input_ids": randint(3, 90, (1, 12))}),
    "Bart": _answering("BartForConditionalGeneration", lambda: {"input_ids": randint(3, 90, (1, 12))}),
    "M2M100": _answering("M2M100ForConditionalGeneration", lambda: {"input_ids": randint(3, 90, (1, 12))}),
    "Whisper": _answering("WhisperForConditionalGeneration", lambda: {"input_features": randn(1, 80, 100)},
                          max_source_positions=50),
    "Speech2Text": _answering("Speech2TextForConditionalGeneration", lambda: {"input_features": randn(1, 60, 80)},
                              max_source_positions=100, max_target_positions=50),
}  # fmt: skip
STATIC: dict[str, Callable[[], Made]] = {
    name: _static(f"{name}ForCausalLM", **(_SLIDING if name.startswith("Gemma") else {}))
    for name in ("GPTNeoX", "Gemma2", "Gemma3", "Llama", "Phi3", "Qwen3")
}

PACKAGES = {"step": ("transformers", STEPS), "static": ("transformers", STATIC)}
ONE_FORM = dict.fromkeys((*(f"step.{name}" for name in STEPS), *(f"static.{name}" for name in STATIC)), "ts17") | (
    dict.fromkeys(("step.Cohere2", "step.Glm4", "step.Olmo3"), "dynamo23")
)
"""torch-script writes no queries that share keys as these do."""
