"""Training of a U-Net by data parallelism: its FLOPs, its collectives, and what it refuses."""

from __future__ import annotations

import math

import pytest

from simulator import Result, make_scenario, simulate
from simulator.errors import CapacityError, SpecError
from simulator.models.training_tape import Group, Tape
from simulator.ops.backward import ConvGradient
from simulator.ops.conv import Conv2d

IMAGES = 32


def step(dp: int = 1, micro_batch: int = 4, **more: object) -> Result:
    options = {"dtype": "bf16", "global_batch": IMAGES, **more}
    scenario = make_scenario(
        "sdxl", "h200", phase="train", dp=dp, micro_batch=micro_batch, **options
    )
    return simulate(scenario)


@pytest.mark.parametrize(("stride", "size"), [(1, 16), (2, 16), (1, 9)])
def test_gradients_of_a_convolution_have_the_flops_that_torch_counts(
    stride: int, size: int
) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    op = Conv2d(
        name="conv", batch=2, height=size, width=size, in_channels=8, out_channels=12, kernel=3,
        stride=stride, bias=False,
    )  # fmt: skip
    tape = Tape(Group(ranks=1, sequence_parallel=False), wide="fp16", kept="fp32")
    tape.run(op)
    done = tape.finish()
    filters = torch.randn(12, 8, 3, 3, requires_grad=True)
    images = torch.randn(2, 8, size, size, requires_grad=True)
    result = torch.nn.functional.conv2d(images, filters, stride=stride, padding=1)
    with FlopCounterMode(display=False) as counted:
        result.sum().backward()
    assert sum(op.demand().flops for op in done.backward) == counted.get_total_flops()
    assert [type(op) for op in (*done.dgrad, *done.wgrad)] == [ConvGradient, ConvGradient]


def test_gradients_move_the_filter_and_both_images_once() -> None:
    op = Conv2d(name="c", batch=1, height=8, width=8, in_channels=4, out_channels=6, bias=False)
    images, results, filters = 8 * 8 * 4, 8 * 8 * 6, 9 * 4 * 6
    back = ConvGradient(name="d", forward=op, of="input", out="fp16").demand()
    kept = ConvGradient(name="w", forward=op, of="weights", out="fp32").demand()
    assert back.bytes == 2 * (images + results + filters)
    assert kept.bytes == 2 * (images + results) + 2 * 4 * filters  # read, added to, written


def test_an_image_takes_three_forward_passes_of_flops() -> None:
    forward = simulate(
        make_scenario(
            "sdxl", "h200", batch=1, dtype="bf16", overrides=("guidance=false", "steps=1")
        )
    )
    trained = step()
    assert trained.model_flops / IMAGES == pytest.approx(3 * forward.model_flops, rel=1e-12)
    assert trained.hardware_flops == trained.model_flops
    again = step(recompute="full").hardware_flops
    assert again == pytest.approx(4 / 3 * trained.model_flops, rel=1e-12)


def test_work_does_not_depend_on_how_it_is_spread() -> None:
    spread = [step(dp=dp, micro_batch=size) for dp, size in ((1, 4), (1, 8), (4, 4), (8, 2))]
    assert len({one.work for one in spread}) == 1
    assert all(
        math.isclose(one.model_flops, spread[0].model_flops, rel_tol=1e-12) for one in spread
    )
    assert spread[0].unit == "samples"
    assert all(one.memory.total <= one.memory.capacity for one in spread)


def test_replicas_gain_less_than_their_number_and_wait_for_gradients() -> None:
    one, eight = step(), step(dp=8)
    assert 1 < one.latency / eight.latency < 8
    names = {op.name for op in eight.ops}
    assert "gradients and weights" in names
    assert not any("gradients" in op.name for op in one.ops)


def test_what_a_unet_cannot_be_trained_with_is_refused_at_once() -> None:
    with pytest.raises(SpecError) as caught:
        step(tp=2, pp=2, overrides=("virtual_stages=2",))
    said = [fault.path.removeprefix("plan.") for fault in caught.value.faults]
    assert said == ["tp", "pp", "virtual_stages"]
    with pytest.raises(CapacityError, match="activations"):
        step(micro_batch=32)
    with pytest.raises(SpecError, match="no prefill phase"):
        make_scenario("sdxl", "h200", phase="prefill")


def test_lengths_and_recipes_have_no_say_and_the_answer_says_so() -> None:
    said = " ".join(step(sequence=77, overrides=("recipe=fp8",)).warnings)
    assert "input was given" in said
    assert "plan.recipe was set" in said
