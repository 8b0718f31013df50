"""Writes docs/openapi.json anew from the server's routes and schemas."""

import json
from pathlib import Path

from placement_server import openapi

TARGET = Path(__file__).parent.parent / "docs" / "openapi.json"


def text() -> str:
    """What the file holds when it is current."""
    return json.dumps(openapi.build(), indent=1) + "\n"


if __name__ == "__main__":
    TARGET.write_text(text())
