"""Models as ``torch.export`` programs."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from knotwork.export.check import Exported, check_features
from knotwork.export.subject import Precision, subject_of
from knotwork.network.chain import build
from knotwork.parameters import checked, place, switch, text
from knotwork.serial.folder import output_file


@checked(path=place(), dtype=text().optional, overwrite=switch())
def export_torch(
    model: Any, path: str | os.PathLike[str], *, dtype: Precision | None = None, overwrite: bool = True
) -> Exported:
    """Write a model as a ``torch.export`` program (.pt2), after the file has given our prediction.

    ``torch.export.load(path).module()`` takes a tensor of encoded features (rows, features): torch has no text. The
    parameters are those of :func:`export_onnx` with ``inputs="features"``. What ONNX keeps as metadata is the extra
    file ``knotwork.json``.
    """
    subject = subject_of(model)
    dtype = subject.precision(dtype)
    net = build(subject.chain, getattr(torch, dtype)).eval()
    del net.conversion  # no part of the program
    example = torch.zeros(3, subject.inputs, dtype=getattr(torch, dtype))
    program = torch.export.export(net, (example,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    # Written by ourselves: torch says nothing that can be understood about a full disk.
    content = io.BytesIO()
    torch.export.save(program, content, extra_files={"knotwork.json": json.dumps(subject.about)})
    with output_file(path, overwrite=overwrite) as fresh:
        fresh.write_bytes(content.getbuffer())
        module = torch.export.load(io.BytesIO(fresh.read_bytes())).module()  # of a path, whatever its ending

        def run(rows: NDArray[Any]) -> NDArray[Any]:
            with torch.no_grad():
                values: NDArray[Any] = module(torch.from_numpy(rows)).numpy()
            return values

        return check_features(subject, dtype, Path(path), run)
