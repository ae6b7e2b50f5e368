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
    """Collects what can be decided only when all that happens at one time is known.

    A callback that changes state hands in what it wants decided, at most once per function and
    instant, and calls ``settle`` as its last act. When no event is left at this time, the
    decisions run in the order in which they came, then the ``conclude`` functions: at once where
    that is known already, otherwise from an ``EndOfInstant`` event. What a decision schedules at
    zero delay is a next round of the same instant.
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
        """Run ``function`` after the decisions of every instant that has any."""
        self._conclusions.append(function)

    def settle(self) -> bool:
        """Close the instant if its last event is being processed, else see that it is closed.

        Returns whether there was anything to decide, and hence to conclude.
        """
        if self._scheduled:
            return True
        if not self._decisions:
            return False
        env = self.env
        if env.peek() == env.now:
            self._scheduled = True
            EndOfInstant(env, self._close)
            return True
        self._close()
        return True

    def _close(self, _: Event | None = None) -> None:
        self._scheduled = False
        decisions, self._decisions = self._decisions, []
        for decide in decisions:
            decide()
        for conclude in self._conclusions:
            conclude()
