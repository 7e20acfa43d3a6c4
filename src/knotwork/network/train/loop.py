"""The loop of training, which keeps what the start knows.

Networks are trained in standardised coordinates, so that units of measurement do not matter. The learning rate warms
up slowly, because a few full-size steps destroy a converted start. An epoch after which the validation rows are
predicted clearly worse than before may be undone, and the rate halved: whatever a start knows, it then loses no more
than a few percent of it. Epoch 0 is a checkpoint like any other: on the validation rows the result is never worse than
what training began with.

Equal seeds give equal bits on the CPU, and so does a training that goes on from a checkpoint: everything that decides
about the next epoch is in ``_Run``, and nothing depends on the number of threads.

Several processes, ``Ranks``, take the steps of one training together: gradients and losses are means over all their
rows, so that everything here comes out alike on all of them.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.errors import NetworkError
from knotwork.network.train.buffer import Buffered
from knotwork.network.train.checkpoint import Checkpoint, Identity, Saved, described, digest_of, settings, versions
from knotwork.network.train.dense import DenseGradients
from knotwork.network.train.evaluate import mean_losses
from knotwork.network.train.graphed import GraphedStep
from knotwork.network.train.history import History
from knotwork.network.train.losses import Loss, OwnLoss, SquaredError
from knotwork.network.train.optimiser import (
    Factory,
    Schedule,
    clip_gradients_,
    forget_direction,
    make_optimiser,
    make_state,
    optimiser_state,
    places,
    set_optimiser_state,
    set_rate,
)
from knotwork.network.train.randomness import (
    draws,
    global_generator,
    global_states,
    own_dropout,
    seed_globally,
    set_global_states,
)
from knotwork.network.train.ranks import Ranks
from knotwork.network.train.resumable import StateError, fits, optimiser_fits
from knotwork.network.train.rows import Folds, Part, Rows, Stream
from knotwork.network.train.threads import step_threads, torch_threads
from knotwork.network.train.weights import average_, restore_, state_of, tensors_of

# Called after every epoch with its number, the history so far, and the network with the averaged weights; True ends
# the training.
Report = Callable[[int, History, nn.Module], bool | None]


@dataclass(frozen=True)
class Trained:
    """What a training leaves behind: its history, and that of each network if several were trained together."""

    history: History
    members: tuple[History, ...]


@dataclass(frozen=True)
class TrainOptions:
    """How to train.

    learning_rate : peak of the schedule: a linear warm-up over the first ``warmup`` of the steps, then a half cosine
    l1 : weight of Σ|weights|, on the scale of the standardised loss; dropout : share of hidden units left out
    patience : epochs without a better validation loss after which training ends; None is never
    setback : an epoch that leaves the validation loss this share above the best is undone, and the rate halved from
        there on; None is never. Use validation rows that the start has not seen: it predicts the others too well
    clip : maximum norm of a gradient
    average : epochs over which the weights are averaged (exponentially, less at first); the average is the result
    """

    epochs: int = 100
    batch_size: int = 128
    learning_rate: float = 1e-2
    weight_decay: float = 1e-2
    warmup: float = 0.2
    l1: float = 0.0
    dropout: float = 0.0
    patience: int | None = 30
    setback: float | None = None
    clip: float = 1.0
    average: float = 10.0


def fit_network(
    net: nn.Module,
    training: Rows | Buffered,
    validation: Part | Folds,
    options: TrainOptions,
    *,
    seed: int,
    loss: Loss | None = None,
    unit: float = 1.0,
    report: Report | None = None,
    optimiser: Factory | None = None,
    checkpoint: Checkpoint | None = None,
    ranks: Ranks | None = None,
) -> Trained:
    """Train a network in place, in the coordinates it is given, and leave it with the weights of its best epoch.

    Networks that are trained together (``Stacked``) take rows of their own (``Folds``); the mean of their losses
    decides about epochs, for all of them alike.

    ``unit`` is what one unit of the loss is worth in the history. A KeyboardInterrupt goes on to the caller; the
    network then has the best weights so far, and the exception a note that says so. The checkpoint's file stays until
    the caller removes it.

    ``ranks`` train together, each on its own training and validation rows, in the same coordinates; they begin with
    rank 0's weights. Its checkpoint is that of all, the other ranks' files are not touched.
    """
    loss = loss or SquaredError()
    run = _Run.begin(net, training, options, loss, seed, optimiser, ranks)
    identity = None
    if checkpoint is not None:
        if isinstance(training, Stream):
            raise NetworkError("a checkpoint needs rows in memory, whose order it can go back to, got a loader of them")
        identity = _identity(run, training, validation, loss, unit, seed, optimiser)
        if ranks is not None:
            identity = replace(identity, data=digest_of({}, ranks.gather(identity.data)))
    with ExitStack() as stack:
        if training.device.type == "cpu":
            stack.enter_context(torch_threads(step_threads(net, options.batch_size)))
        stack.enter_context(own_dropout(net, options.dropout, run.mask_generator))
        if run.draws:
            stack.enter_context(global_generator(seed, training.device))
        try:
            if checkpoint is not None and identity is not None:
                saved = _read(checkpoint, identity, ranks)
                try:
                    if saved is not None:
                        run.resume(saved, own_optimiser=optimiser is None)
                except StateError:
                    raise checkpoint.damaged() from None
            while not run.has_ended:
                run.epoch(training, validation, loss, unit)
                if report is not None and report(run.last_epoch, run.history, run.averaged):
                    run.stopped = True
                run.agree()
                due = checkpoint is not None and (run.last_epoch == 0 or checkpoint.is_due())
                if checkpoint is not None and identity is not None and due and (ranks is None or ranks.is_first):
                    checkpoint.write(identity, run.saved())
            if ranks is not None:
                ranks.meet()
        except KeyboardInterrupt as interrupt:
            restore_(net, run.best)
            interrupt.add_note(
                f"training was interrupted in epoch {run.last_epoch + 1}; the network has its best weights so far, "
                f"those of epoch {run.history.best_epoch}"
            )
            if checkpoint is not None:
                interrupt.add_note(f"the same call, with the network as it was, goes on from {checkpoint.path}")
            raise
    restore_(net, run.best)
    return Trained(run.history, run.members())


@dataclass
class _Run:
    """Everything that decides about the epochs to come.

    net, averaged : the network that is trained, and the one whose weights are the average
    best : the averaged network's state at the best epoch
    rates : of every step, one schedule per group of the optimiser; share : what setbacks have left of them
    order_generator, mask_generator : of the order of the rows, and of dropout
    draws : whether the network (or a loader) also draws from torch's global generator
    can_record : whether steps may be recorded as a CUDA graph: on a GPU, without random numbers or functions of others
    average_weight : that of a recorded step
    dense, dense_averaged : faster ways through the two networks, None where autograd takes the steps
    losses : training and validation losses of each of several networks, epoch by epoch
    ranks : processes that train together, None for one alone
    seed : of the random numbers; with ranks those of an epoch follow from it, the rank and the epoch
    """

    net: nn.Module
    averaged: nn.Module
    best: dict[str, Tensor]
    options: TrainOptions
    optimiser: torch.optim.Optimizer
    parameters: list[nn.Parameter]
    rates: list[Schedule]
    steps_per_epoch: int
    order_generator: torch.Generator
    mask_generator: torch.Generator
    draws: bool
    device: torch.device
    history: History = field(default_factory=History)
    step: int = 0
    share: float = 1.0
    elapsed: float = 0.0
    stopped: bool = False
    can_record: bool = False
    graphed: GraphedStep | None = None
    average_weight: Tensor = field(default_factory=lambda: torch.zeros(()))
    dense: DenseGradients | None = None
    dense_averaged: DenseGradients | None = None
    losses: list[list[list[float]]] = field(default_factory=list)
    ranks: Ranks | None = None
    seed: int = 0

    @classmethod
    def begin(
        cls,
        net: nn.Module,
        training: Rows | Buffered,
        options: TrainOptions,
        loss: Loss,
        seed: int,
        factory: Factory | None,
        ranks: Ranks | None,
    ) -> _Run:
        """Make a fresh optimiser and fresh generators."""
        parameters = [p for p in net.parameters() if p.requires_grad]
        if not parameters:
            raise NetworkError("a network needs parameters that require gradients to be trained, this one has none")
        steps = training.steps(options.batch_size)
        if ranks is not None:
            steps = max(ranks.gather(steps))
            ranks.broadcast_(list(tensors_of(net).values()))
        made = make_optimiser(parameters, options.learning_rate, options.weight_decay, loss.adam_epsilon, factory)
        averaged = copy.deepcopy(net)
        quiet = not draws(net) and options.dropout == 0 and not any(isinstance(m, nn.Dropout) for m in net.modules())
        plain = quiet and options.l1 == 0 and ranks is None
        known = factory is None and not isinstance(loss, OwnLoss)
        return cls(
            net=net,
            averaged=averaged,
            best=state_of(averaged),
            options=options,
            optimiser=made,
            parameters=parameters,
            rates=[Schedule(float(g["lr"]), options.warmup, options.epochs * steps) for g in made.param_groups],
            steps_per_epoch=steps,
            order_generator=torch.Generator().manual_seed(seed),
            mask_generator=torch.Generator(training.device).manual_seed(seed),
            draws=draws(net) or isinstance(training, Stream),
            device=training.device,
            can_record=quiet and known and ranks is None and all(p.is_cuda for p in parameters),
            dense=DenseGradients.of(net) if plain else None,
            dense_averaged=DenseGradients.of(averaged) if plain else None,
            ranks=ranks,
            seed=seed,
        )

    @property
    def last_epoch(self) -> int:
        """The last epoch that is in the history."""
        return len(self.history) - 1

    @property
    def has_ended(self) -> bool:
        """Whether there is no epoch to come."""
        patience, waited = self.options.patience, self.last_epoch - self.history.best_epoch
        impatient = patience is not None and self.last_epoch >= 0 and waited >= patience
        return self.stopped or self.last_epoch >= self.options.epochs or impatient

    def agree(self) -> None:
        """Let an end that one rank asks for, and the time of the slowest, be those of all ranks."""
        if self.ranks is None:
            return
        said = self.ranks.gather((self.stopped, self.elapsed))
        self.stopped, self.elapsed = any(stops for stops, _ in said), max(seconds for _, seconds in said)
        self.history.seconds[-1] = self.elapsed

    def members(self) -> tuple[History, ...]:
        """Return the history of each network."""
        if not self.losses or len(self.losses[0][0]) == 1:
            return (self.history,)
        curves = np.array(self.losses).transpose(2, 1, 0).tolist()  # by network, then training and validation
        return tuple(replace(self.history, train_loss=trained, validation_loss=reached) for trained, reached in curves)

    def epoch(self, training: Rows | Buffered, validation: Rows, loss: Loss, unit: float) -> None:
        """Run the next epoch; the first one, epoch 0, only looks at the losses."""
        if self.ranks is not None:
            self.ranks.meet()
        start = time.perf_counter()
        history, epoch = self.history, self.last_epoch + 1
        if epoch > 0:
            self._steps(training, loss, unit)
        run = self.averaged.eval() if self.dense_averaged is None else self.dense_averaged.forward
        own_reached = [cost * unit for cost in mean_losses(run, validation, loss, self.ranks)]
        reached = sum(own_reached) / len(own_reached)
        rate = self.share * self.rates[0][self.step - 1] if self.step else 0.0
        if epoch > 0 and self._is_setback(reached):
            for part in (self.net, self.averaged):
                restore_(part, self.best)
            forget_direction(self.optimiser)
            self.share /= 2
            history.undone.append(epoch)
            trained, reached = history.train_loss[history.best_epoch], history.validation_loss[history.best_epoch]
            losses = self.losses[history.best_epoch]
        else:
            own_trained = [cost * unit for cost in mean_losses(run, training, loss, self.ranks)]
            trained = sum(own_trained) / len(own_trained)
            losses = [own_trained, own_reached]
        if epoch == 0 and not np.isfinite(reached):
            raise NetworkError("the network's loss is not finite before training; check its weights and the data")
        best = state_of(self.averaged) if epoch > 0 and reached < history.validation_loss[history.best_epoch] else None
        self.elapsed += time.perf_counter() - start
        history.learning_rate.append(rate)
        history.validation_loss.append(reached)
        history.seconds.append(self.elapsed)
        history.train_loss.append(trained)
        self.losses.append(losses)
        if best is not None:
            history.best_epoch, self.best = epoch, best
        if self.ranks is not None:
            self.ranks.listening = True

    def _steps(self, training: Rows | Buffered, loss: Loss, unit: float) -> None:
        """Run the steps of an epoch."""
        # Responses below 1e-162 have no squares: their losses are 0, in any unit.
        gain = loss.gain(self.history.train_loss[0] / unit if unit > 0 else 0.0)
        size = self.options.batch_size
        self.net.train()
        if self.ranks is not None:
            self._steps_together(training, loss, gain, self.ranks)
            return
        if not self.can_record or isinstance(training, Stream | Buffered):
            for batch in training.shuffled(size, self.order_generator):
                self._step(batch, loss, gain, self._next())
            return
        for rows in training.orders(size, self.order_generator):
            if self.graphed is None:
                self.graphed = self._record(training, loss, gain, rows)
            weight = self._next()
            if rows.shape == self.graphed.shape:
                self.average_weight.fill_(weight)
                self.graphed(rows)
            else:
                self._step(training.at(rows), loss, gain, weight)

    def _steps_together(self, training: Rows | Buffered, loss: Loss, gain: float, ranks: Ranks) -> None:
        """Run the steps of an epoch on the rows of all ranks."""
        assert not isinstance(training, Folds | Buffered)
        own = ranks.seed(self.seed, len(self.history))
        self.order_generator.manual_seed(own)
        self.mask_generator.manual_seed(own)
        if self.draws:
            seed_globally(own, self.device)
        for batch in training.shared(self.options.batch_size, self.order_generator, self.steps_per_epoch):
            self.optimiser.zero_grad(set_to_none=True)
            if batch is not None:
                cost = (batch.costs(self.net, loss.learning) * batch.weight).sum() * gain
                cost.backward()  # type: ignore[no-untyped-call]
            if not ranks.mean_gradients_(self.parameters, None if batch is None else batch.weight.sum()):
                break
            if self.options.l1 > 0:
                for p in self.parameters:
                    if p.ndim > 1:
                        slope = self.options.l1 * p.detach().sign()
                        p.grad = slope if p.grad is None else p.grad + slope
            self._move(self._next())
        for part in (self.net, self.averaged):
            ranks.share_buffers_(part)

    def _next(self) -> float:
        """Set the rates of the next step; return the weight of its network in the average."""
        for group, rates in zip(self.optimiser.param_groups, self.rates, strict=True):
            set_rate(group, self.share * rates[self.step])
        self.step += 1
        # Over the last half of the steps, but no more than the horizon.
        return 1 / max(1.0, min(self.options.average * self.steps_per_epoch, self.step / 2))

    def _step(self, batch: Part, loss: Loss, gain: float, weight: float | Tensor) -> None:
        """Take one step on a batch, and move the average towards the network by this weight."""
        options = self.options
        if self.dense is not None:
            self.dense(batch, loss, gain)
            self._move(weight)
            return
        self.optimiser.zero_grad(set_to_none=True)
        cost = batch.mean(batch.costs(self.net, loss.learning))
        if gain != 1:
            cost = cost * gain
        if options.l1 > 0:
            cost = cost + options.l1 * sum(p.abs().sum() for p in self.parameters if p.ndim > 1)
        cost.backward()  # type: ignore[no-untyped-call]
        self._move(weight)

    def _move(self, weight: float | Tensor) -> None:
        """Take the step that the gradients say, and move the average towards the network by this weight."""
        clip_gradients_(self.net, self.parameters, self.options.clip)
        self.optimiser.step()
        average_(self.averaged, self.net, weight)

    def _record(self, training: Part | Folds, loss: Loss, gain: float, first: Tensor) -> GraphedStep:
        """Record the steps on batches like the first."""
        self.average_weight = torch.zeros((), dtype=self.parameters[0].dtype, device=self.device)
        make_state(self.optimiser)
        changes = [*self.net.state_dict().values(), *self.averaged.state_dict().values()]
        changes += [v for state in self.optimiser.state.values() for v in state.values() if isinstance(v, Tensor)]

        def step(rows: Tensor) -> None:
            self._step(training.at(rows), loss, gain, self.average_weight)

        return GraphedStep(step, changes, first.shape, self.device)

    def _is_setback(self, reached: float) -> bool:
        """Whether a validation loss is too far above the best one, or not a number at all."""
        if self.options.setback is None:
            return False
        best = self.history.validation_loss[self.history.best_epoch]
        return not reached <= best + self.options.setback * abs(best)

    # ------------------------------------------------------------- what a checkpoint holds

    def saved(self) -> Saved:
        """Return the state, as a checkpoint writes it."""
        tensors = {}
        for name, state in (("net", state_of(self.net)), ("averaged", state_of(self.averaged)), ("best", self.best)):
            tensors.update({f"{name}/{key}": value for key, value in state.items()})
        optimiser, plain = optimiser_state(self.optimiser)
        tensors.update({f"optimiser/{key}": value for key, value in optimiser.items()})
        tensors["generator/order"] = self.order_generator.get_state()
        tensors["generator/mask"] = self.mask_generator.get_state()
        if self.draws:
            tensors.update({f"global/{key}": value for key, value in global_states(self.device).items()})
        document = {
            "history": asdict(self.history), "optimiser": plain, "step": self.step, "share": self.share,
            "elapsed": self.elapsed, "stopped": self.stopped, "losses": copy.deepcopy(self.losses),
        }  # fmt: skip
        return Saved(tensors, document)

    def resume(self, saved: Saved, own_optimiser: bool) -> None:
        """Take the state over; refuse one that cannot be a state of this training."""
        fresh = self.saved()
        if not fits(saved, fresh, self.steps_per_epoch, self.options.epochs):
            raise StateError
        if own_optimiser and not optimiser_fits(saved, dict(places(self.optimiser)), fresh):
            raise StateError

        def part(name: str) -> dict[str, Tensor]:
            return {key.split("/", 1)[1]: v for key, v in saved.tensors.items() if key.startswith(f"{name}/")}

        document = saved.document
        restore_(self.net, part("net"))
        restore_(self.averaged, part("averaged"))
        self.best = {key: value.to(self.device) for key, value in part("best").items()}
        try:
            set_optimiser_state(self.optimiser, part("optimiser"), document["optimiser"])
            self.order_generator.set_state(part("generator")["order"])
            self.mask_generator.set_state(part("generator")["mask"])
            if self.draws:
                set_global_states(part("global"), self.device)
        except (KeyError, RuntimeError, ValueError):  # no parameter of that name, no state of a generator
            raise StateError from None
        self.history = History(**document["history"])
        self.step, self.share = document["step"], document["share"]
        self.elapsed, self.stopped = document["elapsed"], document["stopped"]
        self.losses = document["losses"]


def _identity(
    run: _Run,
    training: Part | Folds | Buffered,
    validation: Part | Folds,
    loss: Loss,
    unit: float,
    seed: int,
    factory: Factory | None,
) -> Identity:
    """Return what a checkpoint must have in common with this training."""
    rows = {f"{name} {key}": value for name, part in (("training", training), ("validation", validation))
            for key, value in part.tensors().items()}  # fmt: skip
    cost = described(loss.function) if isinstance(loss, OwnLoss) else repr(loss)
    return Identity(
        seed=seed,
        versions=versions(),
        data=digest_of(rows),
        options=digest_of({}, asdict(run.options), cost, described(factory), run.device.type),
        network=digest_of(run.best, settings(run.net), unit),
    )


def _read(checkpoint: Checkpoint, identity: Identity, ranks: Ranks | None) -> Saved | None:
    """Return the state to go on from: that of rank 0's file."""
    return checkpoint.read(identity) if ranks is None else ranks.from_first(lambda: checkpoint.read(identity))
