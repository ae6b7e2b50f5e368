"""What one rank runs for one micro-batch in training: layers, embedding, head, and the update.

Takes a model as ``mapping.shard`` cuts it for a tensor-parallel rank. Reuses the operators of the
forward graph and reads the backward pass off them. Never touches hardware, schedules or time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from simulator.errors import InputError
from simulator.mapping.dispatch import Share
from simulator.mapping.exchange import shares
from simulator.models.graph_attention import grouped_attention, latent_attention
from simulator.models.graph_ffn import dense, experts
from simulator.models.graph_parts import Step, norm
from simulator.models.recipes import INNER, Place, in_recipe
from simulator.models.training_recompute import MODULES, Recompute, again
from simulator.models.training_tape import Group, LayerPass, Tape
from simulator.ops.attention import Attention as AttentionCore
from simulator.ops.backward import Cast, PointwiseBackward
from simulator.ops.collective import Collective
from simulator.ops.exchange import Exchange
from simulator.ops.matmul import Matmul
from simulator.ops.op import Op
from simulator.ops.optimizer import ROW, AdamUpdate, GradientNorm
from simulator.ops.pointwise import Pointwise
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.specs.workload import Attention, DenseFFN, LatentAttention, Layer, MoE, Transformer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """One micro-batch on one rank."""

    sequence: int
    """Tokens of a whole sequence."""
    micro_batch: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = True
    recompute: Recompute = "none"
    modules: tuple[str, ...] = ("core_attn",)
    """What selective recomputation runs again, of ``MODULES``."""
    recipe: str = "model"
    gradients: str = "fp32"
    dispatch: str | None = None
    """Format of rows on their way to experts; None: that of the activations."""
    combine: str = "bf16"

    def __post_init__(self) -> None:
        sizes = (self.sequence, self.micro_batch, self.tp, self.cp, self.ep)
        if min(sizes) < 1:
            raise InputError(f"sequence, micro_batch, tp, cp, ep are {sizes}: give each 1 or more")
        if self.sequence % self.cp:
            raise InputError(
                f"a sequence of {self.sequence} tokens does not divide over cp {self.cp}"
            )
        if self.ep > 1 and self.tp > 1 and not self.sequence_parallel:
            raise InputError(
                f"experts on {self.ep} ranks under tp {self.tp} need sequence_parallel: each rank "
                "routes its own tokens"
            )
        unknown = sorted(set(self.modules) - set(MODULES))
        if unknown:
            raise InputError(f"no modules {unknown} to recompute; known: {', '.join(MODULES)}")

    @classmethod
    def of(cls, plan: Plan, sequence: int) -> TrainingStep:
        """The step of any rank of a plan."""
        return cls(
            sequence=sequence, micro_batch=plan.micro_batch, tp=plan.tp, cp=plan.cp, ep=plan.ep,
            sequence_parallel=plan.sequence_parallel, recompute=plan.recompute, recipe=plan.recipe,
            gradients=plan.gradients, dispatch=plan.dispatch, combine=plan.combine,
        )  # fmt: skip

    @property
    def tokens(self) -> int:
        """Tokens of the tensor-parallel group."""
        return self.micro_batch * self.sequence // self.cp

    @property
    def own(self) -> int:
        """Tokens whose norms and residuals this rank has."""
        scattered = self.tp > 1 and self.sequence_parallel
        return -(-self.tokens // self.tp) if scattered else self.tokens

    @property
    def routed(self) -> int:
        """Tokens that this rank routes to experts."""
        return self.own if self.ep > 1 else self.tokens


def training_layer(
    model: Transformer,
    layer: Layer,
    step: TrainingStep,
    *,
    place: Place = INNER,
    share: Share | None = None,
) -> LayerPass:
    """Forward and backward of one layer of a (cut) model.

    ``place`` says which layer of the whole model it is, for recipes that ask. ``share`` is the
    rank's part of the routing, of ``step.routed`` tokens on each rank; without it one rank has all
    experts, evenly loaded. Raises InputError where experts lie on many ranks and no share is given.
    """
    model = in_recipe(model, layer, step.recipe, place)
    tape = _tape(model, step)
    if layer.attention is not None:
        tape.run(norm(model, "attn.norm", step.own, model.hidden, "add_rms_norm"))
        _attention(tape, model, layer.attention, step)
    if layer.ffn is not None:
        tape.run(norm(model, "ffn.norm", step.own, model.hidden, "add_rms_norm"))
    if isinstance(layer.ffn, DenseFFN):
        _dense(tape, model, layer.ffn, "ffn", step)
    elif layer.ffn is not None:
        _experts(tape, model, layer.ffn, step, share)
    if layer.dense_ffn is not None:
        _dense(tape, model, layer.dense_ffn, "ffn.dense", step)
        tape.run(_sum(model, "ffn.join", step.own))
    for extra in range(layer.norms - 2):
        tape.run(norm(model, f"post.norm{extra + 1}", step.own, model.hidden, "rms_norm"))
    return again(tape.finish(), step.recompute, step.modules)


def embedding_pass(model: Transformer, step: TrainingStep) -> LayerPass:
    """The lookup of this rank's part of the vocabulary, summed over the ranks, and its gradient."""
    tape = _tape(model, step)
    look = Pointwise(
        name="embedding", function="gather", rows=step.tokens, cols=model.hidden,
        format=model.activation_format,
    )  # fmt: skip
    back = PointwiseBackward(name="embedding.grad", forward=look, kept=step.gradients)
    tape.add(look, ("weights", back))
    tape.leave("embedding", step.tokens * model.hidden)
    return tape.finish()


def head_pass(model: Transformer, step: TrainingStep) -> LayerPass:
    """Final norm, logits and cross entropy over this rank's part of the vocabulary, and back.

    Ranks agree on the largest logit, the sum of exponentials and the logit of the target of each
    token: three all-reduces of one fp32 number per token (Megatron-LM, arXiv 1909.08053,
    section 3). The hidden state before the head is kept, so nothing is computed again.
    """
    tape = _tape(model, step)
    wide, rows = model.activation_format, step.tokens
    if model.final_norm:
        tape.run(norm(model, "final.norm", step.own, model.hidden, "add_rms_norm"))
    tape.enter("lm_head", rows * model.hidden)
    tape.run(
        Matmul(
            name="lm_head", m=rows, n=model.vocab, k=model.hidden, a=wide, b=wide, out=wide,
            bias=model.head_bias,
        )
    )  # fmt: skip
    tape.run(Pointwise(name="loss", function="softmax", rows=rows, cols=model.vocab, format=wide))
    if step.tp > 1:
        for what in ("largest", "sum", "target"):
            tape.add(
                Collective(
                    name=f"loss.{what}", algorithm="all_reduce", ranks=step.tp,
                    message=4.0 * rows, format="fp32",
                )
            )  # fmt: skip
    return tape.finish()


def prediction_pass(
    model: Transformer, step: TrainingStep, *, layers: int = 1, share: Share | None = None
) -> LayerPass:
    """One multi-token-prediction module: two norms, a 2h x h projection, a layer like the last,
    and one more pass of the embedding and the head (DeepSeek-V3, arXiv 2412.19437, section 2.2).

    ``layers`` counts those of the whole model, after which the module comes.
    """
    last = model.groups[-1].layers[-1]
    place = Place(layers, layers)
    formats = in_recipe(model, last, step.recipe, place)
    tape, hidden = _tape(formats, step), model.hidden
    for name in ("mtp.hidden.norm", "mtp.token.norm"):
        tape.run(norm(formats, name, step.own, hidden, "rms_norm"))
    tape.enter("mtp.projection", 2 * step.tokens * hidden)
    wide = formats.activation_format
    tape.run(
        Matmul(
            name="mtp.projection", m=step.tokens, n=-(-hidden // step.tp), k=2 * hidden,
            a=wide, b=wide, out=wide,
        )
    )  # fmt: skip
    if step.tp > 1:  # columns of the result are gathered; each rank goes on with its tokens
        size = number_format(wide).bytes(step.tokens * hidden)
        gather = Collective(
            name="mtp.all_gather", algorithm="all_gather", ranks=step.tp, message=size, format=wide
        )
        tape.add(gather, ("input", replace(gather, name="mtp.all_gather.grad")))
    parts = (
        embedding_pass(model, step),
        again(tape.finish(), step.recompute, step.modules),
        training_layer(model, last, step, place=place, share=share),
        head_pass(model, step),
    )
    return joined(parts)


def joined(parts: Iterable[LayerPass]) -> LayerPass:
    """Passes one after another; backward in the other order."""
    ordered = tuple(parts)
    turned = ordered[::-1]
    return LayerPass(
        forward=tuple(op for part in ordered for op in part.forward),
        backward=tuple(op for part in turned for op in part.backward),
        dgrad=tuple(op for part in turned for op in part.dgrad),
        wgrad=tuple(op for part in turned for op in part.wgrad),
        recomputed=tuple(op for part in turned for op in part.recomputed),
    )


def optimizer_step(
    parameters: int,
    plan: Plan,
    *,
    expert_parameters: int = 0,
    weights: str = "bf16",
    narrow: dict[str, int] | None = None,
) -> tuple[Op, ...]:
    """The update of one rank that holds that many parameters, those of routed experts apart.

    From ZeRO stage 1 on the replicas share the update: dp x cp ranks of most parameters, and
    tp x cp x dp / ep ranks of an expert's (none where tensor parallelism cuts experts). The norm
    of all gradients comes first, one number to agree on. ``narrow``: weights on this rank by the
    format in which they are multiplied (``recipes.narrow_weights``), cast anew after the update.
    Reduction of gradients and gathering of weights are no part of it.
    """
    dense_ranks = expert_ranks = 1
    if plan.zero:
        dense_ranks = plan.cp * plan.replicas
        expert_ranks = max(1, dense_ranks * (plan.tp if plan.ep > 1 else 1) // plan.ep)
    elements = -(-parameters // dense_ranks) - (-expert_parameters // expert_ranks)
    ops: list[Op] = [
        GradientNorm(name="gradient.norm", elements=elements, gradients=plan.gradients)
    ]
    if plan.devices > 1:
        ops.append(
            Collective(
                name="gradient.norm.all_reduce", algorithm="all_reduce", ranks=plan.devices,
                message=4.0, format="fp32",
            )
        )  # fmt: skip
    ops.append(
        AdamUpdate(name="adam", elements=elements, gradients=plan.gradients, weights=weights)
    )
    for name, count in (narrow or {}).items():
        rows = -(-count // ROW)
        ops.append(Cast(name="weights.quantise", rows=rows, cols=ROW, format=weights, out=name))
    return tuple(ops)


def _tape(model: Transformer, step: TrainingStep) -> Tape:
    group = Group(ranks=step.tp, sequence_parallel=step.sequence_parallel)
    return Tape(group, wide=model.activation_format, kept=step.gradients)


def _sum(model: Transformer, name: str, rows: int) -> Pointwise:
    return Pointwise(
        name=name, function="add", rows=rows, cols=model.hidden, format=model.activation_format
    )


def _attention(
    tape: Tape, model: Transformer, core: Attention | LatentAttention, step: TrainingStep
) -> None:
    """Projections and core. The small latents of latent attention are computed by each rank for
    its own tokens and gathered, which is less than to gather its input."""
    local = step.sequence // step.cp
    whole = Step(batch=step.micro_batch, new=local, context=local)
    wide = model.hidden
    if isinstance(core, LatentAttention):
        ops = list(latent_attention(model, core, "", whole))
        if core.q_lora_rank is not None:
            wide = core.q_lora_rank + core.kv_lora_rank + core.qk_rope_head_dim
            first = next(i for i, op in enumerate(ops) if op.name == "attn.lora_norm") + 1
            own = Step(batch=step.own, new=1, context=1)
            for op in list(latent_attention(model, core, "", own))[:first]:
                tape.run(op)
            ops = ops[first:]
    else:
        ops = list(grouped_attention(model, core, "", whole))
    tape.enter("attn", step.tokens * wide)
    for op in ops:
        if isinstance(op, AttentionCore):
            _core(tape, replace(op, cached=False), step)
        else:
            tape.run(op)
    tape.leave("attn", step.tokens * model.hidden)


def _core(tape: Tape, core: AttentionCore, step: TrainingStep) -> None:
    """The core of one context-parallel rank.

    A rank has the chunks i and 2 cp - 1 - i of 2 cp chunks, so every rank has the same pairs of
    query and key: 1 / cp of all. That is the whole sequence for 1 / cp of the heads, which has the
    shape of a whole kernel; where heads do not divide, the two chunks as they are.
    """
    cp = step.cp
    if cp == 1:
        tape.run(core)
        return
    whole = replace(core, q_len=step.sequence, kv_len=step.sequence)
    heads, kv = core.heads // cp, max(1, core.kv_heads // cp)
    if core.heads % cp == 0 and heads % kv == 0 and core.kv_heads in (kv * cp, 1):
        parts: list[Op] = [replace(whole, heads=heads, kv_heads=kv)]
    else:
        chunk = step.sequence // (2 * cp)
        if chunk * 2 * cp != step.sequence:
            raise InputError(
                f"a sequence of {step.sequence} tokens does not divide into 2 x cp {cp} chunks"
            )
        parts = [
            replace(core, name=f"{core.name}.{name}", q_len=chunk, kv_len=end * chunk)
            for name, end in (("early", 1), ("late", 2 * cp))
        ]
    tape.gathered_core(whole, cp, step.tp, parts)


def _dense(tape: Tape, model: Transformer, net: DenseFFN, name: str, step: TrainingStep) -> None:
    tape.enter(name, step.tokens * model.hidden)
    for op in dense(model, net, name, "ffn", step.tokens):
        tape.run(op)
    tape.leave(name, step.tokens * model.hidden)


def _experts(
    tape: Tape, model: Transformer, net: MoE, step: TrainingStep, share: Share | None
) -> None:
    """Router, exchanges, experts and shared experts.

    With expert-parallel ranks each rank routes its own tokens to whole experts; without, the
    tensor-parallel ranks have all tokens and a part of the width of each expert.
    """
    rows, hidden, apart = step.routed, model.hidden, step.ep > 1
    if share is None:
        if apart:
            raise InputError(f"experts lie on {step.ep} ranks: give the rank's share of them")
        counts = shares(rows * net.top_k, net.experts)
        share = Share(counts=counts, arrived=rows, slots=net.experts)
    if not apart:
        tape.enter("moe", rows * hidden)
    wide = model.activation_format
    local = Step(
        batch=rows, new=1, context=1, ranks=step.ep, dispatch=step.dispatch or wide,
        combine=step.combine,
    )  # fmt: skip
    ops = list(experts(model, replace(net, shared_experts=0), local, share))
    ways = {op.way: op for op in ops if isinstance(op, Exchange)}
    for op in ops:
        if isinstance(op, Exchange):
            tape.exchange(op, ways["combine" if op.way == "dispatch" else "dispatch"])
        elif isinstance(op, Pointwise) and op.name == "moe.permute":
            tape.permute(op, share.arrived)
        else:
            tape.run(op)
    if net.shared_experts:
        if apart:
            tape.enter("moe.shared", step.tokens * hidden)
        shared = DenseFFN(width=net.shared_width, gated=net.gated, activation=net.activation)
        for op in dense(model, shared, "moe.shared", "shared_experts", step.tokens):
            tape.run(op)
        if apart:
            tape.leave("moe.shared", step.tokens * hidden)
        tape.run(_sum(model, "moe.join", rows))
    if not apart:
        tape.leave("moe", rows * hidden)
