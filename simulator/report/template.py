"""Pages from templates: self-contained, in the page's colours, under a policy that lets nothing in.

Knows templates, not what they say.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Any

from simulator.report import numbers, palette


def render(name: str, *, script: str = "", **values: Any) -> str:
    """The page of a template with ``values``, whose text is escaped; ``script`` is the name of the
    only script that it may run."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.FunctionLoader(_text),
    )  # fmt: skip
    environment.filters["typeset"] = numbers.typeset
    code = _text(script) if script else ""
    text = environment.get_template(name).render(
        **values,
        light=palette.variables(palette.LIGHT),
        dark=palette.variables(palette.DARK),
        style=_text("page.css"),
        script=code,
        digest=base64.b64encode(hashlib.sha256(code.encode()).digest()).decode(),
    )
    return text.rstrip() + "\n"


def _text(name: str) -> str:
    return resources.files("simulator.report").joinpath(name).read_text(encoding="utf-8")
