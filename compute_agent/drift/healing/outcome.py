"""Outcomes of the treatment of consumers, and how loudly each is logged."""

from __future__ import annotations

import logging
from enum import Enum
from typing import NamedTuple


class End(Enum):
    """What became of a consumer, and how loudly it is said."""

    HEALED = logging.INFO
    LEFT = logging.DEBUG
    """Nothing is wrong with it after all, or it cannot be judged now."""
    FAILED = logging.WARNING


class Treatment(NamedTuple):
    """A consumer after its treatment, with a sentence about it that goes on after its name."""

    consumer: str
    end: End
    detail: str
