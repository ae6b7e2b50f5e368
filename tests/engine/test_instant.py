"""The end of an instant, against the installed SimPy."""

from __future__ import annotations

from simpy import Environment, Event, Timeout

from simulator.engine.instant import EndOfInstant, Instant


def test_end_of_instant_comes_after_every_ordinary_event_of_that_time() -> None:
    env = Environment()
    seen: list[tuple[float, str]] = []

    def note(name: str):
        return lambda event: seen.append((env.now, name))

    def first(event: Event) -> None:
        seen.append((env.now, "first"))
        EndOfInstant(env, note("end"))
        Timeout(env, 0).callbacks.append(note("zero delay, later"))
        env.event().succeed().callbacks.append(note("succeeded, later"))

    Timeout(env, 1).callbacks.append(first)
    Timeout(env, 1).callbacks.append(note("second"))
    Timeout(env, 2).callbacks.append(note("next time"))
    env.run()
    assert seen == [
        (1, "first"),
        (1, "second"),
        (1, "zero delay, later"),
        (1, "succeeded, later"),
        (1, "end"),
        (2, "next time"),
    ]


def test_end_of_instant_is_an_ordinary_triggered_event() -> None:
    env = Environment()
    event = EndOfInstant(env, lambda _: None)
    assert event.triggered
    assert event.ok
    assert event.value is None
    assert not event.processed
    env.run()
    assert event.processed


def test_decisions_wait_for_the_last_event_of_an_instant_then_run_once() -> None:
    env = Environment()
    instant = Instant(env)
    seen: list[object] = []

    def arrive(event: Event) -> None:
        seen.append(event.value)
        if event.value == 0:
            instant.conclude(lambda: seen.append("concluded"))
            instant.decide(lambda: seen.append("decided"))
        instant.settle()

    for value in range(3):
        Timeout(env, 5, value).callbacks.append(arrive)
    Timeout(env, 6, "later").callbacks.append(arrive)
    env.run()
    assert seen == [0, 1, 2, "decided", "concluded", "later"]


def test_an_instant_with_one_event_is_closed_without_another_event() -> None:
    env = Environment()
    instant = Instant(env)
    seen: list[str] = []

    def arrive(_: Event) -> None:
        instant.decide(lambda: seen.append("decided"))
        instant.settle()
        seen.append("settled")

    Timeout(env, 1).callbacks.append(arrive)
    env.run()
    assert seen == ["decided", "settled"]


def test_what_a_decision_schedules_at_zero_delay_is_a_next_round() -> None:
    env = Environment()
    instant = Instant(env)
    rounds: list[float] = []

    def arrive(event: Event) -> None:
        instant.decide(decide)
        instant.settle()

    def decide() -> None:
        rounds.append(env.now)
        if len(rounds) < 4:
            Timeout(env, 0).callbacks.append(arrive)

    Timeout(env, 1).callbacks.append(arrive)
    env.run()
    assert rounds == [1, 1, 1, 1]
