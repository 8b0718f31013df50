"""GPUs as NVML sees them, through everything that a driver does meanwhile.

library or module missing, driver not loaded   no facts; logged once, looked at again each time
a call the device does not support             that fact is unknown
GPU lost                                       the GPU is out, NVML is started again
an Xid that breaks a GPU                       kept with the GPU until `forget`
NVML not started any more (driver reloaded)    started again, once, in the same reading
an answer that cannot be                       the GPU is unknown, with a warning
"""

from __future__ import annotations

import ctypes
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from compute_agent.discovery.facts import CellId, NvLink, PciAddress
from compute_agent.discovery.nvml import NvmlGpu, NvmlReading, partitions
from compute_agent.discovery.nvml.binding import (
    Binding,
    GpuLost,
    Nvml,
    NvmlMalformed,
    NvmlStale,
    NvmlUnavailable,
    load,
    number,
    text_of,
)
from compute_agent.discovery.pci_address import pci_address
from compute_agent.programs.kept_values import LastingConditions

LOG = logging.getLogger(__name__)

MOST_GPUS = 1024
NODE_SET_WORDS = 16  # of 64 bits: 1024 nodes, the most a kernel is built for
MOST_LINKS = 64
"""NVLinks asked for at most; the GPUs of today have up to 36."""
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

_Answer = TypeVar("_Answer")
_Modes = tuple[bool | None, bool | None, tuple[bool, ...]]
"""MIG, mixed sizes of vGPUs, which NVLinks are active."""


class _LastingFacts(Struct, frozen=True):
    """What does not change about a GPU while NVML runs and the GPU stays in these modes.

    :ivar warnings: what could not be read of it, which every reading names.
    """

    modes: _Modes
    gpu: NvmlGpu
    warnings: tuple[str, ...]


class NvmlSource:
    """NVML for the life of the process. Not for several threads at once.

    `binding` loads the module; a test may give another.
    """

    def __init__(self, binding: Callable[[], Binding] = load) -> None:
        self._load = binding
        self._nvml: Nvml | None = None
        self._warnings: list[str] = []
        self._conditions = LastingConditions()
        self._lasting: dict[str, _LastingFacts] = {}
        """By uuid, or by address where there is none."""
        self._address_of_index: dict[int, PciAddress] = {}
        self._lost_gpus: set[PciAddress] = set()
        self._watch: _XidWatch | None = None
        self._broken_gpus: dict[PciAddress, int] = {}

    def read(self) -> NvmlReading:
        """Look at all GPUs. Never raises for a host without NVML: the reading is empty then."""
        self._warnings = []
        try:
            gpus = self._read_restarting()
        except NvmlUnavailable as reason:
            if self._conditions.is_new("NVML", str(reason)):
                LOG.info("No facts about GPUs from NVML: %s. Looking again on every pass.", reason)
            return NvmlReading(lost_gpus=tuple(sorted(self._lost_gpus)))
        self._conditions.is_over("NVML")
        return NvmlReading(
            gpus=tuple(sorted(gpus, key=lambda gpu: gpu.address)),
            warnings=tuple(dict.fromkeys(self._warnings)),
            lost_gpus=tuple(sorted(self._lost_gpus)),
        )

    def close(self) -> None:
        """Let go of the driver. The next reading starts NVML again."""
        if self._nvml is not None:
            self._nvml.shutdown()
        self._nvml = self._watch = None
        self._lasting.clear()

    def forget(self, address: PciAddress) -> None:
        """Forget the Xid that a GPU reported, because the GPU works again."""
        self._broken_gpus.pop(address, None)

    def _read_restarting(self) -> list[NvmlGpu]:
        try:
            return self._read_all(self._ensure_started())
        except NvmlStale:
            self.close()
        try:
            return self._read_all(self._ensure_started())
        except NvmlStale as error:
            self.close()
            raise NvmlUnavailable(f"the driver goes away while it is asked ({error})") from error

    def _warn(self, sentence: str) -> None:
        self._warnings.append(sentence)

    def _ensure_started(self) -> Nvml:
        if self._nvml is None:
            try:
                binding = self._load()
            except NvmlUnavailable:
                raise
            except Exception as error:
                raise NvmlUnavailable(f"its Python module raises {error!r}") from error
            self._nvml = Nvml(binding, self._warn)
            self._watch = _XidWatch(self._nvml)
        return self._nvml

    def _read_all(self, nvml: Nvml) -> list[NvmlGpu]:
        gpus, is_lost = [], False
        count = self._asked(lambda: nvml.ask_number("nvmlDeviceGetCount", most=MOST_GPUS))
        for index in range(count or 0):
            try:
                gpu = self._asked(partial(self._gpu_at, nvml, index))
            except GpuLost:
                self._note_lost(index)
                is_lost = True
                continue
            if gpu is not None:
                self._lost_gpus.discard(gpu.address)
                gpus.append(gpu)
        if self._watch is not None:
            self._broken_gpus.update(self._asked(partial(dict, self._watch.broken_gpus())) or {})
        if is_lost:
            # NVML keeps the handle of a lost GPU until it is started again
            self.close()
        return [replace(gpu, critical_xid=self._broken_gpus.get(gpu.address)) for gpu in gpus]

    def _asked(self, question: Callable[[], _Answer]) -> _Answer | None:
        """Return an answer; None, with a warning, for one that cannot be."""
        try:
            return question()
        except NvmlMalformed as error:
            self._warn(f"{error}; what NVML reports of that GPU is unknown")
            return None

    def _note_lost(self, index: int) -> None:
        address = self._address_of_index.get(index)
        if address is not None:
            self._lost_gpus.add(address)
        self._warn(
            f"NVML: GPU {address or f'number {index}'} is lost (fell off the bus); left out until"
            " NVML sees it again, which takes a reset or a reboot"
        )

    def _gpu_at(self, nvml: Nvml, index: int) -> NvmlGpu | None:
        handle = nvml.ask_handle("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            return None
        address = nvml.ask("nvmlDeviceGetPciInfo", handle, read=_address_of)
        if address is None:
            self._warn(f"NVML: GPU number {index} has no PCI address; left out")
            return None
        self._address_of_index[index] = address
        if self._watch is not None:
            self._watch.add(handle, address)
        return self._gpu(nvml, handle, address)

    def _gpu(self, nvml: Nvml, handle: Any, address: PciAddress) -> NvmlGpu:
        uuid = nvml.ask_text("nvmlDeviceGetUUID", handle)
        # the other number is the mode after a reset
        is_mig_enabled = nvml.ask("nvmlDeviceGetMigMode", handle, read=lambda m: bool(number(m[0])))
        has_mixed_sizes = nvml.ask("nvmlDeviceGetVgpuHeterogeneousMode", handle, read=bool)
        key = uuid or address
        modes = (is_mig_enabled, has_mixed_sizes, _link_states(nvml, handle))
        known_state = self._lasting.get(key)
        if known_state is None or known_state.modes != modes:
            before = len(self._warnings)
            gpu = NvmlGpu(
                address, uuid=uuid, mig_enabled=is_mig_enabled, vgpu_sizes_mixed=has_mixed_sizes
            )
            gpu = _lasting(nvml, handle, gpu, modes[2])
            known_state = self._lasting[key] = _LastingFacts(
                modes, gpu, tuple(self._warnings[before:])
            )
        else:
            self._warnings.extend(known_state.warnings)
        lasting = known_state.gpu
        if not is_mig_enabled:
            return replace(lasting, address=address)
        profiles = lasting.mig_profiles
        parts = partitions.instances(nvml, handle, profiles)
        return replace(
            lasting,
            address=address,
            gpu_instances=parts,
            mig_devices=partitions.devices(nvml, handle, profiles, parts or ()),
            mig_remaining=partitions.remaining_counts(nvml, handle, profiles),
        )


def _lasting(nvml: Nvml, handle: Any, gpu: NvmlGpu, links: Sequence[bool]) -> NvmlGpu:
    """Read what stays the same until NVML is started again or a mode is switched."""
    own_memory = nvml.ask_number("nvmlDeviceGetNumaNodeId", handle)
    return replace(
        gpu,
        serial=nvml.ask_text("nvmlDeviceGetSerial", handle),
        model=nvml.ask_text("nvmlDeviceGetName", handle),
        compute_capability=nvml.ask(
            "nvmlDeviceGetCudaComputeCapability",
            handle,
            read=lambda version: (number(version[0]), number(version[1])),
        ),
        near_cells=_near_cells(nvml, handle),
        memory_cell=None if own_memory is None or own_memory < 0 else CellId(own_memory),
        mig_profiles=() if gpu.mig_enabled is None else partitions.profiles(nvml, handle),
        vgpu_types=partitions.vgpu_types(nvml, handle, has_mixed_sizes=bool(gpu.vgpu_sizes_mixed)),
        nvlinks=_nvlinks(nvml, handle, links),
    )


def _near_cells(nvml: Nvml, handle: Any) -> tuple[CellId, ...]:
    scope = getattr(nvml.binding, "NVML_AFFINITY_SCOPE_NODE", 0)
    function = "nvmlDeviceGetMemoryAffinity"
    return nvml.ask(function, handle, NODE_SET_WORDS, scope, read=_cells_of_words) or ()


def _cells_of_words(words: Any) -> tuple[CellId, ...]:
    return tuple(
        CellId(word * 64 + bit)
        for word, bits in enumerate(words)
        for bit in range(64)
        if number(bits) >> bit & 1
    )


def _address_of(pci: Any) -> PciAddress:
    """Return the address in NVML's facts of a PCI function."""
    return pci_address(text_of(pci.busId))


def _link_states(nvml: Nvml, gpu: Any) -> tuple[bool, ...]:
    """Return whether each link is active, by number; () = none, or not reported.

    Raises GpuLost and NvmlStale.
    """
    active = []
    for link in range(MOST_LINKS):
        state = nvml.ask("nvmlDeviceGetNvLinkState", gpu, link, read=bool, is_numbered=True)
        if state is None:
            break
        active.append(state)
    return tuple(active)


def _nvlinks(nvml: Nvml, gpu: Any, active: Sequence[bool]) -> tuple[NvLink, ...] | None:
    """Return the NVLinks by remote device; None = not reported.

    `active`: what `_link_states` returns. Raises as that does.
    """
    if not active:
        return None
    link_counts: Counter[tuple[PciAddress, str]] = Counter()
    names = {
        getattr(nvml.binding, "NVML_NVLINK_DEVICE_TYPE_GPU", 0): "gpu",
        getattr(nvml.binding, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2): "switch",
        getattr(nvml.binding, "NVML_NVLINK_DEVICE_TYPE_IBMNPU", 1): "cpu",
    }
    for link in (link for link, is_active in enumerate(active) if is_active):
        remote = nvml.ask("nvmlDeviceGetNvLinkRemotePciInfo", gpu, link, read=_address_of)
        if remote is not None:
            kind = nvml.ask_number("nvmlDeviceGetNvLinkRemoteDeviceType", gpu, link)
            link_counts[remote, "unknown" if kind is None else names.get(kind, "unknown")] += 1
    return tuple(sorted(NvLink(*device, amount) for device, amount in link_counts.items()))


class _XidWatch:
    """The events of all GPUs of one started NVML, which ends with it.

    NVML queues the events of a GPU from the moment it is watched. They are fetched on every reading
    and never waited for.
    """

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
