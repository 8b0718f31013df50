"""The fast-forward upgrade of a host, by the commands of the page about upgrades."""

from __future__ import annotations

import json

import pytest

from tests.functional.documentation.shell_blocks import BlocksToRun, commands_of
from tests.functional.manage.conftest import Operator, Result
from tests.functional.manage.reshaping_host import occupied, sums, will_report

pytestmark = pytest.mark.waiting

PROGRAM = ["compute-manage", "placement", "migrate_compute_inventory"]
FILE = "/etc/placement/placement.conf"


def test_the_step_of_each_host_is_safe_whatever_is_to_do(offline: Operator) -> None:
    blocks = BlocksToRun("with a database and no service")
    look, do = commands_of(blocks.next_of("do/upgrades"))
    assert not blocks.left
    guests = occupied(offline)
    before = [sums(offline, guest) for guest in guests]
    report = offline.directory / "moved.json"

    def run(words: list[str]) -> Result:
        assert words[:5] == [*PROGRAM, "--placement-config", FILE]
        # the operator of the test has a file of its own
        return offline.migrate(
            *(word.replace("/root/moved.json", str(report)) for word in words[5:])
        )

    will_report(offline, "nested")
    assert run(look).status == 6
    will_report(offline, "nested")
    assert run(do).status == 0
    assert json.loads(report.read_text())["nodes"][0]["consumers"] == len(guests)
    assert [sums(offline, guest) for guest in guests] == before
    for words in (look, do):
        will_report(offline, "nested")
        assert run(words).status == 0
