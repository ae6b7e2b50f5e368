"""The attention of one layer as operators: projections, rotary embedding, cache, core.

Never touches hardware, tiles or time.
"""

from __future__ import annotations

from collections.abc import Iterator

from simulator.models.graph_parts import Step, norm, product
from simulator.ops.attention import Attention as AttentionCore
from simulator.ops.op import Op
from simulator.ops.pointwise import Pointwise
from simulator.specs.workload import Attention, LatentAttention, Transformer


def grouped_attention(model: Transformer, core: Attention, label: str, step: Step) -> Iterator[Op]:
    rows, width = step.tokens, core.heads * core.head_dim
    kv_width = core.kv_heads * core.head_dim
    gate = width if core.output_gate else 0
    n = width + gate + (1 if core.shared_kv else 2) * kv_width
    name = f"attn{label}"
    yield from product(model, "attention", f"{name}.qkv", rows, n, model.hidden, bias=core.qkv_bias)
    if core.qk_norm != "none":
        yield norm(model, f"{name}.qk_norm", rows, width + kv_width, "rms_norm")
    yield Pointwise(
        name=f"{name}.rope",
        function="rope",
        rows=rows,
        cols=width + kv_width,
        format=model.activation_format,
    )
    yield _cache_write(model, f"{name}.cache", rows, 2 * kv_width)
    yield AttentionCore(
        name=f"{name}.core",
        batch=step.batch,
        q_len=step.new,
        kv_len=step.context,
        heads=core.heads,
        kv_heads=core.kv_heads,
        head_dim=core.head_dim,
        v_dim=core.head_dim,
        window=core.window,
        chunk=core.chunk,
        sinks=core.sinks,
        format=model.activation_format,
        kv_format=model.kv_format,
    )
    if core.output_gate:
        yield Pointwise(
            name=f"{name}.gate",
            function="sigmoid_mul",
            rows=rows,
            cols=width,
            format=model.activation_format,
        )
    yield from product(
        model, "attention", f"{name}.out", rows, model.hidden, width, bias=core.out_bias
    )


def _cache_write(model: Transformer, name: str, rows: int, cols: int) -> Pointwise:
    return Pointwise(
        name=name,
        function="cache_write",
        rows=rows,
        cols=cols,
        format=model.activation_format,
        out=model.kv_format,
    )


def latent_attention(
    model: Transformer, core: LatentAttention, label: str, step: Step
) -> Iterator[Op]:
    """Multi-head latent attention: expanded for a first prefill, absorbed otherwise.

    Absorption (DeepSeek-V2, arXiv 2405.04434, section 2.1.2) multiplies the key expansion into
    the query and the value expansion into the output, so that all heads attend to one latent.
    """
    rows, heads = step.tokens, core.heads
    latent = core.kv_lora_rank + core.qk_rope_head_dim
    qk = core.qk_nope_head_dim + core.qk_rope_head_dim
    name = f"attn{label}"
    if core.q_lora_rank is None:
        n = heads * qk + latent
        yield from product(model, "attention", f"{name}.q_kv_a", rows, n, model.hidden)
    else:
        n = core.q_lora_rank + latent
        yield from product(model, "attention", f"{name}.q_kv_a", rows, n, model.hidden)
        yield norm(
            model, f"{name}.lora_norm", rows, core.q_lora_rank + core.kv_lora_rank, "rms_norm"
        )
        yield from product(model, "attention", f"{name}.q_b", rows, heads * qk, core.q_lora_rank)
    yield Pointwise(
        name=f"{name}.rope",
        function="rope",
        rows=rows,
        cols=(heads + 1) * core.qk_rope_head_dim,
        format=model.activation_format,
    )
    yield _cache_write(model, f"{name}.cache", rows, latent)
    if step.new > 1 and step.context == step.new:
        expanded = heads * (core.qk_nope_head_dim + core.v_head_dim)
        yield from product(model, "attention", f"{name}.kv_b", rows, expanded, core.kv_lora_rank)
        yield AttentionCore(
            name=f"{name}.core",
            batch=step.batch,
            q_len=step.new,
            kv_len=step.context,
            heads=heads,
            kv_heads=heads,
            head_dim=qk,
            v_dim=core.v_head_dim,
            format=model.activation_format,
            kv_format=model.activation_format,
            cached=False,
        )
    else:
        yield from product(
            model, "attention", f"{name}.absorb_q", rows, core.kv_lora_rank,
            core.qk_nope_head_dim, batch=heads,
        )  # fmt: skip
        yield AttentionCore(
            name=f"{name}.core",
            batch=step.batch,
            q_len=step.new,
            kv_len=step.context,
            heads=heads,
            kv_heads=1,
            head_dim=latent,
            v_dim=core.kv_lora_rank,
            latent=True,
            format=model.activation_format,
            kv_format=model.kv_format,
        )
        yield from product(
            model, "attention", f"{name}.absorb_v", rows, core.v_head_dim, core.kv_lora_rank,
            batch=heads,
        )  # fmt: skip
    yield from product(
        model, "attention", f"{name}.out", rows, model.hidden, heads * core.v_head_dim
    )
