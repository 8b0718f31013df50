"""The source on the real `pynvml`, above a library that answers from a file."""

from __future__ import annotations

import ctypes.util
import re
from typing import Any

import pytest

from tests.integration.nvml.conftest import ROOT, Reader

Answers = dict[str, object]

GPU_IS_LOST = "!15"
INVALID_ARGUMENT = "!2"
DRIVER_NOT_LOADED = "!9"
UNINITIALIZED = "!1"
UNKNOWN = "!999"

PLAIN: Answers = {
    "gpus": 1,
    "gpu.0.pci": "00000000:84:00.0",
    "gpu.0.uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "gpu.0.name": "NVIDIA A100-SXM4-80GB",
    "gpu.0.capability": "8.0",
    "gpu.0.near_node": 1,
    "gpu.0.mig_mode": "0 0",
}
MIG: Answers = {
    **PLAIN,
    "gpu.0.mig_mode": "1 1",
    "gpu.0.max_mig": 7,
    "gpu.0.mig.0.uuid": "MIG-b",
    "gpu.0.mig.0.name": "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
    "gpu.0.mig.0.gpu_instance": 2,
    "gpu.0.mig.0.compute_instance": 0,
    "gpu.0.mig.0.attributes": "3 3 40192",
    "gpu.0.mig.3.uuid": "MIG-a",
    "gpu.0.mig.3.name": "NVIDIA A100-SXM4-80GB",  # an older driver
    "gpu.0.mig.3.gpu_instance": 1,
    "gpu.0.mig.3.compute_instance": 0,
    "gpu.0.mig.3.attributes": "1 1 9728",
    "profile.0.shape": "19 1 7 9728",
    "profile.0.name": "MIG 1g.10gb",
    "profile.2.shape": "9 3 2 40192",
    "profile.2.name": "MIG 3g.40gb",
}
VGPU: Answers = {
    **PLAIN,
    "gpu.0.types": "700 474",
    "type.474.name": "GRID A100-1-5C",
    "type.474.class": "Compute",
    "type.474.framebuffer_mib": 5120,
    "type.474.max": 7,
    "type.474.per_guest": 1,
    "type.474.profile": 19,
    "type.700.name": "NVIDIA A100-8C",
    "type.700.class": "Compute",
    "type.700.framebuffer_mib": 8192,
    "type.700.max": 10,
    "type.700.profile": "0xFFFFFFFF",
}


TWO: Answers = {
    **PLAIN,
    "gpus": 2,
    "gpu.1.pci": "00000000:85:00.0",
    "gpu.1.uuid": "GPU-2",
}


def only(reading: dict[str, Any]) -> dict[str, Any]:
    (gpu,) = reading["gpus"]
    assert isinstance(gpu, dict)
    return gpu


def test_a_gpu_is_read_with_its_normalised_address(reader: Reader) -> None:
    gpu = only(reader.read(PLAIN))
    assert gpu["address"] == "0000:84:00.0"
    assert gpu["uuid"] == PLAIN["gpu.0.uuid"]
    assert gpu["model"] == "NVIDIA A100-SXM4-80GB"
    assert gpu["compute_capability"] == [8, 0]
    assert gpu["near_cells"] == [1]
    assert gpu["mig_enabled"] is False


def test_what_a_device_does_not_support_is_unknown_without_a_warning(reader: Reader) -> None:
    reading = reader.read({"gpus": 1, "gpu.0.pci": "00000000:84:00.0"})
    gpu = only(reading)
    assert [gpu[name] for name in ("uuid", "serial", "model")] == [None] * 3
    assert (gpu["mig_enabled"], gpu["memory_cell"], gpu["vgpu_types"]) == (None, None, [])
    assert [gpu[name] for name in ("gpu_instances", "nvlinks", "vgpu_sizes_mixed")] == [None] * 3
    assert reading["warnings"] == []


def test_the_gpus_own_memory_is_not_where_it_is(reader: Reader) -> None:
    gpu = only(reader.read({**PLAIN, "gpu.0.memory_node": 9}))
    assert (gpu["memory_cell"], gpu["near_cells"]) == (9, [1])


def test_mig_devices_and_profiles_are_read(reader: Reader) -> None:
    gpu = only(reader.read(MIG))
    assert gpu["mig_enabled"]
    profiles = [
        (profile["name"], profile["profile_id"], profile["max_instances"])
        for profile in gpu["mig_profiles"]
    ]
    assert profiles == [("1g.10gb", 19, 7), ("3g.40gb", 9, 2)]
    devices = [(device["uuid"], device["profile"]) for device in gpu["mig_devices"]]
    assert devices == [("MIG-a", "1g.10gb"), ("MIG-b", "3g.40gb")]


def test_a_compute_instance_smaller_than_its_slice_is_named_so(reader: Reader) -> None:
    answers = {**MIG, "gpu.0.mig.0.name": "NVIDIA A100", "gpu.0.mig.0.attributes": "3 1 40192"}
    gpu = only(reader.read(answers))
    assert gpu["mig_devices"][1]["profile"] == "1c.3g.40gb"


def test_switching_mig_on_is_seen_by_the_next_reading(reader: Reader) -> None:
    assert only(reader.read(PLAIN))["mig_devices"] == []
    assert len(only(reader.read(MIG))["mig_devices"]) == 2


def test_vgpu_types_are_read(reader: Reader) -> None:
    gpu = only(reader.read(VGPU))
    first, second = gpu["vgpu_types"]
    assert (first["id"], first["max_instances"], first["gpu_instance_profile"]) == (
        "nvidia-474",
        7,
        19,
    )
    assert (first["framebuffer_mib"], first["max_instances_per_guest"]) == (5120, 1)
    assert (second["id"], second["gpu_instance_profile"]) == ("nvidia-700", None)


PARTS: Answers = {
    **MIG,
    "gpu.0.parts": 1,
    "gpu.0.part.19": "1:6:1",
    "gpu.0.part.9": "2:0:4",
    "gpu.0.remaining.19": 2,
    "gpu.0.remaining.9": 0,
}


def test_slices_are_read_with_their_place_and_with_what_could_still_be_made(reader: Reader) -> None:
    gpu = only(reader.read(PARTS))
    places = [(piece["uuid"], piece["start"], piece["size"]) for piece in gpu["mig_devices"]]
    assert places == [("MIG-a", 6, 1), ("MIG-b", 0, 4)]
    parts = [(part["profile_id"], part["start"]) for part in gpu["gpu_instances"]]
    assert parts == [(9, 0), (19, 6)]
    assert gpu["mig_remaining"] == [["1g.10gb", 2], ["3g.40gb", 0]]


def test_a_layout_of_slices_that_changes_is_seen_by_the_next_reading(reader: Reader) -> None:
    reader.read(PARTS)
    gpu = only(reader.read({**PARTS, "gpu.0.part.19": "1:6:1 5:5:1", "gpu.0.remaining.19": 1}))
    assert [part["start"] for part in gpu["gpu_instances"]] == [0, 5, 6]
    assert gpu["mig_remaining"][0] == ["1g.10gb", 1]


NO_PERMISSION = "!4"


def test_to_others_than_root_the_parts_are_unknown_and_one_warning_says_why(reader: Reader) -> None:
    refused = {**PARTS, "gpu.0.parts": NO_PERMISSION, "gpu.0.remaining.19": NO_PERMISSION}
    reading = reader.read({**refused, "gpu.0.remaining.9": NO_PERMISSION})
    gpu = only(reading)
    assert (gpu["gpu_instances"], gpu["mig_remaining"]) == (None, [])
    assert [piece["start"] for piece in gpu["mig_devices"]] == [None, None]
    assert ["GpuInstances" in reading["warnings"][0], len(reading["warnings"])] == [True, 2]


MIXED: Answers = {
    **VGPU,
    "gpu.0.mixed": 1,
    "type.700.placements": "8 0 16 32 8",
    "type.474.per_part": 4,
}


def test_sizes_that_are_mixed_have_places_of_their_own(reader: Reader) -> None:
    gpu = only(reader.read(MIXED))
    backed, shared = gpu["vgpu_types"]
    assert gpu["vgpu_sizes_mixed"] is True
    assert (shared["placements"], shared["placement_size"]) == ([0, 8, 16, 32], 8)
    assert (backed["placements"], backed["max_instances_per_gpu_instance"]) == ([], 4)


@pytest.mark.parametrize(("mode", "mixed"), [("0", False), ("!3", None)])
def test_sizes_that_are_not_mixed_have_none(reader: Reader, mode: str, mixed: bool | None) -> None:
    reader.read(MIXED)
    gpu = only(reader.read({**MIXED, "gpu.0.mixed": mode}))
    assert gpu["vgpu_sizes_mixed"] is mixed
    assert [kind["placements"] for kind in gpu["vgpu_types"]] == [[], []]


LINKED: Answers = {
    **TWO,
    "gpu.0.links": 4,
    "gpu.0.link.0": "0 00000000:85:00.0",
    "gpu.0.link.2": "0 00000000:85:00.0",
    "gpu.0.link.3": "2 00000000:A5:00.0",
}


def test_nvlinks_are_counted_by_the_device_they_lead_to(reader: Reader) -> None:
    reading = reader.read(LINKED)
    first, second = reading["gpus"]
    links = [(link["remote"], link["kind"], link["links"]) for link in first["nvlinks"]]
    assert links == [("0000:85:00.0", "gpu", 2), ("0000:a5:00.0", "switch", 1)]
    assert second["nvlinks"] is None
    assert reading["warnings"] == []


def test_a_link_that_comes_up_later_is_seen_then(reader: Reader) -> None:
    reader.read({**TWO, "gpu.0.links": 4})
    assert len(reader.read(LINKED)["gpus"][0]["nvlinks"]) == 2


def test_reading_twice_gives_equal_facts(reader: Reader) -> None:
    assert reader.read(VGPU)["gpus"] == reader.read(VGPU)["gpus"]


def test_without_the_library_there_are_no_facts_and_one_line(
    reader_without_library: Reader,
) -> None:
    if ctypes.util.find_library("nvidia-ml") is not None:
        pytest.skip("this machine has NVIDIA's own libnvidia-ml; the test wants one without")
    first = reader_without_library.read(PLAIN)
    second = reader_without_library.read(PLAIN)
    assert first["gpus"] == second["gpus"] == []
    (said,) = second["said"]
    assert "libnvidia-ml.so.1 is not installed" in said


def test_a_driver_that_is_loaded_later_is_found_then(reader: Reader) -> None:
    without = reader.read({**PLAIN, "init": DRIVER_NOT_LOADED})
    assert without["gpus"] == []
    assert "driver is not loaded" in without["said"][0]
    assert only(reader.read(PLAIN))["model"] == "NVIDIA A100-SXM4-80GB"


def test_a_reloaded_driver_costs_nothing_but_a_restart_of_nvml(reader: Reader) -> None:
    reader.read(PLAIN)
    reading = reader.read({**PLAIN, "gpus": UNINITIALIZED})
    assert reading["gpus"] == []
    assert "goes away" in reading["said"][-1]
    assert len(reader.read(PLAIN)["gpus"]) == 1


@pytest.mark.parametrize("call", ["handle", "uuid", "mig_mode"])
def test_a_lost_gpu_is_out_and_the_others_stay(reader: Reader, call: str) -> None:
    assert len(reader.read(TWO)["gpus"]) == 2
    reading = reader.read({**TWO, f"gpu.0.{call}": GPU_IS_LOST})
    assert only(reading)["address"] == "0000:85:00.0"
    assert reading["lost"] == ["0000:84:00.0"]
    assert "0000:84:00.0 is lost" in reading["warnings"][0]


def test_a_lost_gpu_stays_out_until_nvml_sees_it_again(reader: Reader) -> None:
    reader.read(TWO)
    reader.read({**TWO, "gpu.0.uuid": GPU_IS_LOST})
    gone = {
        key.replace("gpu.1.", "gpu.0."): value for key, value in TWO.items() if "gpu.0" not in key
    }
    assert reader.read({**gone, "gpus": 1})["lost"] == ["0000:84:00.0"]
    back = reader.read(TWO)
    assert back["lost"] == []
    assert len(back["gpus"]) == 2


def test_an_unusual_error_makes_one_fact_unknown_and_is_named(reader: Reader) -> None:
    reading = reader.read({**PLAIN, "gpu.0.serial": UNKNOWN})
    assert only(reading)["serial"] is None
    assert only(reading)["uuid"] is not None
    assert "nvmlDeviceGetSerial: Unknown Error" in reading["warnings"][0]


def test_what_stays_unknown_is_named_by_each_reading(reader: Reader) -> None:
    answers = {**PLAIN, "gpu.0.serial": UNKNOWN}
    assert reader.read(answers)["warnings"] == reader.read(answers)["warnings"] != []


H200: Answers = {
    "gpus": 1,
    "gpu.0.pci": "00000000:00:06.0",
    "gpu.0.uuid": "GPU-11111111-2222-3333-4444-555555555555",
    "gpu.0.serial": "1650000000000",
    "gpu.0.name": "NVIDIA H200",
    "gpu.0.capability": "9.0",
    "gpu.0.near_node": 0,
    "gpu.0.mig_mode": "0 0",
    "gpu.0.event_types": 65439,
    "profile.0.shape": "19 1 7 16384",
    "profile.0.name": "MIG 1g.18gb",
    "profile.1.shape": "14 2 3 33280",
    "profile.1.name": "MIG 2g.35gb",
    "profile.2.shape": "9 3 2 71424",
    "profile.2.name": "MIG 3g.71gb",
    "profile.3.shape": "5 4 1 71424",
    "profile.3.name": "MIG 4g.71gb",
    "profile.4.shape": "0 7 1 143360",
    "profile.4.name": "MIG 7g.141gb",
    "profile.7.shape": "20 1 1 16384",
    "profile.7.name": "MIG 1g.18gb+me",
    "profile.9.shape": "15 1 4 33280",
    "profile.9.name": "MIG 1g.35gb",
    "profile.17.shape": INVALID_ARGUMENT,
}
"""What an H200 answered, passed through to a virtual machine, with driver 580.159.04, which knows
17 numbers of profiles, and a binding that knows 18; uuid and serial number are not its own."""


def test_an_h200_is_read_without_a_warning(reader: Reader) -> None:
    reading = reader.read(H200)
    gpu = only(reading)
    assert (gpu["model"], gpu["compute_capability"]) == ("NVIDIA H200", [9, 0])
    assert {profile["name"]: profile["max_instances"] for profile in gpu["mig_profiles"]} == {
        "1g.18gb": 7,
        "1g.18gb+me": 1,
        "1g.35gb": 4,
        "2g.35gb": 3,
        "3g.71gb": 2,
        "4g.71gb": 1,
        "7g.141gb": 1,
    }
    assert reading["warnings"] == []


WATCHED: Answers = {**TWO, "gpu.0.event_types": 0x18, "gpu.1.event_types": 0x18}
FIRST = "0000:84:00.0"


def broken(reading: dict[str, Any]) -> dict[str, int]:
    return {
        gpu["address"]: gpu["critical_xid"]
        for gpu in reading["gpus"]
        if gpu["critical_xid"] is not None
    }


@pytest.mark.parametrize("xid", [48, 79, 94, 95])
def test_an_xid_that_breaks_a_gpu_is_told_until_it_is_forgotten(reader: Reader, xid: int) -> None:
    assert broken(reader.read(WATCHED)) == {}
    struck = {**WATCHED, "events": f"0:{xid}"}
    assert broken(reader.read(struck)) == {FIRST: xid}
    assert broken(reader.read(struck)) == {FIRST: xid}, "NVML tells it once, the source keeps it"
    reader.forget(FIRST)
    assert broken(reader.read(struck)) == {}


def test_an_xid_of_a_program_breaks_nothing(reader: Reader) -> None:
    reader.read(WATCHED)
    assert broken(reader.read({**WATCHED, "events": "0:13 1:31 0:43"})) == {}


def test_several_events_since_the_last_reading_are_all_seen(reader: Reader) -> None:
    reader.read(WATCHED)
    reading = reader.read({**WATCHED, "events": "0:13 1:95 0:48"})
    assert broken(reading) == {FIRST: 48, "0000:85:00.0": 95}
    assert reading["warnings"] == []


def test_a_gpu_that_knows_no_events_is_read_as_before(reader: Reader) -> None:
    reader.read(TWO)
    reading = reader.read({**TWO, "events": "0:79"})
    assert len(reading["gpus"]) == 2
    assert broken(reading) == {}
    assert reading["warnings"] == []


def test_a_gpu_that_fell_off_the_bus_is_still_broken_when_it_is_back(reader: Reader) -> None:
    reader.read(WATCHED)
    reading = reader.read({**WATCHED, "events": "0:79", "gpu.0.uuid": GPU_IS_LOST})
    assert reading["lost"] == [FIRST]
    assert broken(reader.read({**WATCHED, "events": "0:79"})) == {FIRST: 79}


def test_the_binding_has_all_functions_that_are_asked_for() -> None:
    """An older binding answers nothing, as a device without the feature does."""
    pynvml = pytest.importorskip("pynvml")
    sources = (ROOT / "compute_agent/discovery/nvml").glob("*.py")
    names = {name for path in sources for name in re.findall(r'"(nvml\w+)"', path.read_text())}
    assert "nvmlDeviceGetVgpuTypeSupportedPlacements" in names
    assert [name for name in sorted(names) if not hasattr(pynvml, name)] == []
