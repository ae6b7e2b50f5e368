"""What a table of each family may hold and may leave out: operators, defaults, limits.

Knows the names that tables use and the models that answer them. Never touches files, devices or
rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from simulator.costs.families.gemm import PRODUCTS
from simulator.costs.families.model import Model, models
from simulator.errors import UnknownNameError
from simulator.specs.precision import FORMATS

FAMILIES = ("gemm", "attention", "moe", "collective", "moe_comm", "elementwise")

SOLE_OP = {"gemm": "gemm", "moe": "moe"}
"""The operator of a table without a column ``op``, where the family has one that is meant."""

SOURCES = ("aiconfigurator", "aiter", "vidur", "llmcompass", "neusight")
"""Measurement campaigns whose timing convention is known."""

DISTRIBUTIONS = ("balanced", "random", "power_law_1.01", "power_law_1.2", "power_law_1.2_eplb")
"""Examples of how tokens spread over experts; the exponent is free, but not 1."""

_DISTRIBUTION = re.compile(r"balanced|random|power_law_(?P<exponent>\d{1,2}(\.\d{1,4})?)(_eplb)?")

LARGEST = 2**40
LIMITS = {
    "gated": 1, "message_bytes": 2**50, "experts": 2**12, "topk": 2**8,
    "n_gpus": 2**20, "nodes": 2**20,
}  # fmt: skip
"""Largest size by column, ``LARGEST`` for the others: routings are drawn expert by expert."""

AT_MOST = (
    ("topk", "experts"), ("ep", "experts"), ("tp", "inter"), ("kv_heads", "heads"),
    ("nodes", "n_gpus"),
)  # fmt: skip
"""Columns of which the first never exceeds the second."""

AT_MOST_OF = dict.fromkeys(("attention_context", "mla_context"), (("seq_q", "seq_kv"),))
"""The same of single operators: ``seq_kv`` counts the queries' own positions."""

LIMITS_OF = {op: {"seq_q": 1} for op in ("attention_generation", "mla_generation")}
"""Largest size by operator and column: generation is of one token for each sequence."""

UNKNOWN = -1.0
"""What a model finds where a size has no say or follows from the device: -1, as in the tables."""

LEAST = {"window": 0.0, "gated": 0.0, "sms": 0.0}
"""Least size where a model does not state it; 1 for the others."""

Default = float | str
"""A number, or the column whose value is taken."""

_CONTEXT: Mapping[str, Default] = {
    "seq_q": "seq_kv", "seq_kv": "seq_q", "kv_heads": "heads", "window": 0,
}  # fmt: skip
_GENERATION: Mapping[str, Default] = {"seq_q": 1, "kv_heads": "heads", "window": 0}
_EXPERTS: Mapping[str, Default] = {"ep": 1, "tp": 1, "gated": 1}
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "attention_context": _CONTEXT,
    "attention_encoder": _CONTEXT,
    "attention_generation": _GENERATION,
    "mla_context": {**_CONTEXT, "head_dim": 192},
    "mla_generation": {**_GENERATION, "kv_heads": 1, "head_dim": 576},
    "mla_bmm_pre": {"n": 512, "k": 128},
    "mla_bmm_post": {"n": 128, "k": 512},
    "moe": _EXPERTS,
    "moe_expert_compute": _EXPERTS,
    "send_recv": {"n_gpus": 2, "nodes": UNKNOWN},
}
"""Sizes that a row may leave out, by operator."""

_OF_FAMILY: Mapping[str, Mapping[str, Default]] = {
    "collective": {"nodes": UNKNOWN},
    "moe_comm": {"ep": "n_gpus", "n_gpus": "ep", "nodes": UNKNOWN, "sms": 0},
}
DTYPES = {"moe_comm": "default", "collective": "fp16"}
"""Number format of a row without one, by family: of collectives the bytes alone matter."""


_NO_ELEMENT = {"moe": tuple(PRODUCTS), "moe_comm": ("default",)}
"""Formats by family that are no format of one element: of unlike operands, or never recorded."""


def defaults(op: str, family: str) -> Mapping[str, Default]:
    """Sizes that a row of the operator may leave out."""
    return DEFAULTS.get(op) or _OF_FAMILY.get(family, {})


def models_of(family: str) -> dict[str, Model]:
    """The model of each operator of a family.

    Raises UnknownNameError with the near families.
    """
    if family not in FAMILIES:
        raise UnknownNameError("family", family, FAMILIES)
    return {
        op: model for model in models().values() if model.family == family for op in model.columns
    }


def formats(model: Model, op: str) -> frozenset[str]:
    """Number formats that the model takes for an operator."""
    return frozenset(model.dtypes.get(op) or {*FORMATS, *_NO_ELEMENT.get(model.family, ())})


def is_distribution(name: str) -> bool:
    """Whether tokens can be spread over experts that way; the inverse of the law that shares are
    drawn from has a pole at an exponent of one.

    >>> is_distribution("power_law_1.2"), is_distribution("power_law_1"), is_distribution("zipf")
    (True, False, False)
    """
    found = _DISTRIBUTION.fullmatch(name)
    return found is not None and (found["exponent"] is None or float(found["exponent"]) != 1)
