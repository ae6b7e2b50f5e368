"""Attention kernels of decode: what is known of each before any fit, and who stands in for whom.

A library is one kernel code base as one framework calls it: the framework decides what runs beside
the kernel. Knows names and numbers. Never touches formulas, devices or measurements.

Query heads of a block, numbers of parts: flash-attention at 0251105a (heuristics.h), FlashInfer's
trtllm-gen runner, TensorRT-LLM's XQA (up to 32 heads of a key head, one head a block above: the
masked multi-head kernel) and SGLang's Triton decode kernel (8 parts), stated in 2026.
"""

from __future__ import annotations

from collections.abc import Mapping

_PERSISTENT = {"setup": 0.8, "resident_blocks": 2.0}
"""Blocks stay on their unit and take their work one after the other."""

PRIORS: Mapping[str, Mapping[str, float]] = {
    "fa2-sglang": {"launch": 12},
    "fa2-vllm": {"launch": 9},
    "fa2-vllm-unpacked": {"launch": 9, "rows": 1, "parts": 1},
    "fa2-xe": {"launch": 9},
    "fa3-sglang": {"launch": 9},
    "fa3-sglang-mixed": {"launch": 15},
    "fa3-vllm": {"launch": 10},
    "fa4-vllm": {"launch": 15},
    "flashinfer-sglang": {"launch": 6},
    "triton-sglang": {"launch": 8, "rows": 16, "chunk": 512},
    "trtllm-gen-sglang": {"launch": 9, **_PERSISTENT},
    "trtllm-gen-vllm": {"launch": 9, **_PERSISTENT},
    "trtllm-gen": {"launch": 9, **_PERSISTENT},
    "trtllm-gen-paged": {"launch": 9, **_PERSISTENT},
    "trtllm-xqa": {"launch": 8, "rows": 32},
    "trtllm-mmha": {
        "launch": 8, "rows": 1, "padded": 1, "parts": 32, "block": 1.4, "matrix": 0.1, "rate": 25,
    },
    "fa3-mla": {"launch": 11, "widen": 3.0},
    "triton-mla": {"launch": 16, "rows": 16, "chunk": 512},
    "trtllm-gen-mla": {"launch": 9, "rows": 16},
    "trtllm-gen-mla-wide": {"launch": 9, "rows": 128, "padded": 64},
    "trtllm-gen-mla-sglang": {"launch": 10, "rows": 16},
    "trtllm-gen-mla-wide-sglang": {"launch": 10, "rows": 128, "padded": 64},
    "flashmla-trtllm": {"launch": 12},
    "trtllm-xqa-mla": {"launch": 11, "rows": 128},
    "trtllm-mma-mla": {"launch": 11, "parts": 1, "rate": 6},
}  # fmt: skip

STAND_INS: Mapping[str, tuple[str, ...]] = {
    "fa2-sglang": ("fa2-vllm", "fa3-sglang"),
    "fa2-vllm": ("fa2-sglang", "fa3-vllm"),
    "fa2-vllm-unpacked": ("fa2-vllm", "fa2-sglang", "fa3-vllm"),
    "fa2-xe": ("fa2-vllm", "fa3-vllm"),
    "fa3-sglang": ("fa3-vllm", "trtllm-gen-sglang"),
    "fa3-sglang-mixed": ("fa3-sglang", "fa3-vllm"),
    "fa3-vllm": ("fa3-sglang", "trtllm-gen-vllm"),
    "fa4-vllm": ("fa3-vllm", "trtllm-gen-vllm"),
    "flashinfer-sglang": ("fa2-vllm", "fa3-vllm"),
    "triton-sglang": ("flashinfer-sglang", "fa2-vllm"),
    "trtllm-gen-sglang": ("fa3-sglang", "trtllm-xqa"),
    "trtllm-gen-vllm": ("fa3-vllm", "trtllm-xqa"),
    "trtllm-gen": ("trtllm-xqa",),
    "trtllm-gen-paged": ("trtllm-gen", "trtllm-xqa"),
    "trtllm-xqa": ("trtllm-gen",),
    "trtllm-mmha": ("trtllm-xqa",),
    "fa3-mla": ("flashmla-trtllm", "trtllm-gen-mla-wide-sglang"),
    "triton-mla": ("trtllm-mma-mla",),
    "trtllm-gen-mla": ("flashmla-trtllm",),
    "trtllm-gen-mla-sglang": ("fa3-mla", "flashmla-trtllm"),
    "trtllm-gen-mla-wide": ("flashmla-trtllm",),
    "trtllm-gen-mla-wide-sglang": ("fa3-mla", "flashmla-trtllm"),
    "flashmla-trtllm": ("trtllm-gen-mla-wide",),
    "trtllm-xqa-mla": ("flashmla-trtllm",),
    "trtllm-mma-mla": ("flashmla-trtllm",),
}
"""Libraries whose constants stand for one that was not measured, nearest first."""

DESCRIPTIONS: Mapping[str, str] = {
    "fa2-sglang": "FlashAttention on mma.sync with SGLang's paged cache.",
    "fa2-vllm": "FlashAttention-2 with vLLM's paged cache.",
    "fa2-vllm-unpacked": "FlashAttention-2 in vLLM with a window or a key head for each head: "
    "each query head by itself, sequences not split.",
    "fa2-xe": "FlashAttention-2's port to Xe2 with vLLM's paged cache.",
    "fa3-sglang": "FlashAttention-3 with SGLang's paged cache.",
    "fa3-sglang-mixed": "FlashAttention-3 in SGLang with values narrower than keys, padded.",
    "fa3-vllm": "FlashAttention-3 with vLLM's paged cache.",
    "fa4-vllm": "FlashAttention-4 with vLLM's paged cache, for a head dimension of 512.",
    "flashinfer-sglang": "FlashInfer's FA2 decode kernels in SGLang.",
    "triton-sglang": "Triton decode kernel of SGLang, 8 parts at most.",
    "trtllm-gen-sglang": "trtllm-gen kernels of FlashInfer in SGLang.",
    "trtllm-gen-vllm": "trtllm-gen kernels of FlashInfer in vLLM.",
    "trtllm-gen": "trtllm-gen kernels in TensorRT-LLM.",
    "trtllm-gen-paged": "FlashInfer's trtllm-gen kernels in TensorRT-LLM.",
    "trtllm-xqa": "TensorRT-LLM's XQA kernels: all query heads of a key head in one block.",
    "trtllm-mmha": "TensorRT-LLM's masked multi-head kernel: each query head by itself.",
    "trtllm-gen-mla-wide": "trtllm-gen MLA in TensorRT-LLM, more than 32 heads: tiles of 64 heads.",
    "trtllm-gen-mla-wide-sglang": "trtllm-gen MLA in SGLang, more than 32 heads.",
    "trtllm-xqa-mla": "TensorRT-LLM's XQA on an fp8 latent, for 128 heads on sm_120.",
    "fa3-mla": "FlashAttention-3 on the latent in SGLang; widens an fp8 cache first.",
    "triton-mla": "Triton MLA decode kernel of SGLang.",
    "trtllm-gen-mla": "trtllm-gen MLA kernels in TensorRT-LLM.",
    "trtllm-gen-mla-sglang": "trtllm-gen MLA kernels of FlashInfer in SGLang.",
    "flashmla-trtllm": "FlashMLA in TensorRT-LLM.",
    "trtllm-mma-mla": "TensorRT-LLM's MLA on mma.sync, which does not split a sequence.",
}
