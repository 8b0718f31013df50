"""YAML texts, parsed within a limit of values.

An alias stands for all of its anchor's values, so a few hundred bytes may stand for thousands of
millions of them, and a merge key copies them. Values are counted after aliases and before any is
built (YAML 1.1, section 7.1).
"""

from __future__ import annotations

from typing import Any, Final

import yaml


class YamlUnusable(ValueError):
    """A text is not YAML that can be used; the message goes on from the name of its file."""


class TooManyValues(YamlUnusable):
    """A text stands for more values than any document has."""

    def __init__(self) -> None:
        super().__init__(f"has more than {MAX_VALUES} values, those of aliases counted each time")


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
            raise TooManyValues
        return super().compose_node(parent, index)

    def compose_document(self) -> Any:
        root = super().compose_document()
        if root is not None:
            _count(root, {})
        return root


def parse_yaml(content: bytes) -> Any:
    """Return the document in a text.

    :raises YamlUnusable: it is not YAML, has too many values, or one that cannot be built.
    """
    try:
        return yaml.load(content, _Loader)
    except YamlUnusable:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise YamlUnusable(f"is not YAML{where}: {error.problem}") from error
    except yaml.YAMLError as error:
        raise YamlUnusable(f"is not YAML: {error}") from error
    except RecursionError:
        raise YamlUnusable("has values that are nested too deeply") from None
    except _VALUE_ERRORS as error:
        raise YamlUnusable(f"has a value that cannot be read: {error}") from error


def _count(node: yaml.Node, counts: dict[yaml.Node, int]) -> int:
    """Return how many values a node stands for.

    :param counts: of the nodes before, and 0 for those around this one.
    :raises YamlUnusable: it stands for too many, or for itself.
    """
    known_count = counts.get(node)
    if known_count == 0:
        raise YamlUnusable("has an alias inside its own anchor")
    if known_count:
        return known_count
    counts[node] = 0
    total = 1
    if isinstance(node, yaml.CollectionNode):
        for entry in node.value:
            for member in entry if isinstance(entry, tuple) else (entry,):
                total += _count(member, counts)
                if total > MAX_VALUES:
                    raise TooManyValues
    counts[node] = total
    return total
