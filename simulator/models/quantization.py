"""How a checkpoint's weights are quantised: from its quantization_config to a format per part.

Knows the recipes that publishers use and how each one names the modules it leaves alone. Never
touches shapes. Sources: the quantisers of transformers 5.24 and the checkpoint formats of
compressed-tensors, ModelOpt and Quark. Routers, embeddings and norms stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any

from simulator.models.fields import Fields
from simulator.models.json_tree import JsonTree

KEYS = ("quantization_config", "compression_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Which modules are stored in which number format."""

    targets: tuple[tuple[Matcher, str], ...]
    """Modules and their format, the first that matches counts."""
    excluded: Matcher
    head: bool = False
    """The head is a target like any other matrix."""
    kv_format: str | None = None
    path: str = "quantization_config"

    def format_of(self, name: str) -> str | None:
        """The format of the module of that full name, or None where it is left alone."""
        if self.excluded.matches(name):
            return None
        return next((short for matcher, short in self.targets if matcher.matches(name)), None)


@dataclass(frozen=True, slots=True)
class Matcher:
    """Module names by the patterns of quantisation tools.

    ``re:`` starts a regular expression, ``*`` makes a glob, anything else is a run of whole name
    components: ``gate`` is the router's ``mlp.gate`` but not ``mlp.gate_proj``.
    """

    everything: bool = False
    forms: tuple[re.Pattern[str], ...] = ()
    runs: tuple[str, ...] = ()
    runs_by_layer: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def matches(self, name: str) -> bool:
        """Whether one of the patterns takes in that module."""
        if self.everything or any(form.match(name) for form in self.forms):
            return True
        dotted = f".{name}."
        layer = _LAYER.search(dotted)
        mine = self.runs_by_layer.get(layer[1], ()) if layer else ()
        return any(run in dotted for run in (*self.runs, *mine))


_LAYER = re.compile(r"\.layers\.(\d+)\.")
_CLASSES = {"Linear": "", "Attention": "self_attn", "Router": "router"}


def matcher(patterns: Iterable[Any], fault: Callable[[str], None]) -> Matcher:
    """Compile patterns; ``fault`` hears of one that is no pattern."""
    everything, forms, runs = False, [], []
    by_layer: dict[str, list[str]] = {}
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern:
            fault(f"{pattern!r} is no pattern of module names")
        elif pattern == "Linear":
            everything = True
        elif pattern.startswith("re:"):
            try:
                forms.append(re.compile(pattern[3:]))
            except re.error as error:
                fault(f"{pattern!r} is no regular expression: {error}")
        elif "*" in pattern or "?" in pattern:
            forms.append(re.compile(translate(pattern.rstrip("."))))
            forms.append(re.compile(translate(pattern.rstrip(".") + ".*")))
        elif pattern[0].isupper() and "." not in pattern:
            if "Attention" not in pattern:
                fault(f"module class {pattern!r} is not supported yet")
            runs.append(".self_attn.")
        else:
            run = f".{pattern.strip('.')}."
            layer = _LAYER.search(run)
            if layer:
                by_layer.setdefault(layer[1], []).append(run)
            else:
                runs.append(run)
    frozen = {layer: tuple(entries) for layer, entries in by_layer.items()}
    return Matcher(everything, tuple(forms), tuple(runs), frozen)


def read_quantization(
    fields: Fields, outer: Fields | None, beside: JsonTree | None
) -> Recipe | None:
    """The recipe of a configuration, None where the weights are not quantised.

    It stands in the language model's part, at the top level, or (ModelOpt) in a file beside.
    """
    for level in (fields, outer):
        for key in KEYS:
            config = level.object(key) if level is not None else None
            if config is not None:
                return _recipe(config)
    if beside is not None:
        around = Fields(beside, beside.data, "", fields.faults)
        config = around.object("quantization")
        if config is not None:
            return _modelopt(config)
    return None


def _recipe(config: Fields) -> Recipe | None:
    method = config.text("quant_method")
    if method is None and config.has("quant_algo"):
        method = "modelopt"
    if method is None and config.has("config_groups"):
        method = "compressed-tensors"
    reader = _METHODS.get(method or "")
    if reader is None:
        found = "missing" if method is None else f"{method!r} is not supported yet"
        config.fault("quant_method", found, f"known: {', '.join(_METHODS)}")
        return None
    return reader(config)


def _excluded(config: Fields, *names: str) -> Matcher:
    patterns: list[Any] = []
    for name in names:
        patterns.extend(config.items(name) or ())
    return matcher(patterns, lambda found: config.fault(names[0], found))


def _everything(config: Fields, short: str, excluded: Matcher, **rest: Any) -> Recipe:
    target = Matcher(everything=True)
    return Recipe(targets=((target, short),), excluded=excluded, path=config.prefix, **rest)


def _fp8(config: Fields) -> Recipe:
    block = config.items("weight_block_size")
    if block is not None and list(block) != [128, 128]:
        config.fault("weight_block_size", f"{block!r} is not supported yet", "known: [128, 128]")
    short = "fp8" if block is None else "fp8_block"
    return _everything(config, short, _excluded(config, "modules_to_not_convert", "ignored_layers"))


def _mxfp4(config: Fields) -> Recipe:
    """Experts alone are quantised, as in gpt-oss."""
    experts = matcher(["experts"], lambda found: None)
    excluded = _excluded(config, "modules_to_not_convert")
    return Recipe(targets=((experts, "mxfp4"),), excluded=excluded, path=config.prefix)


def _gptq(config: Fields) -> Recipe:
    if config.has("dynamic", "modules_in_block_to_quantize"):
        key = config.first("dynamic", "modules_in_block_to_quantize")
        config.fault(key, "formats of single modules are not supported yet")
    short = _integer(config, config.whole("bits"), config.raw("group_size"), "group_size")
    head = config.flag("lm_head", default=False)
    return _everything(config, short, Matcher(), head=head)


def _awq(config: Fields) -> Recipe:
    bits = config.whole("bits", "w_bit")
    group = config.raw("group_size", "q_group_size")
    short = _integer(config, bits, group, config.first("group_size", "q_group_size"))
    return _everything(config, short, _excluded(config, "modules_to_not_convert"))


def _bitsandbytes(config: Fields) -> Recipe:
    excluded = _excluded(config, "llm_int8_skip_modules")
    if config.flag("load_in_8bit", "_load_in_8bit", default=False):
        return _everything(config, "int8", excluded)
    kind = config.text("bnb_4bit_quant_type")
    if not config.flag("load_in_4bit", "_load_in_4bit", default=False) or kind != "nf4":
        config.fault("bnb_4bit_quant_type", f"{kind!r} is not supported yet", "known: nf4")
    double = config.flag("bnb_4bit_use_double_quant", default=False)
    return _everything(config, "nf4_double" if double else "nf4", excluded)


def _integer(config: Fields, bits: int, group: Any, key: str) -> str:
    """The format of integer weights with one 16-bit scale per group."""
    if bits == 8:
        return "int8"
    known = {128: "int4", 64: "int4_g64", 32: "int4_g32"}
    short = known.get(group) if bits == 4 and isinstance(group, int) else None
    if short is None:
        found = f"{bits} bits in groups of {group!r} are not supported yet"
        config.fault(key, found, "known: 8 bits; 4 bits in groups of 32, 64 or 128")
    return short or "int4"


def _compressed(config: Fields) -> Recipe:
    excluded = _excluded(config, "ignore")
    groups = config.object("config_groups")
    targets: list[tuple[Matcher, str]] = []
    if groups is None:
        config.fault("config_groups", "missing")
    for name in groups.data if groups is not None else ():
        group = groups.object(name) if groups is not None else None
        weights = group.object("weights") if group is not None else None
        if group is None or weights is None:
            continue
        patterns = group.items("targets") or ()
        target = matcher(patterns, lambda found, at=group: at.fault("targets", found))  # type: ignore[misc]
        targets.append((target, _scheme(weights)))
    # Named modules come before the class that takes in all.
    targets.sort(key=lambda entry: entry[0].everything)
    cache = config.object("kv_cache_scheme")
    kv_format = None if cache is None else _scheme(cache)
    return Recipe(
        targets=tuple(targets),
        excluded=excluded,
        head=True,
        kv_format=kv_format,
        path=config.prefix,
    )


def _scheme(weights: Fields) -> str:
    """The number format of one scheme of compressed-tensors or ModelOpt."""
    bits, kind = weights.whole("num_bits"), weights.text("type")
    group, strategy = weights.raw("group_size"), weights.text("strategy")
    if kind == "int":
        if bits == 4 and strategy == "channel":
            weights.fault("strategy", "4 bits with a scale per channel are not supported yet")
            return "int4"
        return _integer(weights, bits, group, "group_size")
    if kind == "float" and bits == 8 and strategy == "block":
        block = weights.raw("block_structure")
        if block not in ([128, 128], "128x128"):
            weights.fault("block_structure", f"{block!r} is not supported yet", "known: 128 x 128")
        return "fp8_block"
    if kind == "float" and bits == 8:
        return "mxfp8" if group == 32 else "fp8"
    if kind == "float" and bits == 4 and group in (16, 32):
        return "nvfp4" if group == 16 else "mxfp4"
    weights.fault("num_bits", f"{bits} bits of type {kind!r}, group {group!r}: not supported yet")
    return "fp8"


_ALGORITHMS = {
    "FP8": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "FP8_PB_WO": "fp8_block",
    "FP8_PB": "fp8_block", "FP8_BLOCK_SCALES": "fp8_block", "NVFP4": "nvfp4",
    "NVFP4_AWQ": "nvfp4", "MXFP8": "mxfp8", "W4A16_AWQ": "int4", "W4A8_AWQ": "int4",
    "INT4_AWQ": "int4", "W8A8_SQ_PER_CHANNEL": "int8",
}  # fmt: skip


def _modelopt(config: Fields) -> Recipe:
    algorithm = config.text("quant_algo")
    short = _ALGORITHMS.get(algorithm or "")
    if short is None:
        found = "missing" if algorithm is None else f"{algorithm!r} is not supported yet"
        config.fault("quant_algo", found, f"known: {', '.join(_ALGORITHMS)}")
        short = "fp8"
    cache = config.text("kv_cache_quant_algo")
    kv_format = None
    if cache is not None:
        kv_format = {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}.get(cache)
        if kv_format is None:
            config.fault("kv_cache_quant_algo", f"{cache!r} is not supported yet")
    scheme = config.object("kv_cache_scheme")
    if scheme is not None:
        kv_format = _scheme(scheme)
    excluded = _excluded(config, "exclude_modules", "ignore")
    return _everything(config, short, excluded, head=True, kv_format=kv_format)


def _quark(config: Fields) -> Recipe:
    overall = config.object("global_quant_config")
    weight = overall.object("weight") if overall is not None else None
    excluded = _excluded(config, "exclude")
    layers = config.object("layer_quant_config")
    kv_format = None
    for pattern in layers.data if layers is not None else ():
        entry = layers.object(pattern) if layers is not None else None
        if entry is None:
            continue
        output, own = entry.object("output_tensors"), entry.object("weight")
        if output is not None and re.search(r"[kv]_proj", pattern):
            kv_format = _quark_format(output)
        mine = None if own is None else _quark_format(own)
        if weight is not None and mine != _quark_format(weight):
            entry.fault("weight", "formats of single modules are not supported yet")
    if weight is None:
        config.fault("global_quant_config", "has no weight", "give the format of the weights")
        return _everything(config, "fp8", excluded, head=True)
    return _everything(config, _quark_format(weight), excluded, head=True, kv_format=kv_format)


def _quark_format(tensor: Fields) -> str:
    kind, scheme = tensor.text("dtype"), tensor.text("qscheme")
    group = tensor.raw("group_size")
    if kind == "fp8_e4m3" and scheme in ("per_tensor", "per_channel"):
        return "fp8"
    if kind == "fp4" and scheme == "per_group" and group == 32:
        return "mxfp4"
    if kind == "int8" and scheme in ("per_tensor", "per_channel"):
        return "int8"
    tensor.fault("dtype", f"{kind!r} with scheme {scheme!r}, group {group!r}: not supported yet")
    return "fp8"


_METHODS: Mapping[str, Callable[[Fields], Recipe]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "mxfp4": _mxfp4,
    "gptq": _gptq,
    "auto-round": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "quark": _quark,
}
