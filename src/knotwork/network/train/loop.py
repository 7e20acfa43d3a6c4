"""The loop of training, which keeps what the start knows.

Networks are trained in standardised coordinates, so that units of measurement do not matter. The learning rate warms
up slowly, because a few full-size steps destroy a converted start. An epoch after which the validation rows are
predicted clearly worse than before may be undone, and the rate halved: whatever a start knows, it then loses no more
than a few percent of it. Epoch 0 is a checkpoint like any other: on the validation rows the result is never worse than
what training began with.

Equal seeds give equal bits on the CPU, and so does a training that goes on from a checkpoint: everything that decides
about the next epoch is in ``_Run``, and nothing depends on the number of threads.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.errors import NetworkError
from knotwork.network.train.checkpoint import Checkpoint, Identity, Saved, described, digest_of, settings, versions
from knotwork.network.train.graphed import GraphedStep
from knotwork.network.train.history import History
from knotwork.network.train.losses import Loss, OwnLoss, SquaredError
from knotwork.network.train.optimiser import (
    Factory,
    Schedule,
    forget_direction,
    make_optimiser,
    make_state,
    optimiser_state,
    places,
    set_optimiser_state,
    set_rate,
)
from knotwork.network.train.randomness import draws, global_generator, global_states, own_dropout, set_global_states
from knotwork.network.train.resumable import StateError, fits, optimiser_fits
from knotwork.network.train.rows import Part, Rows
from knotwork.network.train.threads import step_threads, torch_threads

# Called after every epoch with its number, the history so far, and the network with the averaged weights; True ends
# the training.
Report = Callable[[int, History, nn.Module], bool | None]


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
    training: Rows,
    validation: Part,
    options: TrainOptions,
    *,
    seed: int,
    loss: Loss | None = None,
    unit: float = 1.0,
    report: Report | None = None,
    optimiser: Factory | None = None,
    checkpoint: Checkpoint | None = None,
) -> History:
    """Train a network in place, in the coordinates it is given, and leave it with the weights of its best epoch.

    ``unit`` is what one unit of the loss is worth in the history. A KeyboardInterrupt goes on to the caller; the
    network then has the best weights so far, and the exception a note that says so. The checkpoint's file stays until
    the caller removes it.
    """
    loss = loss or SquaredError()
    run = _Run.begin(net, training, options, loss, seed, optimiser)
    identity = None
    if checkpoint is not None:
        if not isinstance(training, Part):
            raise NetworkError("a checkpoint needs rows in memory, whose order it can go back to, got a loader of them")
        identity = _identity(run, training, validation, loss, unit, seed, optimiser)
    with ExitStack() as stack:
        if training.device.type == "cpu":
            stack.enter_context(torch_threads(step_threads(net, options.batch_size)))
        stack.enter_context(own_dropout(net, options.dropout, run.mask_generator))
        if run.draws:
            stack.enter_context(global_generator(seed, training.device))
        try:
            if checkpoint is not None and identity is not None and (saved := checkpoint.read(identity)) is not None:
                try:
                    run.resume(saved, own_optimiser=optimiser is None)
                except StateError:
                    raise checkpoint.damaged() from None
            while not run.has_ended:
                run.epoch(training, validation, loss, unit)
                if report is not None and report(run.last_epoch, run.history, run.averaged):
                    run.stopped = True
                if checkpoint is not None and identity is not None and (run.last_epoch == 0 or checkpoint.is_due()):
                    checkpoint.write(identity, run.saved())
        except KeyboardInterrupt as interrupt:
            _restore(net, run.best)
            interrupt.add_note(
                f"training was interrupted in epoch {run.last_epoch + 1}; the network has its best weights so far, "
                f"those of epoch {run.history.best_epoch}"
            )
            if checkpoint is not None:
                interrupt.add_note(f"the same call, with the network as it was, goes on from {checkpoint.path}")
            raise
    _restore(net, run.best)
    return run.history


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

    @classmethod
    def begin(
        cls, net: nn.Module, training: Rows, options: TrainOptions, loss: Loss, seed: int, factory: Factory | None
    ) -> _Run:
        """Make a fresh optimiser and fresh generators."""
        parameters = [p for p in net.parameters() if p.requires_grad]
        if not parameters:
            raise NetworkError("a network needs parameters that require gradients to be trained, this one has none")
        steps = training.steps(options.batch_size)
        made = make_optimiser(parameters, options.learning_rate, options.weight_decay, loss.adam_epsilon, factory)
        averaged = copy.deepcopy(net)
        quiet = not draws(net) and options.dropout == 0 and not any(isinstance(m, nn.Dropout) for m in net.modules())
        known = factory is None and not isinstance(loss, OwnLoss)
        return cls(
            net=net,
            averaged=averaged,
            best=_state(averaged),
            options=options,
            optimiser=made,
            parameters=parameters,
            rates=[Schedule(float(g["lr"]), options.warmup, options.epochs * steps) for g in made.param_groups],
            steps_per_epoch=steps,
            order_generator=torch.Generator().manual_seed(seed),
            mask_generator=torch.Generator(training.device).manual_seed(seed),
            draws=draws(net) or not isinstance(training, Part),
            device=training.device,
            can_record=quiet and known and all(p.is_cuda for p in parameters),
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

    def epoch(self, training: Rows, validation: Part, loss: Loss, unit: float) -> None:
        """Run the next epoch; the first one, epoch 0, only looks at the losses."""
        start = time.perf_counter()
        history, epoch = self.history, self.last_epoch + 1
        if epoch > 0:
            self._steps(training, loss, unit)
        reached = _evaluate(self.averaged, validation, loss) * unit
        rate = self.share * self.rates[0][self.step - 1] if self.step else 0.0
        if epoch > 0 and self._is_setback(reached):
            for part in (self.net, self.averaged):
                _restore(part, self.best)
            forget_direction(self.optimiser)
            self.share /= 2
            history.undone.append(epoch)
            trained, reached = history.train_loss[history.best_epoch], history.validation_loss[history.best_epoch]
        else:
            trained = _evaluate(self.averaged, training, loss) * unit
        if epoch == 0 and not np.isfinite(reached):
            raise NetworkError("the network's loss is not finite before training; check its weights and the data")
        best = _state(self.averaged) if epoch > 0 and reached < history.validation_loss[history.best_epoch] else None
        self.elapsed += time.perf_counter() - start
        history.learning_rate.append(rate)
        history.validation_loss.append(reached)
        history.seconds.append(self.elapsed)
        history.train_loss.append(trained)
        if best is not None:
            history.best_epoch, self.best = epoch, best

    def _steps(self, training: Rows, loss: Loss, unit: float) -> None:
        """Run the steps of an epoch."""
        # Responses below 1e-162 have no squares: their losses are 0, in any unit.
        gain = loss.gain(self.history.train_loss[0] / unit if unit > 0 else 0.0)
        size = self.options.batch_size
        self.net.train()
        if not (self.can_record and isinstance(training, Part) and size <= len(training)):
            for batch in training.shuffled(size, self.order_generator):
                self._step(batch, loss, gain, self._next())
            return
        if self.graphed is None:
            self.graphed = self._record(training, loss, gain)
        for rows in training.orders(size, self.order_generator):
            weight = self._next()
            if len(rows) == size:
                self.average_weight.fill_(weight)
                self.graphed(rows)
            else:
                self._step(training.at(rows), loss, gain, weight)

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
        self.optimiser.zero_grad(set_to_none=True)
        cost = _mean(loss.learning(self.net(batch.x), batch.y), batch.weight)
        if gain != 1:
            cost = cost * gain
        if options.l1 > 0:
            cost = cost + options.l1 * sum(p.abs().sum() for p in self.parameters if p.ndim > 1)
        cost.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters, options.clip)
        self.optimiser.step()
        _average(self.averaged, self.net, weight)

    def _record(self, training: Part, loss: Loss, gain: float) -> GraphedStep:
        """Record the steps on full batches."""
        self.average_weight = torch.zeros((), dtype=self.parameters[0].dtype, device=self.device)
        make_state(self.optimiser)
        changes = [*self.net.state_dict().values(), *self.averaged.state_dict().values()]
        changes += [v for state in self.optimiser.state.values() for v in state.values() if isinstance(v, Tensor)]

        def step(rows: Tensor) -> None:
            self._step(training.at(rows), loss, gain, self.average_weight)

        return GraphedStep(step, changes, self.options.batch_size, self.device)

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
        for name, state in (("net", _state(self.net)), ("averaged", _state(self.averaged)), ("best", self.best)):
            tensors.update({f"{name}/{key}": value for key, value in state.items()})
        optimiser, plain = optimiser_state(self.optimiser)
        tensors.update({f"optimiser/{key}": value for key, value in optimiser.items()})
        tensors["generator/order"] = self.order_generator.get_state()
        tensors["generator/mask"] = self.mask_generator.get_state()
        if self.draws:
            tensors.update({f"global/{key}": value for key, value in global_states(self.device).items()})
        document = {
            "history": asdict(self.history), "optimiser": plain, "step": self.step, "share": self.share,
            "elapsed": self.elapsed, "stopped": self.stopped,
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
        _restore(self.net, part("net"))
        _restore(self.averaged, part("averaged"))
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


def _identity(
    run: _Run, training: Part, validation: Part, loss: Loss, unit: float, seed: int, factory: Factory | None
) -> Identity:
    """Return what a checkpoint must have in common with this training."""
    rows = {f"{name} {key}": value for name, part in (("training", training), ("validation", validation))
            for key, value in vars(part).items()}  # fmt: skip
    cost = described(loss.function) if isinstance(loss, OwnLoss) else repr(loss)
    return Identity(
        seed=seed,
        versions=versions(),
        data=digest_of(rows),
        options=digest_of({}, asdict(run.options), cost, described(factory), run.device.type),
        network=digest_of(run.best, settings(run.net), unit),
    )


def _average(averaged: nn.Module, net: nn.Module, weight: float | Tensor) -> None:
    """Move the averaged weights towards the current ones."""
    ours: list[Tensor] = list(averaged.parameters())
    theirs: list[Tensor] = list(net.parameters())
    with torch.no_grad():
        if isinstance(weight, Tensor):
            torch._foreach_lerp_(ours, theirs, [weight.to(p.dtype) for p in ours])
        else:
            torch._foreach_lerp_(ours, theirs, weight)
        # BatchNorm's statistics go with the weights that they are of; what else a layer remembers is its latest.
        for (name, own), other in zip(averaged.named_buffers(), net.buffers(), strict=True):
            if name.endswith(("running_mean", "running_var")):
                own.lerp_(other, weight)
            else:
                own.copy_(other)


def _mean(costs: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted mean; zero, with a gradient of zero, where no row has a weight."""
    return (costs * weight).sum() / weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)


def _evaluate(net: nn.Module, rows: Rows, loss: Loss) -> float:
    net.eval()
    # Summed where the rows are, and looked at once.
    kind = torch.float32 if rows.device.type == "mps" else torch.float64  # some devices have no float64
    cost = weight = torch.zeros((), dtype=kind, device=rows.device)
    with torch.no_grad():
        for part in rows.chunks():
            cost = cost + (loss.rows(net(part.x), part.y) * part.weight).sum()
            weight = weight + part.weight.sum()
    return float(cost / weight)


def _state(net: nn.Module) -> dict[str, Tensor]:
    found = net.state_dict().items()
    return {name: value.detach().clone() for name, value in found if isinstance(value, Tensor)}


def _restore(net: nn.Module, state: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in net.state_dict().items():
            if isinstance(value, Tensor):
                value.copy_(state[name])
