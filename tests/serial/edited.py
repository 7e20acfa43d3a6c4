"""Saved models with other contents, as somebody would make them who knows the format."""

import json

from knotwork.serial.document import Arrays, document_digest
from knotwork.serial.tables import DOCUMENT


def read(folder):
    """The document of a saved model, as JSON."""
    return json.loads((folder / DOCUMENT).read_text())


def arrays_file(folder):
    """The file of a saved model's arrays."""
    return folder / read(folder)["arrays"]["file"]


def edit(folder, change, *, digest=True):
    """Change the document of a saved model; its digest is made anew unless the damage is to be found by it."""
    document = read(folder)
    change(document)
    if digest:
        sign(document)
    (folder / DOCUMENT).write_text(json.dumps(document))


def sign(document):
    """Make the digest of a document anew, if what it says now can have one."""
    document.pop("digest", None)
    document["digest"] = document_digest(document)


def replace_arrays(folder, data):
    """Put other arrays in the place of the saved ones, as if they belonged there."""
    arrays_file(folder).unlink()
    arrays = Arrays.of(data)
    (folder / arrays.file).write_bytes(data)
    named = {"file": arrays.file, "bytes": arrays.size, "digest": arrays.digest}
    edit(folder, lambda document: document.update(arrays=named))
