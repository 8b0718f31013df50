"""The shape of provider trees: the providers, their names and their parents.

    by uuid    uuid -> ProviderData          immutable; an edit replaces the record
    by name    name -> uuid
    children   uuid | None -> (uuid, ...)    in order of insertion; None holds the roots

Lookups by uuid and by name cost the same at any depth.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, Self

from msgspec.structs import replace

from compute_agent.provider_tree.provider import MAX_NAME, ProviderData, canonical, child_uuid


class ProviderForest:
    """Any number of trees of providers.  Safe to use from several threads; a lock of its own.

    Methods that address a provider take its uuid or its name and raise ValueError when it is
    unknown.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._by_uuid: dict[str, ProviderData] = {}
        self._by_name: dict[str, str] = {}
        self._children: dict[str | None, tuple[str, ...]] = {None: ()}

    # -- copies ----------------------------------------------------------------------------------

    def snapshot(self) -> Self:
        """Return an independent copy with the same content; O(providers), records are shared."""
        forest_copy = type(self)()
        with self._lock:
            forest_copy._take(self)
        return forest_copy

    def _take(self, other: Self) -> None:
        self._by_uuid = dict(other._by_uuid)
        self._by_name = dict(other._by_name)
        self._children = dict(other._children)

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        """Whether both have the same content; quick where they share their records."""
        if not isinstance(other, ProviderForest):
            return NotImplemented
        return self._by_uuid == other._by_uuid and self._children == other._children

    def __copy__(self) -> Self:
        return self.snapshot()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self.snapshot()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {key: value for key, value in self.__dict__.items() if key != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.RLock()

    def subtree(self, root: str) -> Self:
        """Return an independent copy that holds only the tree of `root`.

        :raises ValueError: `root` is unknown or is not a root.
        """
        with self._lock:
            provider = self._find(root)
            if provider.parent_uuid is not None:
                raise ValueError(f"provider {provider.name} ({provider.uuid}) is not a root")
            forest_copy = type(self)()
            for uuid in self._walk(provider.uuid):
                forest_copy._insert(self._by_uuid[uuid])
            return forest_copy

    # -- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._by_uuid)

    def exists(self, name_or_uuid: str) -> bool:
        with self._lock:
            return name_or_uuid in self._by_uuid or name_or_uuid in self._by_name

    def data(self, name_or_uuid: str) -> ProviderData:
        """Return the provider as it is now; safe to keep."""
        with self._lock:
            return self._find(name_or_uuid)

    @property
    def roots(self) -> list[ProviderData]:
        with self._lock:
            return [self._by_uuid[uuid] for uuid in self._children[None]]

    def get_provider_uuids(self, name_or_uuid: str | None = None) -> list[str]:
        """Return the uuids of one provider's subtree, or of all; parents before children."""
        with self._lock:
            if name_or_uuid is not None:
                return list(self._walk(self._find(name_or_uuid).uuid))
            return [uuid for root in self._children[None] for uuid in self._walk(root)]

    def get_provider_uuids_in_tree(self, name_or_uuid: str) -> list[str]:
        """Return uuids of the whole tree the provider is a member of; element 0 is the root."""
        with self._lock:
            return list(self._walk(self._root_of(self._find(name_or_uuid)).uuid))

    def root_of(self, name_or_uuid: str) -> ProviderData:
        """Return the root of the tree the provider is a member of."""
        with self._lock:
            return self._root_of(self._find(name_or_uuid))

    def children(self, name_or_uuid: str) -> list[ProviderData]:
        """Return the direct children, in order of insertion."""
        with self._lock:
            provider = self._find(name_or_uuid)
            return [self._by_uuid[uuid] for uuid in self._children[provider.uuid]]

    # -- structure -------------------------------------------------------------------------------

    def new_root(self, name: str, uuid: str, generation: int | None = None) -> str:
        """Add a root, and return its uuid.

        :raises ValueError: the uuid or the name is taken or malformed.
        """
        with self._lock:
            return self._insert(ProviderData(canonical(uuid), name, generation))

    def new_child(
        self,
        name: str,
        parent: str,
        uuid: str | None = None,
        generation: int | None = None,
    ) -> str:
        """Add a child, and return its uuid.

        Without `uuid` it is derived from the root's uuid and the part of the name after the root's
        name, so that it survives a rename of the host.

        :raises ValueError: the uuid or the name is taken or malformed, or the parent is unknown.
        """
        with self._lock:
            above = self._find(parent)
            if uuid is None:
                root = self._root_of(above)
                uuid = child_uuid(root.uuid, name.removeprefix(root.name) or name)
            return self._insert(ProviderData(canonical(uuid), name, generation, above.uuid))

    def remove(self, name_or_uuid: str) -> None:
        """Remove a provider and all its descendants."""
        with self._lock:
            provider = self._find(name_or_uuid)
            self._unlink(provider)
            for uuid in list(self._walk(provider.uuid)):
                del self._by_name[self._by_uuid.pop(uuid).name]
                del self._children[uuid]

    def move(self, name_or_uuid: str, new_parent: str | None) -> None:
        """Put a provider with its descendants under another parent; `None` makes it a root.

        :raises ValueError: either is unknown, or the new parent is the provider or a descendant
            of it.
        """
        with self._lock:
            provider = self._find(name_or_uuid)
            target = None if new_parent is None else self._find(new_parent).uuid
            if target == provider.parent_uuid:
                return
            if target is not None and target in set(self._walk(provider.uuid)):
                raise ValueError(
                    f"provider {provider.name} ({provider.uuid}) cannot move under itself or a "
                    "descendant"
                )
            self._unlink(provider)
            self._by_uuid[provider.uuid] = replace(provider, parent_uuid=target)
            self._children[target] += (provider.uuid,)

    def rename(self, name_or_uuid: str, new_name: str) -> None:
        """Give a provider another name.

        :raises ValueError: the provider is unknown, or the name is taken or malformed.
        """
        with self._lock:
            provider = self._find(name_or_uuid)
            if new_name == provider.name:
                return
            self._check_name(new_name)
            del self._by_name[provider.name]
            self._by_name[new_name] = provider.uuid
            self._by_uuid[provider.uuid] = replace(provider, name=new_name)

    # -- inside ----------------------------------------------------------------------------------

    def _find(self, name_or_uuid: str) -> ProviderData:
        provider = self._by_uuid.get(name_or_uuid)
        if provider is None:
            uuid = self._by_name.get(name_or_uuid)
            if uuid is None:
                raise ValueError(f"no such provider: {name_or_uuid}")
            provider = self._by_uuid[uuid]
        return provider

    def _root_of(self, provider: ProviderData) -> ProviderData:
        while provider.parent_uuid is not None:
            provider = self._by_uuid[provider.parent_uuid]
        return provider

    def _walk(self, uuid: str) -> Iterator[str]:
        pending_uuids = [uuid]
        while pending_uuids:
            current = pending_uuids.pop()
            yield current
            pending_uuids.extend(reversed(self._children[current]))

    def _check_name(self, name: str) -> None:
        if not 1 <= len(name) <= MAX_NAME:
            raise ValueError(f"a provider's name has 1 to {MAX_NAME} characters, not {len(name)}")
        if name in self._by_name:
            raise ValueError(f"name {name} is taken by provider {self._by_name[name]}")

    def _insert(self, provider: ProviderData) -> str:
        if provider.uuid in self._by_uuid:
            holder = self._by_uuid[provider.uuid]
            raise ValueError(f"uuid {provider.uuid} is taken by provider {holder.name}")
        self._check_name(provider.name)
        self._by_uuid[provider.uuid] = provider
        self._by_name[provider.name] = provider.uuid
        self._children[provider.uuid] = ()
        self._children[provider.parent_uuid] += (provider.uuid,)
        return provider.uuid

    def _unlink(self, provider: ProviderData) -> None:
        siblings = self._children[provider.parent_uuid]
        self._children[provider.parent_uuid] = tuple(u for u in siblings if u != provider.uuid)
