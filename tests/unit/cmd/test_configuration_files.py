"""Options for configuration files, before and after the name of a command."""

import re
from pathlib import Path

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
PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "exit-statuses.md"
ROW = re.compile(r"^\| `([\w-]+)` \| (\d+) \| (\d+) \|", re.MULTILINE)


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


@pytest.mark.parametrize("program", PROGRAMS)
def test_bad_arguments_and_bad_configuration_have_the_statuses_of_the_page(
    program: str, tmp_path, capsys
) -> None:
    main, command = PROGRAMS[program]
    statuses = {row[1]: (int(row[2]), int(row[3])) for row in ROW.finditer(PAGE.read_text())}
    with pytest.raises(SystemExit) as ended:
        main([*command, "--nonsense"])
    unusable = tmp_path / "unusable.conf"
    unusable.write_text("an option without a group\n")
    assert (ended.value.code, main([*command, f"--config-file={unusable}"])) == statuses[program]


@pytest.mark.parametrize(
    ("program", "installed", "read"),
    [
        ("compute-scheduler", ["compute-agent", "compute-scheduler"], "compute-scheduler"),
        ("compute-scheduler", ["compute-agent"], "compute-agent"),
        ("compute-manage", ["compute-agent", "compute-scheduler"], "compute-agent"),
        ("compute-manage", ["compute-scheduler"], "compute-scheduler"),
    ],
)
def test_where_no_file_is_named_the_one_of_what_is_installed_is_read(
    program: str, installed: list[str], read: str, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in installed:
        folder = tmp_path / f".{name}"
        folder.mkdir()
        (folder / f"{name}.conf").write_text("an option without a group\n")
    main, command = PROGRAMS[program]
    assert main(command) != 0
    assert f"{tmp_path}/.{read}/" in capsys.readouterr().err
