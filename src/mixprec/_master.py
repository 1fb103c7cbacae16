"""A 16-bit weight is always the rounding of its float32 master, and only the master is ever updated.

The optimizer's parameter groups hold the masters, so any optimizer works and knows of nothing else. Gradients are read
from the 16-bit weights once, into the float32 gradients that the optimizer sees, and exist in one place at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.optim import Optimizer

from mixprec.errors import CheckpointError, InvalidValueError, MisuseError

__all__ = ["MasterWeights", "lower_"]

_HALVES = (torch.float16, torch.bfloat16)


def lower_(model: nn.Module, dtype: torch.dtype) -> dict[nn.Parameter, Tensor]:
    """Store `model`'s float32 parameters in `dtype`, in place, and return the float32 values that they had.

    Batch normalisation keeps float32, as its running statistics do; buffers stay as they are, because positions and
    frequencies kept in them do not survive 16 bits. The parameters stay the same objects, tied ones stay tied.

    **Cost**: 2 bytes per parameter beside the float32 values, which are not copied.
    """
    kept = {p for module in model.modules() if isinstance(module, _BatchNorm) for p in module.parameters()}
    lowered = {p: p.data for p in model.parameters() if p.dtype is torch.float32 and p not in kept}
    for parameter, full in lowered.items():
        parameter.data = full.to(dtype)
        parameter.grad = None
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # cuDNN wants the weights of a recurrent layer in one piece
    return lowered


class MasterWeights:
    """Float32 masters of the `dtype` parameters of `optimizers`, put in their place in the parameter groups.

    Args:
        optimizers: their groups are changed in place; state that they hold already follows to the masters.
        dtype: `torch.float16` or `torch.bfloat16`.
        model: its float32 parameters are lowered first (`lower_`); without it the parameters must be `dtype` already.

    Raises: MisuseError where there is nothing in `dtype` to keep masters of, InvalidValueError for another dtype.

    **Cost**: 4 bytes per parameter kept, and 4 more for float32 gradients from `gather_` until they are cleared. Per
    step 6 bytes moved per parameter by `gather_` and 6 by `publish_`; one foreach launch each, no host sync.
    """

    def __init__(self, optimizers: Sequence[Optimizer], dtype: torch.dtype, model: nn.Module | None = None) -> None:
        if dtype not in _HALVES:
            raise InvalidValueError("dtype", dtype, "torch.float16 or torch.bfloat16")
        full = {} if model is None else lower_(model, dtype)
        names = {} if model is None else {p: name for name, p in model.named_parameters()}
        self._pairs: dict[str, tuple[Tensor, nn.Parameter]] = {}
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["params"] = [self._master_of(p, dtype, full, names, optimizer) for p in group["params"]]
        if not self._pairs:
            raise MisuseError("MP120", "model", _nothing_lowered(dtype))
        self._versions = self._seen()

    @property
    def weights(self) -> list[Tensor]:
        """The 16-bit weights, in the order of their masters."""
        return [weight for weight, _ in self._pairs.values()]

    @property
    def masters(self) -> list[Tensor]:
        """The float32 masters, in the order of the optimizers' groups."""
        return [master for _, master in self._pairs.values()]

    def gather_(self) -> None:
        """Move the 16-bit gradients to the masters, adding to what is there; the 16-bit ones are gone afterwards.

        **Cost**: R 2 W 4 bytes per parameter, R 6 W 4 where gradients are there already.
        """
        self.follow_()
        wide: list[Tensor] = []
        low: list[Tensor] = []
        for weight, master in self._pairs.values():
            gradient, weight.grad = weight.grad, None
            if gradient is None:
                continue
            if master.grad is not None:
                master.grad = master.grad.add_(gradient)
            elif gradient.layout is torch.strided:
                master.grad = torch.empty_like(gradient, dtype=torch.float32)
                wide.append(master.grad)
                low.append(gradient)
            else:
                master.grad = gradient.float()
        if wide:
            torch._foreach_copy_(wide, low)

    @torch.no_grad()
    def publish_(self) -> None:
        """Round the masters into the 16-bit weights; no change where no step was applied. **Cost**: R 4 W 2."""
        torch._foreach_copy_(self.weights, self.masters)
        self.published_()

    def published_(self) -> None:
        """To be called where somebody else rounded the masters into the weights. Cost: Python only."""
        self._versions = self._seen()

    @torch.no_grad()
    def follow_(self) -> None:
        """Let masters follow weights that were set from outside (`load_state_dict`, initialisation), by element.

        A master is replaced only where its weight is no longer its rounding, so swapping weights out and back loses
        nothing. Writes through `.data` are not seen. **Cost**: Python only, unless a weight was written.
        """
        seen = self._seen()
        if seen == self._versions:
            return
        for (weight, master), old, new in zip(self._pairs.values(), self._versions, seen, strict=True):
            if old != new:
                master.copy_(torch.where(master.to(weight.dtype) == weight, master, weight.float()))
        self._versions = seen

    def state_dict(self) -> dict[str, Tensor]:
        """The masters by the names of their weights; references, as in a module's state."""
        return {name: master.detach() for name, (_, master) in self._pairs.items()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore masters and weights exactly. Raises: CheckpointError, before anything is written."""
        self.check_state_dict(state)
        for name, (_, master) in self._pairs.items():
            master.copy_(state[name])
        self.publish_()

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises `CheckpointError` for a state that does not fit, and names the weight."""
        for name, problem in _problems(state, {name: master for name, (_, master) in self._pairs.items()}):
            raise CheckpointError(name, f"The master weight {name!r} cannot be restored: {problem}.")

    def _master_of(
        self,
        parameter: nn.Parameter,
        dtype: torch.dtype,
        full: Mapping[nn.Parameter, Tensor],
        names: Mapping[nn.Parameter, str],
        optimizer: Optimizer,
    ) -> nn.Parameter:
        if parameter.dtype is not dtype:
            return parameter
        value = full[parameter] if parameter in full else parameter.detach().float()
        master = nn.Parameter(value, requires_grad=parameter.requires_grad)
        self._pairs[names.get(parameter, str(len(self._pairs)))] = (parameter, master)
        if parameter in optimizer.state:
            optimizer.state[master] = _widened(optimizer.state.pop(parameter))
        return master

    def _seen(self) -> list[int]:
        return [weight._version for weight, _ in self._pairs.values()]


def _widened(state: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v.float() if isinstance(v, Tensor) and v.dtype in _HALVES else v for k, v in state.items()}


def _nothing_lowered(dtype: torch.dtype) -> str:
    name = str(dtype).removeprefix("torch.")
    return (
        f"The optimizers hold no {name} parameter, so there is nothing to keep float32 masters of. Give model=model to "
        f"have its weights stored in {name}, or build the model in {name} before the optimizer."
    )


def _problems(state: Mapping[str, Any], masters: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    for name, master in masters.items():
        saved = state.get(name)
        if not isinstance(saved, Tensor):
            yield name, "it is missing from the checkpoint"
        elif saved.shape != master.shape:
            yield name, f"its shape is {tuple(saved.shape)} in the checkpoint and {tuple(master.shape)} here"
        elif saved.dtype is not torch.float32:
            yield name, f"it is {str(saved.dtype).removeprefix('torch.')} in the checkpoint, not float32"
    for name in state.keys() - masters.keys():
        yield name, "the model has no such weight"
