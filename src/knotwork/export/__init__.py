"""Models for other programs: ONNX and torch.export files, checked against our own prediction before they appear.

A model that was fitted to a table becomes an ONNX file that takes the table's columns by name, numbers and text with
their gaps, and does everything inside; others take the encoded features as numbers, (rows, features), and so does every
torch program. How a table becomes these numbers is in the file's metadata, column by column; in Python
``to_network(model).conversion.encoder.encode(frame)`` does it.

The ONNX graph is made from the layers themselves (Gemm and a few activations): it is small, needs no exporter, and any
runtime of operator set 17 runs it.
"""

from knotwork.export.check import Exported
from knotwork.export.feed import onnx_feed
from knotwork.export.onnx_file import export_onnx
from knotwork.export.torch_file import export_torch

__all__ = ["Exported", "export_onnx", "export_torch", "onnx_feed"]
