"""A late module is loaded when it is first used, and is then like any other."""

import importlib.util
import sys
import threading
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compute_agent.cmd.late_modules import import_late

_USE = """
import late_package.part
from late_package import part as same_part
assert late_package.part is same_part
def answer(): return same_part.ANSWER, late_package.part.ANSWER
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package of two modules; who loads `part` leaves a line in the file `loads`."""
    folder = tmp_path / "late_package"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "part.py").write_text(
        "from pathlib import Path\nfrom late_package import detail\n"
        "with Path(__file__).with_name('loads').open('a') as loads: loads.write('once ')\n"
        "ANSWER = detail.ANSWER\n"
    )
    (folder / "detail.py").write_text("ANSWER = 42\n")
    (folder / "loads").touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.startswith("late_package")]:
        del sys.modules[name]


def test_a_module_is_loaded_when_it_is_first_used(package):
    import_late("late_package.part")
    library: dict = {}
    exec(_USE, library)
    assert not (package / "loads").read_text()
    assert [library["answer"](), library["answer"]()] == [(42, 42)] * 2
    assert (package / "loads").read_text() == "once "


def test_no_thread_sees_half_of_a_module(package):
    gate = types.ModuleType("late_package.gate")
    gate.loading, gate.second = threading.Event(), threading.Event()
    sys.modules["late_package.gate"] = gate
    (package / "detail.py").write_text(
        "from late_package import gate\n"
        "gate.loading.set()\nassert gate.second.wait(60)\nANSWER = 42\n"
    )
    import_late("late_package.part")
    library: dict = {}
    exec(_USE, library)

    def second() -> object:
        assert gate.loading.wait(60)
        gate.second.set()
        return library["answer"]()

    with ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(library["answer"]), threads.submit(second)]
        assert [answer.result() for answer in answers] == [(42, 42)] * 2


def test_the_module_itself_takes_its_place(package):
    import_late("late_package.part")
    library: dict = {}
    exec(_USE, library)
    library["answer"]()
    import late_package.part  # type: ignore[import-not-found]

    assert late_package.part is sys.modules["late_package.part"]
    assert late_package.part is not library["same_part"]


def test_a_loaded_module_stays_what_it_is(package):
    import late_package.part  # type: ignore[import-not-found]

    import_late("late_package.part")
    assert sys.modules["late_package.part"] is late_package.part
    assert late_package.part.ANSWER == 42


@pytest.mark.parametrize("name", ["absent", "absent.part", "late_package.absent"])
def test_a_module_that_is_missing_is_missed_where_it_is_imported(package, name):
    import_late(name)
    with pytest.raises(ModuleNotFoundError, match="absent"):
        exec(f"import {name}", {})


def test_a_late_module_is_found_by_its_name(package):
    import_late("late_package.part")
    spec = importlib.util.find_spec("late_package.part")
    assert spec.origin == str(package / "part.py")
    assert not (package / "loads").read_text()
