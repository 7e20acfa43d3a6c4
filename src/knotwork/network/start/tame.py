"""Whether a start survives training in the coordinates that a module sees; if not, the line that makes it so.

An optimiser's step is made for inputs and outputs of size one. A step in front of inputs much larger than that moves a
unit off the data, where it dies, and outputs much smaller than that are lost in it; outputs much larger than that are
hardly learnt. Small inputs do no harm. The limits are measured: docs/networks.md has the table.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import Limits
from knotwork.errors import NetworkError
from knotwork.network.chain import flags_kept
from knotwork.network.start.route import Route

# Maximum mean and std of a feature; minimum and maximum std of the response.
X_MEAN, X_STD = 5.0, 10.0
Y_STD = (0.2, 30.0)
# Maximum mean in stds, of a feature or of the response, that single precision still resolves.
RESOLVED = 1e4
# Maximum share of a feature's values that a Scaling may hold at its limits: of its own rows it holds 4 % at most.
MAX_HELD = 0.1
OF_THESE = "it with Scalings of these data at its ends, kw.Scaling.of(X) and kw.Scaling.back_to(y)"
BLURRED = " (which float32 does not resolve)"


def require_held(limits: Limits, rows: Floats, names: tuple[str, ...]) -> None:
    """Refuse a Scaling of other data, which would hold most rows (N, d) at its limits."""
    share = ((rows < limits.lower) | (rows > limits.upper)).mean(axis=0)
    f = int(np.argmax(share))
    if share[f] > MAX_HELD:
        raise NetworkError(
            f"a Scaling holds features at the range of the rows it was made for, '{names[f]}' lies outside it in "
            f"{share[f]:.0%} of these; initialise {OF_THESE}"
        )


def require_tame(
    module: nn.Module, c: Coordinates, seen: Coordinates, names: tuple[str, ...], route: Route, rows: Tensor,
    *, regression: bool, by_response: bool = False,
) -> None:  # fmt: skip
    """Refuse features or responses that training would not survive, with the line to add.

    ``c`` are the coordinates of the data, ``seen`` those that the layers compute in; ``rows`` are some for the module
    to run on. ``by_response`` says that some features are learned from the response.
    """
    relative = c.relative_to(seen)
    means, stds = np.abs(relative.x_centre), relative.x_scale
    far = means > RESOLVED * stds if _single(route) else np.zeros(len(means), dtype=bool)
    if route.x_scaling is None and _single(route):  # a BatchNorm in front gets the rows in single precision too
        far |= np.abs(c.x_centre) > RESOLVED * c.x_scale
    wild = np.flatnonzero((means > X_MEAN) | (stds > X_STD) | far)
    y_std, y_mean = relative.y_scale, np.abs(relative.y_centre)
    wrong = (y_std < Y_STD[0]) | (y_std > Y_STD[1])
    lost = y_mean > RESOLVED * y_std if _single(route) else np.zeros(len(y_std), dtype=bool)
    wild_y = regression and bool((wrong | lost).any())
    if not wild.size and not wild_y:
        return
    got = []
    if wild.size:
        f = wild[np.argmax(np.maximum(means[wild] / X_MEAN, stds[wild] / X_STD))]
        blurred = bool(means[f] <= X_MEAN and stds[f] <= X_STD)
        of = c if blurred else relative
        got.append(f"'{names[f]}' with mean {of.x_centre[f]:.3g} and std {of.x_scale[f]:.3g}{BLURRED * blurred}")
    if wild_y:
        blurred = not wrong.any()
        k = int(np.argmax(lost if blurred else wrong))
        got.append(f"a response with mean {relative.y_centre[k]:.3g} and std {y_std[k]:.3g}{BLURRED * blurred}")
    raise NetworkError(
        f"a start survives training where the module sees features with means up to {X_MEAN:g} and stds up to "
        f"{X_STD:g} and responses with stds from {Y_STD[0]:g} to {Y_STD[1]:g}, got {' and '.join(got)}; initialise "
        f"{_line(module, route, rows, x=bool(wild.size), y=wild_y, by_response=by_response)}"
    )


def _single(route: Route) -> bool:
    return route.first.weight.dtype == torch.float32


def _line(module: nn.Module, route: Route, rows: Tensor, *, x: bool, y: bool, by_response: bool) -> str:
    """Return the line to add: the module between Scalings made for these data."""
    if (x and route.x_scaling is not None) or (y and route.y_scaling is not None):
        return OF_THESE
    parts = ["kw.Scaling.of(X, y)" if by_response else "kw.Scaling.of(X)"] * x + ["module"]
    if y:
        with flags_kept(module), torch.no_grad():
            out = module.eval()(rows[:2])
        if isinstance(out, Tensor) and out.dim() == 1:  # a Scaling takes columns
            parts.append("nn.Unflatten(0, (-1, 1))")
        parts.append("kw.Scaling.back_to(y)")
    double = "" if _single(route) else ".double()"
    return f"module = nn.Sequential({', '.join(parts)}){double}"
