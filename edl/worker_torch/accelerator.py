"""Takes the place of Hugging Face Accelerate's `Accelerator` in a training script: the script then trains in step.

    from edl.worker_torch import Accelerator        # instead of: from accelerate import Accelerator
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(3):
        for x, y in loader:
            accelerator.backward(loss_function(model(x), y))
            optimizer.step()
            optimizer.zero_grad()

It has the methods that such a loop needs, and refuses the others by name, so that no script trains on with another
meaning. Accelerate itself is not used and need not be installed.
Source: https://huggingface.co/docs/accelerate, "Adding Accelerate to your code".
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterator
from typing import Any

from edl.errors import ConfigError
from edl.worker.job import Job, connect
from edl.worker.steps import Piece, StepDone
from edl.worker_torch.elastic import Elastic

try:
    from torch import nn, optim
    from torch.utils.data import DataLoader
except ImportError as error:
    raise ConfigError(
        "edl.worker_torch needs the package torch, which is not installed here; run pip install torch"
    ) from error

LEFT = 143
"""The exit code of a trainer that left after SIGTERM."""


class Accelerator:
    """One trainer of the job.

    Args:
        job: by default the connection that `edl.worker.connect` makes.
        options: of `Elastic`, such as `save_every`; without a global batch in the spec of the job, the batch of the
            loader is the global one.

    Attributes:
        elastic: what trains; None before `prepare`.
    """

    def __init__(self, job: Job | None = None, **options: Any) -> None:
        self._job, self._options = job or connect(), options
        self.elastic: Elastic | None = None

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"Accelerator of edl.worker_torch has no {name}: with trainers that come and go it would not mean what it"
            " means in Accelerate; take it out, or write the loop with edl.worker_torch.Elastic"
        )

    def prepare(self, *parts: Any) -> Any:
        """The same parts, made for training in step.

        Args:
            parts: a model, its optimizer, the DataLoader of the training data, and if need be a learning-rate
                scheduler that makes a step after each step of the optimizer. Other loaders are returned unchanged.

        Raises:
            ConfigError: a part is missing, or the DataLoader and the data set of the job do not fit together.
        """
        model = self._only(parts, nn.Module, "model")
        optimizer = self._only(parts, optim.Optimizer, "optimizer")
        loaders = [part for part in parts if isinstance(part, DataLoader)]
        others = [part for part in parts if part not in (model, optimizer) and not isinstance(part, DataLoader)]
        if not loaders or len(others) > 1:
            raise ConfigError(
                "Accelerator.prepare: give a model, an optimizer, the DataLoader of the training data, and at most"
                " one learning-rate scheduler"
            )
        data, scheduler = loaders[0], others[0] if others else None
        self._check(data)
        options = {"collate": data.collate_fn, **self._options}
        if not os.environ.get("EDL_GLOBAL_BATCH"):  # what spec.elasticity.globalBatch sets
            options.setdefault("global_batch", data.batch_size)
        self.elastic = Elastic(
            self._job, model, optimizer, read=data.dataset.__getitem__, scheduler=scheduler, **options
        )
        replaced: dict[int, Any] = {id(part): _NoSteps(part) for part in (optimizer, *others)}
        replaced[id(data)] = _Epochs(self._job, self.elastic)
        return tuple(replaced.get(id(part), part) for part in parts)

    def backward(self, loss: Any, **options: Any) -> None:
        """Compute the gradients of a loss: the mean over its batch."""
        loss.backward(**options)

    def clip_grad_norm_(self, parameters: Any, max_norm: float, norm_type: float = 2.0) -> Any:
        """Clip the gradient of the step that comes, once it is summed over all trainers.

        Args:
            parameters: all that the optimizer has, such as `model.parameters()`.
            max_norm: the greatest norm of the gradient of a step; the same in every trainer.
            norm_type: 2 is the only one.

        Returns:
            The norm of the gradient of the last step, since that of this step is not known yet; nan in the first one.

        Raises:
            ConfigError: a value cannot be used, or `prepare` was not called.
        """
        if self.elastic is None:
            raise ConfigError("Accelerator.clip_grad_norm_: no optimizer is known; call prepare(...) first")
        given = {id(one) for one in ([parameters] if isinstance(parameters, nn.Parameter) else parameters)}
        owned = self.elastic.parameters
        found = sum(id(one) in given for one in owned)
        if norm_type != 2.0 or found < len(owned):
            raise ConfigError(
                f"Accelerator.clip_grad_norm_: it got {found} of the {len(owned)} parameters of the optimizer and"
                f" norm_type={norm_type}; one norm of type 2 is that of the whole step: pass model.parameters()"
            )
        return self.elastic.clip_grad_norm(max_norm)

    def unwrap_model(self, model: nn.Module) -> nn.Module:
        """The model itself."""
        return model

    def print(self, *words: object) -> None:
        """Print in one trainer."""
        if self.is_main_process:
            sys.stdout.write(" ".join(map(str, words)) + "\n")
            sys.stdout.flush()

    @property
    def process_index(self) -> int:
        """The rank of this trainer now; 0 before the first step."""
        world = self._job.world()
        return world.rank if world is not None else 0

    @property
    def num_processes(self) -> int:
        """How many trainers there are now; 1 before the first step."""
        world = self._job.world()
        return world.size if world is not None else 1

    @property
    def is_main_process(self) -> bool:
        """True in one trainer."""
        return self.process_index == 0

    @staticmethod
    def _only(parts: tuple[Any, ...], kind: type, name: str) -> Any:
        found = [part for part in parts if isinstance(part, kind)]
        if len(found) != 1:
            raise ConfigError(f"Accelerator.prepare: it got {len(found)} of {name}; give exactly one {name}")
        return found[0]

    def _check(self, data: Any) -> None:
        source, total = self._job.dataset["source"], self._job.dataset["total"]
        length = len(data.dataset) if hasattr(data.dataset, "__len__") else None
        if not str(source).startswith("index:") or length != total:
            raise ConfigError(
                f"Accelerator.prepare: the data of the DataLoader has {length} records, and the job trains on"
                f" {source!r} with {total}; set spec.dataset.source to index:N with the length of the data, and give"
                " the loader of the training data first"
            )


class _NoSteps:
    """An optimizer or a scheduler whose steps the loader makes, once all trainers have their gradients."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def step(self, *_: object) -> None:
        """The loader makes the step when the loop asks for the next batch."""

    def zero_grad(self, **_: object) -> None:
        """The loader forgets the gradients when it has added them up."""


class _Epochs:
    """Iterates over the batches of this trainer, an epoch at a time; after the last one it is empty.

    A trainer that came late begins with the epoch of the others.
    """

    def __init__(self, job: Job, elastic: Elastic) -> None:
        self._job, self._elastic = job, elastic
        self._batches = self._to_the_end()
        self._next: tuple[Piece, Any] | None = None
        self._has_ended = False

    def __iter__(self) -> Iterator[Any]:
        first = self._take()
        while (found := self._take()) is not None:
            first = first or found
            if found[0].epoch > first[0].epoch:
                return
            self._next = None
            yield found[1]

    def _take(self) -> tuple[Piece, Any] | None:
        """The batch that comes next, which stays the next one until `_next` is None."""
        if self._next is None and not self._has_ended:
            self._next = next(self._batches, None)
            self._has_ended = self._next is None
        return self._next

    def _to_the_end(self) -> Generator[tuple[Piece, Any], None, None]:
        with self._job:
            yield from (event for event in self._elastic.events() if not isinstance(event, StepDone))
            if self._job.leaving():
                sys.exit(LEFT)
