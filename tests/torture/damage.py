"""Damage to files: bytes, the values of a JSON document, the arrays of a safetensors file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.random import Generator

# Values that somebody could put in place of any other one.
ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 255, 10**9, -(10**9), 2**63, 10**30, 0.0, -0.0, 0.5, 1e-320, 1e308, -1e308,
    float("inf"), float("nan"), "", "x", "nan", "x0", "\u2028", "\ud800", "\x1b[2J", "a" * 100_000, [], [[]], [None],
    {}, {"float": "nan"}, {"float": "inf"}, {"float": "1e5"}, {"tuple": []}, {"tuple": [1, 2]}, {"dict": {}},
    {"text": ["a"]},
    {"text": ["a"], "width": 10**9}, {"text": [1]}, {"array": "x", "dtype": "float64", "shape": [1], "order": "C"},
    {"record": "Linear", "fields": {"feature": 0}},
    {"record": "Hinge", "fields": {"feature": 0, "knot": 0.0, "sign": 1}},
    {"device": "cuda"}, {"device": "x"}, {"network": [], "training": True, "conversion": None}, {"pairs": [[1, 2]]},
    {"layer": "ReLU", "options": {"inplace": False}, "training": True, "parameters": {}},
]  # fmt: skip


def byte_damage(path: Path, rng: Generator) -> str:
    """Damage the bytes of a file; return what was done."""
    data = bytearray(path.read_bytes())
    place = int(rng.integers(len(data)))
    match int(rng.integers(8)):
        case 0 | 1:
            data[place] ^= 1 << int(rng.integers(8))
            what = f"a bit at {place}"
        case 2 | 3:
            digits = [k for k, byte in enumerate(data) if 48 <= byte <= 57]
            place = digits[rng.integers(len(digits))]
            data[place] = 48 + int(rng.integers(10))
            what = f"a digit at {place}"
        case 4:
            del data[place:]
            what = f"cut at {place}"
        case 5:
            data += bytes(rng.integers(256, size=int(rng.integers(1, 2000)), dtype=np.uint8).tolist())
            what = "bytes behind the end"
        case 6:
            end = place + int(rng.integers(1, 50))
            data[place:end] = rng.bytes(int(rng.integers(0, 50)))
            what = f"other bytes from {place}"
        case _:
            path.write_bytes(data)
            with path.open("r+b") as file:  # takes no room on the disk
                file.truncate(len(data) + 10 ** int(rng.integers(1, 11)))
            return "zeros behind the end"
    path.write_bytes(data)
    return what


def document_damage(document: Any, rng: Generator) -> str:
    """Change a value of a JSON document in place; return what was done."""
    places = [*_places(document)]
    owner, key, path = places[rng.integers(len(places))]
    odd = ODD[rng.integers(len(ODD))]
    match int(rng.integers(9)):
        case 0:
            del owner[key]
            return f"{path} removed"
        case 1:
            other, other_key, other_path = places[rng.integers(len(places))]
            owner[key] = json.loads(json.dumps(other[other_key]))
            return f"{path} is {other_path}"
        case 2 if isinstance(owner, dict):
            owner[str(odd)[:20]] = owner.pop(key)
            return f"{path} renamed to {str(odd)[:20]!r}"
        case 3 if isinstance(owner, list):
            owner.insert(key, owner[key])
            return f"{path} twice"
        case 4 | 5 if isinstance(owner[key], (int, float)):
            numbers = [owner[key] + 1, -owner[key], owner[key] * 10, owner[key] * 1e300, str(owner[key]), [owner[key]]]
            owner[key] = numbers[rng.integers(len(numbers))]
            return f"{path} = {str(owner[key])[:30]}"
    owner[key] = odd
    return f"{path} = {str(odd)[:30]!r}"


def _places(value: Any, path: str = "") -> Any:
    """Yield every place in a JSON value: its owner, its key there, and the way to it."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in list(items):
        yield value, key, f"{path}/{key}"
        yield from _places(item, f"{path}/{key}")


def array_damage(path: Path, rng: Generator) -> str:
    """Change an array of a safetensors file, or its header; return what was done."""
    arrays = safetensors.numpy.load_file(path)
    if not arrays or rng.random() < 0.3:
        return _header_damage(path, rng)
    name = sorted(arrays)[rng.integers(len(arrays))]
    array = arrays[name].copy()
    match int(rng.integers(6)):
        case 0:
            del arrays[name]
            what = "removed"
        case 1:
            arrays[name], what = array.reshape(-1), "flat"
        case 2:
            arrays[name], what = np.concatenate([array.reshape(-1), array.reshape(-1)]), "twice as long"
        case 3:
            other = [np.float16, np.float32, np.float64, np.int64, np.uint8, np.bool_][rng.integers(6)]
            arrays[name], what = array.astype(other), f"of {other.__name__}"
        case _ if array.size:
            choices = [0, 1, 100] if array.dtype.kind in "ub" else [0, -1, 10**9, -(10**9), 2**62]
            choices = [*choices, np.nan, np.inf, -np.inf, 1e308] if array.dtype.kind == "f" else choices
            value = choices[rng.integers(len(choices))]
            array.reshape(-1)[rng.integers(array.size)] = value
            arrays[name], what = array, f"with {value}"
        case _:
            arrays["another"], what = np.zeros(3), "and another one"
    path.write_bytes(safetensors.numpy.save(arrays))
    return f"array {name} {what}"


def _header_damage(path: Path, rng: Generator) -> str:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    what = document_damage(header, rng) if header else "empty"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    return f"header, {what}"
