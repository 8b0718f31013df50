"""Reloads that fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from compute_agent.conf import new_config
from compute_agent.daemon import reload
from compute_agent.errors import InvalidConfiguration


@pytest.mark.parametrize("failure", [InvalidConfiguration("[a]b is wrong"), KeyError("b")])
def test_whatever_a_reload_fails_with_is_returned_and_logged_so_that_the_reload_ends(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise failure

    conf = new_config([], default_config_dirs=[])
    trouble = reload.reload(conf, fail)
    assert trouble is not None
    (record,) = caplog.records
    assert trouble.message in record.getMessage()
    assert "b" in trouble.message
    # a traceback is for defects
    assert bool(record.exc_info) is isinstance(failure, KeyError)
    assert reload.reload(conf, lambda: None) is None


def test_a_reload_that_a_wrong_value_fails_asks_for_another_one_and_not_for_a_start(
    tmp_path: Path,
) -> None:
    file = tmp_path / "agent.conf"
    file.write_text("")
    conf = new_config([f"--config-file={file}"])
    file.write_text("[DEFAULT]\nreport_interval = soon\n")
    trouble = reload.reload(conf, lambda: None)
    assert trouble is not None
    assert "[DEFAULT]report_interval" in trouble.message
    assert trouble.message.endswith("Correct them. Then reload again.")
    assert "start" not in trouble.message
