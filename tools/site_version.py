"""The version of the code in the title and the footer of the documentation's site."""

from configparser import ConfigParser
from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Add the version of `setup.cfg` to what every page shows."""
    metadata = ConfigParser()
    metadata.read(Path(config.config_file_path).with_name("setup.cfg"))
    version = metadata["metadata"]["version"]
    config.site_name = f"{config.site_name} {version}"
    config.copyright = f"compute-agent {version}, Apache-2.0"
    return config
