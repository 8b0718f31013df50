"""Results of the checks of `compute-agent doctor`, and the settings that they advise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """The severity of a diagnosis; the worst is the exit status."""

    FINE = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Setting:
    """An option and its right value; `NODE` stands for a number that the operator knows."""

    group: str
    option: str
    value: str

    def __str__(self) -> str:
        return f"[{self.group}]{self.option} = {self.value}".rstrip()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check.

    :ivar advice: the setting that corrects it.
    """

    level: Level
    subject: str
    text: str
    advice: Setting | None = None

    def __str__(self) -> str:
        advice = f"; set {self.advice}" if self.advice else ""
        return f"{self.text}{advice}"
