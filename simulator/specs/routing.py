"""What a routing text says: how the tokens of a batch spread over the experts.

Knows the forms of the text and what each takes. Never touches what the files hold, tokens or
chance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from simulator.errors import InputError, nearest


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a routing text."""

    example: str
    least: float | None = None
    """Smallest number that it takes; None where it takes none."""
    most: float = math.inf
    takes_file: bool = False
    needed: bool = True
    """It does not stand alone."""


FORMS = {
    "uniform": Form("uniform", needed=False),
    "balanced": Form("balanced", needed=False),
    "zipf": Form("zipf 1.2", 0, 10),
    "power_law": Form("power_law 1.01", 0, 10),
    "lognormal": Form("lognormal 3", 1),
    "histogram": Form("histogram counts.csv", takes_file=True),
    "trace": Form("trace routed.jsonl", takes_file=True),
    "logits": Form("logits 0.5", 0, 10, takes_file=True, needed=False),
}
"""``uniform`` draws; ``balanced`` counts; ``zipf S`` and ``power_law A`` by exponent;
``lognormal R`` by the load of the fullest expert over the mean; ``histogram FILE`` of tokens per
expert; ``trace FILE`` of recorded experts; ``logits [SKEW]`` drawn, with a standard deviation of
what an expert is liked more than another, or ``logits FILE``, both through the model's router."""
KNOWN = ", ".join(form.example for form in FORMS.values())
SCORED = ("uniform", "logits")
"""Forms under which experts can choose tokens: those that score every pair."""


class RoutingError(InputError):
    """A routing text that says nothing known; carries what was found and what would do."""

    def __init__(self, found: str, fix: str) -> None:
        self.found, self.fix = found, fix
        super().__init__(f"routing: {found}; {fix}")

    def __reduce__(self) -> tuple[type[RoutingError], tuple[str, str]]:
        return type(self), (self.found, self.fix)


@dataclass(frozen=True, slots=True)
class Routing:
    """A routing text that was read: the word of its form, and its number or file."""

    form: str
    number: float | None = None
    file: str | None = None


@lru_cache(maxsize=256)
def parse_routing(text: str) -> Routing:
    """The routing that ``text`` says.

    >>> parse_routing("zipf 1.2")
    Routing(form='zipf', number=1.2, file=None)

    Raises RoutingError for an unknown form and for what a form does not take.
    """
    word, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    if word not in FORMS:
        near = nearest(word, FORMS)
        hint = f"did you mean {' or '.join(near)}? " if near else ""
        raise RoutingError(f"unknown routing {text[:60]!r}", f"{hint}known: {KNOWN}")
    form = FORMS[word]
    if not rest:
        if form.needed:
            raise RoutingError(f"{word!r} stands alone", f"write it like '{form.example}'")
        return Routing(word)
    try:
        number = float(rest) if form.least is not None else None
    except ValueError:
        number = None
    if number is not None and form.least is not None:
        if not form.least <= number <= form.most or math.isinf(number):
            top = f"from {form.least:g} to {form.most:g}" if form.most < math.inf else (
                f"{form.least:g} or more")  # fmt: skip
            raise RoutingError(f"{word} of {rest[:40]}", f"it is {top}")
        return Routing(word, number=number)
    if form.takes_file:
        return Routing(word, file=rest)
    found = f"{word} of {rest[:40]!r}"
    raise RoutingError(found, f"write '{form.example}'")


def routing_faults(moe: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """What is amiss with how an expert layer routes: the field, what was found, what would do.

    ``moe`` has the valid fields of a layer; what is absent is passed over.
    """
    experts, top_k, router = (moe.get(name) for name in ("experts", "top_k", "router"))
    if experts and top_k and router and experts % router.groups == 0:
        kept = experts // router.groups * router.top_groups
        if router.top_groups <= router.groups and kept < top_k <= experts:
            found = f"{router.top_groups} of {router.groups} groups keep {kept} experts"
            yield "router", found, f"keep more groups, for a top_k of {top_k}"
    try:
        routing = parse_routing(moe.get("routing", "uniform"))
    except RoutingError as error:
        yield "routing", error.found, error.fix
        return
    if routing.form == "lognormal" and experts and top_k and top_k <= experts:
        ratio = routing.number or 1
        if ratio > experts / top_k:
            found = f"a fullest expert with {ratio:.9g} times the mean load"
            most = math.floor(experts / top_k * 1000) / 1000
            yield "routing", found, f"with top_k {top_k} of {experts} it is at most {most:g}"
    if routing.file is not None and not Path(routing.file).is_file():
        yield "routing", f"{routing.file[:80]!r} is no file", "name one that exists"
    if router and router.choice == "expert_choice" and routing.form not in SCORED:
        found = f"{routing.form} says what tokens choose, but here experts choose"
        yield "routing", found, "write uniform, logits, or 'logits FILE'"
