"""Saved models of every schema and kind, damaged in every way: bits, digits, lengths, JSON values, arrays, file names.

Where a digest covers the damage, the model is refused, or it is the one that was saved (a space more in the JSON).
Where it is made anew, or an early schema has none, a load may succeed; the model then predicts, or refuses by a
sentence of ours. Nothing crashes, hangs, takes memory that no file holds, or raises from inside.
"""

from __future__ import annotations

import contextlib
import copy
import json
import resource
import shutil
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import knotwork as kw
from knotwork.errors import KnotworkError
from knotwork.serial.document import Arrays
from knotwork.serial.migrate import SCHEMA
from knotwork.serial.tables import DOCUMENT
from tests.saved.make import HERE, as_input, predict
from tests.serial.edited import read, sign
from tests.torture.damage import array_damage, byte_damage, document_damage
from tests.torture.limits import Timeout, fault, limit
from tests.torture.outcome import Outcome

NAME = "corrupt_files"
DEFAULT_COUNT = 10_000
SHORT_COUNT = 150
SECONDS = 20.0
# Bytes that a load may take beyond what was taken before; the files have a few kilobytes.
MEMORY = 300 * 2**20


def attack(first: int, count: int, seed: int, folder: Path, report: Callable[[str], None]) -> Outcome:
    """Damage ``count`` saved models; see ``tests.torture``."""
    subjects = sorted(path.parent for path in HERE.glob("*/*/model.json"))
    latest = [path for path in subjects if read(path)["schema"] == SCHEMA]
    counts: Counter[str] = Counter()
    bad: list[str] = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for case in range(first, first + count):
            rng = np.random.default_rng([seed, case])
            chosen = latest if rng.random() < 0.5 else subjects
            subject = chosen[rng.integers(len(chosen))]
            report(f"case {case}, {subject.parent.name}/{subject.name}")
            what, sentence = one_case(subject, folder / "model", rng)
            counts[what] += 1
            if sentence:
                bad.append(f"case {case}, {subject.parent.name}/{subject.name}, {sentence}")
    return Outcome(count, dict(counts), bad)


def one_case(subject: Path, place: Path, rng: np.random.Generator) -> tuple[str, str | None]:
    """Damage a copy of a model and load it; return what came of it, and a sentence if that must not be."""
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(subject, place)
    damage, covered = damaged(place, rng)
    before = _peak()
    try:
        with limit(SECONDS):
            model = kw.load(place)
    except Timeout:
        return "hung", f"{damage}: load took more than {SECONDS:.0f} s"
    except KnotworkError as error:
        text = str(error)
        plain = text.isprintable() and 20 < len(text) < 700
        return "refused", None if plain else f"{damage}: the sentence {text[:200]!r}"
    except Exception as error:
        return "raised", f"{damage}: load raised {type(error).__name__}: {str(error)[:200]}"
    finally:
        taken = _peak() - before
    if taken > MEMORY:
        return "memory", f"{damage}: load took {taken >> 20} MiB"
    expected = json.loads((subject / "expected.json").read_text(encoding="utf-8"))
    rows = as_input(expected["rows"])
    if covered:
        same = np.array_equal(predict(model, rows), predict(kw.load(subject), rows))
        return ("loaded, unchanged", None) if same else ("silent change", f"{damage}: another prediction")
    return used(model, rows, damage)


def damaged(place: Path, rng: np.random.Generator) -> tuple[str, bool]:
    """Damage a saved model; return what was done, and whether a digest covers it."""
    document = read(place)
    later = document["schema"] > 2
    arrays = place / (document["arrays"]["file"] if later else "model.safetensors")
    kind = rng.choice(
        ["document bytes", "arrays bytes", "document", "arrays", "files"], p=[0.25, 0.1, 0.45, 0.15, 0.05]
    )
    if kind == "document bytes":
        what = byte_damage(place / DOCUMENT, rng)
        return f"{kind}, {what}", later
    if kind == "arrays bytes":
        return f"{kind}, {byte_damage(arrays, rng)}", True
    if kind == "files":
        return _other_files(place, arrays, rng), True
    anew = not later or rng.random() < 0.75
    changed = copy.deepcopy(document)
    if kind == "document":
        what = document_damage(changed, rng)
    else:
        what = array_damage(arrays, rng)
        if anew:
            found = Arrays.of(arrays.read_bytes())
            if later:
                changed["arrays"] = {"file": found.file, "bytes": found.size, "digest": found.digest}
                arrays.rename(place / found.file)
            else:
                changed["digest"] = found.digest
    if anew and later and isinstance(changed, dict):
        with contextlib.suppress(ValueError):  # inf has none
            sign(changed)
    (place / DOCUMENT).write_text(json.dumps(changed))
    return f"{kind}, {what}{', digest made anew' if anew and later else ''}", not anew


def _other_files(place: Path, arrays: Path, rng: np.random.Generator) -> str:
    """Damage the folder itself."""
    match rng.integers(4):
        case 0:
            arrays.unlink()
            return "no arrays"
        case 1:
            other = rng.choice(sorted(map(str, HERE.glob("*/*/*.safetensors"))))
            shutil.copy(other, arrays)
            return f"the arrays of {Path(other).parent.name}"
        case 2:
            arrays.unlink()
            arrays.mkdir()
            return "a folder in place of the arrays"
        case _:
            (place / DOCUMENT).unlink()
            (place / DOCUMENT).mkdir()
            return "a folder in place of the document"


def used(model: Any, rows: Any, damage: str) -> tuple[str, str | None]:
    """Use a model whose damage no digest covers: it works, or refuses."""
    refused = False
    for name, call in _uses(model, rows):
        try:
            with limit(SECONDS):
                call()
        except Timeout:
            return "hung", f"{damage}: {name} took more than {SECONDS:.0f} s"
        except Exception as error:
            wrong = fault(error)
            if wrong is not None:
                return "raised", f"{damage}: loads, then {name}: {wrong}"
            refused = True
    return ("loaded, refuses these rows" if refused else "loaded, predicts"), None


def _uses(model: Any, rows: Any) -> list[tuple[str, Callable[[], Any]]]:
    if isinstance(model, nn.Module):
        first = next((m for m in model.modules() if isinstance(m, (nn.Linear, kw.Scaling))), None)
        width = 3 if first is None else first.in_features if isinstance(first, nn.Linear) else len(first.centre)
        dtype = next((p.dtype for p in model.parameters()), torch.float32)
        return [("forward", lambda: model.eval()(torch.zeros(2, width, dtype=dtype)))]
    if not hasattr(model, "get_params"):
        width = len(model.feature_names) if isinstance(model, kw.Spline) else model.inputs
        return [("call", lambda: model(np.zeros((2, width)))), ("repr", lambda: (repr(model), str(model)))]
    names = ("predict", "decision_function", "predict_proba", "transform")
    uses = [(name, lambda name=name: getattr(model, name)(rows)) for name in names if hasattr(model, name)]
    if hasattr(model, "summary"):
        uses += [("summary", model.summary), ("feature_importances_", lambda: model.feature_importances_)]
    return [*uses, ("repr", lambda: repr(model)), ("explain", lambda: kw.explain(model).importances)]


def _peak() -> int:
    """Return the largest memory that this process has taken so far."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
