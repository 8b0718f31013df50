"""One burst: claims until the fleet is full while its parts are killed, and the reckoning."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from compute_agent.scheduler.outcomes import Causes
from tests.integration.burst.claims import Outcome, claim_all
from tests.integration.burst.fleet import Fleet
from tests.integration.burst.shapes import SHAPES, Shape, in_turn


@dataclass
class Trouble:
    """What happens to the fleet, each at its share of the claims.

    :ivar happened: in order.
    """

    fleet: Fleet
    rng: random.Random
    happened: list[str] = field(default_factory=list)

    def schedule(self) -> list[tuple[float, Callable[[], str]]]:
        """Return the share of the claims after which each begins; it returns what it did."""
        return [
            (0.1, self.kill_scheduler),
            (0.2, self.kill_agent),
            (0.3, self.disable_host),
            (0.4, self.kill_broker),
            (0.55, self.reshape),
            (0.7, self.kill_scheduler),
            (0.8, self.enable_host),
        ]

    def kill_scheduler(self) -> str:
        config = self.rng.choice(self.fleet.schedulers)
        self.fleet.kill_scheduler(config)
        self.fleet.start_scheduler(config)
        return f"{config.parent.name} killed and started"

    def kill_agent(self) -> str:
        host = self._any_host()
        self.fleet.agents[host].cleanup()
        self.fleet.start_agent(host)
        return f"agent of {host} killed and started"

    def disable_host(self) -> str:
        self.fleet.agents[self._last].ask("set_host_enabled", enabled=False, reason="burst")
        return f"{self._last} disabled"

    def enable_host(self) -> str:
        self.fleet.agents[self._last].ask("set_host_enabled", enabled=True)
        return f"{self._last} enabled"

    def kill_broker(self) -> str:
        self.fleet.broker.kill()
        self.fleet.broker.start()
        return "broker killed and started"

    def reshape(self) -> str:
        agent = self.fleet.agents["host0"]
        agent.stop()
        self.fleet.start_agent("host0")
        return "host0 reshaped"

    @property
    def _last(self) -> str:
        return list(self.fleet.agents)[-1]

    def _any_host(self) -> str:
        return self.rng.choice([name for name in self.fleet.agents if name != "host0"])


def run(
    fleet: Fleet,
    claims: int,
    *,
    at_once: int,
    seed: int,
    make_trouble: Callable[[Fleet, random.Random], Trouble] = Trouble,
) -> tuple[Outcome, Trouble]:
    """Claim while trouble happens, then until each shape is refused by a fleet that is well."""
    trouble, outcome = make_trouble(fleet, random.Random(seed)), Outcome()
    config = fleet.schedulers[0]
    fleet.all_heard()
    done = threading.Semaphore(0)
    with ThreadPoolExecutor(1, "trouble") as nemesis:

        def follow_schedule() -> None:
            passed = 0
            for share, happen in trouble.schedule():
                while passed < share * claims:
                    done.acquire()
                    passed += 1
                trouble.happened.append(happen())

        troubled = nemesis.submit(follow_schedule)
        try:
            claim_all(config, in_turn(claims), outcome, at_once=at_once, progress=done.release)
        finally:
            # what is still to happen does so now
            done.release(claims)
        troubled.result()
    fleet.all_heard()
    while True:
        before = len(outcome.placed)
        # Equal requests share an explanation for a while, which another round may have outdated.
        claim_all(config, SHAPES, outcome, at_once=1, project=f"round after {before}")
        if len(outcome.placed) == before:
            return outcome, trouble


def reckon(fleet: Fleet, outcome: Outcome) -> list[str]:
    """Return everything that is wrong after a burst, as sentences."""
    wrong = []
    free = fleet.free()
    for host, providers in free.items():
        for provider, amounts in providers.items():
            wrong += [
                f"{name} of {provider} is over capacity by {-amount}"
                for name, amount in amounts.items()
                if amount < 0
            ]
        wrong += [
            f"{shape.name} was refused, and {host} has room: {providers}"
            for shape in SHAPES
            if shape.fits(providers)
        ]
    held = fleet.holders()
    wrong += [f"nobody was told of {consumer}" for consumer in held.keys() - outcome.placed.keys()]
    wrong += [f"{instance} was lost" for instance in outcome.placed.keys() - held.keys()]
    total = {consumer: _sums(allocations) for consumer, allocations in held.items()}
    wrong += [
        f"{instance} was promised {_sums(promised)} and holds {total[instance]}"
        for instance, promised in outcome.placed.items()
        if instance in held and total[instance] != _sums(promised)
    ]
    for shape, causes in outcome.refused[-len(SHAPES) :]:
        wrong += _wrong_reasons(shape, causes, free)
    return wrong


def _wrong_reasons(
    shape: Shape, causes: Causes, free: Mapping[str, Mapping[str, Mapping[str, int]]]
) -> Iterator[str]:
    """Iterate over what a refusal says that is not so; nothing changed since it was made."""
    amounts_of = {name: own for providers in free.values() for name, own in providers.items()}
    explanations = [query.explanation for query in causes.queries if query.explanation is not None]
    # An explanation that was not finished in its time says so.
    if not (explanations or causes.filters or causes.claims_lost or causes.remark):
        yield f"{shape.name} was refused without a reason: {causes}"
    for short in (entry for explanation in explanations for entry in explanation["short"]):
        there = max(amounts_of[short["name"]].get(short["resource_class"], 0), 0)
        if short["free"] != there:
            yield (
                f"{shape.name}: {short['name']} has {there} of {short['resource_class']} free and "
                f"not {short['free']}"
            )


def _sums(allocations: object) -> dict[str, int]:
    """Return the amounts of one consumer by class: a reshape may move them between providers."""
    sums: dict[str, int] = {}
    assert isinstance(allocations, dict)
    for amounts in allocations.values():
        for name, amount in amounts.items():
            sums[name] = sums.get(name, 0) + amount
    return dict(sorted(sums.items()))
