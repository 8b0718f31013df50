"""Logs of commands, which never go into their own result."""

import logging

import pytest

from compute_agent import conf as agent_conf
from compute_agent.cmd.agent import logging_setup


def test_an_error_of_a_command_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logging_setup.set_up_command(agent_conf.new_config([]), verbose=False)
    logging.getLogger("compute_agent.tracker").error("the driver failed")
    captured = capsys.readouterr()
    assert "the driver failed" in captured.err
    assert captured.out == ""


def test_a_command_says_nothing_below_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    logging_setup.set_up_command(agent_conf.new_config([]), verbose=False)
    logging.getLogger("compute_agent.tracker").warning("retried")
    assert "retried" not in capsys.readouterr().err
