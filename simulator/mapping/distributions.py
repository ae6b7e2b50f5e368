"""Experts drawn for tokens where there are no logits: chances of experts, and draws that keep them.

Knows numbers of experts and top-k. Never touches routers, files or hardware. Uniform numbers are
passed in, one row per token, so that a batch is the beginning of a larger one.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from simulator.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SPREAD = 200.0
"""Largest over smallest sample of a truncated power law. That of the workload generator whose
measurements calibrate the expert kernels: 0.01 to 2 for few tokens; 1 to 0.8 times the tokens for
many, the same at 250 tokens. It stays put for more of them, so that no count falls."""
SURE = 1 - 1e-9
"""Chance from which on an expert is always taken."""
_EXACT = 1e-8
"""Relative error of a chance at which its weight is found: far below what counts can tell."""
_ROUNDS = 100
_STEP = 2 / 3
"""Share of each correction that is made. Draws of a fixed size covary negatively and sum to zero,
so that a whole one can overshoot by as much as it mends, where two experts are left to one."""
_PARTS = 8192
"""Tokens whose numbers the innermost loops hold at once."""


def shares(form: str, number: float, experts: int, top_k: int) -> Floats:
    """Relative loads of the experts, (experts,), the fullest first.

    ``zipf``: rank^-number. With 128 experts and an exponent of 0.3 the fullest one has 3.06 times
    the mean. ``power_law``: quantiles of x^-number on 1 to ``SPREAD``. ``lognormal``: quantiles of
    a log-normal whose sigma makes the fullest expert's chance ``number`` times the mean.

    Raises InputError for a ``number`` of ``lognormal`` above experts / top_k: no token takes an
    expert twice.
    """
    middles = (np.arange(experts, dtype=np.float64) + 0.5) / experts
    if form == "zipf":
        return np.asarray(np.arange(1, experts + 1, dtype=np.float64) ** -number)
    if form == "power_law":
        power = 1.0 - number
        if abs(power) < 1e-9:
            return np.asarray(SPREAD ** middles[::-1])
        samples: Floats = ((SPREAD**power - 1) * middles[::-1] + 1) ** (1 / power)
        return samples
    if form != "lognormal":
        raise ValueError(f"{form!r} is no distribution of shares")
    if not 1 <= number <= experts / top_k:
        raise InputError(
            f"lognormal: no expert can have {number:g} times the mean load; with top_k {top_k} of "
            f"{experts} experts it is 1 to {experts / top_k:g}"
        )
    normal = np.array([NormalDist().inv_cdf(1 - middle) for middle in middles])
    if number * top_k > experts * SURE:
        # The fullest is in every token; the smallest sigma that does it is found all the same.
        number = SURE * experts / top_k
    low, high = 0.0, 1.0
    while _largest(normal * high, top_k) < number * top_k / experts:
        high *= 2
    for _ in range(60):
        sigma = (low + high) / 2
        enough = _largest(normal * sigma, top_k) >= number * top_k / experts
        low, high = (low, sigma) if enough else (sigma, high)
    return np.asarray(np.exp(high * (normal - normal[0])))


def _largest(logs: Floats, top_k: int) -> float:
    return float(chances(np.exp(logs - logs.max()), top_k).max())


def chances(loads: Floats, top_k: int) -> Floats:
    """Chance of each expert to be one of a token's ``top_k``, in proportion to ``loads``.

    They sum to ``top_k``. No chance exceeds 1: what is too much goes to the others, as they have.
    Raises InputError where fewer than ``top_k`` experts have any load.
    """
    some = int(np.count_nonzero(loads))
    if some < top_k:
        raise InputError(f"{some} experts have any load, fewer than a top_k of {top_k}")
    sure = np.zeros(loads.shape, dtype=np.bool_)
    while True:
        left = top_k - int(sure.sum())
        free = np.where(sure, 0.0, loads)
        part = free * (left / free.sum()) if left else np.zeros(loads.shape)
        over = part > 1
        if not over.any():
            return np.asarray(np.where(sure, 1.0, part))
        sure |= over


class Sampler:
    """Draws of ``top_k`` distinct experts that keep each expert's chance.

    Conditional Poisson sampling: of all draws with these chances the one of highest entropy, whose
    weights follow from the chances by iteration (Chen, Dempster and Liu, Biometrika 81, 1994). A
    token's experts are found in order, each by one uniform number: with r experts still to take
    from position p on, the next one lies beyond position j with probability S_r(j+1) / S_r(p),
    where S_r(p) sums the products of weights over all sets of r experts from p on.
    """

    def __init__(self, chance: Floats) -> None:
        """``chance`` (experts,) sums to the number of experts that each token takes."""
        top_k = round(float(chance.sum()))
        sure = chance > (SURE if np.count_nonzero(chance) > top_k else 0)
        self.sure = np.flatnonzero(sure)
        self.free = np.flatnonzero((chance > 0) & ~sure)
        self.left = top_k - len(self.sure)
        """Experts that chance decides on, and uniform numbers that a token needs."""
        if self.left:
            self._above = _tables(chance[self.free], self.left)

    def draw(self, uniform: Floats) -> Ints:
        """The experts of each token, (tokens, top_k), from numbers (tokens, left) in [0, 1)."""
        tokens = len(uniform)
        taken = np.empty((tokens, self.left + len(self.sure)), dtype=np.int64)
        taken[:, self.left :] = self.sure
        for first in range(0, tokens, _PARTS):
            part = slice(first, first + _PARTS)
            down = np.log1p(-uniform[part].T)
            place = np.zeros(down.shape[1], dtype=np.int64)
            for column in range(self.left):
                above = self._above[self.left - column]
                found = np.searchsorted(above, above[place] - down[column], side="right")
                taken[part, column] = self.free[found - 1]
                place = found
        return taken


def _tables(chance: Floats, left: int) -> Floats:
    """-log S_r(p), ascending along p: (left + 1, experts + 1)."""
    # One expert alone is drawn by its chance; more are weighed by iteration.
    odds = chance / (1 - chance) if left > 1 else chance.copy()
    target = odds.copy()
    for _ in range(_ROUNDS):
        taken = odds / (1 + odds)
        head, tail = _sums(taken, left), _sums(taken[::-1], left)[::-1]
        # Of r experts in all one is this one, some are before it and the others after it.
        found = taken * (head[:-1, :left] * tail[1:, left - 1 :: -1]).sum(axis=1) / tail[0, left]
        if np.abs(found / chance - 1).max() < _EXACT:
            break
        odds *= (target * (1 - found) / found) ** _STEP
    else:
        raise InputError(f"chances too unlike to draw {left} of {len(chance)} experts by them")
    with np.errstate(divide="ignore"):
        logs = np.log(tail).T
    logs[:, :-1] += np.log1p(odds)[::-1].cumsum()[::-1]
    # Sums too small for a number are of states that no token reaches, so they bound no other.
    return -np.maximum.accumulate(logs[:, ::-1], axis=1)[:, ::-1]


def _sums(taken: Floats, most: int) -> Floats:
    """Chance that r of the first p experts are taken, each apart: (experts + 1, most + 1)."""
    sums = np.zeros((len(taken) + 1, most + 1))
    sums[0, 0] = 1
    for place, one in enumerate(taken):
        sums[place + 1] = sums[place] * (1 - one)
        sums[place + 1, 1:] += sums[place, :-1] * one
    return sums


def distinct(experts: int, uniform: Floats) -> Ints:
    """Distinct experts of each token, every set as likely, (tokens, top_k), from numbers alike.

    Floyd's sampling, one column at a time: column i draws from the first E - k + i + 1 experts and
    takes the last of them instead where an earlier column has the drawn one; every subset is
    equally likely (CACM 30(9), 1987, page 754).
    """
    tokens, top_k = uniform.shape
    lasts = np.arange(experts - top_k, experts)
    chosen = np.empty((tokens, top_k), dtype=np.int64)
    for first in range(0, tokens, _PARTS):
        part = slice(first, first + _PARTS)
        picks = np.ascontiguousarray((uniform[part] * (lasts + 1)).astype(np.int32).T)
        for column, last in enumerate(lasts.tolist()):
            # Earlier picks are below the last one, so what is replaced meets none of them.
            for earlier in picks[:column]:
                np.copyto(picks[column], last, where=picks[column] == earlier)
        chosen[part] = picks.T
    return chosen
