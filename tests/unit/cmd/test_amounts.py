"""Amounts on a command line."""

import pytest

from compute_agent.cmd.placement.arguments import amounts
from compute_agent.cmd.placement.errors import BadInput


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
