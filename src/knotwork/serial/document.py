"""The document of a saved model, ``model.json``: what it is, the file of its arrays, and a digest of it all.

The digest is over everything that the document says, the digest of the arrays included. A changed number is found
before anything is made of it. Documents of schemas 1 and 2 have a digest of the arrays only.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from knotwork import __version__
from knotwork.errors import DataError
from knotwork.serial.migrate import SCHEMA
from knotwork.serial.tables import DOCUMENT, KINDS, not_as_written, require_keys, require_known

# Bytes of a document: a longer one is not read. A million categories still fit.
MAX_DOCUMENT = 64 * 2**20
# The file of the arrays before it was named after them.
ARRAYS_1 = "model.safetensors"


@dataclass(frozen=True)
class Arrays:
    """The file of a model's arrays: its name in the folder, its SHA-256, its size (None if the document has none)."""

    file: str
    digest: str
    size: int | None

    @classmethod
    def of(cls, data: bytes) -> Arrays:
        """Name the file of these contents; equal models make equal files."""
        digest = digest_of(data)
        return cls(arrays_file(digest), digest, len(data))


def arrays_file(digest: str) -> str:
    """Return the name of the file whose contents have this digest.

    >>> arrays_file("0123456789abcdef0123456789abcdef0123")
    'model-0123456789abcdef0123456789abcdef.safetensors'
    """
    return f"model-{digest[:32]}.safetensors"


@dataclass(frozen=True)
class Document:
    """What a document says: the schema of the model, its kind, its arrays, and the model as JSON."""

    schema: int
    kind: str
    arrays: Arrays
    model: Any


def digest_of(data: bytes) -> str:
    """Return the SHA-256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def write_document(kind: str, model: Any, arrays: Arrays) -> bytes:
    """Return the document of a model in the present schema."""
    document: dict[str, Any] = {
        "format": "knotwork",
        "schema": SCHEMA,
        "version": __version__,
        "kind": kind,
        "arrays": {"file": arrays.file, "bytes": arrays.size, "digest": arrays.digest},
        "model": model,
    }
    document["digest"] = document_digest(document)
    data = json.dumps(document, indent=1, allow_nan=False).encode()
    if len(data) > MAX_DOCUMENT:
        raise DataError(
            f"the {DOCUMENT} of a saved model may take {MAX_DOCUMENT} bytes, this one would take {len(data)}; save a "
            f"model with fewer terms, columns or categories"
        )
    return data


def document_digest(document: dict[str, Any]) -> str:
    """Return the digest of all that a document says; how its JSON is laid out does not matter."""
    content = {key: value for key, value in document.items() if key != "digest"}
    return digest_of(json.dumps(content, separators=(",", ":"), allow_nan=False).encode())


def read_document(data: bytes, where: str) -> Document:
    """Read and check a document; ``where`` is the folder that it comes from."""
    document = parse(data, where)
    if not is_ours(document):
        raise DataError(f"{DOCUMENT} must be a model of knotwork, the one in {where} is not; check the path")
    schema = document.get("schema")
    if type(schema) is not int or schema < 1:
        raise not_as_written(f"schema {schema!r}")
    if schema > SCHEMA:
        raise DataError(
            f"knotwork {__version__} reads models up to schema {SCHEMA}, got schema {schema}, written by version "
            f"{str(document.get('version'))[:20]!r}; upgrade knotwork"
        )
    require_known(KINDS, document.get("kind"))
    arrays = _arrays(document) if schema > 2 else _arrays_1(document)
    return Document(schema, document["kind"], arrays, document.get("model"))


def parse(data: bytes, where: str) -> Any:
    """Return the JSON of a document; NaN and infinities are no JSON."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise not_as_written(f"something in {where} that is not JSON ({error})") from None


def is_ours(document: Any) -> bool:
    """Whether a document is one that knotwork wrote, of whatever version."""
    return isinstance(document, dict) and document.get("format") == "knotwork"


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def _arrays(document: dict[str, Any]) -> Arrays:
    require_keys(document, {"format", "schema", "version", "kind", "arrays", "digest", "model"}, DOCUMENT)
    try:
        digest = document_digest(document)
    except (ValueError, RecursionError) as error:  # 1e999 is JSON
        raise not_as_written(f"a number out of range ({error})") from None
    if document["digest"] != digest:
        raise DataError(
            f"{DOCUMENT} must have the digest of what it says, this one has another: it was changed or damaged; "
            f"copy the whole folder again or save the model again"
        )
    match document["arrays"]:
        case {"file": str(file), "bytes": int(size), "digest": str(digest), **rest} if not rest:
            if file == arrays_file(digest):  # and no path to somewhere else
                return Arrays(file, digest, size)
    raise not_as_written("no file of arrays")


def _arrays_1(document: dict[str, Any]) -> Arrays:
    require_keys(document, {"format", "schema", "version", "kind", "digest", "model"}, DOCUMENT)
    return Arrays(ARRAYS_1, str(document["digest"]), None)
