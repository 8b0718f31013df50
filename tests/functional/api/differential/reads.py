"""Random requests that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from .draw import Draw
from .vocabulary import (
    AGGREGATES,
    CLASSES,
    NAMES,
    PROJECTS,
    PROVIDERS,
    STRANGE_TEXTS,
    TRAITS,
    TYPES,
    USERS,
)


class Reads:
    """Makes reads: each maker is given the minor version, and returns method, URL and no body."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw

    def _query(self, path: str, parameters: list[tuple[str, str]]) -> tuple[str, str, Any]:
        if self._draw.chance() < 0.1:
            parameters.append(
                (self._draw.pick(["spam", "limit", "name", "uuid"]), self._draw.pick(["1", ""]))
            )
        if parameters and self._draw.chance() < 0.15:
            place = self._draw.random.randrange(len(parameters))
            parameters[place] = (parameters[place][0], self._draw.pick(STRANGE_TEXTS))
        if parameters and self._draw.chance() < 0.05:
            parameters.append(self._draw.pick(parameters))
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in parameters)
        return "GET", f"{path}?{query}" if query else path, None

    def _amounts(self) -> str:
        return ",".join(f"{name}:{amount}" for name, amount in self._draw.resources().items())

    def _required(self, minor: int, *, any_of: bool = True) -> str:
        if any_of and minor >= 39 and self._draw.chance() < 0.25:
            return "in:" + ",".join(self._draw.some(TRAITS, 3, 1))
        sign = "!" if minor >= 22 and self._draw.chance() < 0.4 else ""
        return ",".join(
            f"{sign if self._draw.chance() < 0.6 else ''}{name}"
            for name in self._draw.some(TRAITS, 2, 1)
        )

    def _member_of(self, minor: int) -> str:
        sign = "!" if minor >= 32 and self._draw.chance() < 0.3 else ""
        if self._draw.chance() < 0.3:
            return f"{sign}in:" + ",".join(self._draw.some(AGGREGATES, 2, 1))
        return f"{sign}{self._draw.pick(AGGREGATES)}"

    def list_providers(self, minor: int) -> tuple[str, str, Any]:
        makers: list[tuple[str, int, Callable[[], str]]] = [
            ("name", 0, lambda: self._draw.pick([*NAMES, ""])),
            ("uuid", 0, self._draw.provider),
            ("member_of", 3, lambda: self._member_of(minor)),
            ("resources", 4, self._amounts),
            ("in_tree", 14, self._draw.provider),
            ("required", 18, lambda: self._required(minor)),
        ]
        usable = [(name, make) for name, since, make in makers if minor >= since]
        chosen = self._draw.some(usable, 2)
        return self._query("/resource_providers", [(name, make()) for name, make in chosen])

    def read(self, minor: int) -> tuple[str, str, Any]:
        provider = f"/resource_providers/{self._draw.provider()}"
        paths = [
            provider,
            *(f"{provider}/{rest}" for rest in ("inventories", "usages", "aggregates")),
            *(f"{provider}/{rest}" for rest in ("traits", "allocations")),
            f"{provider}/inventories/{self._draw.pick([*CLASSES, 'CUSTOM_NOPE'])}",
            f"/allocations/{self._draw.pick([*self._draw.consumers, 'nonsense'])}",
            f"/resource_classes/{self._draw.pick([*CLASSES, 'CUSTOM_NOPE'])}",
            self._draw.pick(["/resource_classes", "/traits", "/"]),
        ]
        return "GET", self._draw.pick(paths), None

    def usages(self, minor: int) -> tuple[str, str, Any]:
        parameters = [("project_id", self._draw.pick([*PROJECTS, "nobody"]))]
        if self._draw.chance() < 0.4:
            parameters.append(("user_id", self._draw.pick(USERS)))
        if minor >= 38 and self._draw.chance() < 0.5:
            parameters.append(
                ("consumer_type", self._draw.pick([*TYPES, "all", "unknown", "allx", "NONE"]))
            )
        return self._query("/usages", parameters)

    def list_traits(self, minor: int) -> tuple[str, str, Any]:
        parameters = []
        if self._draw.chance() < 0.8:
            names = ",".join(self._draw.some([*TRAITS, "CUSTOM_NOPE"], 3))
            parameters.append(
                ("name", self._draw.pick([f"in:{names}", "startswith:CUSTOM", "x:y"]))
            )
        if self._draw.chance() < 0.5:
            parameters.append(("associated", self._draw.pick(["true", "False"])))
        return self._query("/traits", parameters)

    def candidates(self, minor: int) -> tuple[str, str, Any]:
        suffixes = [""]
        if minor >= 25 and self._draw.chance() < 0.6:
            suffixes = self._draw.some(["", "1", "2"], 3, 1)
        if minor >= 33 and self._draw.chance() < 0.5:
            suffixes = self._draw.some(["", "_A", "_B", "1"], 3, 1)
        parameters: list[tuple[str, str]] = []
        resourceless = []
        for suffix in suffixes:
            if minor >= 36 and suffix and self._draw.chance() < 0.1:
                resourceless.append(suffix)
            else:
                parameters.append((f"resources{suffix}", self._amounts()))
            if minor >= 17 and self._draw.chance() < 0.2:
                parameters.append((f"required{suffix}", self._required(minor)))
            if minor >= 21 and self._draw.chance() < 0.15:
                parameters.append((f"member_of{suffix}", self._member_of(minor)))
            if minor >= 31 and self._draw.chance() < 0.1:
                parameters.append((f"in_tree{suffix}", self._draw.provider()))
        if minor >= 25 and (len([s for s in suffixes if s]) > 1 or self._draw.chance() < 0.2):
            parameters.append(("group_policy", self._draw.pick(["none", "isolate"])))
        if minor >= 35 and self._draw.chance() < 0.1:
            parameters.append(("root_required", self._required(minor, any_of=False)))
        if minor >= 36 and (resourceless or self._draw.chance() < 0.1):
            tied = [suffix for suffix in suffixes if suffix] or ["_X"]
            parameters.append(("same_subtree", ",".join(tied)))
        if minor >= 16 and self._draw.chance() < 0.1:
            parameters.append(("limit", self._draw.pick(["1", "1", "2", "3", "1000"])))
        self._draw.random.shuffle(parameters)
        return self._query("/allocation_candidates", parameters)

    def nowhere(self, minor: int) -> tuple[str, str, Any]:
        paths = [
            "/nowhere", "", "/resource_providers/", "//", f"/resource_providers/{PROVIDERS[0]}/x",
            "/allocations", "/reshaper", "/traits/%00", "/traits/%e2%98%83", "/allocations/%ff",
        ]  # fmt: skip
        return (
            self._draw.pick(["GET", "GET", "PUT", "POST", "DELETE"]),
            self._draw.pick(paths),
            None,
        )
