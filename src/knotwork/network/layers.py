"""Reading a network as affine layers with an activation between each two, whatever the activations are."""

from __future__ import annotations

from torch import nn

from knotwork.errors import NetworkError
from knotwork.network.chain import Layer, read_layer


def read_layers(net: nn.Module) -> tuple[list[Layer], list[nn.Module]]:
    """Return the affine layers and the activations between them; Linear layers in a row are one.

    Dropout, Flatten and Identity are left out.
    """
    if not isinstance(net, nn.Sequential):
        raise NetworkError(f"the network must be an nn.Sequential of Linear and activation, got {type(net).__name__}")
    layers: list[Layer] = []
    activations: list[nn.Module] = []
    expecting = True
    for module in net:
        if isinstance(module, (nn.Dropout, nn.Identity, nn.Flatten)):
            continue
        if isinstance(module, nn.Linear):
            layer = read_layer(module)
            if expecting:
                layers.append(layer)
            else:
                first = layers[-1]
                layers[-1] = Layer(layer.weight @ first.weight, layer.weight @ first.bias + layer.bias)
            expecting = False
        else:
            if expecting or list(module.children()):
                raise _not_a_chain(net)
            activations.append(module)
            expecting = True
    if expecting or not layers:
        raise _not_a_chain(net)
    return layers, activations


def _not_a_chain(net: nn.Sequential) -> NetworkError:
    return NetworkError(
        f"the network must alternate Linear and activation and end with a Linear, got "
        f"{' → '.join(type(m).__name__ for m in net)}"
    )
