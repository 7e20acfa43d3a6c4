"""The exceptions of knotwork.

Every message gives the rule, what was received and what to do about it. Bad data is also a ``ValueError`` and
so on, so that code written for scikit-learn catches it without knowing us.
"""


class KnotworkError(Exception):
    """Base of everything that knotwork raises on purpose."""


class DataError(KnotworkError, ValueError):
    """A table, a response or a weight that cannot be fitted or predicted as it is."""


class FileError(KnotworkError, OSError):
    """A file that cannot be read or written: no room on the disk, no permission. What was there is unchanged."""


class MissingPackage(KnotworkError, ImportError):
    """A package that this step needs, and that knotwork does without otherwise."""


class CategoryWarning(UserWarning):
    """A category at prediction time that the training table did not contain."""


class WeightWarning(UserWarning):
    """Sample weights whose sum makes GCV believe in far fewer observations than there are rows."""


class NetworkError(KnotworkError, ValueError):
    """A network, a layer or a shape that cannot hold the function."""


class ScaleWarning(UserWarning):
    """Inputs of a network whose scales differ so much that training will suffer."""
