"""The examples, run as their README says, with pytest alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_examples_run_with_pytest_alone_as_their_readme_says() -> None:
    readme = (ROOT / "examples" / "README.md").read_text()
    install, run = re.findall(r"^    (\w.*)$", readme, re.MULTILINE)
    assert install.startswith("pip install '.[testing]'")
    done = subprocess.run(
        [sys.executable, "-m", *run.split(), "-p", "no:cacheprovider"],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
