"""Fresh interpreters: CPU and memory of the code that they run."""

import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.parts.servers import keeping_bytecode
from compute_agent.cmd import late_modules
from compute_agent.cmd.agent.main import UNUSED

_OWN: Final = ("placement_server", "compute_agent", "benchmarks", "__main__", "__mp_main__")
_LIST: Final = (
    "import sys; print(' '.join(name for name, module in sys.modules.items() "
    f"if name.partition('.')[0] not in {_OWN!r} and type(module).__name__ != 'LateModule'))"
)
WITHOUT_EXTRAS: Final = (
    "import sys; sys.modules.update(dict.fromkeys(('osprofiler', 'opentelemetry')))\n"
)
"""Code that hides the packages of extras, which others import where they find them."""
_OTHERS: Final = f"""
import contextlib, importlib, sys
names = open(sys.argv[1]).read().split()
sys.modules.update(dict.fromkeys({set(UNUSED)!r}.difference(names)))
exec(open({late_modules.__file__!r}).read()); import_late(*set(LATE).difference(names))
for name in names:
    # parts of packages that only they import
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module(name)
"""
# The usage that the kernel reports of a child begins with the memory of its parent.
_RESIDENT: Final = """
for line in open("/proc/self/status").read().splitlines():
    if line.startswith("VmHWM"):
        open({path!r}, "w").write(line.split()[1])
"""


class Starter:
    """Runs code in fresh interpreters.

    :param directory: of the configuration of placement.
    :param runs: how often; the least of them counts, as other work of the machine only adds.
    """

    def __init__(self, directory: Path, runs: int, python: Path = Path(sys.executable)) -> None:
        self._python = str(python)
        self._directory = directory
        self._environment = {**keeping_bytecode(), "OS_PLACEMENT_CONFIG_DIR": str(directory)}
        self._runs = runs

    def cost(self, code: str, *arguments: str) -> tuple[float, float]:
        """CPU seconds, and the most resident MiB."""
        costs = [self._run(code, arguments) for _ in range(self._runs)]
        return min(cpu for cpu, _ in costs), statistics.median(memory for _, memory in costs)

    def others(self, code: str, also: str = "") -> tuple[float, float]:
        """The same of importing all that the code does, and no more, that is not this project's.

        :param also: what else is unavoidable.
        """
        command = [sys.executable, "-c", f"{WITHOUT_EXTRAS}{code}\n{_LIST}"]
        listing = subprocess.check_output(command, env=self._environment, stderr=subprocess.DEVNULL)
        names = self._directory / "modules"
        names.write_bytes(listing.splitlines()[-1])
        return self.cost(_OTHERS + also, str(names))

    def _run(self, code: str, arguments: tuple[str, ...]) -> tuple[float, float]:
        with open(os.devnull, "wb") as nowhere:
            actions = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), number) for number in (1, 2)]
            resident_path = self._directory / "resident"
            whole_code = f"{WITHOUT_EXTRAS}{code}\n{_RESIDENT.format(path=str(resident_path))}"
            command = [self._python, "-c", whole_code, *arguments]
            pid = os.posix_spawn(self._python, command, self._environment, file_actions=actions)
            _, status, usage = os.wait4(pid, 0)
        if status:
            raise RuntimeError(f"{code!r} ended with {os.waitstatus_to_exitcode(status)}")
        return usage.ru_utime + usage.ru_stime, int(resident_path.read_text()) / 1024
