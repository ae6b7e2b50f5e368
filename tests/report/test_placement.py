"""Text is placed where nothing else stands."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.report.placement import Box, Line, Sheet, Spot, around, text_width

place = st.floats(min_value=20, max_value=380)
BOUNDS = Box(0, 0, 400, 400)


@settings(max_examples=50)
@given(st.lists(st.tuples(place, place), min_size=1, max_size=25, unique=True))
def test_placed_texts_touch_neither_each_other_nor_a_mark(marks: list[tuple[float, float]]) -> None:
    sheet = Sheet(bounds=BOUNDS)
    sheet.boxes += [Box(x - 5, y - 5, x + 5, y + 5) for x, y in marks]
    taken = list(sheet.boxes)
    for number, (x, y) in enumerate(marks):
        text = f"{number} operator"
        if sheet.place(text, 12, around(x, y, 4, text, 12)) is not None:
            assert not any(sheet.boxes[-1].hits(box) for box in taken)
            assert sheet.boxes[-1].inside(BOUNDS)
            taken.append(sheet.boxes[-1])
    for one, other in itertools.combinations(sheet.texts, 2):
        assert not one.hits(other)


def test_a_text_covers_a_thin_line_only_where_its_spot_says_so() -> None:
    sheet = Sheet(bounds=BOUNDS, thin=[Line(0, 200, 400, 200)])
    assert sheet.place("text", 12, [Spot(x=200, y=200)]) is None
    assert sheet.place("text", 12, [Spot(x=200, y=200, over=True)]) is not None
    solid = Sheet(bounds=BOUNDS, lines=[Line(0, 200, 400, 200)])
    assert solid.place("text", 12, [Spot(x=200, y=200, over=True)]) is None


def test_nothing_is_placed_where_there_is_no_room() -> None:
    sheet = Sheet(bounds=Box(0, 0, 30, 30))
    assert sheet.place("far too long", 12, around(15, 15, 4, "far too long", 12)) is None
    assert sheet.boxes == []


@pytest.mark.parametrize(
    ("line", "crosses"),
    [
        (Line(0, 15, 30, 15), True),
        (Line(15, 0, 15, 30), True),
        (Line(0, 0, 30, 30), True),
        (Line(0, 15, 5, 15), False),
        (Line(0, 25, 30, 25), False),
        (Line(0, 20, 10, 40), False),
    ],
)
def test_a_box_knows_the_lines_through_it(line: Line, crosses: bool) -> None:
    assert Box(10, 10, 20, 20).crossed(line) is crosses


@pytest.mark.parametrize(
    "text",
    [
        *("ffn.gate_up", "attn w128.qkv", "moe.unpermute", "1 conv3x3.128px", "MWQ@%&"),
        *("memory 23.3 TB/s, achieved 19.8 TB/s", "bf16 5.00 PFLOP/s, held 3.55 PFLOP/s"),
    ],
)
def test_a_width_is_never_reckoned_less_than_the_widest_face_takes(text: str) -> None:
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextPath

    drawn = TextPath((0, 0), text, size=12, prop=FontProperties(family="DejaVu Sans"))
    assert drawn.get_extents().width <= text_width(text, 12)
