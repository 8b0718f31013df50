"""Conditions that last, each of which is logged once: when it begins, and when it has changed."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable


class LastingConditions:
    """The conditions that were logged last, by what they are about. Safe for several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._conditions: dict[Hashable, Hashable] = {}

    def is_new(self, subject: Hashable, condition: Hashable = True) -> bool:
        """Record the condition of a subject; return whether it was not the last one recorded."""
        with self._lock:
            before, self._conditions[subject] = self._conditions.get(subject), condition
            return before != condition

    def is_over(self, subject: Hashable) -> bool:
        """Record that a subject has no condition; return whether it had one."""
        with self._lock:
            return self._conditions.pop(subject, None) is not None

    def new_among(self, subject: Hashable, sentences: Iterable[str]) -> list[str]:
        """Record all that is true of a subject now; return what was not before, sorted."""
        with self._lock:
            before = self._conditions.get(subject)
            known_sentences = before if isinstance(before, frozenset) else frozenset()
            now = self._conditions[subject] = frozenset(sentences)
            return sorted(now - known_sentences)
