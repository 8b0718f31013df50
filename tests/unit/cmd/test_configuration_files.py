"""Options for configuration files, before and after the name of a command."""

import pytest

from compute_agent.cmd.agent import main as agent
from compute_agent.cmd.manage import main as manage
from compute_agent.cmd.placement import main as placement
from compute_agent.cmd.scheduler import main as scheduler
from placement_server.cmd import manage as placement_manage
from placement_server.cmd import serve, status

PROGRAMS = {
    "compute-agent": (agent.main, ["status"]),
    "compute-manage": (manage.main, ["placement", "audit"]),
    "compute-scheduler": (scheduler.main, ["list", "--host", "a"]),
    "placement": (placement.main, ["provider", "list"]),
    "placement-manage": (placement_manage.main, ["db", "version"]),
    "placement-server": (serve.main, ["serve"]),
    "placement-status": (status.main, ["upgrade", "check"]),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_configuration_file_is_named_before_and_after_the_command(
    program: str, tmp_path, capsys
) -> None:
    main, command = PROGRAMS[program]
    missing = tmp_path / "missing.conf"

    def refusal(*arguments: str) -> tuple[int, str]:
        return main(arguments), capsys.readouterr().err

    before = refusal("--config-file", str(missing), *command)
    assert before == refusal(*command, f"--config-file={missing}")
    assert before[0] != 0
    assert str(missing) in before[1]
