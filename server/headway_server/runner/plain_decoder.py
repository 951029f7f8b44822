# SPDX-License-Identifier: Apache-2.0
"""Reads the plain decoder structure out of one of transformers' models, or says why it has none.

What a module computes is told from trying it, not from its name; a difference that slips through
is found by the comparison of logits that follows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from headway_server.native.abi import Activation
from headway_server.runner.attention import ShapeProbe
from headway_server.runner.kv_cache import LayerShape

# Modules that may be there; any other changes what the model computes.
MODEL_PARTS = {"embed_tokens", "layers", "norm", "rotary_emb"}
LAYER_PARTS = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}
ATTENTION_PARTS = {"q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "q_norm", "k_norm"}
MLP_PARTS = {"gate_proj", "up_proj", "gate_up_proj", "down_proj", "act_fn", "activation_fn"}

# Their angles depend on the length of the sequence, so that a table of them cannot be made.
CHANGING_ROTATIONS = ("dynamic", "longrope")

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.SILU: silu,
    Activation.GELU_TANH: lambda x: gelu(x, approximate="tanh"),
}


class NotPlain(Exception):
    """What the model has beside the plain structure, as the rest of a sentence."""


@dataclass(frozen=True, slots=True)
class Rows:
    """The outputs `first .. end` of a linear layer, None being its own end."""

    linear: Any
    first: int = 0
    end: int | None = None

    @property
    def weight(self) -> Tensor:
        weight: Tensor = self.linear.weight.detach()[self.first : self.end]
        return weight

    @property
    def bias(self) -> Tensor | None:
        bias: Tensor | None = self.linear.bias
        return None if bias is None else bias.detach()[self.first : self.end]


@dataclass(frozen=True, slots=True)
class PlainLayer:
    attention_norm: Tensor
    mlp_norm: Tensor
    query_norm: Tensor | None
    key_norm: Tensor | None
    qkv: tuple[Rows, ...]
    out: Rows
    gate: Rows
    up: Rows
    down: Rows
    scaling: float
    window: int | None
    rotates: bool


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """`cosines` and `sines` [positions, rotary dim / 2]. Norms and tables are float32."""

    shape: LayerShape
    heads: int
    ffn: int
    activation: Activation
    norm_epsilon: float
    embedding: Any
    embedding_scale: float
    cosines: Tensor
    sines: Tensor
    final_norm: Tensor
    head: Rows
    layers: tuple[PlainLayer, ...]


def read_plain_decoder(model: Any, probe: ShapeProbe, positions: int) -> PlainDecoder:
    """`probe` has seen a forward pass of `model`. Raises NotPlain."""
    try:
        body = model.model
        only(body, MODEL_PARTS)
        first = body.layers[0]
        cosines, sines = rotary_tables(body.rotary_emb, positions)
        layers = tuple(read_layer(layer, probe, i) for i, layer in enumerate(body.layers))
        shapes = {probe.shapes[index] for index in range(len(layers))}
        if len(shapes) != 1:
            raise NotPlain("layers of different shapes")
        (shape,) = shapes
        return PlainDecoder(
            shape=shape,
            heads=layers[0].out.weight.shape[1] // shape.value_dim,
            ffn=layers[0].down.weight.shape[1],
            activation=activation_of(first.mlp),
            norm_epsilon=epsilon_of(first.input_layernorm),
            embedding=body.embed_tokens,
            embedding_scale=float(getattr(body.embed_tokens, "embed_scale", 1.0)),
            cosines=cosines,
            sines=sines,
            final_norm=norm_weight(body.norm),
            head=Rows(model.lm_head),
            layers=layers,
        )
    except (AttributeError, TypeError, KeyError, ValueError, RuntimeError) as error:
        raise NotPlain(f"a structure of its own ({error})") from error


def read_layer(layer: Any, probe: ShapeProbe, index: int) -> PlainLayer:
    only(layer, LAYER_PARTS)
    attention, mlp = layer.self_attn, layer.mlp
    only(attention, ATTENTION_PARTS)
    only(mlp, MLP_PARTS)
    shape = probe.shapes[index]
    if shape.key_dim != shape.value_dim:
        raise NotPlain("keys and values of different sizes")
    gate, up = gate_and_up(mlp)
    return PlainLayer(
        attention_norm=norm_weight(layer.input_layernorm),
        mlp_norm=norm_weight(layer.post_attention_layernorm),
        query_norm=head_norm(attention, "q_norm", shape.key_dim),
        key_norm=head_norm(attention, "k_norm", shape.key_dim),
        qkv=query_key_value(attention),
        out=Rows(attention.o_proj),
        gate=gate,
        up=up,
        down=Rows(mlp.down_proj),
        scaling=probe.scalings[index],
        window=probe.windows[index],
        rotates=bool(getattr(attention, "use_rope", True)),
    )


def only(module: Any, parts: set[str]) -> None:
    for name, child in module.named_children():
        if name not in parts and not isinstance(child, torch.nn.Dropout):
            raise NotPlain(f"a {name}")


def query_key_value(attention: Any) -> tuple[Rows, ...]:
    if hasattr(attention, "qkv_proj"):
        return (Rows(attention.qkv_proj),)
    return tuple(Rows(getattr(attention, name)) for name in ("q_proj", "k_proj", "v_proj"))


def gate_and_up(mlp: Any) -> tuple[Rows, Rows]:
    if not hasattr(mlp, "gate_up_proj"):
        return Rows(mlp.gate_proj), Rows(mlp.up_proj)
    half = len(mlp.gate_up_proj.weight) // 2
    return Rows(mlp.gate_up_proj, 0, half), Rows(mlp.gate_up_proj, half)


def head_norm(attention: Any, name: str, dim: int) -> Tensor | None:
    norm = getattr(attention, name, None)
    if norm is None:
        return None
    weight = norm_weight(norm)
    if len(weight) != dim:
        raise NotPlain(f"a {name} over all heads")
    return weight


def epsilon_of(norm: Any) -> float:
    return float(norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps)


def norm_weight(norm: Any) -> Tensor:
    """By what an RMSNorm multiplies; some add 1 to what they keep."""
    kept = norm.weight.detach().float()
    line = torch.linspace(-1.0, 1.5, len(kept))
    unit = line * torch.rsqrt(line.square().mean() + epsilon_of(norm))
    with torch.inference_mode():
        out = norm(line[None]).float()[0]
    for weight in (kept, 1 + kept):
        if torch.allclose(out, unit * weight, rtol=1e-4, atol=1e-5):
            return weight.clone()
    raise NotPlain(f"a {type(norm).__name__}")


def activation_of(mlp: Any) -> Activation:
    function = mlp.act_fn if hasattr(mlp, "act_fn") else mlp.activation_fn
    line = torch.linspace(-4.0, 4.0, 65)
    for activation, known in ACTIVATIONS.items():
        if torch.allclose(function(line), known(line), rtol=1e-5, atol=1e-6):
            return activation
    raise NotPlain(f"an activation {type(function).__name__}")


def rotary_tables(rotary: Any, positions: int) -> tuple[Tensor, Tensor]:
    """As the model's own module computes them, so that every scaling is in them."""
    if rotary.rope_type in CHANGING_ROTATIONS:
        raise NotPlain(f"rotary positions of type {rotary.rope_type}")
    with torch.inference_mode():
        tables = rotary(torch.zeros(1), torch.arange(positions)[None])
    cosines, sines = (table[0, :, : table.shape[-1] // 2].float().contiguous() for table in tables)
    return cosines, sines
