"""The fit that all estimators share: it either succeeds, or leaves the estimator exactly as it was."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import Tags
from sklearn.utils._param_validation import InvalidParameterError, StrOptions, validate_parameter_constraints

from knotwork.compute.blas import one_blas_thread
from knotwork.data.columns.kinds import Categories
from knotwork.data.limits import Limits
from knotwork.errors import DataError, ParameterError, one_line
from knotwork.estimators.inputs import read_table
from knotwork.parameters import LARGEST

# What may be done about missing values.
MISSING = [StrOptions({"indicator", "error"})]

# Types of parameters that say all there is to a value.
PLAIN = {type(None), bool, int, float, str}

Fit = TypeVar("Fit", bound=Callable[..., Any])


def checks_parameters(fit: Fit) -> Fit:
    """Let scikit-learn check the parameters before a fit; its own decorator would hide the types from users."""
    return cast(Fit, _fit_context(prefer_skip_nested_validation=True)(fit))


class Estimator(BaseEstimator):
    """Base of the estimators; subclasses read their data and set the fitted attributes in ``_fit``."""

    missing: str

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing == "indicator"
        return tags

    @checks_parameters
    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit to a table or an array.

        Parameters
        ----------
        X : (N, d) data frame of any library, or array
        y : (N,) or (N, p) numbers for a regressor; (N,) labels of any kind for a classifier
        sample_weight : (N,) not negative; a row of weight zero counts like one that is not there

        Returns
        -------
        The estimator. If the fit fails, it is as it was before.

        Examples
        --------
        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> kw.MaxAffineRegressor(n_pieces=3, random_state=0).fit(X, y)
        MaxAffineRegressor(n_pieces=3, random_state=0)
        """
        with self._unchanged_on_failure():
            self._fit(X, y, sample_weight)
        return self

    @contextmanager
    def _unchanged_on_failure(self) -> Iterator[None]:
        before = dict(self.__dict__)
        try:
            with one_blas_thread():
                yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def outside(self, X: Any) -> NDArray[np.bool_]:
        """Say which rows lie outside the training range, in any column: (N, d) → (N,).

        The range is that of ``limits_``. With ``extrapolate="clip"`` the model clips these rows to it; with "linear" it
        goes on beyond it. Columns that the fit left unused count, too. Text and categories are never outside.

        >>> import knotwork as kw
        >>> X, y = kw.datasets.load_wine_quality("red")
        >>> model = kw.MarsRegressor().fit(X, y)
        >>> model.outside(X.head(2).assign(alcohol=[10.0, 99.0])).tolist()
        [False, True]
        """
        matrix = read_table(self, X)
        limits = getattr(self, "limits_", None)
        if limits is None:
            raise DataError(
                f"rows are compared with the training range, which this {type(self).__name__} does not know: it was "
                f"saved by an earlier version; fit it again"
            )
        encoder = self.encoder_
        labels = [isinstance(encoder.columns[k], Categories) for k in encoder.source]
        numbers = Limits(np.where(labels, -np.inf, limits.lower), np.where(labels, np.inf, limits.upper))
        return numbers.outside(matrix)

    @classmethod
    @functools.cache
    def _get_param_names(cls) -> list[str]:
        """Return the names that scikit-learn reads off the constructor; it would do so several times in every fit."""
        return super()._get_param_names()

    def _validate_params(self) -> None:
        params = self.get_params(deep=False)
        if all(type(value) in PLAIN for value in params.values()):
            _require_plain_params(cast(Hashable, type(self)), tuple(params), *params.values())
        else:
            _require_params(type(self), params)

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        raise NotImplementedError


def _require_params(kind: type[Estimator], params: Mapping[str, Any]) -> None:
    """Refuse parameters of an estimator that it cannot use."""
    for name, value in params.items():
        if isinstance(value, np.timedelta64):  # numpy counts it among its integers, and scikit-learn lets it pass
            raise ParameterError(f"{name} must be no length of time, got {value!r}; pass a number")
    try:
        validate_parameter_constraints(kind._parameter_constraints, params, caller_name=kind.__name__)
    except InvalidParameterError:
        raise
    except Exception as error:  # scikit-learn's check meets a type that it cannot compare, a Fraction say
        raise ParameterError(f"a parameter of {kind.__name__} cannot be used: {one_line(error)}") from None
    for name, value in params.items():
        if isinstance(value, int) and abs(value) > LARGEST:
            raise ParameterError(f"{name} must be within the range of floats (1.8e308), got a larger integer")


@functools.lru_cache(maxsize=64, typed=True)
def _require_plain_params(kind: Any, names: tuple[str, ...], *values: Any) -> None:
    """Do the same for plain values; what passed once is remembered, because the check takes as long as a small fit."""
    _require_params(kind, dict(zip(names, values, strict=True)))
