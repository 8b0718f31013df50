"""Handler of POST /reshaper: move inventory between providers together with its allocations."""

from __future__ import annotations

from typing import Final

from placement_server import errors, limits
from placement_server.api.request import Request
from placement_server.api.resources.allocations import (
    check_names,
    claim_conflict,
    consumer_writes,
    no_such_provider_to_allocate_from,
)
from placement_server.api.resources.inventories import inventory_records
from placement_server.api.response import Response, empty_response
from placement_server.schemas.allocation import POST_SCHEMAS, UUID_PATTERN
from placement_server.schemas.inventory import REPLACE_SCHEMA
from placement_server.schemas.validation import SchemaByVersion, record_of
from placement_server.store import errors as store_errors
from placement_server.store.allocations import reshape

_INVENTORIES: Final = {
    "type": "object",
    "patternProperties": {UUID_PATTERN: REPLACE_SCHEMA},
    "minProperties": 1,
    "additionalProperties": False,
    "maxProperties": limits.NAMES,
}
RESHAPE: Final = SchemaByVersion(
    {
        minor: record_of(
            "inventories",
            "allocations",
            inventories=_INVENTORIES,
            allocations={**POST_SCHEMAS[28 if minor == 30 else minor], "minProperties": 0},
        )
        for minor in (30, 34, 38)
    }
)


def apply(request: Request) -> Response:
    """Set the inventories of the providers and the allocations of the consumers, or nothing."""
    body = request.json(RESHAPE)
    inventories = {
        provider: (
            entry["resource_provider_generation"],
            inventory_records(entry["inventories"]),
        )
        for provider, entry in body["inventories"].items()
    }
    writes = consumer_writes(request, body["allocations"])
    check_names(writes, {provider: records for provider, (_, records) in inventories.items()})
    try:
        request.store.write(reshape.apply, inventories, writes)
    except store_errors.ReshapeProviderNotFound as error:
        raise errors.BadRequest(
            f"Resource provider {error.uuid} in inventories not found: "
            f"No resource provider with uuid {error.uuid} found",
            code=errors.PROVIDER_NOT_FOUND,
        ) from error
    except store_errors.ReshapeGenerationConflict as error:
        raise errors.Conflict(str(error), code=errors.CONCURRENT_UPDATE) from error
    except store_errors.ProviderNotFound as error:
        raise no_such_provider_to_allocate_from(error) from error
    except store_errors.ResourceClassNotFound as error:
        raise errors.BadRequest(
            f"malformed reshaper data: No such resource class {error.names[0]}."
        ) from error
    except store_errors.InventoryInUse as error:
        raise errors.Conflict(f"update conflict: {error}", code=errors.INVENTORY_INUSE) from error
    except store_errors.ConcurrentUpdate as error:
        raise errors.Conflict(f"update conflict: {error}", code=errors.CONCURRENT_UPDATE) from error
    except (store_errors.AllocationRefused, store_errors.StaleWrite) as error:
        raise claim_conflict(error) from error
    return empty_response(204)
