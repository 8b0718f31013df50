"""YAML documents, parsed within a limit of values.

An alias stands for all of its anchor's values, so a few hundred bytes may stand for thousands of
millions of them, and a merge key copies them. Values are counted after aliases and before any is
built (YAML 1.1, section 7.1).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from compute_agent.state.documents import FileUnusable, read_file

MAX_VALUES: Final = 1_000_000
"""Of one document; an export of 20,000 providers has fewer."""

_VALUE_ERRORS: Final = (AttributeError, LookupError, RecursionError, ValueError)
"""What PyYAML raises, besides its own errors, at values that it cannot build: 2024-02-30, a number
of 5,000 digits, `!!bool perhaps`, `!!int ''`, `!!timestamp 2`."""


class _Loader(yaml.SafeLoader):
    """A loader that stops at a document of too many values."""

    def __init__(self, content: bytes) -> None:
        super().__init__(content)
        self._composed = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self._composed += 1
        if self._composed > MAX_VALUES:
            raise _too_many_values()
        return super().compose_node(parent, index)

    def compose_document(self) -> Any:
        root = super().compose_document()
        if root is not None:
            _count(root, {})
        return root


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
        return yaml.load(content, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise FileUnusable(f"is not YAML{where}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise FileUnusable(f"is not YAML: {error}") from error
    except RecursionError:
        raise FileUnusable("has values that are nested too deeply") from None
    except _VALUE_ERRORS as error:
        raise FileUnusable(f"has a value that cannot be read: {error}") from error


def _count(node: yaml.Node, counts: dict[yaml.Node, int]) -> int:
    """Return how many values a node stands for.

    :param counts: of the nodes before, and 0 for those around this one.
    :raises FileUnusable: it stands for too many, or for itself.
    """
    known_count = counts.get(node)
    if known_count == 0:
        raise FileUnusable("has an alias inside its own anchor")
    if known_count:
        return known_count
    counts[node] = 0
    total = 1
    if isinstance(node, yaml.CollectionNode):
        for entry in node.value:
            for member in entry if isinstance(entry, tuple) else (entry,):
                total += _count(member, counts)
                if total > MAX_VALUES:
                    raise _too_many_values()
    counts[node] = total
    return total


def _too_many_values() -> FileUnusable:
    return FileUnusable(f"has more than {MAX_VALUES} values, those of aliases counted each time")
