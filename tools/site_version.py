"""The version of the code in the title and the footer of the documentation's site."""

import re
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Add the version to what every page shows."""
    package = Path(config.config_file_path).with_name("compute_agent") / "__init__.py"
    (version,) = re.findall(r'^__version__ = "(.+)"$', package.read_text(), re.MULTILINE)
    config.site_name = f"{config.site_name} {version}"
    config.copyright = f"compute-agent {version}, Apache-2.0"
    return config
