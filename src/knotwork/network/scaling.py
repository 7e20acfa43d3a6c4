"""A layer that scales: (x − centre)/scale with fixed numbers, so that the layers behind it see standardised values."""

# Annotations stay objects: torch.jit.script reads them.
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from knotwork.arrays import Floats, read_array, read_numbers
from knotwork.data.coordinates import Coordinates, mean_and_std
from knotwork.data.learn import learn_table
from knotwork.data.limits import Limits, learn_limits, limits_around
from knotwork.data.table import as_frame
from knotwork.data.target_encoding import Response
from knotwork.errors import NetworkError, one_line
from knotwork.parameters import shown

# Features of size one that a unit may read. More of them are made smaller together: an optimiser moves the weights of
# all features at once, and in tables features move together, so that on rows outside the data the steps add up.
MAX_FEATURES = 8


class Scaling(nn.Module):
    """(x − centre)/scale, feature by feature, x clipped to limits if there are any: (N, d) → (N, d).

    Nothing here is trained.

    The numbers stay float64 whatever the network is converted to, and the centre is taken off in float64: a column that
    lies 1e8 stds from zero loses nothing. What comes out has the dtype of the network; behind a network of half
    precision (``back``) it is float32, because prices of 2e5 are beyond float16.

    Parameters
    ----------
    centre, scale : (d,); of the features in front of a network. Behind it, y·std + mean of the responses is
        ``Scaling(-mean / std, 1 / std)``
    lower, upper : (d,) minima and maxima that features are clipped to, both or none; infinite for a feature without.
        Behind a network (``turned_back``) responses are clipped to them, once they are scaled. Their gradient is that
        of a layer without limits, so that training brings clipped rows back

    Examples
    --------
    >>> layer = Scaling([10.0, 0.0], [2.0, 1.0])
    >>> layer(torch.tensor([[14.0, 3.0]]))
    tensor([[2., 3.]])

    A network of your own that is to take raw rows and give raw responses stands between two of them:

    >>> X, y = [[1.0, 2e6], [3.0, 4e6]], [10.0, 30.0]
    >>> net = nn.Sequential(Scaling.of(X), nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1), Scaling.back_to(y))
    >>> net[0](torch.tensor(X)).tolist(), net[-1](torch.tensor([[-1.0], [1.0]])).tolist()
    ([[-1.0, -1.0], [1.0, 1.0]], [[10.0], [30.0]])
    """

    __jit_unused_properties__ = ("limits",)
    centre: Tensor
    scale: Tensor
    lower: Tensor | None
    upper: Tensor | None
    _like: Tensor
    back: bool = False

    def __init__(
        self, centre: ArrayLike, scale: ArrayLike, lower: ArrayLike | None = None, upper: ArrayLike | None = None
    ) -> None:
        super().__init__()
        self.back = False  # whether it turns standardised responses back; build and back_to say so
        numbers = [
            torch.from_numpy(np.array(read_numbers(values, name)))
            for name, values in (("centre", centre), ("scale", scale))
        ]
        shapes = [tuple(values.shape) for values in numbers]
        if shapes[0] != shapes[1] or len(shapes[0]) != 1:
            raise NetworkError(f"centre and scale must be of one shape (d,), got {shapes[0]} and {shapes[1]}")
        if not all(bool(torch.isfinite(values).all()) for values in numbers) or bool((numbers[1] <= 0).any()):
            got = " and ".join(str(values.tolist()) for values in numbers)
            raise NetworkError(f"centre and scale must be finite and scales positive, got {got}")
        limits: list[Tensor | None] = [None, None]
        if lower is not None or upper is not None:
            limits = [_side(side, shapes[0]) for side in (lower, upper)]
            if not bool((limits[0] <= limits[1]).all()):  # type: ignore[operator]  # NaN is not
                raise NetworkError("lower must be at most upper in every feature, got more, or NaN; exchange them")
        self.register_buffer("centre", numbers[0])
        self.register_buffer("scale", numbers[1])
        self.register_buffer("lower", limits[0])
        self.register_buffer("upper", limits[1])
        # Goes wherever the network goes, and says which dtype and device that is.
        self.register_buffer("_like", torch.empty(0), persistent=False)

    @classmethod
    def of(cls, X: Any, y: Any = None, *, extrapolate: str = "clip") -> Self:
        """Return the layer that standardises rows like these: (N, d), an array, a tensor or a data frame.

        y : the responses, (N,) or (N, p), or labels; only text columns of many categories, which become numbers that
            are learned from it, need it
        extrapolate : as in the estimators. "clip" clips features to the range that they have here, less values far
            beyond the bulk of it, so that rows outside are no surprise to the network; "linear" leaves them as they are

        If d > 16, all features are also divided by a power of two near √(d/8): an optimiser moves the weights of all of
        them at once, and its steps add up.

        >>> Scaling.of([[1.0], [3.0]])(torch.tensor([[5.0]])).item()
        1.0
        >>> Scaling.of([[1.0], [3.0]], extrapolate="linear")(torch.tensor([[5.0]])).item()
        3.0
        """
        if not isinstance(extrapolate, str) or extrapolate not in ("clip", "linear"):
            raise NetworkError(f"extrapolate must be 'clip' or 'linear', got {shown(extrapolate)}")
        matrix = _matrix(X, "X", None if y is None else _response(y))
        limits = learn_limits(matrix) if extrapolate == "clip" else None
        matrix = matrix if limits is None else limits.hold(matrix)
        centre, std = mean_and_std(matrix)
        return cls.within(limits, centre, input_scaling(Coordinates.of_features(centre, std, 1)).x_scale)

    @classmethod
    def within(cls, limits: Limits | None, centre: Floats, scale: Floats) -> Self:
        """Return the layer with these limits, None for none.

        >>> Scaling.within(Limits([0.0], [1.0]), [0.0], [0.5])(torch.tensor([[7.0]])).item()
        2.0
        """
        if limits is not None and not isinstance(limits, Limits):
            raise NetworkError(f"limits must be kw.Limits or None, got {shown(limits)}")
        return cls(centre, scale) if limits is None else cls(centre, scale, limits.lower, limits.upper)

    @classmethod
    def back_to(cls, y: Any) -> Self:
        """Return the layer from standardised responses back to ones like these, (N,) or (N, p).

        >>> import torch
        >>> import knotwork as kw
        >>> kw.Scaling.back_to([1.0, 3.0])(torch.tensor([[1.5]])).item()
        3.5
        """
        values = _matrix(y, "y")
        c = Coordinates.of(np.zeros((len(values), 1)), values).inverse
        return cls(c.y_centre, c.y_scale).turned_back()

    def turned_back(self) -> Self:
        """Say that this layer stands behind a network, and return it."""
        self.back = True
        return self

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of what comes out."""
        return self._like.dtype

    @property
    def limits(self) -> Limits | None:
        """The limits that features, or responses, are clipped to."""
        if self.lower is None or self.upper is None:
            return None
        return Limits(self.lower.cpu().numpy(), self.upper.cpu().numpy())

    def forward(self, x: Tensor) -> Tensor:
        """Scale rows."""
        if not isinstance(x, Tensor):
            remedy = (
                "torch.as_tensor(encoder.encode(X)) makes one, with the encoder of net.conversion or of the estimator"
            )
            remedy = remedy if hasattr(x, "columns") else "torch.as_tensor makes one"
            raise TypeError(f"a Scaling takes a tensor, got {type(x).__name__}; {remedy}")
        if self.centre.is_meta and not x.is_meta:
            raise ValueError("a Scaling on the meta device has no numbers, and cannot scale; load its state_dict first")
        if x.is_meta and not self.centre.is_meta:
            raise ValueError("rows on the meta device hold no numbers to scale; move the network there, too")
        if x.shape[-1:] != self.centre.shape:  # a single column would be broadcast
            raise ValueError(f"a Scaling of {self.centre.shape[0]} features got rows of shape {x.shape}")
        rows = x.to(self.centre.dtype)
        dtype = self._like.dtype
        if not self.back:
            return ((self._held(rows) - self.centre) / self.scale).to(dtype)
        if dtype == torch.float16 or dtype == torch.bfloat16:
            dtype = torch.float32
        responses = (rows - self.centre) / self.scale
        held = self._held(responses)
        if self.lower is not None and responses.requires_grad:
            # The gradient is that of responses not held: else a row beyond the limits would stay there. Zero is added,
            # for infinite responses too.
            held = held.detach() + (responses - responses.detach()).nan_to_num(0.0)
        return held.to(dtype)

    def _held(self, x: Tensor) -> Tensor:
        lower, upper = self.lower, self.upper
        if lower is None or upper is None:
            return x
        return torch.minimum(torch.maximum(x, lower), upper)

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        before = {name: getattr(self, name) for name in ("centre", "scale", "lower", "upper")}
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if not self.centre.is_meta:
            # Some devices have no float64.
            dtype = torch.float32 if self._like.device.type == "mps" else torch.float64
            for name, numbers in before.items():
                # On the meta device there were no numbers to keep.
                kept = getattr(self, name) if numbers is not None and numbers.is_meta else numbers
                setattr(self, name, None if kept is None else kept.to(self._like.device, dtype))
        return self

    def extra_repr(self) -> str:
        """Say how many features there are."""
        return f"features={len(self.centre)}" + ("" if self.lower is None else ", held")


def widen_limits_(layer: Scaling, limits: Limits) -> None:
    """Let a layer's values reach as far as these limits, too; a layer without limits holds nothing and stays as it is.

    >>> layer = Scaling.within(Limits([0.0], [1.0]), [0.0], [1.0])
    >>> widen_limits_(layer, Limits([0.5], [4.0]))
    >>> layer.limits
    Limits(lower=array([0.]), upper=array([4.]))
    """
    if layer.limits is None:
        return
    wide = limits_around(layer.limits, limits)
    for held, end in ((layer.lower, wide.lower), (layer.upper, wide.upper)):
        assert held is not None
        held.copy_(torch.from_numpy(np.array(end)))


def _side(values: ArrayLike | None, shape: tuple[int, ...]) -> Tensor:
    """Read the lower or the upper limits."""
    if values is None:
        raise NetworkError("lower and upper must be given together, got one of them; np.inf is no limit")
    side = torch.from_numpy(np.array(read_numbers(values, "limits")))
    if tuple(side.shape) != shape:
        raise NetworkError(f"lower and upper must have the shape of centre, {shape}, got {tuple(side.shape)}")
    return side


def input_scaling(c: Coordinates) -> Coordinates:
    """Return the coordinates of a network's scaling: stds, times a power of two near √(d/8) where features are many.

    >>> [float(input_scaling(Coordinates.identity(d, 1)).x_scale[0]) for d in (1, 16, 17, 107)]
    [1.0, 1.0, 2.0, 4.0]
    """
    size = max(1.0, len(c.x_scale) / MAX_FEATURES)
    return replace(c, x_scale=c.x_scale * 2.0 ** round(np.log2(size) / 2))


def _response(y: Any) -> Response:
    """Read what columns of many categories are encoded by."""
    half = isinstance(y, Tensor) and y.dtype == torch.bfloat16  # which numpy does not have
    values = read_array(y.float() if half else y, "y", NetworkError)
    if values.ndim not in (1, 2) or values.size == 0:
        raise NetworkError(f"y must have shape (N,) or (N, outputs) with at least one row, got {values.shape}")
    if values.dtype.kind in "iuf":
        return Response(values.astype(np.float64).reshape(len(values), -1))
    if values.ndim == 2:
        raise NetworkError(f"labels must have shape (N,), got {values.shape}; pass one column")
    try:
        classes, codes = np.unique(values.astype(str), return_inverse=True)
    except Exception as problem:  # objects of any kind
        raise NetworkError(f"y must hold numbers or labels: {one_line(problem)}") from None
    return Response(codes, tuple(classes.tolist()))


def _matrix(values: Any, name: str, response: Response | None = None) -> Floats:
    """Return rows as float64, (N, d); the text columns of a frame as indicators, one column as (N, 1)."""
    frame = as_frame(values) is not None
    matrix = learn_table(values, response=response)[1] if frame else read_numbers(values, name, NetworkError)
    matrix = matrix[:, None] if matrix.ndim == 1 and name == "y" else matrix
    if matrix.ndim != 2 or matrix.size == 0:
        raise NetworkError(f"{name} must have shape (N, columns) with at least one row, got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise NetworkError(f"{name} must be finite, got NaN or inf; leave those rows out or fill them in")
    return matrix
