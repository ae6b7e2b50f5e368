"""Attention kernels of prefill: what is known of each before any fit, and who stands in for whom.

A library is one kernel code base as one framework calls it: the framework decides what runs beside
the kernel. Knows names and numbers. Never touches formulas, devices or measurements.

Tiles and packing: flash-attention at 0251105a (hopper/tile_size.h, csrc/flash_attn), TensorRT-LLM
kernels_fmha (64 query rows on mma.sync), FlashInfer and Triton kernels of SGLang (64 rows).
"""

from __future__ import annotations

from collections.abc import Mapping

_SKIPS_LITTLE = {"skip": 0.3, "slack": 200.0}

PRIORS: Mapping[str, Mapping[str, float]] = {
    "fa2-sglang": {"packs": 1},
    "fa2-vllm": {"packs": 1},
    "fa3-sglang": {"packs": 2},
    "fa3-vllm": {"packs": 2},
    "trtllm-gen-sglang": {"packs": 1},
    "trtllm-gen-vllm": {"packs": 1},
    "trtllm-gen-decode-vllm": {"packs": 2, "rows": 64, "launches": 2},
    "flashinfer-sglang": {"packs": 2, "rows": 64},
    "triton-sglang": {"packs": 1, "rows": 64, "vector": 10, **_SKIPS_LITTLE},
    "trtllm-fmha": {"launch": 12, "query_passes": 4, "launches": 2},
    "trtllm-mma": {"launch": 11, "rows": 64, "query_passes": 4, "launches": 2},
    "fa2-encoder": {"launch": 5, "launches": 1},
    "fa3-encoder": {"launch": 7, "launches": 1},
    "fa4-encoder": {"launch": 4, "launches": 1},
    "triton-encoder": {"launch": 5, "rows": 64, "odd": 3, "launches": 1},
    "trtllm-fmha-encoder": {"launch": 10, "launches": 1},
    "trtllm-mma-encoder": {"launch": 9, "rows": 64, "launches": 1},
    "fa3-mla": {"launch": 11},
    "trtllm-gen-mla": {"launch": 12},
    "triton-mla": {"launch": 8, "rows": 64, "vector": 15},
    "trtllm-fmha-mla": {"launch": 13},
    "trtllm-mma-mla": {"launch": 12, "rows": 64},
}

STAND_INS: Mapping[str, tuple[str, ...]] = {
    "fa2-sglang": ("fa2-vllm", "fa3-sglang"),
    "fa2-vllm": ("fa2-sglang", "fa3-vllm"),
    "fa3-sglang": ("fa2-sglang", "trtllm-gen-sglang"),
    "fa3-vllm": ("fa2-vllm", "trtllm-gen-vllm"),
    "trtllm-gen-sglang": ("fa3-sglang", "trtllm-fmha"),
    "trtllm-gen-vllm": ("fa3-vllm", "trtllm-fmha"),
    "trtllm-gen-decode-vllm": ("fa3-vllm", "trtllm-fmha"),
    "flashinfer-sglang": ("fa2-sglang", "fa2-vllm"),
    "triton-sglang": ("fa2-sglang",),
    "trtllm-fmha": ("trtllm-mma",),
    "trtllm-mma": ("trtllm-fmha",),
    "fa2-encoder": ("fa3-encoder", "fa4-encoder"),
    "fa3-encoder": ("fa4-encoder", "fa2-encoder"),
    "fa4-encoder": ("fa3-encoder", "fa2-encoder"),
    "triton-encoder": ("fa3-encoder", "fa4-encoder"),
    "trtllm-fmha-encoder": ("trtllm-mma-encoder",),
    "trtllm-mma-encoder": ("trtllm-fmha-encoder",),
    "fa3-mla": ("trtllm-gen-mla", "trtllm-fmha-mla"),
    "trtllm-gen-mla": ("trtllm-fmha-mla", "fa3-mla"),
    "triton-mla": ("fa3-mla",),
    "trtllm-fmha-mla": ("trtllm-mma-mla", "trtllm-gen-mla"),
    "trtllm-mma-mla": ("trtllm-fmha-mla",),
}
"""Libraries whose constants stand for one that was not measured, nearest first."""

DESCRIPTIONS: Mapping[str, str] = {
    "fa2-sglang": "FlashAttention on mma.sync with SGLang's paged cache.",
    "fa2-vllm": "FlashAttention-2 with vLLM's paged cache, and its port to Xe2.",
    "fa3-sglang": "FlashAttention-3 with SGLang's paged cache.",
    "fa3-vllm": "FlashAttention-3 with vLLM's paged cache; FA4 for a head dimension of 512.",
    "trtllm-gen-sglang": "trtllm-gen kernels of FlashInfer in SGLang.",
    "trtllm-gen-vllm": "trtllm-gen prefill kernels of FlashInfer in vLLM.",
    "trtllm-gen-decode-vllm": "trtllm-gen decode kernels, which vLLM takes for single tokens.",
    "flashinfer-sglang": "FlashInfer's FA2 kernels in SGLang.",
    "triton-sglang": "Triton extend-attention kernel of SGLang.",
    "trtllm-fmha": "TensorRT-LLM context attention on wgmma and tcgen05, rotary embedding inside.",
    "trtllm-mma": "TensorRT-LLM context attention on mma.sync, rotary embedding inside.",
    "fa2-encoder": "FlashAttention-2 without a cache.",
    "fa3-encoder": "FlashAttention-3 without a cache.",
    "fa4-encoder": "FlashAttention-4 without a cache.",
    "triton-encoder": "Triton attention without a cache.",
    "trtllm-fmha-encoder": "TensorRT-LLM attention without a cache on wgmma and tcgen05.",
    "trtllm-mma-encoder": "TensorRT-LLM attention without a cache on mma.sync.",
    "fa3-mla": "FlashAttention-3 for MLA prefill in SGLang.",
    "trtllm-gen-mla": "trtllm-gen MLA prefill in SGLang.",
    "triton-mla": "Triton MLA prefill in SGLang.",
    "trtllm-fmha-mla": "TensorRT-LLM MLA prefill on wgmma and tcgen05.",
    "trtllm-mma-mla": "TensorRT-LLM MLA prefill on mma.sync.",
}
