"""Errors that break a GPU: the Xid events which NVIDIA's driver reports as they happen.

NVML queues the events of a GPU from the moment it is watched. They are fetched on every reading
and never waited for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any, Final

from compute_agent.discovery.facts import PciAddress
from compute_agent.discovery.nvml.binding import GpuLost, Nvml, number

BROKEN: Final = {
    48: "a double bit error of its memory",
    79: "it fell off the bus",
    94: "an error of its memory that could be contained",
    95: "an error of its memory that could not be contained",
}
"""Xid -> what it means, for those after which no guest should get the GPU; all other Xids are
mostly errors of the programs on it (NVIDIA, "Xid Errors")."""

MOST_EVENTS: Final = 1000
"""Fetched by one reading; a GPU that reports without end must not hold a pass up."""


class XidWatch:
    """The events of all GPUs of one started NVML, which ends with it."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._types = getattr(nvml.binding, "nvmlEventTypeXidCriticalError", 0)
        self._set: Any = None
        self._address_of: dict[int | None, PciAddress] = {}

    def add(self, handle: Any, address: PciAddress) -> None:
        """Watch a GPU from now on; one that cannot be watched is left alone.

        Raises GpuLost and NvmlStale.
        """
        key = _key(handle)
        if key in self._address_of:
            return
        self._address_of[key] = address
        supported_types = self._nvml.ask_number("nvmlDeviceGetSupportedEventTypes", handle) or 0
        if not supported_types & self._types:
            return
        if self._set is None:
            self._set = self._nvml.ask_handle("nvmlEventSetCreate")
        if self._set is not None:
            self._nvml.ask_handle("nvmlDeviceRegisterEvents", handle, self._types, self._set)

    def broken_gpus(self) -> Iterator[tuple[PciAddress, int]]:
        """Yield the Xids that broke a GPU since the last call, with its address.

        Raises NvmlStale and NvmlMalformed.
        """
        for _ in range(MOST_EVENTS if self._set is not None else 0):
            try:
                event = self._nvml.ask("nvmlEventSetWait_v2", self._set, 0, read=_event)
            except GpuLost:
                return  # some GPU is lost: which one is found when it is asked
            if event is None:
                return
            device, kinds, xid = event
            address = self._address_of.get(device)
            if address is not None and kinds & self._types and xid in BROKEN:
                yield address, xid


def _event(event: Any) -> tuple[int | None, int, int]:
    return _key(event.device), number(event.eventType), number(event.eventData)


def _key(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
