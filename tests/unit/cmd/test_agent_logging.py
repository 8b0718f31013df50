"""Logs of commands, which never go into their own result."""

import logging
from pathlib import Path

import pytest

from compute_agent import conf as agent_conf
from compute_agent.cmd import logging_setup


def test_errors_alone_are_logged_and_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    logging_setup.set_up_command(agent_conf.new_config([]), verbose=False)
    logging.getLogger("compute_agent.tracker").error("the driver failed")
    logging.getLogger("compute_agent.tracker").warning("retried")
    captured = capsys.readouterr()
    assert "the driver failed" in captured.err
    assert "retried" not in captured.err
    assert captured.out == ""


def test_the_log_file_of_the_daemon_is_left_to_it(tmp_path: Path) -> None:
    conf = agent_conf.new_config([])
    conf.set_override("log_file", str(tmp_path / "agent.log"))
    logging_setup.set_up_command(conf, verbose=False)
    logging.getLogger("compute_agent.tracker").error("the driver failed")
    assert list(tmp_path.iterdir()) == []
