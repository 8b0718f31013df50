"""One history: clients, faults and looks until it is over, and the reckoning."""

from __future__ import annotations

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from compute_agent.scheduler.bus.rpc import SchedulerClient
from tests.functional.agent.processes import eventually
from tests.integration.burst.claims import bus_of
from tests.integration.holders.clients import Client
from tests.integration.holders.cloud import Cloud
from tests.integration.holders.machines import ONE_CPU
from tests.integration.holders.model import contradictions


def run(
    cloud: Cloud,
    is_over: Callable[[Counter[str]], bool],
    *,
    seed: object,
    clients: int,
    pause: float,
) -> Counter[str]:
    """Let clients act while parts are killed; what is wrong is in the cloud afterwards.

    :param is_over: of what was done so far.
    :param pause: seconds between two faults, on average.
    :returns: how often each thing was done.
    """
    done: Counter[str] = Counter()
    over = threading.Event()
    with bus_of(cloud.fleet.schedulers[0]) as bus, ThreadPoolExecutor(clients + 2) as pool:
        all_clients = [
            Client(
                cloud,
                SchedulerClient(bus, timeout=5, retry=0),
                cloud.fleet.machines[0].shapes,
                random.Random(f"{seed} client {number}"),
                done=done,
            )
            for number in range(clients)
        ]

        def act(client: Client) -> None:
            while not over.is_set():
                client.act()

        def look() -> None:
            for number in itertools.count():
                if over.wait(0.2):
                    return
                if number % 5 == 0:
                    cloud.write_instances()
                cloud.look()

        def strike() -> None:
            dice = random.Random(f"{seed} faults")
            faults = cloud.faults(dice)
            while not over.wait(dice.uniform(0, 2 * pause)):
                done[f"kills of {next(faults)}"] += 1

        tasks = [pool.submit(act, client) for client in all_clients]
        tasks += [pool.submit(look), pool.submit(strike)]
        try:
            while not is_over(done) and not any(task.done() for task in tasks):
                over.wait(0.1)
        finally:
            over.set()
        for task in tasks:
            task.result()
        cloud.fleet.all_heard()
        _let_audit(cloud, [guest.instance for client in all_clients for guest in client.guests])
        for client in all_clients:
            client.end_all()
        _let_audit(cloud, [])
        _claim_all_cpus(cloud, all_clients[0])
        done["looks"] = len(cloud.history.looks)
    cloud.wrong += contradictions(cloud.history)
    return done


def _let_audit(cloud: Cloud, living: list[str]) -> None:
    """Wait until nothing is held by those that were forgotten, and look."""
    cloud.write_instances()
    expected = set(living)

    def is_clean() -> bool:
        looks = cloud.look()
        consumers = {consumer for look in looks for consumer in look.content}
        return consumers <= expected and len(looks) == 3 * len(cloud.hosts)

    try:
        eventually(is_clean, "nothing held by nobody", 240, pause=0.3)
    except AssertionError:
        cloud.wrong += [
            f"{look.place} still has {sorted(look.content.keys() - expected)}, who are gone"
            for look in cloud.look()
            if look.content.keys() - expected
        ]
    for record in cloud.forgotten:
        record.end()
    cloud.forgotten.clear()
    cloud.look()


def _claim_all_cpus(cloud: Cloud, client: Client) -> None:
    """Claim each dedicated CPU of all hosts alone: what nobody has can be given."""
    client.dice.seed(0)
    number = 0
    while client.create(ONE_CPU):
        number += 1
    there = sum(len(machine.dedicated) for machine in cloud.fleet.machines)
    if len(client.guests) != there:
        cloud.wrong.append(
            f"of {there} dedicated CPUs that nobody has {len(client.guests)} could be claimed"
        )
    cloud.look()
