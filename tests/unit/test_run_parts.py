"""A part of the system that the workers of a run share."""

import subprocess
import sys

import pytest

from tests.fixtures.run_parts import RunPart

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def part(tmp_path):
    processes = []

    def start():
        processes.append(subprocess.Popen(SLEEP))
        directory = tmp_path / f"state{len(processes)}"
        directory.mkdir()
        return {"pid": processes[-1].pid, "directory": str(directory)}

    yield RunPart("sleeper", tmp_path, start), processes
    for process in processes:
        process.kill()
        process.wait()


def test_a_part_is_started_once_and_ended_by_the_last_to_leave(part, tmp_path):
    shared, processes = part
    with shared.used() as first:
        with shared.used() as second:
            assert first == second
        assert processes[0].poll() is None
    assert processes[0].wait(0) is not None
    assert len(processes) == 1
    assert not (tmp_path / "state1").exists()


def test_what_is_not_installed_is_skipped_and_fails_in_ci(pytester, monkeypatch):
    pytester.makepyfile("""
        import pytest
        @pytest.mark.skipif(True, reason="no gcc (Debian package: gcc)")
        def test_marked(): pass
        def test_installed(): pytest.skip("nova is not installed (let pip reach an index)")
        def test_rights(): pytest.skip("needs root")
    """)
    arguments = ("-p", "tests.fixtures.needs", "-p", "no:cacheprovider")
    monkeypatch.delenv("CI", raising=False)
    pytester.runpytest(*arguments).assert_outcomes(skipped=3)
    monkeypatch.setenv("CI", "1")
    pytester.runpytest(*arguments).assert_outcomes(failed=1, errors=1, skipped=1)


def test_it_is_ended_when_what_used_it_fails(part):
    shared, processes = part
    with pytest.raises(ZeroDivisionError), shared.used():
        raise ZeroDivisionError
    assert processes[0].wait(0) is not None


def test_what_a_killed_worker_left_is_ended_with_the_run(pytester, part, tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    shared, processes = part
    shared.used().__enter__()
    base = tmp_path / "run"
    pytester.makepyfile("def test_nothing(): pass")
    (tmp_path / "sleeper.part").rename(tmp_path / "kept")
    pytester.makeconftest(
        "import pytest, shutil\n"
        "@pytest.fixture(scope='session', autouse=True)\n"
        "def left(tmp_path_factory):\n"
        f"    shutil.copy({str(tmp_path / 'kept')!r}, "
        "tmp_path_factory.getbasetemp() / 'sleeper.part')\n"
    )
    pytester.runpytest_inprocess("-p", "tests.fixtures.run_parts", f"--basetemp={base}")
    assert processes[0].wait(0) is not None
    assert not (tmp_path / "state1").exists()
