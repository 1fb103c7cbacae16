"""A call of a model that can be made again: what it was given, its buffers, the random state, its outputs' gradients.

Enough to run its forward and backward as often as one likes, in the same process, without a trace in the run itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from mixprec.doctor._recorder._numbers import first_tensors
from mixprec.doctor._recorder._quiet import quiet

__all__ = ["Call", "all_finite", "captured", "held", "keep_gradient", "random_state", "set_random_state"]

WRAPPERS = {"DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}


@dataclass
class Call:
    """One call of an outermost module; `gradients` by the number of the output."""

    root: nn.Module
    args: Any
    regions: tuple[torch.autocast, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    random: tuple[Any, ...] = ()
    buffers: dict[int, Tensor] = field(default_factory=dict)
    learns: bool = True
    gradients: dict[int, Tensor] = field(default_factory=dict)

    def again(self, backward: bool) -> None:
        """Forward, and backward from the gradients that its outputs had."""
        with quiet():
            args, kwargs = held(self.args), held(self.kwargs)
        set_random_state(self.random)
        with _other_buffers(self.root, self.buffers):
            with contextlib.ExitStack() as stack, torch.set_grad_enabled(self.learns):
                if backward:  # the regions that the call was made in are over
                    for region in self.regions:
                        stack.enter_context(region)
                outputs = first_tensors(self.root(*args, **kwargs))
            if backward:
                self._backward(outputs, [*first_tensors(args), *first_tensors(kwargs)])

    def _backward(self, outputs: Sequence[Tensor], given: Sequence[Tensor]) -> None:
        pairs = [(outputs[n], g) for n, g in self.gradients.items() if n < len(outputs) and outputs[n].requires_grad]
        leaves = [leaf for leaf in (*self.root.parameters(), *given) if leaf.requires_grad]
        if pairs and leaves:
            torch.autograd.grad(
                [output for output, _ in pairs],
                leaves,
                [gradient.to(output.dtype) for output, gradient in pairs],
                allow_unused=True,
            )


def captured(module: nn.Module, args: tuple[Any, ...], regions: tuple[torch.autocast, ...]) -> Call:
    root = module
    while type(root).__name__ in WRAPPERS:
        root = getattr(root, WRAPPERS[type(root).__name__])
    with quiet():
        buffers = {id(buffer): buffer.detach().clone() for buffer in root.buffers()}
        given = held(args)
    return Call(root, given, regions, random=random_state(), buffers=buffers, learns=torch.is_grad_enabled())


def all_finite(tensors: Iterable[Tensor]) -> bool:
    with quiet():
        return all(bool(tensor.isfinite().all()) for tensor in tensors)


@contextlib.contextmanager
def _other_buffers(root: nn.Module, kept: dict[int, Tensor]) -> Iterator[None]:
    """Copies of `kept`, by `id` of the buffer, in place of the buffers, which a backward that is to come may need."""
    own = [(part, dict(part._buffers)) for part in root.modules()]
    with quiet():
        fresh = {number: buffer.clone() for number, buffer in kept.items()}
    try:
        for part, buffers in own:
            part._buffers.update({name: fresh.get(id(buffer), buffer) for name, buffer in buffers.items()})
        yield
    finally:
        for part, buffers in own:
            part._buffers.update(buffers)


def keep_gradient(call: Call, number: int, tensor: Tensor) -> None:
    def keep(gradient: Tensor) -> None:
        call.gradients[number] = gradient.detach()

    tensor.register_hook(keep)  # type: ignore[no-untyped-call] # torch leaves it untyped


def held(value: Any) -> Any:
    """Copies of the tensors in nested lists, tuples and dicts, as leaves of their own; other things as they are."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(map(held, value))
    return {key: held(item) for key, item in value.items()} if type(value) is dict else value


def random_state() -> tuple[Any, ...]:
    on_device = torch.cuda.is_available() and torch.cuda.is_initialized()  # type: ignore[no-untyped-call] # as above
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if on_device else None


def set_random_state(state: tuple[Any, ...]) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])
