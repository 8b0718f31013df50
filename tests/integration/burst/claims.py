"""Clients that claim over the bus, each until it has an answer."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from compute_agent import conf as agent_conf
from compute_agent.daemon import message_bus
from compute_agent.scheduler import errors
from compute_agent.scheduler.bus.rpc import SchedulerClient
from compute_agent.scheduler.outcomes import Causes
from tests.integration.burst.shapes import Shape

_Answer = TypeVar("_Answer")
_ANSWER_SECONDS = 15.0
# The broker takes a while to come back.
_PATIENCE = 240.0


@dataclass
class Outcome:
    """The answers of a burst.

    :ivar placed: instance and the allocations that the answer named.
    :ivar refused: shapes without a host, with the causes that the answer names.
    :ivar asked_again: the errors for which a claim was repeated.
    """

    placed: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    refused: list[tuple[Shape, Causes]] = field(default_factory=list)
    asked_again: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shapes = Counter(shape.name for shape, _ in self.refused)
        return (
            f"{len(self.placed)} placed, {len(self.refused)} refused ({dict(shapes)}), "
            f"asked again: {dict(Counter(self.asked_again))}"
        )


@contextlib.contextmanager
def bus_of(config: Path) -> Iterator[Any]:
    """A connection to the broker that a configuration names."""
    bus = message_bus.open_transport(agent_conf.new_config([f"--config-file={config}"]))
    try:
        yield bus
    finally:
        bus.cleanup()


def claim_all(
    config: Path,
    shapes: Sequence[Shape],
    outcome: Outcome,
    *,
    at_once: int,
    project: str = "project",
    progress: Any = None,
) -> None:
    """Claim for one instance of each shape, several at a time.

    An answer that is lost with a scheduler or with the broker is asked for again: claims may be
    repeated.
    """
    with bus_of(config) as bus, ThreadPoolExecutor(at_once, "claim") as pool:
        client = SchedulerClient(bus, timeout=_ANSWER_SECONDS, retry=0)

        def claim(shape: Shape) -> None:
            _claim(client, shape, project, outcome)
            if progress is not None:
                progress()

        list(pool.map(claim, shapes))


def _claim(client: SchedulerClient, shape: Shape, project: str, outcome: Outcome) -> None:
    instance = str(uuid.uuid4())
    spec = shape.spec(project)
    try:
        claim = ask_until_answered(
            lambda: client.call("claim", spec_obj=spec, instance_uuid=instance),
            f"the claim of {instance} ({shape.name})",
            outcome.asked_again.append,
            final=(errors.NoValidHost,),
        )
    except errors.NoValidHost as error:
        outcome.refused.append((shape, error.causes))
    else:
        outcome.placed[instance] = claim["allocations"]


def ask_until_answered(
    ask: Callable[[], _Answer],
    what: str,
    note_again: Callable[[str], None],
    *,
    final: tuple[type[Exception], ...] = (),
) -> _Answer:
    """Return the answer to a question that may be repeated.

    :param note_again: is called with the name of each error for which it is repeated.
    :param final: errors that are answers; they are raised.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            return ask()
        except final:
            raise
        except Exception as error:  # the bus raises what the scheduler raised
            name = getattr(error, "exc_type", type(error).__name__)
            note_again(name)
            if time.monotonic() > deadline:
                raise AssertionError(f"no answer to {what}; the last: {name}: {error}") from error
            threading.Event().wait(0.2)
