"""`compute-agent doctor`: it finds what is wrong, and changes nothing."""

import json
import os
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import time_machine

from compute_agent.cmd.agent import main as agent
from tests.data.machine_builder import MachineBuilder
from tests.functional.agent.lying_proxy import LyingProxy
from tests.functional.manage.conftest import Operator, Result
from tests.functional.manage.diagnoses import examine, told

pytestmark = pytest.mark.waiting

ROOTS = {"sysfs": "sys", "procfs": "proc"}


@pytest.fixture
def proxy(placement_url: str) -> Iterator[LyingProxy]:
    between = LyingProxy(placement_url)
    yield between
    between.close()


def test_a_host_without_fault_is_fine_and_nothing_is_written(
    online: Operator, proxy: LyingProxy
) -> None:
    online.configure(placement={"endpoint_override": proxy.url})
    result = examine(online, "--json")
    assert result.status == 0
    assert {"placement", "permission", "identity", "CPU sets", "changes"} <= set(
        told(result, "fine")
    )
    writes = [request for request in proxy.requests if not request.startswith("GET")]
    assert writes == ["POST /reshaper"]
    assert told(result, "fine")["identity"].endswith("has no uuid yet; its first start makes one")
    assert online.placement.providers(online.name) == {}
    assert not online.state.exists()


def test_what_the_layout_leaves_out_is_named_with_its_option(online: Operator) -> None:
    captured = {f"{name}_root": f"tests/data/two-cells/{part}" for name, part in ROOTS.items()}
    online.configure(DEFAULT={"compute_driver": "host.HostDriver"}, host=captured)
    result = examine(online)
    assert "[compute]enable_numa_reporting_to_placement = True" in result.out
    assert "[nic]report_vfs = always" in result.out


@pytest.mark.parametrize(("seconds", "words"), [(3600, "ahead of"), (-3600, "behind")])
def test_a_clock_that_differs_from_that_of_placement_is_a_warning(
    online: Operator, seconds: int, words: str
) -> None:
    assert "clock" in told(examine(online, "--json"), "fine")
    with time_machine.travel(time.time() + seconds):
        result = examine(online, "--json")
    assert re.match(
        rf"is 36\d\d s {words} placement's|is 359\d s {words} placement's",
        told(result, "warning")["clock"],
    )


def test_a_disk_that_is_full_or_nearly_so_is_named_with_its_option(
    online: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    statvfs = os.statvfs
    numbers = list(statvfs("/"))
    free_blocks, free_inodes = 4, 7

    def disk(blocks: int, inodes: int) -> None:
        values = [*numbers]
        values[free_blocks], values[free_inodes] = blocks, inodes
        monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(values))

    assert "state_path" in told(examine(online, "--json"), "fine")["disk"]
    disk(0, 5000)
    full = examine(online, "--json")
    assert "nothing can be written" in told(full, "error")["disk"]
    disk(10**9, 0)
    assert "0 inodes: nothing can be written" in told(examine(online, "--json"), "error")["disk"]
    disk(10**9, 20)
    assert "20 inodes: free some" in told(examine(online, "--json"), "warning")["disk"]


@pytest.mark.parametrize(
    ("options", "level", "subject", "words"),
    [
        (
            {"compute": {"enable_numa_reporting_to_placment": True}},
            *("warning", "options", "enable_numa_reporting_to_placement"),
        ),
        (
            {"DEFAULT": {"update_resources_interval": "often"}},
            *("error", "configuration", "often"),
        ),
        ({"compute": {"cpu_shared_set": "900"}}, "error", "CPU sets", ""),
        ({"compute": {"cpu_shared_set": "0-1,900"}}, "warning", "cpu_shared_set", "900"),
        (
            {"devices": {"enabled_mdev_types": "nvidia-99"}},
            *("warning", "enabled_mdev_types", "nvidia-99"),
        ),
    ],
    ids=["misspelt", "of a wrong type", "no CPU", "CPUs that are not there", "no such vGPU"],
)
def test_an_option_that_is_wrong_is_named(
    online: Operator, options: dict[str, dict[str, object]], level: str, subject: str, words: str
) -> None:
    online.configure(**options)
    result = examine(online, "--json")
    assert result.status == {"warning": 1, "error": 2}[level]
    assert words in told(result, level)[subject]


def test_the_permission_to_reshape_is_found_missing(online: Operator, proxy: LyingProxy) -> None:
    online.configure(placement={"endpoint_override": proxy.url})
    proxy.error("POST", "/reshaper", 403)
    result = examine(online, "--json")
    assert result.status == 2
    assert "role service" in told(result, "error")["permission"]


@pytest.mark.parametrize("has_identity", [True, False])
def test_a_placement_that_is_away_is_named_once_and_the_machine_is_examined_anyway(
    offline: Operator, has_identity: bool
) -> None:
    if has_identity:
        offline.state.mkdir()
        (offline.state / "compute_id").write_text(str(uuid.uuid4()))
    result = examine(offline, "--json")
    assert result.status == 2
    assert "no answer" in told(result, "error")["placement"]
    assert result.out.count("no answer") == 1
    assert "CPU sets" in told(result, "fine")


def test_a_name_that_belongs_to_somebody_else_is_an_error(online: Operator) -> None:
    taken = online.placement.new_provider(f"{online.name}_NUMA0")
    result = examine(online, "--json")
    assert result.status == 2
    assert taken in told(result, "error")["names"]


def test_identities_that_disagree_are_an_error(online: Operator) -> None:
    online.state.mkdir()
    (online.state / "compute_id").write_text(str(uuid.uuid4()))
    (online.directory / "compute_id").write_text(str(uuid.uuid4()))
    result = examine(online, "--json")
    assert result.status == 2
    assert "disagree" in told(result, "error")["identity"]


def test_a_gpu_whose_numa_node_nobody_knows_is_a_warning_until_the_operator_says_it(
    online: Operator,
) -> None:
    driver = "tests.functional.manage.drivers.GpuNowhere"
    online.configure(DEFAULT={"compute_driver": driver}, fake={"cells": 2})
    warned = told(examine(online, "--json"), "warning")["NUMA"]
    assert "gpu 0000:20:00.0" in warned
    assert "set [gpu]numa_node_override = 0000:20:00.0=NODE" in warned


@pytest.mark.parametrize(
    ("driver", "entry", "warned"),
    [
        ("nvme", "driver_override", "is bound to nvme"),
        (None, "driver_override", "is unbound"),
        ("vfio-pci", "driver_override", None),
        ("vendor", "vfio-dev", None),
    ],
)
def test_a_device_that_is_not_managed_needs_a_driver_that_passes_it(
    online: Operator, tmp_path: Path, driver: str | None, entry: str, warned: str | None
) -> None:
    function = tmp_path / "sys/bus/pci/devices/0001:80:00.0"
    (function / entry).mkdir(parents=True)
    if driver:
        (function / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    online.configure(
        fake={"nics": 1},
        host={"sysfs_root": tmp_path / "sys"},
        # of the other nothing is known here
        pci={
            "report_in_placement": True,
            "device_spec": '{"vendor_id": "8086", "product_id": "1889", "managed": "no"}',
        },
    )
    found = told(examine(online, "--json"), "warning").get("devices", "")
    assert (warned or "") in found
    assert ("driverctl set-override 0001:80:00.0 vfio-pci" in found) is (warned is not None)
    assert "0001:80:00.1" not in found


@pytest.mark.parametrize(
    ("groups", "sound_driver", "offered", "warned"),
    [
        ((None, None), None, "0000:41:00.0", "no IOMMU group for it"),
        ((7, 7), "snd_hda_intel", "0000:41:00.0", "group 7: 0000:41:00.1 (snd_hda_intel)"),
        ((7, 7), None, "0000:41:00.0", None),
        ((7, 7), "vfio-pci", "0000:41:00.0", None),
        ((7, 7), "pci-stub", "0000:41:00.0", None),
        ((7, 7), "snd_hda_intel", "0000:41:00.*", "2 devices, and share IOMMU group 7"),
        ((7, 8), "snd_hda_intel", "0000:41:00.*", None),
        ((7, 7), "snd_hda_intel", "0000:99:00.0", None),
    ],
)
def test_a_device_needs_an_iommu_group_that_a_guest_can_have(
    online: Operator,
    tmp_path: Path,
    groups: tuple[int | None, int | None],
    sound_driver: str | None,
    offered: str,
    warned: str | None,
) -> None:
    machine = MachineBuilder()
    machine.node(0, cpus="0-3", memory_kib=1 << 20)
    bridge = machine.root_port("0000:40:01.0", numa_node=0, iommu_group=7)
    for function, class_code, group, driver in (
        (0, "030200", groups[0], "nvidia"),
        (1, "040300", groups[1], sound_driver),
    ):
        machine.pci(
            f"0000:41:00.{function}",
            vendor="10de",
            product=f"2f0{function}",
            class_code=class_code,
            driver=driver,
            iommu_group=group,
            below=bridge,
        )
    machine.write(tmp_path)
    online.configure(
        DEFAULT={"compute_driver": "host.HostDriver"},
        host={f"{name}_root": tmp_path / part for name, part in ROOTS.items()},
        pci={"device_spec": json.dumps({"address": offered})},
    )
    found = told(examine(online, "--json"), "warning").get("IOMMU")
    assert (found is not None and warned in found) if warned else found is None


MACHINE_WITHOUT_PLACES = {
    "DEFAULT": {"compute_driver": "tests.functional.manage.drivers.NothingHasAPlace"},
    "fake": {"cells": 2, "gpus": 2, "nics": 2},
}
ADVISED = {
    "GPUs without a place": MACHINE_WITHOUT_PLACES,
    "a GPU without a place beside one that has been given its own": {
        **MACHINE_WITHOUT_PLACES,
        "gpu": {"numa_node_override": "0000:20:00.0=1"},
    },
    "a type of vGPU that is not there": {"devices": {"enabled_mdev_types": "nvidia-99"}},
    "CPUs that are not there": {"compute": {"cpu_shared_set": "0-1,900"}},
    "no CPU that is there": {"compute": {"cpu_shared_set": "900"}},
    "no CPU that is there, by the old name": {"DEFAULT": {"vcpu_pin_set": "900"}},
    "the old name of the CPU set": {"DEFAULT": {"vcpu_pin_set": "0-1,900"}},
    "healing without a list of guests": {
        "DEFAULT": {"compute_driver": "tests.functional.manage.drivers.GuestsUnknown"},
        "compute_agent": {"heal_orphans": True, "instance_source": "nova"},
    },
}


def advised(result: Result) -> list[dict[str, str]]:
    """The settings that are advised."""
    return [
        diagnosis["set"] for diagnosis in json.loads(result.out)["diagnoses"] if "set" in diagnosis
    ]


@pytest.mark.parametrize("case", ADVISED)
def test_advice_that_is_followed_is_a_configuration_that_can_be_used_and_is_not_given_again(
    online: Operator, case: str
) -> None:
    online.configure(**ADVISED[case])
    before = examine(online, "--json")
    assert before.status in (1, 2)
    settings = advised(before)
    assert settings, before.out
    for diagnosis in json.loads(before.out)["diagnoses"]:
        assert len(re.findall(r"\[\w+\]\w+ =", diagnosis["text"])) == ("set" in diagnosis), (
            "what is said in words only could not be followed here"
        )
    for setting in settings:
        assert f"set [{setting['group']}]{setting['option']} = {setting['value']}".rstrip() in (
            before.out
        )
        value = setting["value"].replace("NODE", "1")
        online.configure(**{setting["group"]: {setting["option"]: value}})
    after = examine(online, "--json")
    assert advised(after) == []
    assert told(after, "error") == {}
    config = f"--config-file={online.directory / 'agent.conf'}"
    assert agent.main(["plan", config]) == 6, "it can be started with"


def test_a_reshape_that_is_due_is_a_warning(online: Operator) -> None:
    online.configure(DEFAULT={"compute_driver": "fake.FakeReshapeDriver"})
    assert online.migrate().status == 0
    result = examine(online)
    assert result.status == 1
    assert "reshape" in result.out


def test_a_store_of_disks_that_cannot_be_measured_is_a_warning_until_it_is_set_right(
    online: Operator, tmp_path: Path
) -> None:
    missing = tmp_path / "not-mounted"
    online.configure(DEFAULT={"compute_driver": "host.HostDriver", "instances_path": str(missing)})
    result = examine(online, "--json")
    assert result.status == 1
    assert f"reports no DISK_GB: cannot read {missing}" in told(result, "warning")["layout"]
    missing.mkdir()
    assert "reports no DISK_GB" not in examine(online, "--json").out
