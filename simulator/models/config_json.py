"""A Hugging Face config.json as a Transformer, or an error that names the field in the way.

Knows how such files nest and which keys a model is made of. Never guesses: a missing size, an
unknown key that sounds like architecture, or a kind of layer that is not built yet is a SpecError.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simulator.models.config_layers import group_layers, read_layers
from simulator.models.families import FAMILIES, Family
from simulator.models.fields import Fields
from simulator.models.json_tree import JsonTree, read_json
from simulator.models.known_keys import UNSUPPORTED, is_inert, sounds_like_architecture
from simulator.models.quantization import read_quantization
from simulator.models.quantized_formats import quantise
from simulator.specs.frozen import FrozenMap
from simulator.specs.hardware import Provenance
from simulator.specs.workload import Part, Transformer

LANGUAGE = ("text_config", "llm_config", "language_config")
"""Keys under which a multi-modal model keeps its language model."""
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_DTYPE_KEYS = ("torch_dtype", "dtype")


def read_config(path: str | Path) -> Transformer:
    """The language model that a config.json describes.

    The name is the file's stem, or its folder's name where the file is called config.json. Towers
    for images and sound are left out. Raises SpecError with every fault: file, line and field.
    """
    path = Path(path)
    tree = read_json(path)
    folder = path.absolute().parent.name
    name = folder if folder and path.stem.lower() == "config" else path.stem
    return model_from_json(tree, name, quantization_beside(path))


def quantization_beside(path: Path) -> JsonTree | None:
    """The hf_quant_config.json that ModelOpt leaves beside a config.json, where there is one."""
    beside = path.with_name("hf_quant_config.json")
    return read_json(beside) if path.name == "config.json" and beside.is_file() else None


def model_from_json(tree: JsonTree, name: str, beside: JsonTree | None = None) -> Transformer:
    """The model that a parsed config.json describes, see ``read_config``."""
    fields, outer = _language(tree)
    _refuse_unsupported(fields, outer)
    family = _family(fields, outer)
    hidden, vocab = fields.whole("hidden_size"), fields.whole("vocab_size")
    layers = read_layers(fields, family, hidden)
    dtype = _dtype(fields, outer)
    mtp_layers = sum(fields.whole(key, default=0, least=0) for key in family.mtp_keys)
    tied = _tied(fields, outer, family)
    head_bias = fields.rule(family.head_bias)
    max_context = _max_context(fields)
    recipe = read_quantization(fields, outer, beside)
    _check_rest(fields, family)
    fields.check()
    formats: FrozenMap[Part, str] = FrozenMap({"default": dtype})
    if recipe is not None:
        quantised = quantise(layers, recipe, dtype, mtp_layers, fields)
        layers, formats = quantised.layers, quantised.formats
        fields.check()
    return Transformer(
        name=name,
        description=_description(fields, outer),
        hidden=hidden,
        vocab=vocab,
        groups=group_layers(layers),
        tied_embeddings=tied,
        head_bias=head_bias,
        norm_bias=family.norm_bias,
        final_norm=family.final_norm,
        mtp_layers=mtp_layers,
        max_context=max_context,
        formats=formats,
        activation_format=dtype,
        kv_format=(recipe.kv_format if recipe else None) or dtype,
        provenance=(Provenance(path="", source=tree.file, basis="vendor"),),
    )


def _language(tree: JsonTree) -> tuple[Fields, Fields | None]:
    """The fields of the language model, and those of the file around it where it is nested."""
    outer = Fields(tree, tree.data)
    holder = outer
    thinker = outer.data.get("thinker_config")
    if isinstance(thinker, Mapping):
        holder = Fields(tree, thinker, "thinker_config", outer.faults)
    found = [key for key in LANGUAGE if isinstance(holder.data.get(key), Mapping)]
    if len(found) > 1:
        holder.fault(found[1], f"a second language model beside {found[0]}", "keep one")
        holder.check()
    if found:
        inner = holder.data[found[0]]
        return Fields(tree, inner, holder.path(found[0]), outer.faults), outer
    if holder is not outer:
        holder.fault("text_config", "missing", "the language model is read there")
        holder.check()
    return outer, None


def _refuse_unsupported(fields: Fields, outer: Fields | None) -> None:
    """Raise for what is not built yet, one fault per kind, at the key that announces it."""
    for level in (fields, outer):
        if level is None:
            continue
        for kind, keys in UNSUPPORTED.items():
            if level is outer and kind != "an encoder":
                continue
            key = next((key for key in keys if level.has(key) and not _plain(level, key)), None)
            if key is not None:
                level.fault(key, f"{kind}: not supported yet")
    if fields.has("q_lora_rank") and not fields.has("kv_lora_rank"):
        fault = "given without kv_lora_rank: this kind of attention is not supported yet"
        fields.fault("q_lora_rank", fault)
    kind_of_model = fields.data.get("model_type")
    if fields.faults and isinstance(kind_of_model, str) and kind_of_model not in FAMILIES:
        fields.fault("model_type", f"model_type {kind_of_model!r} is not supported yet")
    fields.check()


def _plain(fields: Fields, key: str) -> bool:
    """Whether a list of attention kinds names the usual kind alone (MiniMax writes it as 1)."""
    value = fields.data[key]
    return isinstance(value, list) and all(entry == 1 for entry in value)


def _family(fields: Fields, outer: Fields | None) -> Family:
    """The family by ``model_type``; raises SpecError where it is missing or not known."""
    kind = fields.text("model_type")
    if kind is None:
        kind = _type_of_architecture(fields)
    if kind is None:
        fields.fault("model_type", "missing", "it says which family's rules hold")
    elif kind not in FAMILIES:
        fields.fault("model_type", f"model_type {kind!r} is not supported yet")
    fields.check()
    return FAMILIES[kind or ""]


def _type_of_architecture(fields: Fields) -> str | None:
    """The model type that the class of a file without one belongs to: LlamaForCausalLM, llama."""
    classes = fields.data.get("architectures")
    if not isinstance(classes, list) or len(classes) != 1:
        return None
    stem = str(classes[0]).removesuffix("ForCausalLM").lower()
    return next((kind for kind in FAMILIES if kind.replace("_", "") == stem), None)


def _tied(fields: Fields, outer: Fields | None, family: Family) -> bool:
    """Whether the head is the embedding: the file's word, inner first, then the family's rule."""
    values = [level.data.get("tie_word_embeddings") for level in (fields, outer) if level]
    if outer is not None and None not in values and values[0] != values[1]:
        found = f"{values[0]!r}, but {values[1]!r} at the top level"
        fields.fault("tie_word_embeddings", found, "make them agree")
    tied = fields.flag("tie_word_embeddings", default=False)
    if values[0] is None and outer is not None and values[1] is not None:
        return outer.flag("tie_word_embeddings")
    if values[0] is None:
        if family.tied is None:
            found = "missing, and this family has models of both kinds"
            fields.fault("tie_word_embeddings", found, "say true or false")
        return bool(family.tied)
    return tied


def _max_context(fields: Fields) -> int | None:
    """Tokens that the model was made for: what the file declares.

    A YaRN scaling states the original length, and the product with its factor is the context;
    the declared maximum is never multiplied, since it is already the scaled one.
    """
    given = (fields.optional(key) for key in ("max_position_embeddings", "model_max_length"))
    declared = next((tokens for tokens in list(given) if tokens is not None), None)
    original_here = fields.optional("original_max_position_embeddings")
    for key in ("rope_scaling", "rope_parameters"):
        scaling = fields.raw(key)
        if not isinstance(scaling, dict):
            continue
        rope = Fields(fields.tree, scaling, fields.path(key), fields.faults)
        nested = rope.data.get("full_attention")
        if isinstance(nested, dict):
            rope = Fields(fields.tree, nested, rope.path("full_attention"), fields.faults)
        kind = rope.data.get("rope_type") or rope.data.get("type")
        if not isinstance(kind, str) or "yarn" not in kind:
            continue
        original = rope.optional("original_max_position_embeddings") or original_here
        factor = rope.number("factor")
        if original is not None and factor is not None:
            return round(original * factor)
    return declared


def _dtype(fields: Fields, outer: Fields | None) -> str:
    """The number format of weights that are not quantised; bf16 where the file gives none."""
    for level in (fields, outer):
        name = level.text(*_DTYPE_KEYS) if level is not None else None
        if level is not None and name is not None:
            short = _DTYPES.get(name.removeprefix("torch."))
            if short is None:
                level.fault(level.first(*_DTYPE_KEYS), f"{name!r} is not supported yet")
            return short or "bf16"
    return "bf16"


def _description(fields: Fields, outer: Fields | None) -> str:
    """What was read and what was not."""
    parts = [f"{fields.data.get('model_type', 'model')} from {Path(fields.tree.file).name}"]
    if outer is not None:
        parts.append("the language model alone")
    if not any(level.has(*_DTYPE_KEYS) for level in (fields, outer) if level):
        parts.append("its number format is not given, bf16 taken")
    return ", ".join(parts)


def _check_rest(fields: Fields, family: Family) -> None:
    """Refuse what no rule read: a value that the family does not expect, or an unknown size."""
    for key, allowed in family.expects.items():
        value = fields.raw(key)
        if value is not None and value not in allowed:
            fields.fault(key, f"{_short(value)} is not supported yet in this family")
    for key in fields.data:
        if key in fields.known or key in family.inert or is_inert(key) or not fields.has(key):
            continue
        if sounds_like_architecture(key):
            found = f"{_short(fields.data[key])}: this key is not known"
            fix = "it may change the architecture, so the file is not read"
            fields.fault(key, found, fix)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
