"""The hint `query`: a condition on the host, written as JSON."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from typing import Any

from compute_agent.request.errors import InvalidRequest
from compute_agent.request.spec import RequestSpec
from compute_agent.scheduler.filters.facts import fact
from compute_agent.scheduler.filters.host_filter import HostFilter
from compute_agent.scheduler.host_state import HostState

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_EXPECTED = 'JSON such as ["and", [">=", "$free_ram_mb", 1024], ["not", ["=", "$host", "a"]]]'


class JsonFilter(HostFilter):
    """Evaluate `[operator, argument, ...]`: = < > <= >= in, and or not; `$name` is a fact.

    A comparison with a fact that the host does not announce does not hold.
    """

    run_filter_once_per_request = True

    def host_passes(self, host: HostState, spec: RequestSpec) -> bool:
        """Return whether the condition holds; no hint: True.

        :raises InvalidRequest: the hint is not such a condition.
        """
        texts = spec.hint("query")
        if not texts:
            return True
        try:
            return bool(_evaluate(json.loads(texts[0]), host))
        except (ValueError, TypeError, LookupError) as error:
            raise InvalidRequest("hint query", texts[0], _EXPECTED) from error


def _evaluate(node: Any, host: HostState) -> Any:
    if isinstance(node, str) and node.startswith("$"):
        return fact(host, node[1:].split("."))
    if not isinstance(node, list):
        return node
    if not node:
        return True
    sign, arguments = node[0], [_evaluate(operand, host) for operand in node[1:]]
    if sign == "and":
        return all(arguments)
    if sign == "or":
        return any(arguments)
    if sign == "not":
        return not arguments[0]
    if sign == "in":
        return arguments[0] in arguments[1:]
    compare, first, others = _COMPARE[sign], arguments[0], arguments[1:]
    return bool(others) and all(
        None not in (first, other) and compare(first, other) for other in others
    )
