"""A network as a chain: Linear and activation in turn, a Linear at the end; the one reader of networks.

The record between the stages. Weights are float64 on the CPU while networks are taken apart and put together; the
dtype and device of the network come back when it is built. Every function that takes a network reads it here, so all of
them take the same layers and refuse the others with the same sentence.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from knotwork.arrays import CHUNK, Floats
from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import binding
from knotwork.data.table import TableEncoder
from knotwork.errors import NetworkError
from knotwork.network.activations import Activation, activation_rule
from knotwork.network.blocks import BlockLinear, apply_blocks
from knotwork.network.scaling import Scaling

# What a network may be made of besides Linear layers. Dropout is nothing once a network is in use.
ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.Softplus, nn.SiLU, nn.GELU, nn.ELU, nn.ReLU6, nn.Hardtanh, nn.Tanh, nn.Sigmoid,
)  # fmt: skip
TRANSPARENT = (nn.modules.dropout._DropoutNd, nn.Identity, nn.Flatten)

# Values of a layer that are computed at a time, and the fewest rows they are of.
CHUNK_VALUES, MIN_CHUNK = 1 << 19, 256

# Single precision has 7 digits, so that it tells responses 1e4 stds from zero to a thousandth of a std; and numbers up
# to 3e38.
MAX_OFFSET, MAX_SINGLE = 1e4, 1e30


@dataclass(frozen=True)
class Layer:
    """An affine map: weight (out, in), bias (out,)."""

    weight: Tensor
    bias: Tensor

    @property
    def inputs(self) -> int:
        """Values that the map takes."""
        return self.weight.shape[1]

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the map to rows: (N, in) → (N, out)."""
        return x @ self.weight.T + self.bias

    def after(self, first: Layer) -> Layer:
        """Return the map that applies ``first`` and then this one."""
        return Layer(self.weight @ first.weight, self.weight @ first.bias + self.bias)

    def of_features(self, c: Coordinates) -> Layer:
        """Return the map of c.features(x) that this one is of x."""
        weight, centre = self.weight * torch.from_numpy(c.x_scale), torch.from_numpy(c.x_centre)
        return Layer(weight, self.bias + self.weight @ centre)

    def to_responses(self, c: Coordinates) -> Layer:
        """Return the map to c.responses(y) that this one is to y."""
        scale = torch.from_numpy(c.y_scale)
        return Layer(self.weight / scale[:, None], (self.bias - torch.from_numpy(c.y_centre)) / scale)


class Blocks(Layer):
    """A map whose matrix is block-diagonal: blocks (M, out, in), bias (M·out,). It is applied block by block.

    >>> layer = Blocks(torch.tensor([[[2.0]], [[3.0]]]), torch.zeros(2))
    >>> layer(torch.tensor([[1.0, 10.0]])).tolist(), layer.weight.tolist()
    ([[2.0, 30.0]], [[2.0, 0.0], [0.0, 3.0]])
    """

    blocks: Tensor

    def __init__(self, blocks: Tensor, bias: Tensor) -> None:
        object.__setattr__(self, "blocks", blocks)
        object.__setattr__(self, "bias", bias)

    @cached_property
    def weight(self) -> Tensor:
        """The whole matrix, (M·out, M·in)."""
        members, outputs, inputs = self.blocks.shape
        whole = self.blocks.new_zeros(members, outputs, members, inputs)
        whole[torch.arange(members), :, torch.arange(members)] = self.blocks
        return whole.view(members * outputs, members * inputs)

    @property
    def inputs(self) -> int:
        """Values that the map takes."""
        return self.blocks.shape[0] * self.blocks.shape[2]

    def __call__(self, x: Tensor) -> Tensor:
        """Apply the map to rows: (N, M·in) → (N, M·out)."""
        return apply_blocks(x, self.blocks, self.bias)


@dataclass(frozen=True)
class Conversion:
    """What is known about how a network stands for its model.

    bound : maximum difference of any output from the model's (0: exact up to rounding)
    box : (2, d) minimum and maximum inputs for which that holds, None for all of them
    link : the outputs are link(prediction)
    encoder : from the model's table to the network's inputs, None if there is no table
    """

    bound: float = 0.0
    box: Tensor | None = None
    link: str = "identity"
    encoder: TableEncoder | None = None

    def in_coordinates(self, c: Coordinates) -> Conversion:
        """Return the same in other coordinates of inputs and outputs."""
        box = None if self.box is None else torch.from_numpy(c.features(self.box.numpy()))
        return replace(self, bound=self.bound / float(c.y_scale.min()), box=box)


@dataclass(frozen=True)
class Chain:
    """Hidden layers and their activations, the output layer, and the fixed scaling at both ends (or None).

    hidden[k] and modules[k] are the k-th hidden layer and its activation. With a scaling c the layers compute in c's
    coordinates: the chain is x ↦ c.original_responses(layers(c.features(x))). The conversion is that of the whole.
    """

    hidden: tuple[Layer, ...]
    output: Layer
    modules: tuple[nn.Module, ...]
    scaling: Coordinates | None = None
    conversion: Conversion = Conversion()

    @classmethod
    def of(cls, layers: list[Layer], rule: Activation, conversion: Conversion | None = None) -> Chain:
        """Put layers, the output layer last, together with an activation of the given kind behind each hidden one."""
        modules = tuple(rule.new_module() for _ in layers[1:])
        return cls(tuple(layers[:-1]), layers[-1], modules, conversion=conversion or Conversion())

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Hidden layers and the output layer."""
        return (*self.hidden, self.output)

    def with_link(self, link: str) -> Chain:
        """Note that the outputs are link(y)."""
        return replace(self, conversion=replace(self.conversion, link=link))

    def with_centred_outputs(self) -> Chain:
        """Subtract the mean of all outputs from each: logits become centred, and their probabilities stay."""
        weight, bias = self.output.weight, self.output.bias
        return replace(self, output=Layer(weight - weight.mean(dim=0), bias - bias.mean()))

    @property
    def activation(self) -> Activation:
        """The rule for new layers: that of the last activation."""
        return activation_rule(self.modules[-1] if self.modules else "relu")

    @property
    def widths(self) -> tuple[int, ...]:
        """Units of each hidden layer."""
        return tuple(len(layer.bias) for layer in self.hidden)

    @property
    def inputs(self) -> int:
        """Number of features."""
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return len(self.output.bias)

    @property
    def coordinates(self) -> Coordinates:
        """Those that the layers compute in."""
        return self.scaling or Coordinates.identity(self.inputs, self.outputs)

    def with_layers(self, layers: list[Layer]) -> Chain:
        """Return the chain with other layers, the output layer last; new ones get an activation of their own."""
        new = tuple(self.activation.new_module() for _ in range(len(layers) - 1 - len(self.modules)))
        return replace(self, hidden=tuple(layers[:-1]), output=layers[-1], modules=(*self.modules, *new))

    def in_coordinates(self, c: Coordinates) -> Chain:
        """Return g with g(c.features(x)) = c.responses(f(x)), without scaling; ``c.inverse`` is the way back.

        Limits that c does not have stay with g, as a scaling that does nothing else.
        """
        own = self.coordinates
        x = None if own.limits is None or own.limits == c.limits else c.limits_inside(own.limits)
        y = None if own.y_limits is None or own.y_limits == c.y_limits else c.y_limits_inside(own.y_limits)
        left = None
        if x is not None or y is not None:
            left = replace(Coordinates.identity(self.inputs, self.outputs), limits=x, y_limits=y)
        between = own.relative_to(c).inverse
        first, *rest = self.layers
        layers = [first.of_features(between), *rest]
        layers[-1] = layers[-1].to_responses(between)
        return replace(self.with_layers(layers), scaling=left, conversion=self.conversion.in_coordinates(c))

    def with_scaling(self, c: Coordinates) -> Chain:
        """Put the fixed scaling of c around a chain that computes in c's coordinates."""
        x, y = (None, None) if self.scaling is None else (self.scaling.limits, self.scaling.y_limits)  # limits alone
        if x is not None:
            c = replace(c, limits=c.inverse.limits_inside(x))
        if y is not None:
            c = replace(c, y_limits=c.inverse.y_limits_inside(y))
        return replace(self, scaling=c, conversion=self.conversion.in_coordinates(c.inverse))


def enough_for(c: Coordinates | None, dtype: torch.dtype) -> torch.dtype:
    """Return a dtype, or float64 where responses in single precision would say little; c is what scales them.

    That is where they lie more than MAX_OFFSET stds from zero, or near the ends of single precision's range.
    """
    if c is None or dtype == torch.float64:
        return dtype
    far = np.abs(c.y_centre) / MAX_OFFSET > c.y_scale
    extreme = (np.maximum(np.abs(c.y_centre), c.y_scale) > MAX_SINGLE) | (c.y_scale < 1 / MAX_SINGLE)
    return torch.float64 if bool(np.any(far | extreme)) else dtype


def remember_link(net: nn.Module, link: str) -> None:
    """Note in a network's record that its outputs are link(y); a module without one gets it only if there is a link."""
    known = getattr(net, "conversion", None)
    if isinstance(known, Conversion):
        net.conversion = replace(known, link=link)  # type: ignore[assignment]
    elif link != "identity":
        net.conversion = Conversion(link=link)  # type: ignore[assignment]


def build(
    chain: Chain, dtype: torch.dtype | None = None, device: torch.device | str = "cpu", *, batched: bool = False
) -> nn.Sequential:
    """Put a chain together as a plain ``nn.Sequential`` of its own; the record of its conversion is ``.conversion``.

    Block-diagonal layers become a Linear with all its zeros, or with ``batched`` a BlockLinear without them.
    """
    dtype = dtype or enough_for(chain.scaling, torch.get_default_dtype())
    modules: list[nn.Module] = []
    for layer, activation in zip(chain.hidden, chain.modules, strict=True):
        modules += [_linear(layer, dtype, device, batched), copy.deepcopy(activation).to(device, dtype)]
    modules.append(_linear(chain.output, dtype, device, batched))
    if chain.scaling is not None:
        c, back = chain.scaling, chain.scaling.inverse
        modules.insert(0, Scaling.within(c.limits, c.x_centre, c.x_scale).to(device, dtype))
        if (c.y_scale != 1).any() or c.y_centre.any() or c.y_limits is not None:
            modules.append(Scaling.within(c.y_limits, back.y_centre, back.y_scale).turned_back().to(device, dtype))
    net = nn.Sequential(*modules)
    net.conversion = chain.conversion  # type: ignore[assignment]
    return net


def _linear(layer: Layer, dtype: torch.dtype, device: torch.device | str, batched: bool) -> nn.Linear | BlockLinear:
    linear: nn.Linear | BlockLinear
    blocks = layer.blocks if batched and isinstance(layer, Blocks) else None
    weight = layer.weight if blocks is None else blocks
    # On the meta device nothing is initialised, which would only use up the caller's random numbers.
    with torch.device("meta"):
        if blocks is None:
            linear = nn.Linear(weight.shape[1], weight.shape[0])
        else:
            linear = BlockLinear(blocks.shape[0], blocks.shape[2], blocks.shape[1])
    linear.weight = nn.Parameter(weight.to(device, dtype, copy=True, memory_format=torch.contiguous_format))
    linear.bias = nn.Parameter(layer.bias.to(device, dtype, copy=True))
    return linear


def read_layer(linear: nn.Linear | BlockLinear | Scaling) -> Layer:
    """Copy a layer's map."""
    if isinstance(linear, Scaling):
        if linear.limits is not None:
            raise NetworkError("a Scaling with limits must stand at an end of a network, got one inside; leave it out")
        scale = linear.scale.cpu().double()
        return Layer(torch.diag(1 / scale), -linear.centre.cpu().double() / scale)
    if linear.weight.is_meta or is_lazy(linear.weight):
        raise NetworkError("a Linear must have its weights, got one without values; run or load the network first")
    weight = linear.weight.detach().to("cpu", torch.float64).clone()
    bias = torch.zeros(len(weight), dtype=torch.float64)
    if linear.bias is not None:
        bias = linear.bias.detach().to("cpu", torch.float64).clone()
    return Blocks(weight, bias) if isinstance(linear, BlockLinear) else Layer(weight, bias)


def write_layer_(linear: nn.Linear, layer: Layer) -> None:
    """Set the weights of a Linear in place."""
    with torch.no_grad():
        linear.weight.copy_(layer.weight)
        if linear.bias is not None:
            linear.bias.copy_(layer.bias)


def working_layers(module: nn.Module, *, opened: tuple[type, ...] = (nn.Sequential,)) -> list[tuple[str, nn.Module]]:
    """Return the Linear layers and activations of a module by name, in the order of their definition.

    Layers that do nothing in use are left out; every other layer is refused. ``opened`` are the kinds of modules that
    are taken apart: a Sequential runs its layers in order, others may do anything with theirs.
    """
    found: list[tuple[str, nn.Module]] = []
    for name, layer in leaves(module, opened=opened):
        require_rows_kept(name, layer)
        if isinstance(layer, TRANSPARENT):
            continue
        if not is_known(layer):
            raise NetworkError(
                f"a network must be made of Linear layers and activations ({', '.join(a.__name__ for a in ACTIVATIONS)}"
                f"; Dropout, Identity and Flatten may stand anywhere), got {type(layer).__name__} at '{name}'; leave "
                f"it out, or pass the part of the network without it"
            )
        found.append((name, layer))
    return found


def require_rows_kept(name: str, layer: nn.Module) -> None:
    """Refuse a Flatten that mixes rows."""
    if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1):
        raise NetworkError(
            f"a Flatten must keep the rows and flatten all else (start_dim=1, end_dim=-1), got {layer} at '{name}'"
        )


def is_known(layer: nn.Module) -> bool:
    """Whether a layer is of a kind that is read; a class derived from one may compute something else."""
    kind = type(layer)
    if torch.nn.utils.parametrize.is_parametrized(layer):  # its weight is computed, the rest is the layer itself
        kind = kind.__bases__[0]
    return kind in (nn.Linear, nn.modules.linear.NonDynamicallyQuantizableLinear, BlockLinear, Scaling, *ACTIVATIONS)


def leaves(
    module: nn.Module, *, opened: tuple[type, ...] = (nn.Sequential,), prefix: str = ""
) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers of a module by name; modules of the ``opened`` kinds are taken apart, in order."""
    if nn.Module not in opened and isinstance(module, nn.Sequential) and not is_plain_sequential(module):
        yield prefix, module
        return
    if not isinstance(module, opened) or isinstance(module, nn.Linear) or _is_layer(module):
        yield prefix, module
        return
    # Not named_children(), which gives a layer that stands in two places once.
    for name, child in module._modules.items():
        if child is not None:
            yield from leaves(child, opened=opened, prefix=f"{prefix}.{name}" if prefix else name)


def is_plain_sequential(module: nn.Module) -> bool:
    """Whether a module runs its layers in order and does nothing else; derived classes and hooks may do anything."""
    return isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward and not _hooked(module)


def _hooked(module: nn.Module) -> bool:
    """Whether a module has hooks that may change what it takes or gives; torch's own ones compute its weights."""
    before = [hook for hook in module._forward_pre_hooks.values() if not type(hook).__module__.startswith("torch.nn.")]
    return bool(module._forward_hooks or before)


def _is_layer(module: nn.Module) -> bool:
    """Whether a module computes something itself: it has no parts, or is one of torch's own that are more than them."""
    containers = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    if isinstance(module, containers):
        return False
    return not module._modules or type(module).__module__.startswith("torch.nn.")


def read_chain(net: nn.Module) -> Chain:
    """Take a network apart: a ``Sequential`` of Linear and activation, Dropout, Identity and Flatten left out.

    Linear layers in a row are one map. A Scaling at either end is the chain's scaling, one in between joins the map.
    """
    modules_of_it = net.named_modules() if isinstance(net, nn.Sequential) else ()
    hooked = [name or type(net).__name__ for name, module in modules_of_it if _hooked(module)]
    if hooked:
        raise NetworkError(
            f"layers must have no forward hooks, which change what they compute, '{hooked[0]}' has; remove them first"
        )
    if not is_plain_sequential(net):
        advice = "" if isinstance(net, nn.Module) else "; kw.to_network(model) makes one of a model"
        if isinstance(getattr(net, "spline", None), nn.Sequential):
            advice = "; pass its spline, net.spline"
        raise NetworkError(
            f"a network must be an nn.Sequential of Linear and activation, got {type(net).__name__}{advice}"
        )
    named = working_layers(net)
    working = [module for _, module in named]
    inner, x, y = without_scaling(working)
    layers: list[Layer] = []
    modules: list[nn.Module] = []
    for module in inner:
        behind_a_map = len(layers) > len(modules)
        if isinstance(module, (nn.Linear, BlockLinear, Scaling)):
            layer = read_layer(module)
            if behind_a_map and len(layers[-1].bias) != layer.inputs:
                raise _does_not_fit(layer.inputs, len(layers[-1].bias))
            layers.append(layer.after(layers.pop()) if behind_a_map else layer)
        elif behind_a_map:
            modules.append(copy.deepcopy(module))
        else:
            raise _out_of_order(working)
    if len(layers) != len(modules) + 1:
        raise _out_of_order(working)
    for first, second in itertools.pairwise(layers):
        if len(first.bias) != second.inputs:
            raise _does_not_fit(second.inputs, len(first.bias))
    if x is not None and len(x.centre) != layers[0].inputs:
        raise _does_not_fit(layers[0].inputs, len(x.centre))
    if y is not None and len(y.centre) != len(layers[-1].bias):
        raise _does_not_fit(len(y.centre), len(layers[-1].bias))
    conversion = getattr(net, "conversion", None)
    known = conversion if isinstance(conversion, Conversion) else Conversion()
    chain = Chain(tuple(layers[:-1]), layers[-1], tuple(modules), conversion=known)
    if x is None and y is None:
        return chain
    return replace(chain, scaling=scaling_coordinates(x, y, chain.inputs, chain.outputs))


def scaling_coordinates(x: Scaling | None, y: Scaling | None, inputs: int, outputs: int) -> Coordinates:
    """Return the coordinates between a Scaling of the features and one back to the responses."""
    c = Coordinates.identity(inputs, outputs)
    if x is not None:
        c = replace(c, x_centre=x.centre.cpu().numpy(), x_scale=x.scale.cpu().numpy(), limits=x.limits)
    if y is not None:
        if y.limits is not None and not y.back:
            raise NetworkError("a Scaling of features with limits must stand in front of a network, got one behind")
        scale = 1 / y.scale.cpu().numpy()
        c = replace(c, y_centre=-y.centre.cpu().numpy() * scale, y_scale=scale, y_limits=binding(y.limits))
    return c


def without_scaling(working: list[nn.Module]) -> tuple[list[nn.Module], Scaling | None, Scaling | None]:
    """Split a Scaling at either end off."""
    x = y = None
    if len(working) > 1 and isinstance(working[0], Scaling):
        x, working = working[0], working[1:]
    last = working[-1] if len(working) > 1 else None
    if isinstance(last, Scaling):
        y, working = last, working[:-1]
    return working, x, y


def _does_not_fit(takes: int, gets: int) -> NetworkError:
    return NetworkError(f"layers must follow one another, one takes {takes} values and the one before it makes {gets}")


def _out_of_order(working: list[nn.Module]) -> NetworkError:
    return NetworkError(
        f"a network must alternate Linear and activation and end with a Linear, got "
        f"{' → '.join(type(m).__name__ for m in working) or 'no layers'}"
    )


@contextmanager
def flags_kept(net: nn.Module) -> Iterator[None]:
    """Leave the training flags of a module and of all its parts as they were."""
    flags = [(m, m.training) for m in net.modules()]
    try:
        yield
    finally:
        for m, flag in flags:
            m.training = flag


def require_changeable(net: nn.Module) -> None:
    """Refuse a module that was made in inference mode, where its tensors cannot be changed outside of it."""
    if torch.is_inference_mode_enabled():
        return
    for name, tensor in itertools.chain(net.named_parameters(), net.named_buffers()):
        if not is_lazy(tensor) and tensor.is_inference():
            raise NetworkError(
                f"a network must be made outside torch.inference_mode() to be changed, '{name}' was made inside; pass "
                f"copy.deepcopy(net)"
            )


def placement(net: nn.Module) -> tuple[torch.dtype, torch.device]:
    """Return dtype and device of a network's parameters."""
    first = next(net.parameters(), torch.empty(0))
    return first.dtype, first.device


def evaluate(chain: Chain, X: Floats) -> Floats:
    """Run a chain on rows in double precision, some of them at a time: (N, d) → (N, p)."""
    c = chain.scaling
    modules = [module.to("cpu", torch.float64) for module in chain.modules]
    out = np.empty((len(X), len(chain.output.bias)))
    with torch.no_grad():
        # What layers compute stays in the processor's cache, and small.
        step = max(MIN_CHUNK, min(CHUNK, CHUNK_VALUES // max(chain.widths, default=1)))
        for start in range(0, len(X), step):
            part = X[start : start + step]
            # A copy: X may be read-only.
            rows = torch.from_numpy(np.array(part if c is None else c.features(part), dtype=np.float64, order="C"))
            for layer, activation in zip(chain.hidden, modules, strict=True):
                rows = activation(layer(rows))
            values = chain.output(rows).numpy()
            out[start : start + step] = values if c is None else c.original_responses(values)
    return out
