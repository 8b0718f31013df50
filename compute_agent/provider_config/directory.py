"""The provider config files of a directory, read in the order of their names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compute_agent.provider_config.additions import (
    LOG,
    ProviderConfig,
    ProviderConfigException,
    ProviderConfigs,
)


def load(directory: Path) -> ProviderConfigs:
    """Read every `*.yaml` directly in `directory`, in the order of their names.

    Hidden files are locks and copies of editors.

    :raises ProviderConfigException: a file cannot be read or cannot be right.
    """
    try:
        paths = sorted(
            path
            for path in directory.iterdir()
            if path.name.endswith(".yaml") and not path.name.startswith(".")
        )
    except FileNotFoundError:
        LOG.info("The directory %s does not exist: no provider config files are read.", directory)
        return ProviderConfigs()
    except OSError as error:
        raise ProviderConfigException(
            f"The provider config directory {directory} cannot be read: {error.strerror}. Correct "
            "its permissions or [compute]provider_config_location."
        ) from error
    if not paths:
        LOG.info("The directory %s holds no provider config files (*.yaml).", directory)
        return ProviderConfigs()
    # loaded only when there are files, since importing parser and validator is slow
    from compute_agent.provider_config import file as provider_config_file

    providers: list[ProviderConfig] = []
    for path in paths:
        providers.extend(provider_config_file.read(path))
    _refuse_duplicates(providers)
    return ProviderConfigs(tuple(providers))


def _refuse_duplicates(providers: Sequence[ProviderConfig]) -> None:
    files_by_identity: dict[str, str] = {}
    for provider in providers:
        other = files_by_identity.get(provider.identification)
        if other is not None:
            raise ProviderConfigException(
                f"{other} and {provider.source_file} both have an entry for the provider with "
                f"{provider.identification}. Keep one of them."
            )
        files_by_identity[provider.identification] = provider.source_file
