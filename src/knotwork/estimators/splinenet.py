"""SplineNetRegressor: spline → network → training, as one scikit-learn estimator."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike
from sklearn.base import MultiOutputMixin, RegressorMixin

from knotwork.arrays import Floats
from knotwork.data.sample import Sample
from knotwork.estimators.inputs import read_regression
from knotwork.estimators.splinenet_base import Problem, SplineNetBase
from knotwork.network.train.losses import SquaredError


class SplineNetRegressor(MultiOutputMixin, RegressorMixin, SplineNetBase):
    """A ReLU network that starts as a spline fitted to the data and is trained on from there.

    Parameters
    ----------
    hidden : tuple of int, default (128, 128)
        Widths of the hidden layers.
    start : "spline" or "random", default "spline"
        "random" starts the same network from Kaiming's initialisation instead, for comparison.
    activation : str or module, default "relu"
        One that a spline can be converted to.
    fill : "random", "hinge" or "zero", default "random"
        What the units beyond the spline's compute at first; see ``reshape``.
    max_terms, penalty : as in MarsRegressor
        The spline has at most as many terms as the hidden layers can hold.
    threshold : float, default 1e-4
        As in MarsRegressor, but smaller: the network has room for terms that add little.
    max_degree : int or "auto", default "auto"
        Maximum number of features in a term of the spline; each degree takes a hidden layer. "auto" is 1. It is 2 if
        there are at least 400 training rows, the first spline's residuals correlate with products of two features, and
        a second spline, with interactions of such features, is better on the validation rows.
    ridge : float or "auto", default "auto"
        Ridge of the spline's coefficients, in standardised coordinates: large ones that cancel do not survive training.
        "auto" is 1e-3 or 1e-2, whichever spline is better on the validation rows.
    spline_fraction : float, default None
        Fit the spline to this share of the training rows and train the network on the others; None uses all for both.
    epochs, batch_size, learning_rate, weight_decay : int, int, float, float
        AdamW on mini-batches; the rate is the peak of a schedule with a linear warm-up and a half cosine.
    warmup : float, default 0.2
        Share of the steps before the peak.
    l1, dropout : float, default 0
        Sparsity, on the scale of the standardised loss, and the share of hidden units left out at each step.
    validation_fraction : float, default 0.15
        Share of the distinct rows held out; copies of a row stay together. The epoch with their minimum loss is kept.
    patience : int or None, default 30
        Epochs without improvement before training ends.
    setback : float or None, default 0.05
        An epoch that leaves the validation loss this share above the best is undone, and the learning rate halved from
        there on: the network loses little of what it has learned. None lets every epoch stand.
    average : float, default 10
        Epochs over which the weights are averaged; the average is validated and kept. It lets a large learning rate
        work on a good start without undoing it.
    device : str, default None
        Where to train; None is the CPU.
    checkpoint : path, default None
        File that the state of the training is written to, and that the same fit goes on from after a crash: the result
        has the same bits on the CPU. It is removed at the end; the file of any other fit is refused.
    random_state, n_jobs, verbose
        Seed (equal seeds give equal bits on the CPU, whatever the number of threads), threads of the spline fit,
        progress bar.
    extrapolate : "clip" or "linear", default "clip"
        "clip" holds every column at its limits, in training and in prediction, so that the network is flat beyond them.
        The limits are the column's range, less values far beyond the bulk of it. They are part of the ``Scaling`` in
        front of ``network_``; ``hidden`` names the layers behind it. "linear" goes on with the last slope.
    validation : splitter of scikit-learn or iterable of (training, validation) pairs of row numbers, default None
        Which rows to validate on, instead of ``validation_fraction``: ``GroupShuffleSplit`` keeps the rows of a group
        together (``fit(X, y, groups=…)``), ``TimeSeriesSplit`` validates on the latest rows of a table in the order of
        time, ``PredefinedSplit`` or ``[(training, validation)]`` on rows of your own choice. Of several splits the last
        one counts. The splitter sees the table as it is passed, rows of weight zero included; rows in neither part
        are left out. Give a splitter that shuffles a ``random_state``, or no two fits are the same.
    missing : "indicator" or "error", default "indicator"
        What to do about missing values. "indicator" fills them in, and columns that have some in training get a feature
        of their own, ``column is missing``; "error" refuses them.

    Attributes
    ----------
    network_ : nn.Sequential, from the encoded raw features to the responses, fixed scaling at both ends; float32, or
        float64 where responses lie further than 1e4 stds from zero or beyond 1e±30
    spline_ : Spline, what the network computed at epoch 0 (None for a random start)
    history_ : History, losses per epoch, beginning with epoch 0
    encoder_ : TableEncoder, from the table to the network's inputs
    start_network_ : nn.Sequential, ``network_`` before training
    coordinates_ : Coordinates, the means and stds that training standardised by
    limits_ : Limits, the range of the encoded features as they were trained on; ``outside(X)`` marks rows beyond it

    Examples
    --------
    >>> import knotwork as kw
    >>> X, y = kw.datasets.load_wine_quality("red")
    >>> model = kw.SplineNetRegressor(hidden=(64,), epochs=5, random_state=0).fit(X, y)
    >>> model.history_.validation_loss[model.history_.best_epoch] <= model.history_.validation_loss[0]
    True
    """

    def _read(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> Problem:
        matrix, response, weight, kept, encoder = read_regression(self, X, y, sample_weight)
        rows = Sample(matrix, response.reshape(len(response), -1), weight)
        flat = {"_flat_output": response.ndim == 1}
        return Problem(rows, kept, sample_weight is not None, encoder, SquaredError(), flat)

    def predict(self, X: Any) -> Floats:
        """Run the network: (N, d) → (N,) or (N, p), as y was."""
        values = self._run(X)
        return values[:, 0] if self._flat_output else values
