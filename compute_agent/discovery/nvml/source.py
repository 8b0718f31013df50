"""GPUs as NVML sees them, through everything that a driver does meanwhile.

library or module missing, driver not loaded   no facts; logged once, looked at again each time
a call the device does not support             that fact is unknown
GPU lost                                       the GPU is out, NVML is started again
an Xid that breaks a GPU                       kept with the GPU until `forget`
NVML not started any more (driver reloaded)    started again, once, in the same reading
an answer that cannot be                       the GPU is unknown, with a warning
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from compute_agent.discovery.facts import CellId, PciAddress
from compute_agent.discovery.nvml import mig, nvlinks, vgpus
from compute_agent.discovery.nvml.binding import (
    Binding,
    GpuLost,
    Nvml,
    NvmlMalformed,
    NvmlStale,
    NvmlUnavailable,
    load,
    number,
)
from compute_agent.discovery.nvml.events import XidWatch
from compute_agent.discovery.nvml.facts import NvmlGpu, NvmlReading
from compute_agent.programs.lasting_conditions import LastingConditions

LOG = logging.getLogger(__name__)

MOST_GPUS = 1024
NODE_SET_WORDS = 16  # of 64 bits: 1024 nodes, the most a kernel is built for

_Answer = TypeVar("_Answer")
_Modes = tuple[bool | None, bool | None, tuple[bool, ...]]
"""MIG, mixed sizes of vGPUs, which NVLinks are active."""


class _LastingFacts(NamedTuple):
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
        self._watch: XidWatch | None = None
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
            self._watch = XidWatch(self._nvml)
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
        address = nvml.ask("nvmlDeviceGetPciInfo", handle, read=nvlinks.address_of)
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
        has_mixed_sizes = vgpus.sizes_mixed(nvml, handle)
        key = uuid or address
        modes = (is_mig_enabled, has_mixed_sizes, nvlinks.states(nvml, handle))
        known_state = self._lasting.get(key)
        if known_state is None or known_state.modes != modes:
            before = len(self._warnings)
            gpu = NvmlGpu(
                address, uuid, mig_enabled=is_mig_enabled, vgpu_sizes_mixed=has_mixed_sizes
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
        parts = mig.instances(nvml, handle, profiles)
        return replace(
            lasting,
            address=address,
            gpu_instances=parts,
            mig_devices=mig.devices(nvml, handle, profiles, parts or ()),
            mig_remaining=mig.remaining_counts(nvml, handle, profiles),
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
        mig_profiles=() if gpu.mig_enabled is None else mig.profiles(nvml, handle),
        vgpu_types=vgpus.types(nvml, handle, has_mixed_sizes=bool(gpu.vgpu_sizes_mixed)),
        nvlinks=nvlinks.links(nvml, handle, links),
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
