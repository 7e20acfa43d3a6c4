"""``knotwork export``: a saved model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from knotwork.commands.output import print_json, require_free_file
from knotwork.errors import DataError
from knotwork.printable import printable

FORMATS = {".onnx": "onnx", ".pt2": "torch"}


def export(
    model: Annotated[Path, typer.Argument(help="Folder that knotwork fit --out or kw.save wrote.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The file to write, .onnx or .pt2.", show_default=False)],
    format: Annotated[
        Literal["onnx", "torch"] | None,
        typer.Option(help="Format of the file; by default its extension decides."),
    ] = None,
    inputs: Annotated[
        Literal["columns", "features"] | None,
        typer.Option(
            help="What an ONNX file takes: the table's columns by name, text and gaps included, or one matrix of "
            "encoded features. Default: columns if the model was fitted to a table with names."
        ),
    ] = None,
    dtype: Annotated[
        Literal["float32", "float64"] | None,
        typer.Option(help="Precision of the weights and outputs. Default: float64 for columns, float32 for features."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Write a model as ONNX or torch.export.

    Before the file appears, its predictions are compared with knotwork's own.
    """
    chosen = format or FORMATS.get(out.suffix.lower())
    if chosen is None:
        raise DataError(f"the format must be known, {out} ends in neither .onnx nor .pt2; pass --format onnx or torch")
    require_free_file(out, force, [model])

    import knotwork as kw
    from knotwork.export import export_onnx, export_torch

    loaded = kw.load(model)
    if chosen == "onnx":
        result = export_onnx(loaded, out, dtype=dtype, inputs=inputs, overwrite=force)
    elif inputs == "columns":
        raise DataError("torch has no text: a .pt2 takes features, got --inputs columns; leave it out, or write ONNX")
    else:
        result = export_torch(loaded, out, dtype=dtype, overwrite=force)
    if as_json:
        print_json({
            "saved": str(out), "format": chosen, "dtype": result.dtype, "inputs": result.inputs,
            "outputs": result.outputs, "input_names": result.input_names, "output_names": result.output_names,
            "rows_checked": result.rows, "largest_difference": result.largest_difference,
        })  # fmt: skip
        return
    taken = f"{result.inputs} {'features' if result.input_names == ('features',) else 'columns'}"
    typer.echo(
        f"{printable(out)}: {chosen}, {result.dtype}, {taken} in, {', '.join(result.output_names)} out; differs from "
        f"knotwork's prediction by at most {result.largest_difference:.2g} on {result.rows} rows"
    )
