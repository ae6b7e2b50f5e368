"""From an operator to the kernel that runs it: one entry per kind of operator.

Never touches a clock. A new kind of operator registers its plan here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from simulator.costs.attention import plan_attention
from simulator.costs.plan import KernelPlan
from simulator.costs.pointwise import plan_pointwise
from simulator.costs.products import plan_conv, plan_grouped, plan_matmul
from simulator.costs.target import Target
from simulator.ops.attention import Attention
from simulator.ops.conv import Conv2d
from simulator.ops.matmul import GroupedMatmul, Matmul
from simulator.ops.op import Op
from simulator.ops.pointwise import Pointwise

_PLANS: dict[type[Op], Callable[[Any, Target], KernelPlan | Iterable[KernelPlan]]] = {
    Matmul: plan_matmul,
    GroupedMatmul: plan_grouped,
    Attention: plan_attention,
    Pointwise: plan_pointwise,
    Conv2d: plan_conv,
}


def alternatives(op: Op, target: Target) -> tuple[KernelPlan, ...]:
    """The kernels that may run ``op`` fastest on ``target``, by closed form the fastest first.

    One where the closed form decides, several where only events can tell them apart.
    Raises SpecError where the device has no matrix rate for the operator's formats.
    """
    plans = _PLANS[type(op)](op, target)
    return (plans,) if isinstance(plans, KernelPlan) else tuple(plans)


def lower(op: Op, target: Target) -> KernelPlan:
    """Map ``op`` to tiles on ``target``: the tile and split that take the least time alone.

    Raises SpecError where the device has no matrix rate for the operator's formats.
    """
    plans = _PLANS[type(op)](op, target)
    return plans if isinstance(plans, KernelPlan) else next(iter(plans))
