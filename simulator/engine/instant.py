"""The end of an instant: the moment after the last event that shares a time stamp.

Knows SimPy's schedule. Never touches kernels, pipes or what the deferred functions do.
"""

from __future__ import annotations

from collections.abc import Callable

from simpy import Environment, Event
from simpy.events import NORMAL, EventPriority

_AFTER_NORMAL = EventPriority(NORMAL + 1)


class EndOfInstant(Event):
    """A triggered event that is processed after every ordinary event of the current time.

    SimPy has no public way to trigger an event at another priority than ``NORMAL``, so this class
    sets the two attributes that ``Event.succeed`` sets. It is the only place that does.
    """

    def __init__(self, env: Environment, callback: Callable[[Event], None]) -> None:
        super().__init__(env)
        self.callbacks.append(callback)
        self._ok = True
        self._value = None
        env.schedule(self, _AFTER_NORMAL)


class Instant:
    """Collects what can be settled only when all that happens at one time is known.

    A callback that changes state hands in what then has to be decided (who is served) and, after
    all decisions, concluded (what is scheduled next), each function at most once per instant, and
    calls ``settle`` as its last act. When no event is left at this time they run in the order in
    which they came: at once where that is known already, otherwise from an ``EndOfInstant``
    event. What they schedule at zero delay is a next round of the same instant.
    """

    __slots__ = ("_conclusions", "_decisions", "_scheduled", "env")

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._decisions: list[Callable[[], None]] = []
        self._conclusions: list[Callable[[], None]] = []
        self._scheduled = False

    def decide(self, function: Callable[[], None]) -> None:
        """Run ``function`` at the end of this instant."""
        self._decisions.append(function)

    def conclude(self, function: Callable[[], None]) -> None:
        """Run ``function`` at the end of this instant, after every decision."""
        self._conclusions.append(function)

    def settle(self) -> None:
        """Close the instant if its last event is being processed, else see that it is closed."""
        if self._scheduled:
            return
        env = self.env
        if env.peek() == env.now:
            self._scheduled = True
            EndOfInstant(env, self._close)
        else:
            self._close()

    def _close(self, _: Event | None = None) -> None:
        self._scheduled = False
        if self._decisions:
            decisions, self._decisions = self._decisions, []
            for decide in decisions:
                decide()
        conclusions, self._conclusions = self._conclusions, []
        for conclude in conclusions:
            conclude()
