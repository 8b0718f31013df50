"""The OpenAPI document docs/reference/openapi.json, from the routes and schemas of the server."""

import json
from pathlib import Path

from placement_server.openapi.document import build

TARGET = Path(__file__).parent.parent / "docs" / "reference" / "openapi.json"


def text() -> str:
    """Return the current content of the file."""
    return json.dumps(build(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
