import gzip
import hashlib
from importlib.resources import files

import pytest

import knotwork as kw

# Of the files as the UCI repository distributes them.
CHECKSUMS = {
    "abalone": "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
    "winequality-white": "76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",
    "winequality-red": "4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
}


@pytest.mark.parametrize("name", CHECKSUMS)
def test_files_are_the_original_ones(name):
    raw = gzip.decompress((files("knotwork.data.datasets") / f"{name}.csv.gz").read_bytes())
    assert hashlib.sha256(raw).hexdigest() == CHECKSUMS[name]


def test_abalone():
    X, y = kw.datasets.load_abalone()
    assert X.shape == (4177, 8)
    assert y.sum() == 41493
    assert sorted(X["Sex"].unique()) == ["F", "I", "M"]
    assert set(X.drop(columns="Sex").dtypes.astype(str)) == {"float64"}
    assert y.name == "Rings"


@pytest.mark.parametrize(("colour", "rows", "total", "copies"), [("white", 4898, 28790, 937), ("red", 1599, 9012, 240)])
def test_wine(colour, rows, total, copies):
    X, y = kw.datasets.load_wine_quality(colour)
    assert X.shape == (rows, 11)
    assert y.sum() == total
    assert X.assign(quality=y).duplicated().sum() == copies
    assert str(copies) in kw.datasets.load_wine_quality.__doc__


def test_unknown_wine():
    with pytest.raises(ValueError, match="'white' or 'red', got 'rosé'"):
        kw.datasets.load_wine_quality("rosé")
