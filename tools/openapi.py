"""The OpenAPI document docs/reference/openapi.json, from the routes and schemas of the server."""

import json
from pathlib import Path

from placement_server import openapi

TARGET = Path(__file__).parent.parent / "docs" / "reference" / "openapi.json"


def text() -> str:
    """Return the current content of the file."""
    return json.dumps(openapi.build(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
