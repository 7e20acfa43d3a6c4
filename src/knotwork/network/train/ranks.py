"""Several processes that train one network, each on rows of its own: the ranks of ``torch.distributed``.

Whatever decides about a training is a sum over the rows of all ranks, or rank 0's: every rank then takes the same steps
and ends with the same weights. A rank that refuses its rows tells the others before training begins, and after every
epoch; a rank that dies breaks its connections. In both cases the others raise a ``RankError``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from knotwork.arrays import Floats
from knotwork.errors import NetworkError, RankError, one_line

T = TypeVar("T")


def rank_count() -> int:
    """Return the number of processes that torch.distributed has brought together, 1 without it."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())


@contextmanager
def joined_ranks(device: torch.device) -> Iterator[Ranks | None]:
    """Yield the ranks of a training on that device, None if there is one process only.

    An error in the block is told to the other ranks where they listen.
    """
    if rank_count() == 1:
        yield None
        return
    ranks = Ranks(device)
    try:
        yield ranks
    except RankError:
        raise
    except Exception as error:
        if ranks.listening:
            with suppress(RankError):
                ranks.tell_failure(error)
        raise


class Ranks:
    """The processes of torch.distributed's default group.

    rank : the number of this process; count : of all of them
    listening : whether the next message of every rank is a ``gather``, so that a rank that fails can say so there
    """

    def __init__(self, device: torch.device) -> None:
        from torch import distributed

        self._distributed = distributed
        self.rank, self.count = distributed.get_rank(), distributed.get_world_size()
        self.device = device
        self.listening = True
        backends = distributed.get_backend_config()
        if f"{device.type}:" not in backends:
            raise NetworkError(
                f"ranks must exchange gradients where the network is, on {device.type}, and the process group has "
                f"{backends}; move the network, or call init_process_group('gloo')"
            )

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes files and shows progress."""
        return self.rank == 0

    def seed(self, seed: int, *more: int) -> int:
        """Return a seed of this rank's own."""
        return int(np.random.SeedSequence((seed, self.rank, *more)).generate_state(1)[0] >> 1)

    # ------------------------------------------------------------- values

    def gather(self, value: T) -> list[T]:
        """Return every rank's value, in their order; raise if one of them has failed."""
        found = self._gathered((None, value))
        for rank, (failure, _) in enumerate(found):
            if failure is not None:
                raise RankError(f"ranks train together or not at all, and rank {rank} has failed: {failure}")
        return [value for _, value in found]

    def meet(self) -> None:
        """Wait for all ranks; from here on none of them listens to failures."""
        self.gather(None)
        self.listening = False

    def tell_failure(self, error: Exception) -> None:
        """Tell the others, who are in ``gather``, that this rank has failed."""
        self._gathered((f"{type(error).__name__}: {one_line(error)}", None))

    def _gathered(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.count
        with self._answers():
            self._distributed.all_gather_object(found, value)
        return found

    def from_first(self, make: Callable[[], T]) -> T:
        """Return what rank 0 makes; raise on all ranks if it cannot."""
        made: list[Any] = [None]
        error = None
        if self.is_first:
            try:
                made = [(None, make())]
            except Exception as failure:
                error = failure
        if error is not None:
            raise error  # the others are told where they gather, in the next line
        self.gather(None)
        with self._answers():
            self._distributed.broadcast_object_list(made, src=0)
        value: T = made[0][1]
        return value

    def require_same(self, what: dict[str, Any]) -> None:
        """Refuse ranks that differ in something, given by its name."""
        found = self.gather(what)
        for rank, other in enumerate(found):
            different = [name for name, value in found[0].items() if other.get(name) != value]
            if different:
                raise NetworkError(
                    f"all ranks must train alike, rank {rank} has other {' and '.join(different)} than rank 0; "
                    f"only the rows may differ"
                )

    def weighted_mean(self, value: float, weight: float) -> float:
        """Return the mean of the ranks' values, which have weights."""
        values, weights = zip(*self.gather((value, weight)), strict=True)
        return float(np.average(values, weights=weights))

    def spread_rows(self, X: Floats, most: int) -> Floats:
        """Return rows at equal distances among those of all ranks, one rank's after the other's: (N, d) → (≤ most, d).

        They are the same on every rank, and those of one process that has all rows.
        """
        counts = self.gather(len(X))
        every = -(-sum(counts) // most)
        first = -sum(counts[: self.rank]) % every
        return np.concatenate(self.gather(X[first::every]))

    # ------------------------------------------------------------- tensors

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum of the ranks' tensors."""
        found = tensor.detach().clone()
        with self._answers():
            self._distributed.all_reduce(found)
        return found

    def broadcast_(self, tensors: Sequence[Tensor]) -> None:
        """Set tensors to those of rank 0."""
        with torch.no_grad():
            for dtype in dict.fromkeys(t.dtype for t in tensors):
                some = [t for t in tensors if t.dtype == dtype]
                flat = _flat(some)
                with self._answers():
                    self._distributed.broadcast(flat, src=0)
                _set(some, flat)

    def mean_gradients_(self, parameters: Sequence[nn.Parameter], weight: Tensor | None) -> bool:
        """Set gradients of weighted sums to those of the weighted mean over the rows of all ranks.

        weight : sum of the weights of this rank's rows, None if it has none left
        Returns whether any rank has rows. A parameter that no rank used has no gradient.
        """
        dtype = torch.float64 if any(p.dtype == torch.float64 for p in parameters) else torch.float32
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        used = [float(p.grad is not None) for p in parameters]
        own = [0.0, 0.0] if weight is None else [float(weight), 1.0]
        tail = torch.tensor([*own, *used], dtype=dtype, device=self.device)
        # One message: networks of tables are small, and each message has to wait for the slowest rank.
        flat = torch.cat([*(g.reshape(-1).to(dtype) for g in gradients), tail])
        with self._answers():
            self._distributed.all_reduce(flat)
        total, taking_part, *by_parameter = flat[-len(tail) :].tolist()
        if taking_part == 0:
            return False
        _set(gradients, flat[: -len(tail)] / total)
        for p, gradient, users in zip(parameters, gradients, by_parameter, strict=True):
            p.grad = gradient if users > 0 else None
        return True

    def share_buffers_(self, net: nn.Module) -> None:
        """Make what layers remember the same on all ranks: BatchNorm's statistics their means, the rest rank 0's."""
        named = dict(net.named_buffers())
        means = [b for name, b in named.items() if name.endswith(("running_mean", "running_var"))]
        others = [b for name, b in named.items() if not name.endswith(("running_mean", "running_var"))]
        if means:
            _set(means, self.sum(_flat(means)) / self.count)
        self.broadcast_(others)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Turn what backends raise when a rank does not answer into one sentence."""
        try:
            if self.device.type == "cuda":
                with torch.cuda.device(self.device):
                    yield
            else:
                yield
        except RuntimeError as error:  # of torch.distributed's own: connection closed, timeout
            raise RankError(
                f"all {self.count} ranks must go on together, and one that rank {self.rank} waits for has ended or "
                f"does not answer; start all of them again, with checkpoint=path they go on from where they were "
                f"({one_line(error, 160)})"
            ) from error


@contextmanager
def same_weights(net: nn.Module, ranks: Ranks | None) -> Iterator[None]:
    """Begin with the weights of rank 0; a rank that fails has its own ones again."""
    if ranks is None:
        yield
        return
    state = [value for value in net.state_dict().values() if isinstance(value, Tensor)]
    before = [value.detach().clone() for value in state]
    try:
        ranks.broadcast_(state)
        yield
    except Exception:
        with torch.no_grad():
            for value, own in zip(state, before, strict=True):
                value.copy_(own)
        raise


def require_own_gradients(net: nn.Module) -> None:
    """Refuse layers that exchange tensors themselves."""
    for module in net.modules():
        if isinstance(module, nn.parallel.DistributedDataParallel):
            raise NetworkError(
                "train averages the gradients of all ranks itself, got a network in DDP; pass net.module"
            )
        if isinstance(module, nn.SyncBatchNorm):
            raise NetworkError(
                "train takes ranks with different numbers of rows, SyncBatchNorm waits for rows of all of them; use "
                "BatchNorm, whose statistics train averages"
            )


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def _set(tensors: Sequence[Tensor], flat: Tensor) -> None:
    with torch.no_grad():
        for tensor, piece in zip(tensors, torch.split(flat, [t.numel() for t in tensors]), strict=True):
            tensor.copy_(piece.view(tensor.shape))
