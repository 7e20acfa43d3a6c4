"""with_spline: any module plus a spline, spline(x) + gate·module(x), with a gate that is zero at first.

For networks that cannot hold a spline in their own weights: LayerNorm, Tanh, attention, several output axes. The sum
begins as the spline, whatever the module computes, and both parts train.
"""

# Annotations stay objects: torch.jit.script reads them.
import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import torch
from torch import Tensor, nn

from knotwork.errors import NetworkError, one_line
from knotwork.network.chain import Chain, Conversion, Layer, build, enough_for, flags_kept
from knotwork.network.compile.convert import model_chain, resolve_network
from knotwork.network.ready import HOMOGENEOUS
from knotwork.network.scaling import Scaling
from knotwork.parameters import checked, shown, switch

# Stds from the mean at which rows are limited on their way into the module: a lone value far out would otherwise decide
# what it gives there, and with it the first steps.
LIMIT = 3.0
# A power of two, so that no bit of the function changes. Chosen on tables that own_loop.py lacks: with 1, one of eight
# diverged under SGD; with 4, the networks learned less.
GAIN = 2.0


@checked(freeze=switch())
def with_spline(
    module: nn.Module,
    model: Any,
    *,
    freeze: bool = False,
    reduce: int | Sequence[int] | Callable[[Tensor], Tensor] | None = None,
) -> "WithSpline":
    """Return a module that computes spline(x) + gate·module(x), with a gate per output that is zero at first.

    It takes raw rows and gives raw responses. The module inside sees standardised rows (limited softly beyond 3 stds),
    and its outputs count in units of the response's std; for classifiers they are added to the logits.

    Parameters
    ----------
    module : any module from (N, d) to (N, outputs), or (N,) for one output; it is copied and not altered. The
        result is on the module's device and of its dtype, at least of single precision; of float64 where responses
        need it, as in ``to_network``
    model : whatever ``to_network`` takes: a fitted estimator, a pipeline around one, a network, a Spline. An estimator
        remembers how its rows are scaled; a bare Spline is scaled by its knots, which is a guess
    freeze : True keeps the spline as it is: only the gate and the module train
    reduce : what to do with further axes of the module's output: the axis, or axes, to average over, or a function from
        the module's output to (N, outputs)

    Returns
    -------
    WithSpline : (N, d) → (N, outputs). ``.spline``, ``.module`` and ``.gate`` are its parts; ``.conversion.encoder``
        makes a table of the model's columns into rows

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_abalone()
    >>> model = kw.MarsRegressor().fit(X, y)
    >>> mine = nn.Sequential(nn.Linear(10, 32), nn.LayerNorm(32), nn.Tanh(), nn.Linear(32, 1))
    >>> net = with_spline(mine, model)
    >>> rows = torch.from_numpy(net.conversion.encoder.encode(X))
    >>> bool((net(rows)[:, 0] - torch.from_numpy(model.predict(X))).abs().max() < 1e-4)
    True
    """
    if not isinstance(module, nn.Module):
        raise NetworkError(f"module must be an nn.Module, got {type(module).__name__}")
    axes = _axes(reduce)
    parts = resolve_network(model)
    chain = model_chain(parts)
    held = [p for p in module.parameters() if p.is_floating_point()]
    if any(p.is_meta for p in held):
        raise NetworkError("the module must hold its weights, got some on the meta device; load them first")
    dtype = held[0].dtype if held else torch.get_default_dtype()
    device = held[0].device if held else torch.device("cpu")
    # Half precision would not resolve the responses, single precision not all: the spline beside it is precise enough.
    own = dtype if dtype == torch.float64 else torch.float32
    if device.type != "mps":  # which has no float64
        own = enough_for(chain.scaling, own)
    try:
        inner = copy.deepcopy(module)
    except Exception as error:
        raise NetworkError(
            f"the module is copied so that yours is not altered, and {type(module).__name__} cannot be copied ({error})"
        ) from error
    c = chain.coordinates
    # The module has weights of its own, for features of size one.
    seen = parts.coordinates or c
    net = WithSpline(
        build(_gained(chain), own, device),
        Scaling(seen.x_centre, seen.x_scale).to(device, dtype),
        inner,
        torch.from_numpy(c.y_scale).to(device, own, copy=True),
        axes,
    )
    net.conversion = chain.conversion
    _require_outputs(net, chain.inputs, chain.outputs, device)
    if freeze:
        net.spline.requires_grad_(False)
    return net.train(module.training)


def _gained(chain: Chain) -> Chain:
    """Return the same function with GAIN times the weights and a smaller fixed scale behind them, where that can be.

    The rows of a model are not known here, only the scale of its columns. On tables whose columns move together, steps
    of SGD that suit independent columns were too large for the spline; with a gain they are smaller, and the module
    learns what the spline leaves.
    """
    if not all(isinstance(m, HOMOGENEOUS) for m in chain.modules):
        return chain
    layers = [Layer(x.weight * GAIN, x.bias * GAIN ** (k + 1)) for k, x in enumerate(chain.layers)]
    c = chain.coordinates
    return replace(chain.with_layers(layers), scaling=replace(c, y_scale=c.y_scale / GAIN ** len(layers)))


class WithSpline(nn.Module):
    """What :func:`with_spline` returns: spline(x) + unit·gate·module(scaled x), (N, d) → (N, outputs).

    spline : the network of the spline, raw rows in and raw responses out
    scaling : of the rows on their way into the module
    module : the copy of the user's module
    gate : (outputs,) parameter, zero at first
    unit : (outputs,) std of the response; ones for logits
    """

    gate: nn.Parameter
    unit: Tensor
    conversion: Conversion

    def __init__(
        self,
        spline: nn.Module,
        scaling: Scaling,
        module: nn.Module,
        unit: Tensor,
        reduce: tuple[int, ...] | Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.spline, self.scaling, self.module, self.reduce = spline, scaling, module, reduce
        self.gate = nn.Parameter(torch.zeros_like(unit))
        self.register_buffer("unit", unit)

    def _apply(self, fn: Callable[[Any], Any], recurse: bool = True) -> Self:
        unit = self.unit
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.unit.dtype in (torch.float16, torch.bfloat16):  # which stds of prices are beyond
            self.unit = unit.to(self.unit.device)
        return self

    def forward(self, x: Tensor) -> Tensor:
        """Add the two parts."""
        out = self.module(limited(self.scaling(x)))
        if callable(self.reduce):
            out = self.reduce(out)
        elif self.reduce is not None:
            out = out.mean(dim=self.reduce)
        if out.dim() == 1:
            out = out.unsqueeze(1)
        if out.dim() != 2 or out.shape[1] != self.gate.shape[0]:  # a gate would broadcast to anything
            raise NetworkError(
                f"the module must give (N, {self.gate.shape[0]}), one column per output of the model, got "
                f"{tuple(out.shape)} for {x.shape[0]} rows; reduce= takes the axes to average over, or a function"
            )
        return self.spline(x) + self.unit * self.gate * out


def limited(z: Tensor) -> Tensor:
    """Return z up to ±3 and a logarithm beyond: smooth once and increasing, so that no order is lost.

    >>> limited(torch.tensor([-2.0, 3.0, 25.0]))
    tensor([-2.0000,  3.0000,  6.1355])
    """
    inside = z.clamp(-LIMIT, LIMIT)
    return inside + torch.sign(z) * torch.log1p((z - inside).abs())


def _axes(
    reduce: int | Sequence[int] | Callable[[Tensor], Tensor] | None,
) -> tuple[int, ...] | Callable[[Tensor], Tensor] | None:
    """Return axes as a tuple, functions as they are; refuse the rest, and the axis of the rows."""
    if reduce is None or callable(reduce):
        return reduce
    try:
        axes = (operator.index(reduce),) if not isinstance(reduce, Sequence) else tuple(map(operator.index, reduce))
    except TypeError:
        axes = ()
    if not axes or 0 in axes:
        raise NetworkError(
            f"reduce must be an axis behind the rows, several of them, or a function, got {shown(reduce)}; reduce=1 "
            f"averages over the second axis"
        )
    return axes


def _require_outputs(net: WithSpline, inputs: int, outputs: int, device: torch.device) -> None:
    """Run the module and the whole once, on rows at the mean, to see that module and reduce fit the model."""
    rows = net.scaling.centre.to(device, net.unit.dtype).repeat(2, 1)
    with flags_kept(net), torch.no_grad():
        net.eval()
        try:
            out = net.module(limited(net.scaling(rows)))
        except Exception as error:
            raise NetworkError(
                f"the module must take rows of shape (N, {inputs}), the encoded columns of the model, in one tensor; "
                f"it failed with {type(error).__name__}: {one_line(error)}"
            ) from error
        if not isinstance(out, Tensor) and not callable(net.reduce):
            raise NetworkError(
                f"the module must give one tensor, got {type(out).__name__}; reduce= takes a function that makes one "
                f"of it"
            )
        named = net.reduce if isinstance(net.reduce, tuple) else ()
        if not all(0 < (axis if axis > 0 else axis + out.dim()) < out.dim() for axis in named):
            raise NetworkError(
                f"reduce must name axes behind the rows of what the module gives, here {out.dim() - 1} of them, got "
                f"{', '.join(map(str, named))}"
            )
        try:
            out = net(rows)
        except NetworkError:
            raise
        except Exception as error:
            raise NetworkError(
                f"reduce must make (N, {outputs}) of what the module gives; it failed with {type(error).__name__}: "
                f"{one_line(error)}"
            ) from error
    if not isinstance(out, Tensor) or tuple(out.shape) != (2, outputs):
        raise NetworkError(f"the module must give one tensor of shape (N, {outputs}), got {type(out).__name__}")
