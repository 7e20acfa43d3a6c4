"""A model as numbers that a page can compute with: the layers of a network, the terms of a spline."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from knotwork.arrays import Floats
from knotwork.data.limits import Limits
from knotwork.errors import DataError
from knotwork.explanation.subject import Subject, parts_of
from knotwork.spline.model import Linear, Spline, hinges_of

if TYPE_CHECKING:
    from torch import Tensor, nn

    from knotwork.network.chain import Chain, Layer


def exported_model(subject: Subject) -> dict[str, Any]:
    """Return what the page predicts with; weights as base64, in single precision where that loses nothing."""
    return {
        "network": None if subject.network is None else export_network(subject.network),
        "spline": None if subject.spline is None else export_spline(subject.spline, subject),
        "centred": subject.centred,
    }


def export_spline(spline: Spline, subject: Subject) -> dict[str, Any]:
    """Return the terms as sets of hinges."""
    terms = []
    for term in spline.terms:
        record: dict[str, Any] = {"columns": parts_of(term, subject.parts)}
        if isinstance(term, Linear):
            record |= {"kind": "linear", "feature": term.feature}
        elif hinges_of(term):
            kind = "product" if type(term).__name__ == "Product" else "min"
            slopes = getattr(term, "slopes", (1.0,) * len(hinges_of(term)))
            hinges = [{"feature": h.feature, "knot": h.knot, "sign": h.sign, "slope": float(slope)}
                      for h, slope in zip(hinges_of(term), slopes, strict=True)]  # fmt: skip
            record |= {"kind": kind, "hinges": hinges}
        else:
            raise DataError(f"a page computes lines, hinges and their minima, got a term of {type(term).__name__}")
        terms.append(record)
    return {
        "terms": terms,
        "intercept": spline.intercept.tolist(),
        "coef": spline.coef.tolist(),
        "limits": _limits(spline.limits),
        "outputLimits": _limits(spline.output_limits),
    }


def _limits(limits: Limits | None) -> dict[str, Any] | None:
    """Return what features or outputs are held at; infinite ones become null on the page."""
    return None if limits is None else {"lower": limits.lower.tolist(), "upper": limits.upper.tolist()}


def export_network(chain: Chain) -> dict[str, Any]:
    """Return the layers with their activations, and the scaling at both ends where there is one."""
    layers = [(layer, _activation(module)) for layer, module in zip(chain.hidden, chain.modules, strict=True)]
    layers.append((chain.output, {"name": "Identity"}))
    arrays = [a.numpy() for layer, _ in layers for a in (_weights(layer), layer.bias)]
    with np.errstate(over="ignore"):
        single = all((a.astype(np.float32).astype(np.float64) == a).all() for a in arrays)
    kind = "f4" if single else "f8"
    c = chain.coordinates
    return {
        "kind": kind,
        "centre": c.x_centre.tolist(),
        "scale": c.x_scale.tolist(),
        "outputCentre": c.y_centre.tolist(),
        "outputScale": c.y_scale.tolist(),
        "limits": _limits(c.limits),
        "outputLimits": _limits(c.y_limits),
        "layers": [
            {"weight": _bytes(_weights(layer).numpy(), kind), "bias": _bytes(layer.bias.numpy(), kind),
             "blocks": len(getattr(layer, "blocks", [1])), "activation": act}
            for layer, act in layers
        ],
    }  # fmt: skip


def _weights(layer: Layer) -> Tensor:
    """Return the numbers of a layer: of a block-diagonal one the blocks alone, (members, out, in)."""
    from knotwork.network.chain import Blocks

    return layer.blocks if isinstance(layer, Blocks) else layer.weight


def _bytes(values: Floats, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=f"<{kind}").tobytes()).decode("ascii")


def _activation(module: nn.Module) -> dict[str, Any]:
    """Return an activation's name and numbers; what the page has to know of each that a spline can be written with."""
    from torch import nn

    match module:
        case nn.LeakyReLU():
            return {"name": "LeakyReLU", "slope": float(module.negative_slope)}
        case nn.PReLU():
            return {"name": "PReLU", "slope": float(module.weight.detach().double())}
        case nn.Softplus():
            return {"name": "Softplus", "beta": float(module.beta), "threshold": float(module.threshold)}
        case nn.GELU():
            return {"name": "GELU", "approximate": str(module.approximate)}
        case nn.ELU():
            return {"name": "ELU", "alpha": float(module.alpha)}
        case nn.ReLU6():
            return {"name": "ReLU6"}
        case nn.Hardtanh():
            return {"name": "Hardtanh", "low": float(module.min_val), "high": float(module.max_val)}
    return {"name": type(module).__name__}
