"""Binding of NVML: `pynvml`, loaded when first needed, with its answers and errors as ours.

Whatever a function returns or raises, a caller gets what it expects, None, or one of three errors:
the GPU fell off the bus, NVML has to be started again, or the answer makes no sense.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from compute_agent.discovery.bounded_calls import step
from compute_agent.programs.extra_installation import install_command

LARGEST = (1 << 64) - 1
SHOWN = 80  # characters of an answer that is reported

Binding = Any
"""The module pynvml: untyped, and its functions differ between versions."""


_Fact = TypeVar("_Fact")


class NvmlUnavailable(Exception):
    """NVML cannot be used on this host at present; the message names what is missing."""


class GpuLost(Exception):
    """The GPU fell off the bus: no call about it will work until the host resets it."""


class NvmlStale(Exception):
    """NVML forgot us (the driver was reloaded): start it again and repeat."""


class NvmlMalformed(Exception):
    """A function answered what it never should; the message names it and the value."""


def load() -> Binding:
    """Import the binding; raises NvmlUnavailable, which names the extra that brings it."""
    try:
        return importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable(
            "the Python module pynvml is not installed; for facts about NVIDIA GPUs: "
            f"{install_command('nvidia')}"
        ) from error


class Nvml:
    """One started NVML, with calls that know which failures mean "not reported"."""

    def __init__(self, binding: Binding, warn: Callable[[str], None]) -> None:
        """Start NVML; raises NvmlUnavailable when the library or the driver is missing."""
        self.binding = binding
        self._warn = warn
        step("nvmlInit")
        try:
            binding.nvmlInit()
        except binding.NVMLError as error:
            raise NvmlUnavailable(_why(binding, error)) from error
        except Exception as error:
            raise NvmlUnavailable(f"nvmlInit raised {error!r}") from error
        self._silent = {
            binding.NVML_ERROR_NOT_SUPPORTED,
            binding.NVML_ERROR_FUNCTION_NOT_FOUND,  # the library is older than the binding
            binding.NVML_ERROR_NOT_FOUND,
            binding.NVML_ERROR_NO_DATA,
            binding.NVML_ERROR_TIMEOUT,  # no event is waiting
            binding.NVML_ERROR_DEPRECATED,
            binding.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,  # likewise, for a structure
        }

    def ask(
        self,
        function: str,
        *arguments: Any,
        read: Callable[[Any], _Fact],
        is_numbered: bool = False,
    ) -> _Fact | None:
        """Call `function`; None when the device, driver or library has no answer to it.

        :param read: makes a fact of the answer; whatever it raises is about the answer.
        :param is_numbered: the last argument counts something up, and NVML calls each number
            behind the last that it knows an invalid argument.
        :raises GpuLost: the GPU fell off the bus.
        :raises NvmlStale: NVML has to be started again.
        :raises NvmlMalformed: the answer, or the error, is none that NVML has. Any other failure
            is a warning, the answer is unknown.
        """
        nvml = self.binding
        call = getattr(nvml, function, None)
        if call is None:  # the binding is older than this code
            return None
        step(function)
        try:
            answer = call(*arguments)
        except nvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code == nvml.NVML_ERROR_GPU_IS_LOST:
                raise GpuLost(function) from error
            if code in (nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_DRIVER_NOT_LOADED):
                raise NvmlStale(function) from error
            behind_last = is_numbered and code == nvml.NVML_ERROR_INVALID_ARGUMENT
            if code not in self._silent and not behind_last:
                self._warn(f"NVML: {function}: {error}; treated as unknown")
            return None
        except Exception as error:
            raise NvmlMalformed(f"NVML: {function} raised {error!r}") from error
        try:
            return read(answer)
        except Exception as error:
            shown = repr(answer)[:SHOWN]
            raise NvmlMalformed(f"NVML: {function} returned {shown}: {error}") from error

    def ask_handle(self, function: str, *arguments: Any) -> Any:
        """Like `ask`, for what only other functions understand."""
        return self.ask(function, *arguments, read=lambda answer: answer)

    def ask_text(self, function: str, *arguments: Any) -> str | None:
        """Like `ask`, for a text; None also for an empty one."""
        return self.ask(function, *arguments, read=text_of) or None

    def ask_number(self, function: str, *arguments: Any, most: int = LARGEST) -> int | None:
        """Like `ask`, for a number."""
        return self.ask(function, *arguments, read=lambda answer: number(answer, most))

    def shutdown(self) -> None:
        """Let go of the driver, which cannot be unloaded before. Safe when it is gone already."""
        step("nvmlShutdown")
        try:
            self.binding.nvmlShutdown()
        except Exception as error:  # noqa: BLE001 (nothing depends on it)
            uninitialised = self.binding.NVML_ERROR_UNINITIALIZED
            if getattr(error, "value", None) != uninitialised:
                self._warn(f"NVML: nvmlShutdown: {error!r}")


def _why(binding: Binding, error: Any) -> str:
    reasons = {
        binding.NVML_ERROR_LIBRARY_NOT_FOUND: (
            "libnvidia-ml.so.1 is not installed; it comes with NVIDIA's driver"
        ),
        binding.NVML_ERROR_DRIVER_NOT_LOADED: "NVIDIA's kernel driver is not loaded",
        binding.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
            "library and kernel driver have different versions (the driver was updated);"
            " reload it or reboot"
        ),
        binding.NVML_ERROR_NO_PERMISSION: "this process may not open /dev/nvidiactl",
    }
    return reasons.get(error.value) or f"nvmlInit: {error}"


def text_of(value: Any) -> str:
    """Return a text of NVML, which some releases of its binding give as bytes.

    :raises TypeError: it is neither.
    """
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if not isinstance(text, str):
        raise TypeError(f"{value!r} is not a text")
    return text.strip()


def number(value: Any, most: int = LARGEST) -> int:
    """Return a number of NVML.

    :param most: that it can be.
    :raises TypeError: it is none.
    :raises ValueError: it is larger, or as far below 0.
    """
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is not a number")
    if abs(value) > most:
        raise ValueError(f"{value} is more than {most}")
    return int(value)
