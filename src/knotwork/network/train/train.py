"""Training a network of the user's own: read rows and targets, hold rows out, standardise, run the loop, hand back."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from knotwork.data.coordinates import Coordinates
from knotwork.data.limits import Limits, limits_around, range_of, response_limits
from knotwork.data.losses import HUBER_STDS, SQUARED_ERROR, ResponseLoss, response_loss, robust_std
from knotwork.errors import NetworkError, ParameterError
from knotwork.network.chain import flags_kept, placement, remember_link, require_changeable
from knotwork.network.ready import MAX_ROWS
from knotwork.network.scaling import widen_limits_
from knotwork.network.train.checkpoint import Checkpoint, described, settings
from knotwork.network.train.history import History
from knotwork.network.train.inside import Inside, held_ends, trained_part
from knotwork.network.train.loop import Report, TrainOptions, fit_network
from knotwork.network.train.losses import Deviance, LogLoss, Loss, OwnLoss, SquaredError
from knotwork.network.train.optimiser import Factory
from knotwork.network.train.pooling import pooled_coordinates, pooled_width
from knotwork.network.train.randomness import draws, global_generator
from knotwork.network.train.ranks import Ranks, joined_ranks, require_own_gradients, same_weights
from knotwork.network.train.reading import Given, Loader, outputs_of, read_given, row_dtype
from knotwork.network.train.rows import Part, Rows, Stream
from knotwork.parameters import checked, is_number, number, place, positive, seed, shown, switch, text, whole
from knotwork.progress import epoch_progress

# An epoch that leaves the validation loss this share above the best is undone, where the rows can tell.
SETBACK = 0.05


@dataclass(frozen=True)
class Epoch:
    """What a callback gets after every epoch.

    epoch : its number; 0 is the network as it came
    history : the losses so far, a copy
    network : makes a network like yours with the present weights, the averaged ones, in evaluation mode
    """

    epoch: int
    history: History
    network: Callable[[], nn.Module]


Callback = Callable[[Epoch], bool | None]


@checked(
    task=text(), label_smoothing=number(0, 1), patience=whole(1).optional, epochs=whole(0), batch_size=whole(1),
    learning_rate=positive(), weight_decay=number(0), warmup=number(0, 1), l1=number(0), dropout=number(0, 1),
    average=number(0), standardise=switch(), checkpoint=place().optional, random_state=seed(), verbose=whole(),
)  # fmt: skip
@torch.inference_mode(False)  # the caller may be inside it, or inside no_grad
@torch.enable_grad()
def train(
    net: nn.Module,
    X: Any,
    y: Any = None,
    *,
    task: str = "auto",
    loss: Callable[[Tensor, Tensor], Tensor] | str | None = None,
    label_smoothing: float = 0.0,
    sample_weight: ArrayLike | None = None,
    validation: float | tuple[Any, ...] | Iterable[Any] = 0.15,
    setback: float | str | None = "auto",
    patience: int | None = 30,
    epochs: int = 100,
    batch_size: int = 128,
    optimizer: Factory | None = None,
    learning_rate: float = 1e-2,
    weight_decay: float = 1e-2,
    warmup: float = 0.2,
    l1: float = 0.0,
    dropout: float = 0.0,
    average: float = 10.0,
    standardise: bool = True,
    callbacks: Sequence[Callback] = (),
    checkpoint: str | os.PathLike[str] | None = None,
    random_state: int | None = None,
    verbose: int = 0,
    quantile: float | None = None,
    power: float | None = None,
) -> History:
    """Train a network of your own in place; the loop that ``SplineNetRegressor`` and ``SplineNetClassifier`` use.

    Parameters that are not listed are those of ``SplineNetRegressor`` and ``SplineNetClassifier``.

    Parameters
    ----------
    net : module that maps (N, d) to (N, p): responses, or logits of p classes; one logit distinguishes two classes
    X, y : (N, d) and (N,) or (N, p); for classes (N,) labels. A frame goes through the encoder of a network that
        remembers one (``net.conversion.encoder``). In place of both, a DataLoader, or anything else that yields batches
        (rows, targets) or (rows, targets, weights) as often as it is iterated over
    task : "regression", "classification" or "auto". "auto" takes text and booleans for classes, whole numbers too if
        there are several outputs or only 0 and 1 occur. Numbers from 0 to p − 1 name the outputs, other labels go to
        them in sorted order
    loss : function(prediction, target) of tensors that replaces squared error and log-loss. It sees the network's
        output (N, p) as it comes, and y as numbers (N, columns), or as codes (N,) where the network has several outputs
        and y names them. It returns a cost per row, (N,) or (N, columns), or their mean. Only costs per row can have
        weights. Or a name: "squared_error", "absolute_error", "huber", "quantile", "poisson", "gamma" or "tweedie", as
        in ``MarsRegressor``, for a network of one output. With the last three the network gives log(y), and its
        ``conversion.link`` says so
    quantile, power : of ``loss="quantile"`` and ``loss="tweedie"``
    validation : rows to validate on; the weights of the best epoch are kept, epoch 0 being the network as it came.
        Either (X, y), (X, y, weights) or a loader: rows that neither the network nor the fit of its spline has seen. Or
        a share of X's rows, which the network may have seen; not if X is a loader. ``History.validation_unseen`` says
        which it was
    setback : as in ``SplineNetRegressor``. "auto" is 0.05 for validation rows of your own, and None for a share of X:
        rows that the start has seen are predicted too well at epoch 0 to judge later epochs by
    optimizer : function from a list of parameters to a torch optimiser, in place of AdamW. Rates and decay are then the
        optimiser's own; warm-up and cosine multiply its rates
    standardise : train in standardised coordinates. A ``Sequential`` is trained between the Scalings at its ends; at an
        end without one, its first or last Linear is rewritten for the training rows' means and stds, and back
        afterwards. Other networks see the rows as they are, and have their errors divided by the std of y. With a loss
        of your own, outputs stay as they are
    callbacks : functions that are called with an ``Epoch`` after every epoch, 0 among them; True ends the training
    checkpoint : file that the state of the training is written to, and that it goes on from if the same call is made
        again after a crash: the result has the same bits on the CPU. It is removed at the end. The file of any other
        call is refused. Callbacks are not told again of epochs that are in the file. Not for loaders

    Inside ``torchrun``, once ``torch.distributed`` is initialised, every process calls ``train`` with rows of its own:
    one network is trained on all of them, and ends with the same weights everywhere. It begins with those of rank 0,
    whose checkpoint and progress are those of all; ``batch_size`` is that of each process.

    Returns
    -------
    History : losses per epoch, beginning with epoch 0

    Ctrl-C leaves the network with the best weights so far; after any other error it is as it was.

    Examples
    --------
    >>> import torch, knotwork as kw
    >>> X, y = kw.datasets.load_wine_quality("red")
    >>> net = kw.reshape(kw.to_network(kw.MarsRegressor().fit(X, y)), (64, 64), X=X, random_state=0)
    >>> history = kw.train(net, X, y, epochs=3, random_state=0)
    >>> min(history.validation_loss) <= history.validation_loss[0]
    True

    The last 300 rows judge, and the spline has not seen them:

    >>> net = kw.to_network(kw.MarsRegressor().fit(X[:-300], y[:-300]))
    >>> history = kw.train(net, X[:-300], y[:-300], validation=(X[-300:], y[-300:]), epochs=2,
    ...                    loss=torch.nn.HuberLoss(reduction="none"), callbacks=[lambda e: e.epoch == 1])
    >>> len(history), history.validation_unseen
    (2, True)
    """
    options = TrainOptions(
        epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, weight_decay=weight_decay,
        warmup=warmup, l1=l1, dropout=dropout, patience=patience, average=average,
    )  # fmt: skip
    _require_network(net)
    with joined_ranks(placement(net)[1]) as ranks:
        _require_options(setback, loss, label_smoothing, optimizer, callbacks)
        named = response_loss(loss, quantile, power) if isinstance(loss, str) else None
        if named is None and (quantile is not None or power is not None):
            raise ParameterError("quantile and power are for loss='quantile' and loss='tweedie', got another loss")
        own = None if isinstance(loss, str) else loss
        if ranks is not None:
            held = validation if isinstance(validation, float | int) else "own rows"
            asked = (asdict(options), shown(setback), held, standardise, task, named, label_smoothing)
            _require_alike(net, ranks, (*asked, described(own), described(optimizer)))
            checkpoint = ranks.from_first(lambda: None if checkpoint is None else os.fspath(checkpoint))
            verbose = verbose if ranks.is_first else 0
        file = None if checkpoint is None else Checkpoint(checkpoint)
        drawn = _seed(file, random_state) if ranks is None else ranks.from_first(lambda: _seed(file, random_state))
        # Loaders draw from torch's global generator, and so may layers that we do not know, in evaluation mode too.
        local = drawn if ranks is None else ranks.seed(drawn)
        drawing = global_generator(local, placement(net)[1]) if y is None or draws(net) else nullcontext()
        with same_weights(net, ranks), drawing:
            given = read_given(
                net, X, y, sample_weight, validation, drawn, "regression" if named else task,
                own_loss=own is not None, ranks=ranks,
            )  # fmt: skip
            _require_batches(net, given, batch_size)
            options = replace(options, setback=_setback(setback, given))
            goal = _loss_of(given, own, label_smoothing) if named is None else _named_loss(net, given, named, ranks)
            with epoch_progress(bool(verbose), epochs, unseen=given.unseen) as show:
                history = _fit(
                    net, given, goal, options, seed=drawn, standardise=standardise, show=show, callbacks=callbacks,
                    optimiser=optimizer, file=file, ranks=ranks,
                )  # fmt: skip
    if named is not None:
        remember_link(net, named.link)
    if file is not None and (ranks is None or ranks.is_first):
        file.remove()
    history.validation_unseen = given.unseen
    return history


def _seed(file: Checkpoint | None, random_state: int | None) -> int:
    """Return the seed of a training: that of its checkpoint, or a new one."""
    found = file.seed() if file is not None and random_state is None else None
    return int(np.random.default_rng(random_state).integers(2**31)) if found is None else found


def _fit(
    net: nn.Module,
    given: Given,
    goal: Loss,
    options: TrainOptions,
    *,
    seed: int,
    standardise: bool,
    show: Report | None,
    callbacks: Sequence[Callback],
    optimiser: Factory | None,
    file: Checkpoint | None,
    ranks: Ranks | None,
) -> History:
    """Train a network in coordinates that suit the loop; on failure it is as it was, with Ctrl-C the best so far."""
    dtype, device = placement(net)
    rows = given.measured
    measured = pooled_coordinates(goal, rows, ranks) if standardise else None
    seen = rows.X if ranks is None else ranks.spread_rows(rows.X, MAX_ROWS)
    largest = [None if ranks is None else max(ranks.gather(part.weight.max(initial=0.0)))
               for part in (rows, given.validation)]  # fmt: skip
    before = copy.deepcopy(net.state_dict())
    interrupted = False
    try:
        _let_out_(net, given, goal, ranks)
        with (
            flags_kept(net),
            trained_part(net, measured, seen, given.outputs, logits=isinstance(goal, LogLoss)) as inside,
        ):
            goal = goal.within(inside.coordinates)
            takes = dtype, row_dtype(inside.net, inside.coordinates.features(rows.X[:2]))
            try:
                return fit_network(
                    inside.net,
                    _training(given, goal, inside.coordinates, device, *takes, largest[0]),
                    Part.of(given.validation, goal, inside.coordinates, device, *takes, largest[1]),
                    options,
                    seed=seed,
                    loss=goal,
                    unit=goal.unit(inside.coordinates),
                    report=_report(show, callbacks, inside),
                    optimiser=optimiser,
                    checkpoint=file,
                    ranks=ranks,
                ).history
            except KeyboardInterrupt:
                interrupted = True  # the best weights so far are in the network
                raise
    except BaseException:
        if not interrupted:
            net.load_state_dict(before)
        raise
    finally:
        net.zero_grad(set_to_none=True)


def _let_out_(net: nn.Module, given: Given, goal: Loss, ranks: Ranks | None) -> None:
    """Let responses that are held go where those given are, too; anywhere if the loss is of something else."""
    ends = held_ends(net, given.outputs)
    if not ends:
        return
    wide = Limits(*(np.full(given.outputs, side) for side in (-np.inf, np.inf)))
    if isinstance(goal, SquaredError) or (isinstance(goal, Deviance) and goal.loss.link == "identity"):
        seen = range_of(np.concatenate([given.measured.y, given.validation.y]))
        for other in () if ranks is None else ranks.gather(seen):
            seen = limits_around(seen, other)
        wide = response_limits(seen.lower, seen.upper)
    for end in ends:
        widen_limits_(end, wide)


def _setback(asked: float | str | None, given: Given) -> float | None:
    """Only rows that a start has not seen can show a setback."""
    if isinstance(asked, str):
        return SETBACK if given.unseen else None
    return asked


def _loss_of(given: Given, own: Callable[[Tensor, Tensor], Tensor] | None, smoothing: float) -> Loss:
    if own is not None:
        return OwnLoss(own, given.outputs, given.weighted)
    return SquaredError() if given.target.classes is None else LogLoss(given.outputs, smoothing)


def _named_loss(net: nn.Module, given: Given, loss: ResponseLoss, ranks: Ranks | None) -> Loss:
    """Return the loss of a name, once the responses are those it is made for."""
    if loss == SQUARED_ERROR:
        return SquaredError()
    if given.outputs != 1:
        raise NetworkError(
            f"loss={loss.name!r} takes a network of one output, got {given.outputs}; train one for each response"
        )
    rows = given.measured
    for y in (rows.y, given.validation.y):
        loss.check(y)
    if loss.name == "huber":
        loss = replace(loss, width=HUBER_STDS * (robust_std(rows.y[:, 0] - outputs_of(net, rows.X)[:, 0]) or 1.0))
    return Deviance(pooled_width(loss, rows, ranks))


def _training(
    given: Given,
    loss: Loss,
    c: Coordinates,
    device: torch.device,
    dtype: torch.dtype,
    x_dtype: torch.dtype,
    largest: float | None,
) -> Rows:
    """Put the training rows into the coordinates of training: at once, or batch by batch."""
    rows = given.training
    if not isinstance(rows, Loader):
        return Part.of(rows, loss, c, device, dtype, x_dtype, largest)

    def read(batch: Any) -> Part:
        return Part.of(rows.read(batch), loss, c, device, dtype, x_dtype, largest)

    return Stream(rows.batches, rows.count, read, device)


def _report(show: Report | None, callbacks: Sequence[Callback], inside: Inside) -> Report | None:
    """Return what the loop calls after every epoch."""
    if not callbacks:
        return show

    def report(epoch: int, history: History, averaged: nn.Module) -> bool:
        if show is not None:
            show(epoch, history, averaged)
        now = Epoch(epoch, copy.deepcopy(history), lambda: inside.outside(averaged))
        stops = [callback(now) for callback in callbacks]  # all of them, whatever the first one says
        return any(stops)

    return report


def _require_network(net: Any) -> None:
    if not isinstance(net, nn.Module):
        raise NetworkError(f"train takes a torch network, got {type(net).__name__}; kw.to_network(model) makes one")
    require_changeable(net)
    wrong = sorted({str(p.dtype) for p in net.parameters()} - {"torch.float32", "torch.float64"})
    if wrong:
        raise NetworkError(
            f"train needs parameters of float32 or float64, steps are lost in fewer digits, got {', '.join(wrong)}; "
            f"train net.float(), and convert it back afterwards"
        )


def _require_alike(net: nn.Module, ranks: Ranks, options: Any) -> None:
    """Refuse ranks that would not take the same steps."""
    require_own_gradients(net)
    state = [(name, str(v.dtype), tuple(v.shape)) for name, v in net.state_dict().items() if isinstance(v, Tensor)]
    trained = [p.requires_grad for p in net.parameters()]
    ranks.require_same({"options": options, "layers": (settings(net), state, trained)})


def _require_options(setback: Any, loss: Any, smoothing: float, optimizer: Any, callbacks: Any) -> None:
    """Refuse options that no rule of one parameter covers."""
    judged = None if isinstance(setback, str) and setback == "auto" else setback
    undone = judged is None or (is_number(judged) and judged >= 0)
    called = isinstance(callbacks, list | tuple) and all(map(callable, callbacks))
    for fine, rule, got in (
        (undone, "setback must be 0 or positive, None or 'auto'", setback),
        (
            loss is None or callable(loss) or isinstance(loss, str),
            "loss must be a function of prediction and target, or the name of a loss",
            loss,
        ),
        (loss is None or smoothing == 0, "label_smoothing must be 0 with a loss of your own", smoothing),
        (optimizer is None or callable(optimizer), "optimizer must be a function from parameters to one", optimizer),
        (called, "callbacks must be a list of functions", callbacks),
    ):
        if not fine:
            raise ParameterError(f"{rule}, got {shown(got)}")


def _require_batches(net: nn.Module, given: Given, batch_size: int) -> None:
    """Refuse batches of one row for layers that take statistics of a batch."""
    if not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules()):
        return
    alone = batch_size == 1 or len(given.measured) == 1
    if isinstance(given.training, Loader):
        alone = any(len(given.training.read(batch)) == 1 for batch in given.training.batches)
    if alone:
        raise NetworkError(
            "BatchNorm takes means over a batch and needs at least 2 rows in each, got one of 1; pass a larger "
            "batch_size, or drop_last=True to the DataLoader"
        )
