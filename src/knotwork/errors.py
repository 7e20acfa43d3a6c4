"""The exceptions of knotwork.

Every message gives the rule, what was received and what to do about it. Bad data is also a ``ValueError`` and
so on, so that code written for scikit-learn catches it without knowing us.
"""

import sys
import warnings


def warn(message: str, category: type[Warning]) -> None:
    """Warn of something in what the caller of knotwork passed, at the caller's own line."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in ("knotwork", "sklearn"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def one_line(error: object, room: int = 300) -> str:
    """Return another program's message on one line, cut where it is long.

    >>> one_line(ValueError("two\\n  lines"))
    'two lines'
    """
    text = " ".join(str(error).split())
    return text if len(text) <= room else f"{text[:room]}…"


class KnotworkError(Exception):
    """Base of everything that knotwork raises on purpose."""


class DataError(KnotworkError, ValueError):
    """A table, a response or a weight that cannot be fitted or predicted as it is."""


class FileError(KnotworkError, OSError):
    """A file that cannot be read or written: no room on the disk, no permission. What was there is unchanged."""


class ColumnsError(DataError):
    """Columns of a table that cannot be used as they are; ``args`` has a sentence for each.

    >>> str(ColumnsError("a must be numbers; correct it", "b must be finite; correct it")).splitlines()
    ['a must be numbers; correct it', 'b must be finite; correct it']
    """

    def __str__(self) -> str:
        return "\n".join(map(str, self.args))


class DataTypeError(DataError, TypeError):
    """Values of a type that no numbers can be made of."""


class MissingPackage(KnotworkError, ImportError):
    """A package that this step needs, and that knotwork does without otherwise."""


class CategoryWarning(UserWarning):
    """A category at prediction time that the training table did not contain."""


class MissingWarning(UserWarning):
    """A gap at prediction time in a column that had none in training."""


class ColumnWarning(UserWarning):
    """A column that is not used as it stands: left out, or read as something else than its type says."""


class WeightWarning(UserWarning):
    """Sample weights whose sum makes GCV believe in far fewer observations than there are rows."""


class SampleWarning(UserWarning):
    """A network that is trained on a sample of the rows: all of them are not in memory."""


class MembersWarning(UserWarning):
    """An ensemble of fewer members than were asked for: there are too few rows to leave a fold out for each."""


class NetworkError(KnotworkError, ValueError):
    """A network, a layer or a shape that cannot hold the function."""


class RankError(KnotworkError, RuntimeError):
    """Another process of a training under ``torch.distributed`` that has failed, ended or does not answer."""


class ScaleWarning(UserWarning):
    """A column so far from zero that rows of the precision asked for no longer tell its values apart."""


class ParameterError(KnotworkError, ValueError, TypeError):
    """A parameter of the wrong type or out of range."""
