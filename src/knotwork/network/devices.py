"""Where a network runs: a device by its name, if this machine has it."""

from __future__ import annotations

from typing import Any

import torch

from knotwork.errors import NetworkError, one_line


def read_device(device: Any) -> torch.device:
    """Return a device that is there; None is the CPU.

    >>> read_device(None)
    device(type='cpu')
    """
    try:
        found = torch.device("cpu" if device is None else device)
        if found.type == "meta":
            raise RuntimeError("it holds no values")
        torch.zeros(1, device=found)
    except (RuntimeError, AssertionError, TypeError, ValueError, NotImplementedError) as error:
        raise NetworkError(
            f"device must name a device of this machine, {device!r} cannot be used ({one_line(error, 120)}); "
            f"leave it out for the CPU"
        ) from None
    return found
