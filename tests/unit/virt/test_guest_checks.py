"""Options that do not fit the guests that run already end the start, naming them."""

from __future__ import annotations

import pytest

from compute_agent import errors
from compute_agent.discovery.facts import PciAddress
from compute_agent.virt.driver import InstanceDevices, MdevUse
from compute_agent.virt.fake import FakeNumaDriver

from .conftest import MakeConf

SETS = "[compute]\ncpu_shared_set = 0-7\ncpu_dedicated_set = 8-15\n"
MDEV = MdevUse("u", PciAddress("0000:20:00.0"), "nvidia-99")


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (InstanceDevices(pinned_cpus=(7, 8)), "guest g is pinned to CPUs 7,"),
        (InstanceDevices(floating_cpus=(6, 7, 8, 9)), "guest g may run on CPUs 8-9"),
        (InstanceDevices(mdevs=(MDEV,)), "guest g holds .* type nvidia-99"),
    ],
)
def test_a_guest_that_no_longer_fits_ends_the_start(
    make_conf: MakeConf, devices: InstanceDevices, reason: str
) -> None:
    driver = FakeNumaDriver(make_conf(SETS))
    driver.spawn("g", devices=devices)
    with pytest.raises(errors.InvalidConfiguration, match=reason):
        driver.init_host("host1")


def test_a_change_of_cpu_sets_can_be_allowed(
    make_conf: MakeConf, caplog: pytest.LogCaptureFixture
) -> None:
    conf = make_conf(f"{SETS}[compute_agent]\nallow_cpu_set_change = True\n")
    driver = FakeNumaDriver(conf)
    driver.spawn("g", devices=InstanceDevices(pinned_cpus=(7,)))
    driver.init_host("host1")
    assert "guest g is pinned to CPUs 7" in caplog.text


@pytest.mark.parametrize("text", ["", SETS])
def test_guests_that_fit_are_no_obstacle(
    make_conf: MakeConf, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    driver = FakeNumaDriver(make_conf(text))
    driver.spawn("g", devices=InstanceDevices(pinned_cpus=(8, 9)))
    driver.spawn("h")
    driver.init_host("host1")
    assert "guest" not in caplog.text
