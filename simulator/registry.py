"""Named choices: policies, algorithms, kinds of run, each registered where it is written.

A registry finds its own entries: it imports the modules of one package, and what other packages
offer under one entry-point group. No second list is kept. Knows names. Never touches what it holds.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from simulator.errors import UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """Choices of one kind by name.

    ``package`` is imported, module by module, at the first look-up; ``group`` names the entry
    points through which other packages add choices. Such a choice is loaded when it is asked
    for, so that a broken one hurts nobody else.

    >>> routers: Registry[type] = Registry("router")
    >>> @routers.register("softmax")
    ... class Softmax: ...
    >>> routers["softmax"].__name__
    'Softmax'
    """

    def __init__(self, kind: str, *, package: str | None = None, group: str | None = None) -> None:
        self.kind, self._package, self._group = kind, package, group
        self._entries: dict[str, T] = {}
        self._offers: dict[str, EntryPoint] = {}
        self._discovered = False

    def register(self, name: str) -> Callable[[T], T]:
        """A decorator that registers what it stands on; ValueError where the name is taken."""

        def add(entry: T) -> T:
            if self._entries.setdefault(name, entry) is not entry or name in self._offers:
                raise ValueError(f"there is a {self.kind} {name!r} already")
            return entry

        return add

    def __getitem__(self, name: str) -> T:
        """The choice of that name; raises UnknownNameError with the near names."""
        self._discover()
        if name not in self._entries:
            if name not in self._offers:
                raise UnknownNameError(self.kind, name, self)
            self._entries[name] = self._offers[name].load()
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        self._discover()
        return name in self._entries or name in self._offers

    def __iter__(self) -> Iterator[str]:
        """The names in alphabetical order."""
        self._discover()
        return iter(sorted({*self._entries, *self._offers}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def _discover(self) -> None:
        """Import what registers itself. Raises ValueError where two packages offer one name."""
        if self._discovered:
            return
        self._discovered = True  # First, for the modules may look names up themselves.
        if self._package is not None:
            package = importlib.import_module(self._package)
            for module in pkgutil.iter_modules(package.__path__, f"{self._package}."):
                importlib.import_module(module.name)
        for offer in entry_points(group=self._group) if self._group else ():
            known = self._offers.setdefault(offer.name, offer)
            if offer.name in self._entries or known.value != offer.value:
                raise ValueError(f"there is a {self.kind} {offer.name!r} beside {offer.value}")
