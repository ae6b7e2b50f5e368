"""Results to draw. Shapes and rates are those of real models; times are plain arithmetic on a
roofline with a launch floor, so that each picture has the look of a real run."""

from __future__ import annotations

import pytest

from simulator.memory_use import MemoryPart, MemoryUse
from simulator.result import Basis, Bounds, Interval, OpUse, Phase, Result, Roof, RunProvenance

FLOOR = 1.1e-6


class Device:
    """Ceilings of an accelerator, and the share of each that a kernel reaches."""

    def __init__(self, name: str, capacity: float, bandwidth: float, **peaks: float) -> None:
        self.name, self.capacity, self.bandwidth, self.peaks = name, capacity, bandwidth, peaks
        self.vector = peaks["bf16"] / 16

    def roof(self) -> Roof:
        return Roof(
            compute=tuple(self.peaks.items()),
            held=tuple((name, 0.71 * rate) for name, rate in self.peaks.items()),
            bandwidth=self.bandwidth,
            achieved_bandwidth=0.85 * self.bandwidth,
        )

    def op(
        self,
        name: str,
        kind: str,
        count: int,
        flops: float,
        moved: float,
        dtype: str = "bf16",
        *,
        vector: bool = False,
        efficiency: float = 0.92,
        tile: str = "",
    ) -> OpUse:
        """``flops`` and ``moved`` are of one execution."""
        roof = self.vector if vector else self.peaks[dtype]
        compute = flops / (0.71 * roof)
        memory = moved / (0.85 * self.bandwidth)
        time = max(compute, memory) / efficiency + FLOOR
        return OpUse(
            name=name,
            kind=kind,
            count=count,
            time=count * time,
            compute=count * compute,
            memory=count * memory,
            latency=count * FLOOR,
            flops=count * flops,
            bytes=count * moved,
            format=dtype,
            roof=roof,
            tile=tile,
            units=256,
        )


HBM4 = Device("mi455x", 432e9, 23.3e12, bf16=5.0e15, fp8=20.1e15, fp4=40.3e15)
HBM3 = Device("h200", 141e9, 4.8e12, bf16=0.989e15, fp8=1.979e15)

PROVENANCE = RunProvenance(
    version="0.1.0",
    fidelity="cohort",
    seed=0,
    weakest=Basis(
        path="stack.launch_floor", source="estimate from a neighbour generation", basis="estimated"
    ),
    numbers=(
        Basis(path="memory.bandwidth", source="product page, 2026-07", basis="datasheet"),
        Basis(path="compute.matrix.bf16", source="product page, 2026-07", basis="datasheet"),
        Basis(path="compute.clock", source="product page, 2026-07", basis="datasheet"),
        Basis(
            path="stack.launch_floor",
            source="estimate from a neighbour generation",
            basis="estimated",
        ),
    ),
    overrides=(),
    command=(
        "tilecast run llama-3.1-70b --on mi455x --phase decode --batch 32 --context 4096 --seed 0"
    ),
)


def matmul(rows: int, inner: int, columns: int, size: float = 2.0) -> tuple[float, float]:
    moved = size * inner * columns + 2.0 * rows * (inner + columns)
    return 2.0 * rows * inner * columns, moved


def answer(
    device: Device, ops: list[OpUse], weights: float, cache: float, **changes: object
) -> Result:
    latency = sum(op.time for op in ops)
    fields: dict[str, object] = {
        "workload": "llama-3.1-70b",
        "hardware": device.name,
        "stack": "rocm-7",
        "phase": "decode",
        "batch": 32,
        "input": None,
        "output": None,
        "context": 4096,
        "dtype": "bf16",
        "weights": changes.get("dtype", "bf16"),
        "unit": "tokens",
        "work": 32.0,
        "latency": latency,
        "bounds": Bounds(
            lower=max(sum(op.memory for op in ops), sum(op.compute for op in ops)),
            upper=1.2 * latency,
        ),
        "ops": tuple(ops),
        "memory": MemoryUse(
            parts=(
                MemoryPart(name="weights", bytes=weights, formula="70.6 G parameters x 2 B (bf16)"),
                MemoryPart(
                    name="kv cache",
                    bytes=cache,
                    formula="32 sequences x 4,096 tokens x 80 layers x 2 x 8 heads x 128 x 2 B",
                ),
                MemoryPart(name="activations", bytes=1.1e9, formula="32 x 28,672 x 2 B x 600"),
                MemoryPart(name="framework", bytes=2.0e9, formula="assumed"),
            ),
            capacity=device.capacity,
        ),
        "roof": device.roof(),
        "model_flops": sum(op.flops for op in ops),
        "model_bytes": weights + cache,
        "events": 353,
        "provenance": PROVENANCE,
    }
    return Result(**(fields | changes))  # type: ignore[arg-type]


def decode_ops(device: Device, batch: int = 32, context: int = 4096) -> list[OpUse]:
    hidden, ffn, heads, groups, layers = 8192, 28672, 64, 8, 80
    cache = 2.0 * batch * context * groups * 128 * 2
    attention = 4.0 * batch * context * heads * 128
    return [
        device.op(
            "ffn.gate_up", "matmul", layers, *matmul(batch, hidden, 2 * ffn), tile="32x128x64"
        ),
        device.op(
            "ffn.down", "matmul", layers, *matmul(batch, ffn, hidden), tile="32x64x128 split 4"
        ),
        device.op("attn.decode", "attention", layers, attention, cache, efficiency=0.88),
        device.op("attn.qkv", "matmul", layers, *matmul(batch, hidden, 10240), tile="32x64x128"),
        device.op("attn.out", "matmul", layers, *matmul(batch, hidden, hidden), tile="32x64x128"),
        device.op(
            "ffn.act", "pointwise", layers, 6.0 * batch * ffn, 6.0 * batch * ffn, vector=True
        ),
        device.op(
            "norm", "pointwise", 161, 5.0 * batch * hidden, 6.0 * batch * hidden, vector=True
        ),
        device.op(
            "attn.rope", "pointwise", layers, 6.0 * batch * 9216, 4.0 * batch * 9216, vector=True
        ),
        device.op("attn.kv_write", "copy", layers, 0.0, 8.0 * batch * groups * 128, vector=True),
        device.op("head", "matmul", 1, *matmul(batch, hidden, 128256), tile="32x128x64"),
        device.op("embed", "gather", 1, 0.0, 4.0 * batch * hidden, vector=True),
    ]


def decode_of(device: Device) -> Result:
    return answer(device, decode_ops(device), 141.1e9, 42.9e9)


@pytest.fixture(scope="session")
def decode() -> Result:
    """A dense 70B model, one token for each of 32 sequences: memory binds."""
    return decode_of(HBM4)


@pytest.fixture(scope="session")
def decode_elsewhere() -> Result:
    """The same on an older device that it does not fit."""
    return decode_of(HBM3)


@pytest.fixture(scope="session")
def calibrated() -> Result:
    """The same with an interval, energy, cost and a warning."""
    ops = decode_ops(HBM4)
    latency = sum(op.time for op in ops)
    return answer(
        HBM4,
        ops,
        141.1e9,
        42.9e9,
        interval=Interval(lower=0.84 * latency, upper=1.2 * latency),
        energy=10.9,
        cost=1.75e-5,
        warnings=("fp4 was never measured on this generation; its rate is the data sheet's",),
    )


@pytest.fixture(scope="session")
def prefill() -> Result:
    """The prompt of the same model: compute binds."""
    rows, hidden, ffn, layers = 8192, 8192, 28672, 80
    device = HBM4
    ops = [
        device.op(
            "ffn.gate_up", "matmul", layers, *matmul(rows, hidden, 2 * ffn), tile="256x256x64"
        ),
        device.op("ffn.down", "matmul", layers, *matmul(rows, ffn, hidden), tile="256x256x64"),
        device.op("attn.qkv", "matmul", layers, *matmul(rows, hidden, 10240), tile="256x256x64"),
        device.op("attn.out", "matmul", layers, *matmul(rows, hidden, hidden), tile="256x256x64"),
        device.op(
            "attn.prefill",
            "attention",
            layers,
            2.0 * rows * rows * 64 * 128,
            4.0e8,
            efficiency=0.55,
        ),
        device.op("ffn.act", "pointwise", layers, 6.0 * rows * ffn, 6.0 * rows * ffn, vector=True),
        device.op("norm", "pointwise", 161, 5.0 * rows * hidden, 6.0 * rows * hidden, vector=True),
        device.op(
            "attn.rope", "pointwise", layers, 6.0 * rows * 9216, 4.0 * rows * 9216, vector=True
        ),
        device.op("head", "matmul", 1, *matmul(1, hidden, 128256), tile="16x64x128"),
    ]
    return answer(
        device,
        ops,
        141.1e9,
        2.7e9,
        phase="prefill",
        batch=1,
        input=rows,
        context=None,
        work=float(rows),
    )


@pytest.fixture(scope="session")
def experts() -> Result:
    """A mixture of experts with two number formats and operators that only move data."""
    device, batch, hidden, inner, layers, experts = HBM4, 64, 4096, 1536, 94, 128
    routed, weights = 8 * batch, 0.98 * experts
    cache = 2.0 * batch * 4096 * 4 * 128 * 2
    up = 2.0 * routed * hidden * 2 * inner, weights * hidden * 2 * inner + 4.0 * routed * hidden
    down = 2.0 * routed * hidden * inner, weights * hidden * inner + 4.0 * routed * hidden
    attention = 4.0 * batch * 4096 * 64 * 128, cache
    activated, combined = 6.0 * routed * inner, 2.0 * routed * hidden
    ops = [
        device.op("moe.gate_up", "experts", layers, *up, "fp8", efficiency=0.9, tile="16x128x256"),
        device.op("moe.down", "experts", layers, *down, "fp8", efficiency=0.9, tile="16x128x256"),
        device.op("moe.permute", "gather", layers, 0.0, 2.0 * combined, vector=True),
        device.op("moe.act", "pointwise", layers, activated, activated, vector=True),
        device.op("moe.unpermute", "pointwise", layers, combined, 2.0 * combined, vector=True),
        device.op("moe.router", "matmul", layers, *matmul(batch, hidden, experts)),
        device.op("attn.core", "attention", layers, *attention, efficiency=0.88),
        device.op("attn.qkv", "matmul", layers, *matmul(batch, hidden, 9216, 1.0), "fp8"),
        device.op("attn.out", "matmul", layers, *matmul(batch, 8192, hidden, 1.0), "fp8"),
        device.op("norm", "pointwise", 189, 320.0 * hidden, 384.0 * hidden, vector=True),
        device.op("head", "matmul", 1, *matmul(batch, hidden, 151936)),
    ]
    return answer(
        device,
        ops,
        236.0e9,
        50.5e9,
        workload="qwen3-235b-a22b",
        batch=batch,
        work=float(batch),
        dtype="fp8",
    )


@pytest.fixture(scope="session")
def generate() -> Result:
    """A request with two phases and two equal operators under different names."""
    ops = decode_ops(HBM4)
    latency = sum(op.time for op in ops)
    return answer(
        HBM4,
        ops,
        141.1e9,
        42.9e9,
        phase="generate",
        input=2048,
        output=128,
        context=None,
        work=32.0 * 128,
        phases=(
            Phase(name="prefill", latency=0.2 * latency, tokens=65536.0),
            Phase(name="decode", latency=0.8 * latency, tokens=4096.0),
        ),
    )


@pytest.fixture(scope="session")
def single() -> Result:
    """One operator, one part of memory."""
    ops = [HBM4.op("matmul", "matmul", 1, *matmul(4096, 4096, 4096))]
    return answer(
        HBM4,
        ops,
        0.1e9,
        0.0,
        workload="one matmul",
        memory=MemoryUse(
            parts=(MemoryPart(name="weights", bytes=0.1e9, formula="4,096 x 4,096 x 2 B"),),
            capacity=HBM4.capacity,
        ),
    )


@pytest.fixture(scope="session")
def copies() -> Result:
    """Nothing but moves: no FLOP anywhere."""
    ops = [
        HBM4.op("kv.write", "copy", 80, 0.0, 2.0e6, vector=True),
        HBM4.op("embed", "gather", 1, 0.0, 5.0e7, vector=True),
    ]
    return answer(HBM4, ops, 1.0e9, 0.0, workload="moves only")


HOSTILE = (
    "</script><script>alert(1)</script>",
    "$\\frac{a}{b}$ & \"quotes\" 'single' <b>",
    "\u05e9\u05dc\u05d5\u05dd \u202egnp.exe",
    "\x1b[31mred\x1b[0m\x00 and\na line",
    "=HYPERLINK(1)",
    "[bold]markup[/bold] {{ 7 * 7 }}",
    "\u77e9\u9635\u4e58\u6cd5",
    "long." * 60,
)


@pytest.fixture(scope="session")
def hostile() -> Result:
    """Names that try to leave their place."""
    ops = [
        HBM4.op(name, "matmul", 3 + place, *matmul(16 << place, 4096, 4096))
        for place, name in enumerate(HOSTILE)
    ]
    return answer(
        HBM4,
        ops,
        1.0e9,
        0.0,
        workload="</title><script>alert(2)</script>",
        warnings=("<img src=x onerror=alert(3)>",),
    )


@pytest.fixture(scope="session")
def many() -> Result:
    """Two thousand operators."""
    ops = [
        HBM4.op(
            f"layer.{place:04d}.matmul", "matmul", 1 + place % 7, *matmul(1 + place * 3, 4096, 4096)
        )
        for place in range(2000)
    ]
    return answer(HBM4, ops, 1.0e9, 0.0, workload="two thousand")


@pytest.fixture(scope="session")
def overfull() -> Result:
    """More than the device holds."""
    return answer(HBM3, decode_ops(HBM3), 141.1e9, 42.9e9)
