"""Valid requests of the API over few names, so that they meet one another."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

ROOTS: Final = [str(uuid.UUID(int=number)) for number in range(1, 9)]
CHILDREN: Final = [str(uuid.UUID(int=number)) for number in range(21, 33)]
PROVIDERS: Final = ROOTS + CHILDREN
CONSUMERS: Final = [str(uuid.UUID(int=number)) for number in range(101, 117)]
AGGREGATES: Final = [str(uuid.UUID(int=number)) for number in range(201, 205)]
CLASSES: Final = ("VCPU", "MEMORY_MB", "DISK_GB", "VGPU", "CUSTOM_GOLD", "CUSTOM_IRON")
TRAITS: Final = ("HW_CPU_X86_AVX", "MISC_SHARES_VIA_AGGREGATE", "CUSTOM_FAST", "CUSTOM_WARM")
GENERATIONS: Final = (0, 0, 0, 1, 1, 2, 3, 4, 5, 7)
VERSIONS: Final = tuple(f"placement 1.{minor}" for minor in range(40))
NEWEST: Final = "placement 1.39, placement-ext 1.1"


@dataclass(frozen=True, slots=True)
class ValidRequest:
    """One request; `body` None for none, `version` None for any."""

    method: str
    path: str
    body: Any = None
    version: str | None = NEWEST


def request(dice: random.Random) -> ValidRequest:
    """Draw a request that the API allows, though the state may not."""
    return dice.choices(_MAKERS, _WEIGHTS)[0](dice)


def _create(dice: random.Random) -> ValidRequest:
    number = dice.randrange(len(PROVIDERS))
    body = {"uuid": PROVIDERS[number], "name": f"provider {number}"}
    if number >= len(ROOTS):
        body["parent_provider_uuid"] = dice.choice(ROOTS)
    return ValidRequest("POST", "/resource_providers", body)


def _remove(dice: random.Random) -> ValidRequest:
    return ValidRequest("DELETE", f"/resource_providers/{dice.choice(PROVIDERS)}")


def _update(dice: random.Random) -> ValidRequest:
    parent = dice.choice((None, dice.choice(PROVIDERS)))
    body = {"name": f"provider {dice.randrange(40)}", "parent_provider_uuid": parent}
    return ValidRequest("PUT", f"/resource_providers/{dice.choice(PROVIDERS)}", body)


def _record(dice: random.Random) -> dict[str, Any]:
    record: dict[str, Any] = {"total": dice.randint(1, 64)}
    if dice.random() < 0.3:
        record |= {
            "reserved": dice.randint(0, 3),
            "allocation_ratio": dice.choice((0.5, 1.0, 16.0)),
        }
        record |= {"min_unit": 1, "max_unit": dice.randint(1, 99), "step_size": dice.randint(1, 4)}
    return record


def _stock(dice: random.Random) -> dict[str, Any]:
    return {name: _record(dice) for name in dice.sample(CLASSES, dice.randint(0, 4))}


def _inventories(dice: random.Random) -> ValidRequest:
    body = {"resource_provider_generation": dice.choice(GENERATIONS), "inventories": _stock(dice)}
    return ValidRequest("PUT", f"/resource_providers/{dice.choice(PROVIDERS)}/inventories", body)


def _inventory(dice: random.Random) -> ValidRequest:
    name, provider = dice.choice(CLASSES), dice.choice(PROVIDERS)
    body = _record(dice) | {"resource_provider_generation": dice.choice(GENERATIONS)}
    path = f"/resource_providers/{provider}/inventories"
    method = dice.choice(("POST", "PUT", "DELETE"))
    if method == "POST":
        return ValidRequest(method, path, body | {"resource_class": name})
    return ValidRequest(method, f"{path}/{name}", body if method == "PUT" else None)


def _labels(dice: random.Random) -> ValidRequest:
    path = f"/resource_providers/{dice.choice(PROVIDERS)}"
    generation = {"resource_provider_generation": dice.choice(GENERATIONS)}
    if dice.random() < 0.5:
        return ValidRequest(
            "PUT", f"{path}/traits", generation | {"traits": dice.sample(TRAITS, 2)}
        )
    return ValidRequest(
        "PUT", f"{path}/aggregates", generation | {"aggregates": dice.sample(AGGREGATES, 2)}
    )


def _names(dice: random.Random) -> ValidRequest:
    kind, names = dice.choice((("traits", TRAITS), ("resource_classes", CLASSES)))
    name = dice.choice(names)
    if kind == "resource_classes" and dice.random() < 0.3:
        return ValidRequest("POST", "/resource_classes", {"name": name})
    return ValidRequest(dice.choice(("PUT", "GET", "DELETE")), f"/{kind}/{name}")


def _held(dice: random.Random) -> dict[str, Any]:
    chosen = dice.sample(PROVIDERS, dice.choice((1, 1, 2)))
    return {
        provider: {"resources": {dice.choice(CLASSES): dice.randint(1, 4)}} for provider in chosen
    }


def _owned(dice: random.Random) -> dict[str, Any]:
    return {
        "project_id": dice.choice(("p1", "p2")),
        "user_id": "u1",
        "consumer_generation": dice.choice((None, None, 1, 1, 2, 3)),
        "consumer_type": dice.choice(("INSTANCE", "MIGRATION")),
    }


def _claim(dice: random.Random) -> ValidRequest:
    path = f"/allocations/{dice.choice(CONSUMERS)}"
    if dice.random() < 0.3:
        # without generations, as clients of old sent it
        body = {"allocations": _held(dice), "project_id": "p1", "user_id": "u1"}
        return ValidRequest("PUT", path, body, "placement 1.12")
    return ValidRequest("PUT", path, {"allocations": _held(dice), **_owned(dice)})


def _claims(dice: random.Random) -> ValidRequest:
    consumers = dice.sample(CONSUMERS, dice.randint(1, 3))
    return ValidRequest(
        "POST",
        "/allocations",
        {name: {"allocations": _held(dice), **_owned(dice)} for name in consumers},
    )


def _release(dice: random.Random) -> ValidRequest:
    return ValidRequest("DELETE", f"/allocations/{dice.choice(CONSUMERS)}")


def _reshape(dice: random.Random) -> ValidRequest:
    inventories = {
        name: {
            "resource_provider_generation": dice.choice(GENERATIONS),
            "inventories": _stock(dice),
        }
        for name in dice.sample(PROVIDERS, dice.randint(1, 3))
    }
    consumers = dice.sample(CONSUMERS, dice.randint(0, 2))
    allocations = {name: {"allocations": _held(dice), **_owned(dice)} for name in consumers}
    return ValidRequest(
        "POST", "/reshaper", {"inventories": inventories, "allocations": allocations}
    )


def _filters(dice: random.Random) -> dict[str, str]:
    query = {
        "resources": ",".join(
            f"{name}:{dice.randint(1, 4)}" for name in dice.sample(CLASSES, dice.randint(1, 2))
        ),
        "required": dice.choice(TRAITS),
        "member_of": dice.choice((f"in:{','.join(AGGREGATES)}", f"!{AGGREGATES[0]}")),
        "in_tree": dice.choice(PROVIDERS),
        "limit": str(dice.choice((1, 10, 1000))),
        "resources_A": f"{dice.choice(CLASSES)}:1",
        "resources_B": f"{dice.choice(CLASSES)}:1",
        "group_policy": dice.choice(("none", "isolate")),
        "same_subtree": "_A,_B",
        "root_required": f"!{dice.choice(TRAITS)}",
    }
    kept = dice.sample(list(query), dice.randint(0, 6))
    return {name: value for name, value in query.items() if name in ("resources", *kept)}


def _search(dice: random.Random) -> ValidRequest:
    path = dice.choice(("/allocation_candidates", "/candidate_explanation", "/resource_providers"))
    return ValidRequest("GET", f"{path}?{urlencode(_filters(dice))}")


def _read(dice: random.Random) -> ValidRequest:
    provider, consumer = dice.choice(PROVIDERS), dice.choice(CONSUMERS)
    rest = dice.choice(("", "/inventories", "/usages", "/allocations", "/traits", "/aggregates"))
    path = dice.choice(
        (
            *(f"/resource_providers/{provider}{rest}", f"/allocations/{consumer}", "/", "/traits"),
            *("/usages?project_id=p1", f"/provider_trees/{provider}", "/changes", "/fragmentation"),
            *("/changes?after=1&limit=5", "/capacity?resources=VCPU:1", "/resource_classes"),
            *(f"/history?root={provider}&name=VCPU", "/history?after=1&limit=5"),
            *(f"/agent_reports?root={provider}", "/agent_reports?notable=true"),
        )
    )
    return ValidRequest("GET", path)


def _old(dice: random.Random) -> ValidRequest:
    """Whatever it is, at any microversion."""
    drawn = request(dice)
    return ValidRequest(drawn.method, drawn.path, drawn.body, dice.choice(VERSIONS))


def _question(dice: random.Random) -> ValidRequest:
    if dice.randint(0, 1):
        empty = dice.sample(ROOTS, dice.randint(0, 1))
        room = {"request": urlencode(_filters(dice)), "empty": empty, "time_limit": 0.1}
        options = {
            "places": dice.randint(1, 3),
            "max_moves": dice.randint(0, 4),
            "swap": True,
            "plans": 2,
            "avoid": [dice.choice(ROOTS)],
            "requests": {dice.choice(CONSUMERS): urlencode(_filters(dice))},
            "leave_alone": {"consumers": [dice.choice(CONSUMERS)], "types": ["MIGRATION"]},
        }
        room |= {name: options[name] for name in dice.sample(list(options), dice.randint(0, 4))}
        return ValidRequest("POST", "/make_room", room)
    changes = [{"remove_tree": dice.choice(ROOTS)}, {"release": dice.choice(CONSUMERS)}]
    body = {
        "changes": dice.sample(changes, dice.randint(0, 2)),
        "questions": [{"capacity": urlencode(_filters(dice))}],
    }
    return ValidRequest("POST", "/what_if", body)


_MAKERS: Final[list[Callable[[random.Random], ValidRequest]]] = [
    *(_create, _remove, _update, _inventories, _inventory, _labels, _names, _claim, _claims),
    *(_release, _reshape, _search, _read, _old, _question),
]
_WEIGHTS: Final = (12, 2, 2, 6, 3, 4, 3, 6, 2, 4, 3, 5, 8, 6, 1)
