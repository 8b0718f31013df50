"""NVML where there is none, and answers that cannot be: only the GPU they are about is unknown.

A real binding is asked in tests/integration/nvml.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Struct

from compute_agent.discovery.nvml import binding
from compute_agent.discovery.nvml.binding import NvmlUnavailable
from compute_agent.discovery.nvml.partitions import plain_name
from compute_agent.discovery.nvml.source import NvmlSource
from tests.unit.discovery.conftest import Machine

WELL = "0000:81:00.0"
ODD = "0000:41:00.0"
OF_A_TYPE = "nvmlVgpuType"
"""Functions that are asked about a type, which both GPUs have."""


def test_a_missing_module_names_the_extra_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    source = NvmlSource()
    with caplog.at_level(logging.INFO):
        first, second = source.read(), source.read()
    assert first == second
    assert first.gpus == ()
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert "'.[nvidia]'" in caplog.text


def test_loading_the_module_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(NvmlUnavailable, match=r"nvidia"):
        binding.load()


def test_a_source_that_never_started_may_be_closed() -> None:
    loads: list[str] = []
    NvmlSource(lambda: loads.append("pynvml")).close()
    assert loads == []


@pytest.mark.parametrize(
    ("slices", "memory_mib", "name"),
    [(1, 4864, "1g.5gb"), (1, 9728, "1g.10gb"), (3, 40192, "3g.40gb"), (7, 81920, "7g.80gb")],
)
def test_profiles_are_named_as_nvidia_names_them(slices: int, memory_mib: int, name: str) -> None:
    assert plain_name(slices, memory_mib) == name


class NVMLError(Exception):
    value = 3


def _not_supported(*_arguments: object) -> Any:
    raise NVMLError


def placements() -> object:
    fields = [(name, object) for name in ("version", "placementSize", "count", "placementIds")]
    return SimpleNamespace(
        _fields_=fields, version=1, placementSize=8, count=2, placementIds=(8, 0)
    )


def answers() -> dict[str, Callable[..., Any]]:
    """What the binding returns for two GPUs, whose handles are 0x10 and 0x11."""
    profile = SimpleNamespace(
        name=b"MIG 1g.10gb", id=19, sliceCount=1, memorySizeMB=9728, instanceCount=2
    )
    part = SimpleNamespace(placement=SimpleNamespace(start=0, size=1), profileId=19, id=3)
    shape = SimpleNamespace(gpuInstanceSliceCount=1, computeInstanceSliceCount=1, memorySizeMB=9728)

    def instances(_gpu: object, _profile: object, handles: Any, count: Any) -> int:
        handles[0], count._obj.value = 1, 1
        return 0

    return {
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: ctypes.c_void_p(0x10 + index),
        "nvmlDeviceGetPciInfo": lambda gpu: SimpleNamespace(
            busId=b"00000000:41:00.0" if gpu.value == 0x10 else "00000000:81:00.0"
        ),
        "nvmlDeviceGetUUID": lambda gpu: f"GPU-{getattr(gpu, 'value', gpu)}",
        "nvmlDeviceGetSerial": lambda _gpu: "1320921",
        "nvmlDeviceGetName": lambda _gpu: "NVIDIA A100",
        "nvmlDeviceGetMigMode": lambda _gpu: (1, 1),
        "nvmlDeviceGetVgpuHeterogeneousMode": lambda _gpu: 1,
        "nvmlDeviceGetNvLinkState": lambda _gpu, number: number == 0 or _not_supported(),
        "nvmlDeviceGetNvLinkRemotePciInfo": lambda *_: SimpleNamespace(busId="00000000:90:00.0"),
        "nvmlDeviceGetNvLinkRemoteDeviceType": lambda *_: 0,
        "nvmlDeviceGetCudaComputeCapability": lambda _gpu: (8, 0),
        "nvmlDeviceGetNumaNodeId": lambda _gpu: 1,
        "nvmlDeviceGetMemoryAffinity": lambda *_: (1, 0),
        "nvmlDeviceGetGpuInstanceProfileInfo": lambda _gpu, number: (
            profile if number == 0 else _not_supported()
        ),
        "nvmlDeviceGetGpuInstances": instances,
        "nvmlGpuInstanceGetInfo": lambda _part: part,
        "nvmlDeviceGetGpuInstanceRemainingCapacity": lambda *_: 1,
        "nvmlDeviceGetMaxMigDeviceCount": lambda _gpu: 1,
        "nvmlDeviceGetMigDeviceHandleByIndex": lambda _gpu, _index: ctypes.c_void_p(0x99),
        "nvmlDeviceGetGpuInstanceId": lambda _device: 3,
        "nvmlDeviceGetComputeInstanceId": lambda _device: 0,
        "nvmlDeviceGetAttributes": lambda _device: shape,
        "nvmlDeviceGetSupportedVgpus": lambda _gpu: [700],
        "nvmlVgpuTypeGetName": lambda _type: "NVIDIA A100-8C",
        "nvmlVgpuTypeGetFramebufferSize": lambda _type: 8 << 30,
        "nvmlVgpuTypeGetGpuInstanceProfileId": lambda _type: 0xFFFFFFFF,
        "nvmlVgpuTypeGetMaxInstances": lambda *_: 10,
        "nvmlVgpuTypeGetMaxInstancesPerVm": lambda _type: 1,
        "nvmlDeviceGetVgpuTypeSupportedPlacements": lambda *_: placements(),
        "nvmlDeviceGetSupportedEventTypes": lambda _gpu: 8,
        "nvmlEventSetCreate": lambda: object(),
        "nvmlDeviceRegisterEvents": lambda *_: None,
        "nvmlEventSetWait_v2": _not_supported,
    }


class Binding:
    """The module of a binding with these functions; all others are not supported."""

    NVMLError = NVMLError
    nvmlEventTypeXidCriticalError = 8  # noqa: N815
    NVML_GPU_INSTANCE_PROFILE_COUNT = 3

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self._functions = {**answers(), **functions}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_ERROR_"):
            return 3 if name == "NVML_ERROR_NOT_SUPPORTED" else hash(name) % 1000 + 1000
        if name.startswith("NVML_"):
            return 0
        if name in ("nvmlInit", "nvmlShutdown"):
            return self._functions.get(name, lambda: None)
        if name.startswith("nvml"):
            return self._functions.get(name, _not_supported)
        raise AttributeError(name)


class UnlikeAnything:
    """Neither a number, a text nor a structure."""


def _raise(error: Exception) -> Any:
    raise error


OF_A_GPU = sorted(
    answers().keys()
    - {
        *("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlEventSetCreate"),
        *("nvmlDeviceRegisterEvents", "nvmlDeviceGetGpuInstances", "nvmlEventSetWait_v2"),
    }
)
ANSWERS: dict[str, Callable[[], Any]] = {
    "an object": UnlikeAnything,
    "a number": lambda: -7,
    "a vast number": lambda: 1 << 70,
    "a text": lambda: "not an address",
    "bytes": lambda: b"\xff\xfe",
    "a list": lambda: ["x"],
    "a structure of texts": lambda: SimpleNamespace(
        **dict.fromkeys(("busId", "id", "name", "start", "size", "placement", "sliceCount"), "x")
    ),
    "nothing": lambda: None,
    "another error": lambda: _raise(OSError("libnvidia-ml.so.1: file too short")),
    "a bare error": lambda: _raise(ValueError()),
}


def read_odd(function: str, answer: Callable[[], Any]) -> Any:
    usual = answers()[function]

    def odd(*arguments: Any) -> Any:
        is_other = bool(arguments) and getattr(arguments[0], "value", 0x10) != 0x10
        return usual(*arguments) if is_other else answer()

    return NvmlSource(lambda: Binding(**{function: odd})).read()


def assert_plain(value: Any) -> None:
    """Facts are numbers, texts and tuples of them, whatever NVML said."""
    if isinstance(value, tuple):
        for part in value:
            assert_plain(part)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            assert_plain(getattr(value, name))
    else:
        assert value is None or isinstance(value, bool | int | str)
        assert not isinstance(value, int) or abs(value) < 1 << 64


def test_gpus_of_which_all_is_reported_are_read_without_a_warning() -> None:
    reading = NvmlSource(Binding).read()
    assert [gpu.address for gpu in reading.gpus] == [ODD, WELL]
    assert reading.warnings == ()
    gpu = reading.gpus[0]
    assert (gpu.mig_devices[0].profile, gpu.mig_remaining) == ("1g.10gb", (("1g.10gb", 1),))
    assert (gpu.vgpu_types[0].placements, gpu.nvlinks[0].remote) == ((0, 8), "0000:90:00.0")  # type: ignore[index]


@pytest.mark.parametrize("kind", ANSWERS)
@pytest.mark.parametrize("function", OF_A_GPU)
def test_an_answer_that_cannot_be_leaves_the_other_gpu_as_it_is(function: str, kind: str) -> None:
    reading = read_odd(function, ANSWERS[kind])
    gpus = {gpu.address: gpu for gpu in reading.gpus}
    for gpu in reading.gpus:
        assert_plain(gpu)
    if not function.startswith(OF_A_TYPE):
        assert gpus[WELL] == NvmlSource(Binding).read().gpus[1]
    if ODD not in gpus:
        (warning, *_more) = reading.warnings
        assert function in warning


@pytest.mark.parametrize(
    ("function", "kind", "value"),
    [
        ("nvmlDeviceGetPciInfo", "a structure of texts", "'x'"),
        ("nvmlDeviceGetNumaNodeId", "a text", "'not an address'"),
        ("nvmlDeviceGetCudaComputeCapability", "a list", "['x']"),
        ("nvmlVgpuTypeGetFramebufferSize", "a text", "'not an address'"),
        ("nvmlDeviceGetUUID", "a number", "-7"),
        ("nvmlDeviceGetName", "another error", "file too short"),
    ],
)
def test_a_warning_names_the_function_and_the_value(function: str, kind: str, value: str) -> None:
    reading = read_odd(function, ANSWERS[kind])
    assert ODD not in [gpu.address for gpu in reading.gpus]
    (warning,) = [text for text in reading.warnings if function in text]
    assert value in warning


@pytest.mark.parametrize("kind", ["a text", "a vast number", "an object", "another error"])
@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetCount", "nvmlInit", "nvmlEventSetWait_v2", "nvmlShutdown"]
)
def test_a_library_that_answers_nothing_usable_ends_no_reading(function: str, kind: str) -> None:
    source = NvmlSource(lambda: Binding(**{function: lambda *_: ANSWERS[kind]()}))
    has_none = function == "nvmlDeviceGetCount" or (function, kind) == ("nvmlInit", "another error")
    assert len(source.read().gpus) == (0 if has_none else 2)
    source.close()


def test_a_module_that_cannot_be_loaded_at_all_is_as_none() -> None:
    def load() -> Any:
        raise OSError("pynvml.py: input/output error")

    assert NvmlSource(load).read().gpus == ()


def test_the_host_is_read_without_the_facts_of_an_odd_gpu(machine: Machine) -> None:
    machine.gpu(ODD)
    pci = SimpleNamespace(busId=b"not an address")
    source = NvmlSource(lambda: Binding(nvmlDeviceGetPciInfo=lambda _gpu: pci))
    topology = machine.discovery(gpu_source=source).discover()
    assert [(gpu.address, gpu.nvml) for gpu in topology.gpus] == [(ODD, False)]
    assert any("'not an address'" in warning for warning in topology.warnings)
