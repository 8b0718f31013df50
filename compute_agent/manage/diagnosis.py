"""Results of the checks of `compute-agent doctor`, and the settings that they advise."""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct


class Level(IntEnum):
    """The severity of a diagnosis; the worst is the exit status."""

    FINE = 0
    WARNING = 1
    ERROR = 2


class Setting(Struct, frozen=True):
    """An option and its right value; `NODE` stands for a number that the operator knows."""

    group: str
    option: str
    value: str

    def __str__(self) -> str:
        return f"[{self.group}]{self.option} = {self.value}".rstrip()


class Diagnosis(Struct, frozen=True):
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
