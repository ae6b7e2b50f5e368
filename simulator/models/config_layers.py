"""The layers of a model from the keys of its config.json and the rules of its family.

Knows which key means which size. Never touches files or number formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from simulator.models.config_experts import experts_by_layer
from simulator.models.families import Family
from simulator.models.fields import Fields
from simulator.specs.rules import MOST_LAYERS
from simulator.specs.workload import Attention, DenseFFN, LatentAttention, Layer, LayerGroup

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "swiglu": "silu", "relu2": "relu2", "relu": "relu",
    "gelu": "gelu", "gelu_new": "gelu", "gelu_fast": "gelu", "gelu_pytorch_tanh": "gelu",
    "quick_gelu": "gelu",
}  # fmt: skip


def read_layers(fields: Fields, family: Family, hidden: int) -> tuple[Layer, ...]:
    """Every layer in order. Faults are noted in ``fields``."""
    count = fields.whole("num_hidden_layers")
    if count > MOST_LAYERS:
        fields.fault("num_hidden_layers", f"{count} layers", f"give at most {MOST_LAYERS}")
        count = 1
    if family.blocks:
        return _block_layers(fields, family, hidden, count)
    kinds = _kinds(fields, family, count)
    attentions = _attentions(fields, family, hidden, kinds)
    dense, experts = experts_by_layer(fields, family, count, _activation(fields, family))
    layers = []
    for index in range(count):
        layer = Layer(
            attention=attentions[kinds[index]],
            ffn=experts[index] or dense[index],
            norms=family.norms,
        )
        if family.experts == "gemma4":
            layer = _beside(layer, dense[index])
        layers.append(layer)
    return tuple(layers)


def group_layers(layers: Sequence[Layer]) -> tuple[LayerGroup, ...]:
    """Layers as runs: at each place the period that covers most by repeating.

    >>> layer = Layer(attention=None, ffn=None)
    >>> [group.repeat for group in group_layers([layer] * 12)]
    [12]
    """
    groups: list[LayerGroup] = []
    start = 0
    while start < len(layers):
        best, covered = 1, 1
        for period in range(1, min(16, (len(layers) - start) // 2) + 1):
            repeat = _repeats(layers, start, period)
            if repeat > 1 and repeat * period > covered:
                best, covered = period, repeat * period
        end = start + best
        run = LayerGroup(repeat=covered // best, layers=tuple(layers[start:end]))
        last = groups[-1] if groups else None
        if covered == 1 and last is not None and last.repeat == 1:
            groups[-1] = replace(last, layers=(*last.layers, *run.layers))
        else:
            groups.append(run)
        start += covered
    return tuple(groups)


def _repeats(layers: Sequence[Layer], start: int, period: int) -> int:
    end = start + period
    while end < len(layers) and layers[end] == layers[end - period]:
        end += 1
    return (end - start) // period


def _activation(fields: Fields, family: Family) -> str:
    # Files may carry an older key beside the one that counts.
    keys = ("hidden_activation", "hidden_act", "mlp_hidden_act", "activation_function")
    names = [fields.text(key) for key in keys]
    name = next((name for name in names if name is not None), None)
    if name is not None and name not in _ACTIVATIONS:
        fields.fault(keys[names.index(name)], f"activation {name!r} is not supported yet")
    kind = family.activation if name is None else _ACTIVATIONS.get(name, family.activation)
    return "clamped_silu" if family.clamped else kind


def _kinds(fields: Fields, family: Family, count: int) -> list[str]:
    """The kind of attention of each layer."""
    given = fields.items("layer_types")
    fields.known.update(family.pattern_keys)
    kinds = _kinds_by_rule(fields, family, count) if given is None else list(given)
    if len(kinds) != count:
        fields.fault("layer_types", f"{len(kinds)} entries for {count} layers")
        return [FULL] * count
    for index, kind in enumerate(kinds):
        if kind not in (FULL, SLIDING, CHUNKED):
            fields.fault(f"layer_types[{index}]", f"{kind!r} layers are not supported yet")
            return [FULL] * count
    if family.last_full:
        kinds[-1] = FULL
    if family.windows == "none" and SLIDING not in kinds:
        return kinds
    windowed = fields.optional("sliding_window", least=0)
    if family.windows_key is not None and not fields.rule(family.windows_key):
        windowed = None
    chunk = fields.optional("attention_chunk_size") if family.windows == "no_rope" else None
    if SLIDING in kinds and not windowed and family.windows_key is None:
        fields.fault("sliding_window", "missing, but layers have a window", "give its tokens")
    if CHUNKED in kinds and not chunk:
        fields.fault("attention_chunk_size", "missing, but layers attend in chunks")
    absent = {kind for kind, size in ((SLIDING, windowed), (CHUNKED, chunk)) if not size}
    return [FULL if kind in absent else kind for kind in kinds]


def _kinds_by_rule(fields: Fields, family: Family, count: int) -> list[str]:
    """The kinds where no list gives them."""
    full = [FULL] * count
    if family.windows == "no_rope":
        return _chunks_by_position(fields, count)
    needed = family.windows == "pattern" or family.window_needed
    if needed and "sliding_window" not in fields.data:
        fields.fault("sliding_window", "missing", "give its tokens, or null for none")
    if family.windows == "none" or not fields.has("sliding_window"):
        return full
    if family.windows == "all":
        return [SLIDING] * count
    if family.windows == "late":
        if family.windows_key is not None and not fields.rule(family.windows_key):
            return full
        first = fields.whole("max_window_layers", least=0)
        return [SLIDING if index >= first else FULL for index in range(count)]
    value = fields.raw(*family.pattern_keys)
    if isinstance(value, str) and set(value) <= {"L", "G"} and value:
        return [FULL if value[i % len(value)] == "G" else SLIDING for i in range(count)]
    if family.pattern:
        every = fields.whole(*family.pattern_keys, default=family.pattern)
    else:
        every = fields.whole(*family.pattern_keys)
    return [SLIDING if (index + 1) % every else FULL for index in range(count)]


def _chunks_by_position(fields: Fields, count: int) -> list[str]:
    """Llama 4: layers with rotary positions attend in chunks, those without to everything."""
    if not fields.has("attention_chunk_size"):
        return [FULL] * count
    rotary = fields.items("no_rope_layers")
    every = fields.whole("no_rope_layer_interval", default=4)
    if not rotary:
        rotary = [int((index + 1) % every != 0) for index in range(count)]
    if len(rotary) != count or any(entry not in (0, 1) for entry in rotary):
        fields.fault("no_rope_layers", f"not {count} entries of 0 or 1")
        return [FULL] * count
    return [CHUNKED if entry else FULL for entry in rotary]


def _attentions(
    fields: Fields, family: Family, hidden: int, kinds: Sequence[str]
) -> dict[str, Attention | LatentAttention]:
    """The attention of each kind of layer that occurs."""
    if family.latent and (fields.raw("use_mla") is None or fields.flag("use_mla")):
        return dict.fromkeys(kinds, _latent(fields))
    base = _grouped(fields, family, hidden)
    found: dict[str, Attention | LatentAttention] = {FULL: base}
    if family.experts == "gemma4":
        found[FULL] = _global(fields, base)
    if SLIDING in kinds:
        found[SLIDING] = replace(base, window=fields.whole("sliding_window"))
    if CHUNKED in kinds:
        found[CHUNKED] = replace(base, chunk=fields.whole("attention_chunk_size"))
        # Only layers with rotary positions normalise queries and keys, and these have chunks.
        found[FULL] = replace(base, qk_norm="none")
    return found


def _grouped(fields: Fields, family: Family, hidden: int) -> Attention:
    heads = fields.whole("num_attention_heads")
    if family.multi_head or "num_key_value_heads" in fields.data:
        kv_heads = fields.whole("num_key_value_heads", default=heads)
    else:
        kv_heads = fields.whole("num_key_value_heads")
    if heads % kv_heads:
        found = f"{kv_heads} KV heads do not divide {heads} heads"
        fields.fault("num_key_value_heads", found)
        kv_heads = heads
    norm = family.qk_norm
    if family.qk_norm_key is not None and not fields.rule(family.qk_norm_key):
        norm = "none"
    return Attention(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(fields, family, hidden, heads),
        sinks=family.sinks,
        qkv_bias=fields.rule(family.qkv_bias),
        out_bias=fields.rule(family.out_bias),
        qk_norm=norm,
    )


def _head_dim(fields: Fields, family: Family, hidden: int, heads: int) -> int:
    """The declared head size, or the quotient where the family derives it."""
    declared = fields.optional("head_dim", "attention_head_dim")
    if declared is not None and not family.fixed_head_dim:
        return declared
    if not family.derive_head_dim:
        return fields.whole("head_dim")
    if hidden % heads:
        found = f"missing, and hidden size {hidden} is no multiple of {heads} heads"
        fields.fault("head_dim", found, "give the size of a head")
    return max(1, hidden // heads)


def _latent(fields: Fields) -> LatentAttention:
    """Multi-head latent attention. ``q_lora_rank`` is null where queries are not compressed."""
    if "q_lora_rank" not in fields.data:
        fields.fault("q_lora_rank", "missing", "give the rank, or null for none")
    heads = fields.whole("num_attention_heads")
    attention = LatentAttention(
        heads=heads,
        q_lora_rank=fields.optional("q_lora_rank"),
        kv_lora_rank=fields.whole("kv_lora_rank"),
        qk_nope_head_dim=fields.whole("qk_nope_head_dim"),
        qk_rope_head_dim=fields.whole("qk_rope_head_dim"),
        v_head_dim=fields.whole("v_head_dim"),
    )
    qk = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    fields.raw("head_dim")
    if fields.whole("qk_head_dim", default=qk) != qk:
        found = f"{fields.data['qk_head_dim']}, but its two parts add up to {qk}"
        fields.fault("qk_head_dim", found)
    if fields.whole("num_key_value_heads", default=heads) != heads:
        found = f"{fields.data['num_key_value_heads']}, but latent attention expands to {heads}"
        fields.fault("num_key_value_heads", found)
    return attention


def _global(fields: Fields, base: Attention) -> Attention:
    """The full layers of Gemma 4: heads of their own size, and values that are the keys."""
    shared = fields.flag("attention_k_eq_v", default=False)
    kv_heads = base.kv_heads
    if shared:
        kv_heads = fields.whole("num_global_key_value_heads", default=base.kv_heads)
    else:
        fields.raw("num_global_key_value_heads")
    if base.heads % kv_heads:
        found = f"{kv_heads} KV heads do not divide {base.heads} heads"
        fields.fault("num_global_key_value_heads", found)
        kv_heads = base.heads
    head_dim = fields.whole("global_head_dim")
    # Where the key is absent the family has embeddings of 256 in every layer.
    fields.whole("hidden_size_per_layer_input", least=0)
    return replace(base, kv_heads=kv_heads, head_dim=head_dim, shared_kv=shared)


def _beside(layer: Layer, dense: DenseFFN) -> Layer:
    """A Gemma 4 layer: experts beside a dense network, with three more norms and a router scale."""
    if layer.ffn is dense:
        return replace(layer, scaled=True)
    return replace(layer, dense_ffn=dense, norms=layer.norms + 4, scaled=True)


def _block_layers(fields: Fields, family: Family, hidden: int, count: int) -> tuple[Layer, ...]:
    """Layers whose sizes a search chose one by one (DeciLM, Nemotron-NAS)."""
    heads = fields.whole("num_attention_heads")
    head_dim = _head_dim(fields, family, hidden, heads)
    blocks = fields.items("block_configs")
    if blocks is None or len(blocks) != count:
        found = "missing" if blocks is None else f"{len(blocks)} entries for {count} layers"
        fields.fault("block_configs", found, "give one entry per layer")
        return ()
    fields.raw("num_key_value_heads", "intermediate_size")
    act, bias = _activation(fields, family), fields.rule(family.ffn_bias)
    base = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        qkv_bias=fields.rule(family.qkv_bias),
        out_bias=fields.rule(family.out_bias),
    )
    layers = []
    for index, entry in enumerate(blocks):
        if not isinstance(entry, dict):
            fields.fault(f"block_configs[{index}]", "not an object")
            continue
        block = Fields(fields.tree, entry, fields.path(f"block_configs[{index}]"), fields.faults)
        attention = _block_part(block, "attention")
        ffn = _block_part(block, "ffn")
        mine = None if attention is None else _block_attention(attention, base)
        net = None
        if ffn is not None:
            width = _block_width(ffn, hidden)
            net = DenseFFN(width=width, bias=bias, activation=act)
        norms = (mine is not None) + (net is not None)
        layers.append(Layer(attention=mine, ffn=net, norms=norms))
    return tuple(layers)


def _block_part(block: Fields, name: str) -> Fields | None:
    """One half of a block, or None where the block leaves it out."""
    part = block.object(name)
    if part is None:
        block.fault(name, "missing", "give its sizes, or no_op")
        return None
    part.flag("replace_with_linear", default=False)
    if part.has("replace_with_linear"):
        part.fault("replace_with_linear", "a linear map in place of the block is not supported yet")
    if part.flag("no_op", default=False):
        return None
    known = {"no_op", "replace_with_linear", "n_heads_in_group", "ffn_mult", "intermediate_size",
             "unshifted_sink", "use_prefill_window_in_sink_attention"}  # fmt: skip
    for key in part.data:
        if key not in known and part.has(key):
            part.fault(key, f"{part.data[key]!r} is not supported yet")
    return part


def _block_attention(part: Fields, base: Attention) -> Attention:
    group = part.whole("n_heads_in_group")
    if base.heads % group:
        part.fault("n_heads_in_group", f"{group} does not divide {base.heads} heads")
        return base
    return replace(base, kv_heads=base.heads // group)


def _block_width(part: Fields, hidden: int) -> int:
    """The declared width, or 2/3 of the multiple of the hidden size, rounded up to 256."""
    declared = part.optional("intermediate_size")
    if declared is not None:
        return declared
    multiple: Any = part.number("ffn_mult")
    if multiple is None:
        part.fault("ffn_mult", "missing", "a size is never guessed; give the number")
        return 1
    width = int(2 * multiple * hidden / 3)
    return -(-width // 256) * 256
