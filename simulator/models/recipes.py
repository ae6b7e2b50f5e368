"""Precision recipes of training: in which number format each product of each layer runs.

Knows layers by their place and the parts of a model. Never touches shapes, hardware or time.
A recipe says the format of a layer's products, forward and both gradients alike; attention cores,
norms, the router, embeddings and the head stay at the format of the activations, as in Transformer
Engine and in DeepSeek-V3 (arXiv 2412.19437, section 3.3.1).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from simulator.errors import InputError
from simulator.models.weights import layer_weights
from simulator.registry import Registry
from simulator.specs.frozen import FrozenMap
from simulator.specs.precision import number_format
from simulator.specs.workload import Layer, Part, Transformer

PRODUCTS: tuple[Part, ...] = ("attention", "ffn", "experts", "shared_experts")
"""Parts whose products a recipe may narrow."""


@dataclass(frozen=True, slots=True)
class Place:
    """Which layer of the whole model it is; a prediction module comes after the last one."""

    index: int
    layers: int

    def __post_init__(self) -> None:
        if not 0 <= self.index <= self.layers:
            raise InputError(f"layer {self.index} of {self.layers}: count from 0")


INNER = Place(1, 3)
"""A layer that is neither the first nor the last."""

Rule = Callable[[Place], str | None]
"""The format of the products of a layer; None: that of the model's weights."""

RECIPES: Registry[Rule] = Registry("precision recipe", group="tilecast.recipes")


@RECIPES.register("model")
def model_rule(place: Place) -> str | None:
    """Each product in the format of its weights, where activations can take that format."""
    return None


def _all(name: str) -> Rule:
    return lambda place: name


for _name in ("bf16", "fp16", "fp8", "fp8_block", "mxfp8"):
    RECIPES.register(_name)(_all(_name))


@RECIPES.register("dynamic")
def dynamic_rule(place: Place) -> str:
    """fp8 inside; the first and the last layer in bf16, where rounding hurts most (Megatron Core
    ``first_last_layers_bf16``, one layer at each end by default)."""
    return "bf16" if place.index in (0, place.layers - 1) else "fp8"


def in_recipe(model: Transformer, layer: Layer, recipe: str, place: Place = INNER) -> Transformer:
    """``model`` with the formats that the recipe gives the products of that layer.

    Weight-only formats (int4, mxfp4 and the like) have no gradients: such weights train in the
    format of the activations. Raises UnknownNameError for an unknown recipe.
    """
    wide = model.activation_format
    chosen = RECIPES[recipe](place)
    parts: dict[Part, str] = {"default": wide}
    for part in PRODUCTS:
        name = model.weight_format(part, layer) if chosen is None else chosen
        parts[part] = name if number_format(name).bits >= 8 and name != "int8" else wide
    wider = chosen is not None and number_format(chosen).bits >= 16
    return replace(
        model,
        formats=FrozenMap(parts),
        activation_format=chosen if wider and chosen else wide,
        kv_format=wide,
    )


def narrow_weights(model: Transformer, recipe: str, *, ep: int = 1) -> dict[str, int]:
    """Weights by the format below 16 bits in which the recipe multiplies them.

    Such weights are cast anew, in both layouts, after each update. ``ep`` ranks share the routed
    experts.
    """
    layers, rule = list(model.layers()), RECIPES[recipe]
    totals: dict[str, int] = {}
    known: dict[tuple[Layer, str | None], list[tuple[str, int]]] = {}
    for index, layer in enumerate(layers):
        place = Place(index, len(layers))
        key = layer, rule(place)
        if key not in known:
            formats = in_recipe(model, layer, recipe, place)
            known[key] = [
                (name, weight.elements // (ep if weight.part == "experts" else 1))
                for weight in layer_weights(model, layer)
                for name in (formats.weight_format(weight.part),)
                if weight.multiplied and number_format(name).bits < 16
            ]
        for name, held in known[key]:
            totals[name] = totals.get(name, 0) + held
    return totals
