"""What an hour of a device costs, rented or bought.

Knows prices and power. Never touches operators, time or results.
"""

from __future__ import annotations

from simulator.specs.hardware import Price
from simulator.units import Dollars, DollarsPerHour, DollarsPerJoule, Seconds, Watts

YEAR: Seconds = 8766 * 3600.0

SERVER = 0.5
LIFETIME: Seconds = 4 * YEAR
UTILISATION = 0.7
ELECTRICITY: DollarsPerJoule = 0.08 / 3.6e6
PUE = 1.25
"""What is assumed where a price does not state it: half as much again for hosts, network and
racks; written off over 4 years; 70 % of the hours used; 0.08 USD/kWh; 1.25 times the power of the
devices. Assumptions to be set (``--set price.lifetime="5 years"``), not figures of any site."""


def hourly(price: Price | None, draw: Watts | None) -> DollarsPerHour | None:
    """Dollars of one device for an hour of use, in which it draws ``draw``.

    The rent, where there is one; else purchase x (1 + server) / (lifetime x utilisation), and
    draw x PUE x electricity, without it where the draw is not known. None without any price.

    >>> round(hourly(Price(purchase=35000.0), 1000.0), 2)
    2.24
    """
    if price is None:
        return None
    if price.rent is not None:
        return price.rent
    if price.purchase is None:
        return None
    server = SERVER if price.server is None else price.server
    used = (price.lifetime or LIFETIME) / 3600 * (price.utilisation or UTILISATION)
    power = (draw or 0.0) * 3600 * (price.pue or PUE)
    electricity = ELECTRICITY if price.electricity is None else price.electricity
    return price.purchase * (1 + server) / used + power * electricity


def run_cost(
    price: Price | None, draw: Watts | None, latency: Seconds, devices: int
) -> Dollars | None:
    """Dollars of ``devices`` equal devices over ``latency``; None without any price."""
    each = hourly(price, draw)
    return None if each is None else each / 3600 * latency * devices


def basis(price: Price) -> str:
    """How an hour of a device that is bought comes about, in words."""
    server = SERVER if price.server is None else price.server
    electricity = ELECTRICITY if price.electricity is None else price.electricity
    return (
        f"purchase and {server:.0%} for the server over "
        f"{(price.lifetime or LIFETIME) / YEAR:.3g} years, "
        f"{price.utilisation or UTILISATION:.0%} used, {electricity * 3.6e6:.3g} USD/kWh, "
        f"PUE {price.pue or PUE:.3g}"
    )
