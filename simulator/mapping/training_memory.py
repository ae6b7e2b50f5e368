"""What occupies the memory of the fullest rank in training, part by part, with its formula.

Knows a model, a plan, a length and a capacity. Never touches time or links. Sizes are bytes.

Sources: activations and their number in flight, Korthikanti et al. (arXiv 2205.05198, section 4);
gathered layer of ZeRO-3, DeepSpeed's estimator (4 bytes for each weight of the largest layer).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from simulator.mapping.activations import head_saved, layer_saved, stream_bytes
from simulator.mapping.held import by_rank, cut, ends_held, is_routed, layer_held
from simulator.mapping.stages import Stage, in_flight
from simulator.mapping.training_states import ADAM, LAYOUTS, WORKING, model_states
from simulator.memory_use import MemoryPart, MemoryUse
from simulator.models.recipes import RECIPES, Place, in_recipe
from simulator.models.weights import Weight
from simulator.specs.plan import Plan
from simulator.specs.precision import number_format
from simulator.specs.workload import Layer, Transformer
from simulator.units import Bytes


def training_memory(
    model: Transformer,
    plan: Plan,
    *,
    sequence: int,
    capacity: Bytes,
    framework: Bytes,
    batch: int | None = None,
) -> MemoryUse:
    """The memory of the fullest rank of a legal plan, usually one of the first stage.

    The arguments are those of ``stage_memories``.
    """
    uses = stage_memories(
        model, plan, sequence=sequence, capacity=capacity, framework=framework, batch=batch
    )
    return max(uses, key=lambda use: use.total)


def stage_memories(
    model: Transformer,
    plan: Plan,
    *,
    sequence: int,
    capacity: Bytes,
    framework: Bytes,
    batch: int | None = None,
) -> list[MemoryUse]:
    """The memory of a rank of each pipeline stage of a legal plan.

    ``sequence`` is tokens of a sequence, ``batch`` the global batch in sequences where it may
    leave fewer micro-batches than stages. Weights that data- and context-parallel ranks share are
    shared under ZeRO; routed experts among the ranks that hold the same ones.
    """
    ledger = _Ledger(model, plan, sequence)
    micro = None if batch is None else max(1, batch // (plan.replicas * plan.micro_batch))
    uses = []
    for rank, pieces in enumerate(by_rank(ledger.part, plan)):
        parts = [*ledger.parts(pieces, in_flight(plan, rank, micro))]
        parts.append(MemoryPart(name="runtime", bytes=framework, formula="what the stack holds"))
        uses.append(MemoryUse(parts=tuple(parts), capacity=capacity))
    return uses


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Of one layer or one end: weights apart from routed experts, theirs, and narrow copies."""

    dense: int = 0
    routed: int = 0
    narrow: Bytes = 0.0

    def __add__(self, other: _Sizes) -> _Sizes:
        return _Sizes(
            self.dense + other.dense, self.routed + other.routed, self.narrow + other.narrow
        )

    def times(self, count: int) -> _Sizes:
        """Those of so many layers."""
        return _Sizes(self.dense * count, self.routed * count, self.narrow * count)

    @property
    def total(self) -> int:
        """Weights of both kinds."""
        return self.dense + self.routed


@dataclass(frozen=True, slots=True)
class _Layer:
    """What one layer of a rank takes."""

    sizes: _Sizes
    saved: Bytes
    """Activations per token."""
    widest: Bytes
    """The widest of them."""
    moved: Bytes
    """What its exchanges bring, per token: rows of experts, and keys and values of others."""


class _Ledger:
    """The parts of each rank's memory; layers that are equal are counted once."""

    def __init__(self, model: Transformer, plan: Plan, sequence: int) -> None:
        self.part, self.plan = cut(model, plan), plan
        self.tokens = -(-sequence // plan.cp) * plan.micro_batch
        self.layers = sum(group.repeat * len(group.layers) for group in model.groups)
        self.rule = RECIPES[plan.recipe]
        self.known: dict[tuple[Layer, str | None], _Layer] = {}
        self.stream = stream_bytes(self.part, plan)
        self.group = plan.cp * plan.replicas
        self.peers = plan.tp * self.group // max(plan.tp, plan.ep)

    def parts(self, pieces: Sequence[Stage], flights: Sequence[int]) -> Iterator[MemoryPart]:
        """What the rank with those pieces holds, with so many micro-batches of each in flight."""
        own = [self._run(piece) for piece in pieces]
        ends = [
            (weight.name, _sizes([weight]))
            for weight in ends_held(self.part, self.plan, pieces, mtp=True)
        ]
        sizes = sum((size for _, size in ends), _Sizes())
        for run in own:
            sizes = sum((layer.sizes.times(count) for layer, count in run), sizes)
        yield from self._states(sizes, f"on stage {pieces[0].rank} of {self.plan.pp}")
        yield from self._gathered([layer.sizes for run in own for layer, _ in run], ends)
        yield from self._activations(pieces, own, flights)
        yield from self._buffers([layer for run in own for layer, _ in run])

    def _states(self, sizes: _Sizes, where: str) -> Iterator[MemoryPart]:
        plan = self.plan
        parts = [(sizes.dense, self.group), (sizes.routed, self.peers)]
        states = [
            model_states(count, gradients=plan.gradients, zero=plan.zero, group=group)
            for count, group in parts
        ]
        gradient = number_format(plan.gradients).bytes(1)
        for name, stage, each in (
            ("weights", 3, WORKING), ("gradients", 2, gradient), ("optimizer", 1, ADAM),
        ):  # fmt: skip
            terms = [
                f"{count:,} {what}" + (f" / {group}" if plan.zero >= stage and group > 1 else "")
                for (count, group), what in zip(parts, ("weights", "of experts"), strict=True)
                if count
            ]
            yield MemoryPart(
                name=name,
                bytes=sum(getattr(state, name) for state in states),
                formula=f"{_sum(terms)} x {each:g} B {where}",
            )
        if sizes.narrow and plan.zero < 3:
            yield MemoryPart(
                name="narrow weights",
                bytes=LAYOUTS * sizes.narrow,
                formula=f"{sizes.narrow:,.0f} B of weights as products take them, in both layouts",
            )

    def _gathered(
        self, layers: Sequence[_Sizes], ends: Sequence[tuple[str, _Sizes]]
    ) -> Iterator[MemoryPart]:
        """The largest layer whole: its weights under ZeRO 3, and gradients not yet shared."""
        zero = self.plan.zero
        if zero < 2 or max(self.group, self.peers) == 1:
            return
        largest = max([*layers, *(size for _, size in ends)], key=lambda size: size.total)
        each = 2 * WORKING if zero == 3 else WORKING
        what = "weights and gradients" if zero == 3 else "gradients"
        narrow = LAYOUTS * largest.narrow if zero == 3 else 0.0
        yield MemoryPart(
            name="gathered layer",
            bytes=each * largest.total + narrow,
            formula=f"{what} of the largest layer: {largest.total:,} x {each:g} B"
            + (f" + {narrow:,.0f} B narrow" if narrow else ""),
        )

    def _activations(
        self,
        pieces: Sequence[Stage],
        own: Sequence[Sequence[tuple[_Layer, int]]],
        flights: Sequence[int],
    ) -> Iterator[MemoryPart]:
        full, last = self.plan.recompute == "full", pieces[-1].last
        modules = self.part.mtp_layers if last else 0
        kept: dict[int, Bytes] = {}
        for piece, run, flight in zip(pieces, own, flights, strict=True):
            each = sum((self.stream if full else layer.saved) * count for layer, count in run)
            if piece.last and modules:
                # A module norms its two inputs, joins them, and has a layer like the last one.
                layer = self._layer(self.part.groups[-1].layers[-1], self.layers)
                each += modules * (4 * self.stream + (0 if full else layer.saved))
            kept[flight] = kept.get(flight, 0.0) + each
        yield MemoryPart(
            name="activations",
            bytes=self.tokens * sum(flight * each for flight, each in kept.items()),
            formula=f"{self.tokens:,} tokens x "
            + _sum([f"{flight} x {each:,.0f} B" for flight, each in kept.items()])
            + f": micro-batches in flight x {'inputs of layers' if full else 'what layers keep'}",
        )
        if full:
            most = max((layer.saved for run in own for layer, _ in run), default=0.0)
            yield MemoryPart(
                name="recomputed layer",
                bytes=self.tokens * most,
                formula=f"{self.tokens:,} tokens x {most:,.0f} B of the layer under way",
            )
        if last:
            each = sum(tensor.bytes for tensor in head_saved(self.part, self.plan))
            yield MemoryPart(
                name="logits",
                bytes=self.tokens * each * (1 + modules),
                formula=f"{self.tokens:,} tokens x {each:,.0f} B of final norm, head and loss"
                + (f", {1 + modules} times" if modules else ""),
            )

    def _buffers(self, layers: Sequence[_Layer]) -> Iterator[MemoryPart]:
        widest = max((layer.widest for layer in layers), default=0.0)
        working = 2 * self.stream + widest
        yield MemoryPart(
            name="working buffers",
            bytes=self.tokens * working,
            formula=f"{self.tokens:,} tokens x {working:,.0f} B: gradients of the stream and of "
            "the widest tensor",
        )
        plan = self.plan
        gathers = plan.tp > 1 and plan.sequence_parallel
        terms = {
            "both ways between stages": 2 * self.stream if plan.pp > 1 else 0.0,
            "gathered over tp": self.stream * plan.tp if gathers else 0.0,
            "of rows, keys and values": max((layer.moved for layer in layers), default=0.0),
        }
        each = sum(terms.values())
        if each:
            named = ", ".join(f"{size:,.0f} {what}" for what, size in terms.items() if size)
            yield MemoryPart(
                name="communication buffers",
                bytes=self.tokens * each,
                formula=f"{self.tokens:,} tokens x {each:,.0f} B: {named}",
            )

    def _run(self, piece: Stage) -> list[tuple[_Layer, int]]:
        """The layers of a piece; those that the recipe treats alike stay together."""
        found: list[tuple[_Layer, int]] = []
        index = piece.start
        for layer, count in piece.layers:
            for _ in range(count):
                held = self._layer(layer, index)
                if found and found[-1][0] is held:
                    held, before = found.pop()
                    found.append((held, before + 1))
                else:
                    found.append((held, 1))
                index += 1
        return found

    def _layer(self, layer: Layer, index: int) -> _Layer:
        place = Place(index, self.layers)
        key = layer, self.rule(place)
        if key not in self.known:
            part = in_recipe(self.part, layer, self.plan.recipe, place)
            saved = layer_saved(part, layer, self.plan)
            moved = {"rows of experts": self.plan.ep > 1, "keys and values": self.plan.cp > 1}
            self.known[key] = _Layer(
                sizes=_sizes(layer_held(self.part, self.plan, layer), part),
                saved=sum(tensor.bytes for tensor in saved),
                widest=max((tensor.bytes for tensor in saved), default=0.0),
                moved=sum(tensor.bytes for tensor in saved if moved.get(tensor.name)),
            )
        return self.known[key]


def _sum(terms: Sequence[str]) -> str:
    return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"


def _sizes(weights: Iterable[Weight], formats: Transformer | None = None) -> _Sizes:
    """Sizes of those weights; ``formats`` says which of them products take below 16 bits."""
    dense = routed = 0
    narrow = 0.0
    for weight in weights:
        if is_routed(weight):
            routed += weight.elements
        else:
            dense += weight.elements
        if formats is not None and weight.multiplied:
            name = number_format(formats.weight_format(weight.part))
            narrow += name.bytes(weight.elements) if name.bits < 16 else 0.0
    return _Sizes(dense, routed, narrow)
