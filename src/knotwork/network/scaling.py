"""A layer that scales: (x − centre)/scale with fixed numbers, so that the layers behind it see standardised values."""

# Annotations stay objects: torch.jit.script reads them.
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from knotwork.arrays import read_numbers
from knotwork.errors import NetworkError


class Scaling(nn.Module):
    """(x − centre)/scale, feature by feature: (N, d) → (N, d). Nothing here is trained.

    The numbers stay float64 whatever the network is converted to, and the centre is taken off in float64: a column that
    lies 1e8 stds from zero loses nothing. What comes out has the dtype of the network.

    Parameters
    ----------
    centre, scale : (d,); of the features in front of a network. Behind it, y·std + mean of the responses is
        ``Scaling(-mean / std, 1 / std)``

    Examples
    --------
    >>> layer = Scaling([10.0, 0.0], [2.0, 1.0])
    >>> layer(torch.tensor([[14.0, 3.0]]))
    tensor([[2., 3.]])
    """

    centre: Tensor
    scale: Tensor
    _like: Tensor

    def __init__(self, centre: ArrayLike, scale: ArrayLike) -> None:
        super().__init__()
        numbers = [
            torch.from_numpy(np.array(read_numbers(values, name)))
            for name, values in (("centre", centre), ("scale", scale))
        ]
        shapes = [tuple(values.shape) for values in numbers]
        if shapes[0] != shapes[1] or len(shapes[0]) != 1:
            raise NetworkError(f"centre and scale must be of one shape (d,), got {shapes[0]} and {shapes[1]}")
        if not all(bool(torch.isfinite(values).all()) for values in numbers) or bool((numbers[1] <= 0).any()):
            shown = " and ".join(str(values.tolist()) for values in numbers)
            raise NetworkError(f"centre and scale must be finite and scales positive, got {shown}")
        self.register_buffer("centre", numbers[0])
        self.register_buffer("scale", numbers[1])
        # Goes wherever the network goes, and says which dtype and device that is.
        self.register_buffer("_like", torch.empty(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Scale rows."""
        if not isinstance(x, Tensor):
            raise TypeError(f"a Scaling takes a tensor, got {type(x).__name__}; torch.as_tensor makes one")
        if x.shape[-1:] != self.centre.shape:  # a single column would be broadcast
            raise ValueError(f"a Scaling of {self.centre.shape[0]} features got rows of shape {x.shape}")
        return ((x.to(self.centre.dtype) - self.centre) / self.scale).to(self._like.dtype)

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        centre, scale = self.centre, self.scale
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if not self.centre.is_meta:
            # Some devices have no float64.
            dtype = torch.float32 if self._like.device.type == "mps" else torch.float64
            # On the meta device there were no numbers to keep.
            kept = (self.centre, self.scale) if centre.is_meta else (centre, scale)
            self.centre, self.scale = (v.to(self._like.device, dtype) for v in kept)
        return self

    def extra_repr(self) -> str:
        """Say how many features there are."""
        return f"features={len(self.centre)}"
