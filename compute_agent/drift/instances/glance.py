"""Images as the Image API shows them, where the Compute API does not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from compute_agent.openstack.service import Service, ServiceUnusable

KINDS: Final = ("hw_", "os_", "img_", "trait:", "traits_required")
"""Beginnings of the properties that describe a guest."""


class Images:
    """The properties of images; each image is asked for once."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._properties_of: dict[str, Mapping[str, str] | None] = {}

    @classmethod
    def from_conf(cls, conf: Any) -> Images:
        """As the group `[glance]` says."""
        return cls(Service(conf, "glance", "Glance", version="/v2"))

    def properties(self, image: str) -> Mapping[str, str] | None:
        """Return the properties of an image that describe a guest; None where it is gone.

        :raises ServiceUnusable: it cannot be read.
        """
        if image not in self._properties_of:
            self._properties_of[image] = self._read(image)
        return self._properties_of[image]

    def _read(self, image: str) -> Mapping[str, str] | None:
        try:
            body = self._service.get(f"/images/{image}", f"Reading image {image}")
        except ServiceUnusable as error:
            if error.status == 404:
                return None
            raise
        return {name: str(value) for name, value in body.items() if name.startswith(KINDS)}
