"""YAML documents in files, read and parsed within limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from compute_agent.programs import yaml_text
from compute_agent.state.documents import FileUnusable, read_file


def read_yaml(path: Path) -> Any:
    """Return the document in a regular file of 16 MiB at most.

    :raises FileNotFoundError: the file does not exist.
    :raises FileUnusable: it cannot be read, or holds no document that can be used.
    """
    return parse_yaml(read_file(path))


def parse_yaml(content: bytes) -> Any:
    """Return the document in a text.

    :raises FileUnusable: it is not YAML, has too many values, or one that cannot be built.
    """
    try:
        return yaml_text.parse_yaml(content)
    except yaml_text.YamlUnusable as error:
        raise FileUnusable(str(error)) from error
