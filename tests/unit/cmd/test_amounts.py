"""Amounts on a command line."""

import pytest

from compute_agent.cmd.placement.arguments import BadInput, amounts, provider_amounts


def test_amounts_are_read_with_either_separator():
    assert amounts(["VCPU=4,MEMORY_MB:512", "DISK_GB=1"]) == {
        "VCPU": 4,
        "MEMORY_MB": 512,
        "DISK_GB": 1,
    }


@pytest.mark.parametrize("text", ["VCPU", "VCPU=", "=4", "VCPU=0", "VCPU=-1", "VCPU=" + "9" * 5000])
def test_what_is_not_an_amount_is_refused(text):
    with pytest.raises(BadInput, match="is not an amount of a resource class"):
        amounts([text])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("host-1:VCPU=4,MEMORY_MB:512", ("host-1", {"VCPU": 4, "MEMORY_MB": 512})),
        ("host:VCPU:4", ("host", {"VCPU": 4})),
        ("host_0000:40:00.0:CUSTOM_GPU_X=1", ("host_0000:40:00.0", {"CUSTOM_GPU_X": 1})),
    ],
)
def test_amounts_of_a_provider_are_read_with_either_separator(text, expected):
    assert provider_amounts(text) == expected


@pytest.mark.parametrize("text", ["host", "host:", "host:4", ":VCPU=4", "host:VCPU=4,MEMORY_MB"])
def test_what_is_not_an_amount_of_a_provider_is_refused(text):
    with pytest.raises(BadInput, match="is not"):
        provider_amounts(text)
