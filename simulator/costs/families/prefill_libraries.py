"""Attention kernels of prefill: what is known of each before any fit, and who stands in for whom.

A library is one kernel code base as one framework calls it: the framework decides what runs beside
the kernel. Knows names and numbers. Never touches formulas, devices or measurements.

Tiles and packing: flash-attention at 0251105a (hopper/tile_size.h, csrc/flash_attn), TensorRT-LLM
kernels_fmha (64 query rows on mma.sync), FlashInfer and Triton kernels of SGLang (64 rows).
"""

from __future__ import annotations

from collections.abc import Mapping

_FP8 = {"matrix": 0.7}
_FA3 = {"packs": 3.0, "splits": 4.0}
_GEN = {"rows": 256.0}
_TRITON = {"rows": 64.0, "least": 64.0, "vector": 10.0, "matrix": 0.6}
_ENCODER = {"query_passes": 0.5, "key_passes": 0.5, "launches": 1.0}
_WHOLE = {"skip": 0.2, "slack": 200.0}
_ABSORBED = {"absorbed": 2.0, "packs": 3.0, "rows": 64.0, "least": 64.0}
_MMA = {"rows": 64.0, "least": 64.0}
# Tiles of wide heads leave the registers and the 100 KiB of local memory of small parts.
_MMA_CONTEXT = {**_MMA, "launch": 11.0, "query_passes": 4.0, "middle": 1.3, "wide": 1.6}

PRIORS: Mapping[str, Mapping[str, float]] = {
    "fa2-sglang": {"packs": 2},
    "fa2-vllm": {"packs": 2},
    "sycl-vllm": {"launches": 3},
    "sycl-decode-vllm": {"packs": 3, "rows": 64, "least": 64},
    "fa3-sglang": _FA3,
    "fa3-sglang-fp8": {**_FA3, **_FP8},
    "fa3-vllm": _FA3,
    "trtllm-gen-sglang": _GEN,
    "trtllm-gen-sglang-fp8": {**_GEN, **_FP8},
    "trtllm-gen-vllm": _GEN,
    "trtllm-gen-decode-vllm": {"packs": 3, "rows": 64, "least": 64},
    "flashinfer-sglang": {"packs": 3, "rows": 128, "least": 16},
    "triton-sglang": {**_TRITON, **_WHOLE},
    "triton-sglang-fp8": {**_TRITON, **_WHOLE},
    "trtllm-fmha": {"launch": 12, "query_passes": 4},
    "trtllm-fmha-fp8": {"launch": 12, "query_passes": 4, **_FP8},
    "trtllm-gen": {"launch": 12, "query_passes": 4, **_GEN},
    "trtllm-gen-fp8": {"launch": 12, "query_passes": 4, **_GEN, **_FP8},
    "trtllm-mma": _MMA_CONTEXT,
    "trtllm-mma-fp8": {**_MMA_CONTEXT, "matrix": 0.45},
    "fa2-encoder": {"launch": 5, **_ENCODER},
    "fa3-encoder": {"launch": 7, "rows": 192, "least": 192, **_ENCODER},
    "fa4-encoder": {"launch": 4, **_GEN, **_ENCODER},
    "triton-encoder": {"launch": 5, "odd": 3, **_TRITON, **_ENCODER},
    "trtllm-fmha-encoder": {"launch": 10, **_ENCODER},
    "trtllm-gen-encoder": {"launch": 10, **_GEN, **_ENCODER},
    "trtllm-plain-encoder": {"launch": 10, "odd": 3, **_MMA, **_ENCODER},
    "trtllm-mma-encoder": {"launch": 9, **_MMA, **_ENCODER},
    "fa3-mla": {"launch": 11, **_ABSORBED},
    "triton-mla": {"launch": 8, "vector": 10, "matrix": 0.35, **_ABSORBED},
    "trtllm-gen-mla-sglang": {"launch": 12, **_GEN},
    "trtllm-gen-mla": {"launch": 13, **_GEN},
    "trtllm-fmha-mla": {"launch": 13},
    "trtllm-mma-mla": {"launch": 12, **_MMA},
}

STAND_INS: Mapping[str, tuple[str, ...]] = {
    "fa2-sglang": ("fa2-vllm", "fa3-sglang"),
    "fa2-vllm": ("fa2-sglang", "fa3-vllm"),
    "sycl-vllm": ("fa2-vllm",),
    "sycl-decode-vllm": ("fa2-vllm",),
    "fa3-sglang": ("fa2-sglang", "trtllm-gen-sglang"),
    "fa3-sglang-fp8": ("trtllm-gen-sglang-fp8",),
    "fa3-vllm": ("fa2-vllm", "trtllm-gen-vllm"),
    "trtllm-gen-sglang": ("fa3-sglang", "trtllm-fmha"),
    "trtllm-gen-sglang-fp8": ("fa3-sglang-fp8", "trtllm-fmha-fp8"),
    "trtllm-gen-vllm": ("fa3-vllm", "trtllm-fmha"),
    "trtllm-gen-decode-vllm": ("fa3-vllm", "trtllm-fmha"),
    "flashinfer-sglang": ("fa2-sglang", "fa2-vllm"),
    "triton-sglang": ("fa2-sglang",),
    "triton-sglang-fp8": ("triton-sglang",),
    "trtllm-fmha": ("trtllm-gen",),
    "trtllm-fmha-fp8": ("trtllm-gen-fp8",),
    "trtllm-gen": ("trtllm-fmha",),
    "trtllm-gen-fp8": ("trtllm-fmha-fp8",),
    "trtllm-mma": ("trtllm-fmha",),
    "trtllm-mma-fp8": ("trtllm-mma",),
    "fa2-encoder": ("fa3-encoder", "fa4-encoder"),
    "fa3-encoder": ("fa4-encoder", "fa2-encoder"),
    "fa4-encoder": ("fa3-encoder", "fa2-encoder"),
    "triton-encoder": ("fa3-encoder", "fa4-encoder"),
    "trtllm-fmha-encoder": ("trtllm-gen-encoder",),
    "trtllm-gen-encoder": ("trtllm-fmha-encoder",),
    "trtllm-plain-encoder": ("triton-encoder",),
    "trtllm-mma-encoder": ("trtllm-fmha-encoder",),
    "fa3-mla": ("trtllm-gen-mla-sglang", "trtllm-fmha-mla"),
    "triton-mla": ("fa3-mla",),
    "trtllm-gen-mla-sglang": ("trtllm-fmha-mla",),
    "trtllm-gen-mla": ("trtllm-fmha-mla",),
    "trtllm-fmha-mla": ("trtllm-gen-mla",),
    "trtllm-mma-mla": ("trtllm-fmha-mla",),
}
"""Libraries whose constants stand for one that was not measured, nearest first."""

DESCRIPTIONS: Mapping[str, str] = {
    "fa2-sglang": "FlashAttention on mma.sync with SGLang's paged cache.",
    "fa2-vllm": "FlashAttention-2 with vLLM's paged cache.",
    "sycl-vllm": "Flash attention on SYCL with vLLM's paged cache.",
    "sycl-decode-vllm": "Decode kernel on SYCL, which vLLM takes for single tokens.",
    "fa3-sglang": "FlashAttention-3 with SGLang's paged cache.",
    "fa3-sglang-fp8": "FlashAttention-3 in fp8 with SGLang's paged cache.",
    "fa3-vllm": "FlashAttention-3 with vLLM's paged cache; FA4 for a head dimension of 512.",
    "trtllm-gen-sglang": "trtllm-gen kernels of FlashInfer in SGLang.",
    "trtllm-gen-sglang-fp8": "trtllm-gen kernels of FlashInfer in fp8 in SGLang, quantising Q.",
    "trtllm-gen-vllm": "trtllm-gen prefill kernels of FlashInfer in vLLM.",
    "trtllm-gen-decode-vllm": "trtllm-gen decode kernels, which vLLM takes for single tokens.",
    "flashinfer-sglang": "FlashInfer's FA2 kernels in SGLang.",
    "triton-sglang": "Triton extend-attention kernel of SGLang.",
    "triton-sglang-fp8": "Triton extend-attention kernel of SGLang on an fp8 cache.",
    "trtllm-fmha": "TensorRT-LLM context attention on wgmma, rotary embedding inside.",
    "trtllm-fmha-fp8": "TensorRT-LLM context attention on wgmma in fp8, quantisation inside.",
    "trtllm-gen": "TensorRT-LLM context attention on tcgen05, rotary embedding inside.",
    "trtllm-gen-fp8": "TensorRT-LLM context attention on tcgen05 in fp8, quantisation inside.",
    "trtllm-mma": "TensorRT-LLM context attention on mma.sync, rotary embedding inside.",
    "trtllm-mma-fp8": "TensorRT-LLM context attention on mma.sync in fp8, quantisation inside.",
    "fa2-encoder": "FlashAttention-2 without a cache.",
    "fa3-encoder": "FlashAttention-3 without a cache.",
    "fa4-encoder": "FlashAttention-4 without a cache.",
    "triton-encoder": "Triton attention without a cache.",
    "trtllm-fmha-encoder": "TensorRT-LLM attention without a cache on wgmma.",
    "trtllm-gen-encoder": "TensorRT-LLM attention without a cache on tcgen05.",
    "trtllm-plain-encoder": "TensorRT-LLM where trtllm-gen lacks the head dimension.",
    "trtllm-mma-encoder": "TensorRT-LLM attention without a cache on mma.sync.",
    "fa3-mla": "FlashAttention-3 on MLA latents in SGLang, absorbed.",
    "triton-mla": "Triton on MLA latents in SGLang, absorbed.",
    "trtllm-gen-mla-sglang": "trtllm-gen MLA prefill in SGLang.",
    "trtllm-gen-mla": "TensorRT-LLM MLA prefill on tcgen05.",
    "trtllm-fmha-mla": "TensorRT-LLM MLA prefill on wgmma.",
    "trtllm-mma-mla": "TensorRT-LLM MLA prefill on mma.sync.",
}
