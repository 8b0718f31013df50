"""Reports of an agent of itself: the cores that fit into the header."""

from __future__ import annotations

import json

from compute_agent.agent.own_report import with_cores
from placement_server.api.extensions.agent_reports import LONGEST

GUEST = "a1b2c3d4-0d0e-4d38-8d2a-6f3f0e1c2b7d"


def test_cores_have_the_first_digits_of_their_guests() -> None:
    cells = [{"id": 1, "cores": [[(0, GUEST), (16, None)]]}]
    assert json.loads(with_cores({"trouble": ""}, cells)) == {
        "trouble": "",
        "cells": [{"id": 1, "cores": [[[0, "a1b2c3d4"], [16, None]]]}],
    }
    assert json.loads(with_cores({"trouble": ""}, [])) == {"trouble": ""}


def test_cores_that_are_too_many_for_a_header_are_left_out() -> None:
    def reported(cores: int) -> str:
        return with_cores({}, [{"id": 0, "cores": [[(cpu, GUEST)] for cpu in range(cores)]}])

    shown = [len(reported(cores)) for cores in range(400)]
    assert 3900 < max(shown) <= LONGEST
    assert reported(399) == "{}"
