"""Options on the CPU of guests, and their contradictions."""

from __future__ import annotations

import pytest

from compute_agent import errors
from compute_agent.discovery.libvirt.connection import LibvirtConnection
from compute_agent.discovery.libvirt.cpu_features import GuestCpuOptions
from compute_agent.virt.libvirt.settings import check_guest_cpu, guest_cpu_options
from tests.unit.virt.conftest import MakeConf

from .readings import hypervisor


def test_without_options_the_host_decides(make_conf: MakeConf) -> None:
    assert guest_cpu_options(make_conf("")) == GuestCpuOptions("kvm")


def test_models_and_flags_are_read(make_conf: MakeConf) -> None:
    conf = make_conf(
        """
        [libvirt]
        cpu_mode = custom
        cpu_models = Haswell, EPYC
        cpu_model_extra_flags = pdpe1gb, +MD-CLEAR, -vmx
        """
    )
    assert guest_cpu_options(conf) == GuestCpuOptions(
        "kvm", "custom", ("Haswell", "EPYC"), ("md-clear", "pdpe1gb"), ("vmx",)
    )


def test_the_former_name_of_the_models_is_read(make_conf: MakeConf) -> None:
    conf = make_conf("[libvirt]\ncpu_mode = custom\ncpu_model = EPYC")
    assert guest_cpu_options(conf).models == ("EPYC",)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("cpu_models = EPYC", r"cpu_models = EPYC is for .*cpu_mode is not set"),
        ("cpu_mode = host-model\ncpu_models = EPYC", "cpu_mode is host-model"),
        ("cpu_mode = custom", "needs .libvirt.cpu_models"),
        ("virt_type = lxc\ncpu_mode = host-model", "virt_type = lxc"),
        ("cpu_model_extra_flags = aes, -aes", "both adds and removes aes"),
        ("cpu_model_extra_flags = a b", "'a b' is not the name of a feature"),
    ],
)
def test_a_contradiction_is_refused_by_the_name_of_its_option(
    make_conf: MakeConf, text: str, fault: str
) -> None:
    with pytest.raises(errors.InvalidConfiguration, match=fault):
        guest_cpu_options(make_conf(f"[libvirt]\n{text}"))


@pytest.mark.parametrize("text", ["cpu_mode = none", "virt_type = lxc"])
def test_flags_that_no_guest_gets_are_warned_of(
    make_conf: MakeConf, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    options = guest_cpu_options(make_conf(f"[libvirt]\n{text}\ncpu_model_extra_flags = aes"))
    assert options.added_features == ()
    assert "cpu_model_extra_flags = aes has no effect" in caplog.text


def test_a_way_to_keep_secrets_of_tpms_is_one_of_three(make_conf: MakeConf) -> None:
    with pytest.raises(errors.InvalidConfiguration, match="supported_tpm_secret_security"):
        make_conf("[libvirt]\nsupported_tpm_secret_security = user, cloud")


def test_guests_that_the_hypervisor_does_not_run_are_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = hypervisor().capabilities
    check_guest_cpu(LibvirtConnection("written:///"), GuestCpuOptions("lxc"), host)
    [record] = caplog.records
    assert "only kvm, qemu" in record.getMessage()


def test_emulated_guests_cannot_have_the_cpu_of_the_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    host = hypervisor().capabilities
    options = GuestCpuOptions("qemu", "host-passthrough")
    check_guest_cpu(LibvirtConnection("written:///"), options, host)
    [record] = caplog.records
    assert "needs virt_type = kvm" in record.getMessage()
