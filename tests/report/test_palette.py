"""Colours can be told from the paper and from each other, with every common colour vision."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from simulator.report import palette

# Severity 1.0 of Machado, Oliveira and Fernandes (2009), in linear RGB.
VISION = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
}  # fmt: skip
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750],
     [0.0193339, 0.1191920, 0.9503041]]
)  # fmt: skip


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Of WCAG 2.2."""
    bright = sorted(TO_XYZ[1] @ linear(colour) for colour in (one, other))
    return float((bright[1] + 0.05) / (bright[0] + 0.05))


def lab(colour: str, vision: str) -> np.ndarray:
    """CIE L*a*b* under D65."""
    seen = np.clip(VISION[vision] @ linear(colour), 0, 1)
    ratio = TO_XYZ @ seen / (TO_XYZ @ np.ones(3))
    root = np.where(ratio > 216 / 24389, np.cbrt(ratio), (24389 / 27 * ratio + 16) / 116)
    return np.array([116 * root[1] - 16, 500 * (root[0] - root[1]), 200 * (root[1] - root[2])])


@pytest.mark.parametrize("colours", [palette.LIGHT, palette.DARK], ids=["light", "dark"])
def test_what_binds_stands_out_from_the_paper(colours: dict[str, str]) -> None:
    for bound in palette.BOUND:
        assert contrast(colours[bound], colours["paper"]) >= 3.0
    for text in ("ink", "faint"):
        assert contrast(colours[text], colours["paper"]) >= 4.5


@pytest.mark.parametrize("vision", VISION)
def test_what_binds_can_be_told_apart(vision: str) -> None:
    places = [lab(colour, vision) for colour in palette.BOUND.values()]
    least = min(
        float(np.linalg.norm(one - other)) for one, other in itertools.combinations(places, 2)
    )
    assert least >= (30 if vision == "normal" else 15)


def test_both_themes_name_the_same_colours() -> None:
    assert palette.LIGHT.keys() == palette.DARK.keys()
    assert len(set(palette.LIGHT.values())) == len(palette.LIGHT)


def test_a_themed_drawing_follows_the_variables_of_the_page() -> None:
    drawn = 'style="fill: #d55e00; stroke: #123456"'
    assert palette.themed(drawn) == 'style="fill: var(--memory); stroke: #123456"'
