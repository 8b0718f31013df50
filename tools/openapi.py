"""The OpenAPI document docs/reference/openapi.json, from the server: routes, schemas and errors."""

import json
from pathlib import Path

from placement_server.openapi.document import build
from tools.openapi_errors import add_errors

TARGET = Path(__file__).parent.parent / "docs" / "reference" / "openapi.json"


def text() -> str:
    """Return the current content of the file."""
    document = build()
    add_errors(document)
    return json.dumps(document, indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
