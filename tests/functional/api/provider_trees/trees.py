"""Trees that are sent, and what is asked of them."""

from typing import Any

from placement_server.store.tables import metadata

from ..wsgi_client import Answer, Client

EXTENDED = {"OpenStack-API-Version": "placement 1.39, placement-ext 1.1"}


ROOT = "11111111-0000-4000-8000-000000000001"


CELL = "11111111-0000-4000-8000-000000000002"


CARD = "11111111-0000-4000-8000-000000000003"


OTHER = "22222222-0000-4000-8000-000000000001"


BELOW = "22222222-0000-4000-8000-000000000002"


LEAF = "22222222-0000-4000-8000-000000000003"


UNKNOWN = "00000000-0000-4000-8000-00000000dead"


A, B, C = (f"{digit * 8}-0000-4000-8000-0000000000cc" for digit in "abc")


AGGREGATE = "99999999-0000-4000-8000-000000000001"


Provider = dict[str, Any]


def provider(uuid: str, name: str, parent: str | None, **more: Any) -> Provider:
    """A provider of a body; ``inventories`` are totals or records."""
    if "inventories" in more:
        more["inventories"] = {
            key: value if isinstance(value, dict) else {"total": value}
            for key, value in more["inventories"].items()
        }
    return {"uuid": uuid, "name": name, "parent_provider_uuid": parent, **more}


def host() -> list[Provider]:
    """A host with a cell, and a card in the cell."""
    return [
        provider(ROOT, "host", None, inventories={"DISK_GB": 100}, traits=["COMPUTE_NODE"]),
        provider(CELL, "cell", ROOT, inventories={"VCPU": 8}, aggregates=[AGGREGATE]),
        provider(CARD, "card", CELL, inventories={"CUSTOM_CARD": 4}, traits=["CUSTOM_FAST"]),
    ]


def get(api: Client, uuid: str = ROOT, query: str = "", **conditions: str) -> Answer:
    headers = {**EXTENDED, **{key.replace("_", "-"): text for key, text in conditions.items()}}
    return api.get(f"/provider_trees/{uuid}{query}", headers=headers)


def put(
    api: Client,
    providers: list[Provider],
    tag: str | None = None,
    root: str = ROOT,
    *,
    prefer: str | None = None,
    **more: Any,
) -> Answer:
    """PUT a tree that has a tag, or does not exist yet."""
    condition = {"If-None-Match": "*"} if tag is None else {"If-Match": tag}
    preference = {} if prefer is None else {"Prefer": prefer}
    return api.put(
        f"/provider_trees/{root}",
        {"providers": providers, **more},
        headers={**EXTENDED, **condition, **preference},
    )


def tag_of(api: Client, uuid: str = ROOT) -> str:
    return get(api, uuid).headers["etag"]


def must(answer: Answer) -> Answer:
    assert answer.status in (200, 204), answer.body
    return answer


def held(**amounts: int) -> dict[str, Any]:
    return {"resources": amounts}


def claim(
    api: Client, consumer: str, uuid: str, generation: int | None = None, **amounts: int
) -> None:
    must(api.claim(consumer, held={uuid: amounts}, generation=generation))


def by_uuid(answer: Answer) -> dict[str, Provider]:
    return {entry["uuid"]: entry for entry in answer.json["providers"]}


def rows(api: Client) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with api.store.engine.connect() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(table.select())), key=str)
            for table in metadata.sorted_tables
        }
