"""A bf16 weight without a master still follows updates far below its spacing, by compensation or by chance.

Both wrappers run the wrapped optimizer on float32 copies of a few weights at a time and differ only in how the result
goes back into bf16: `KahanSum` keeps what rounding lost in a second 16-bit tensor and gives it back before the next
update; `StochasticRounding` keeps nothing and rounds up with the probability that makes the expected value exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from mixprec.errors import CheckpointError, InvalidValueError

__all__ = ["CHUNK", "KahanSum", "LowBit", "StochasticRounding", "round_stochastically"]

CHUNK = 2**24
"""Elements stepped together: 64 MiB of float32 weights, and as much of gradients, exist at a time."""

_COMPENSATION = "compensation"
_GENERATORS = "generators"


class LowBit(Optimizer):
    """A wrapped optimizer whose bf16 weights are updated in float32, `chunk` elements at a time. Use a subclass.

    Parameter groups and state are the wrapped optimizer's own, so schedulers may be attached to either and the state
    dict has torch's form. Weights in float32 are stepped as they are; the optimizer's state is kept in float32.

    Args:
        optimizer: any torch optimizer that treats parameters one by one and needs no closure.
        chunk: elements stepped together; a weight larger than this is stepped alone.

    Raises: InvalidValueError for what is no such optimizer, and for float16 weights.

    **Cost** beside the optimizer's own: R 4 W 2 bytes per parameter, and 8·`chunk` bytes of memory during the step.
    """

    _built = False

    def __init__(self, optimizer: Optimizer, *, chunk: int = CHUNK) -> None:
        if not isinstance(optimizer, Optimizer) or isinstance(optimizer, (LowBit, torch.optim.LBFGS)):
            advice = "LBFGS needs a closure, and wrappers are not stacked."
            raise InvalidValueError("optimizer", type(optimizer).__name__, "a torch optimizer to wrap", advice)
        if chunk < 1:
            raise InvalidValueError("chunk", chunk, "a number of elements, 1 or more")
        self.optimizer = optimizer
        self.chunk = chunk
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._built = True
        for parameter in (p for group in self.param_groups for p in group["params"]):
            _refuse_half(parameter)

    def _widen(self, weight: Tensor, state: Mapping[str, Any]) -> Tensor:
        """The float32 value that `weight` stands for, in memory of its own."""
        raise NotImplementedError

    def _narrow_(self, weight: Tensor, value: Tensor, state: dict[str, Any]) -> None:
        """Store the float32 `value` in `weight` and `state`."""
        raise NotImplementedError

    # What torch's base class would keep is the wrapped optimizer's, also after it replaced it (`load_state_dict`).

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The wrapped optimizer's groups."""
        return self.optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        if self._built:
            self.optimizer.param_groups = groups

    @property
    def state(self) -> Any:
        """The wrapped optimizer's state."""
        return self.optimizer.state

    @state.setter
    def state(self, state: Any) -> None:
        if self._built:
            self.optimizer.state = state

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's; the wrapped optimizer gets it."""
        if self._built:
            self.optimizer.add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override] # a closure would see float32 copies
        """Update every weight that has a gradient. Raises: InvalidValueError for a closure."""
        if closure is not None:
            raise InvalidValueError("closure", closure, "None", "Compute the loss and its gradients before the step.")
        held = [group["params"] for group in self.param_groups]
        try:
            for parts in _chunks(held, self.chunk):
                self._step_some(parts)
        finally:
            for group, parameters in zip(self.param_groups, held, strict=True):
                group["params"] = parameters

    def _step_some(self, parts: list[list[nn.Parameter]]) -> None:
        """One call of the wrapped optimizer for these parameters of each group."""
        stand_ins: list[tuple[nn.Parameter, nn.Parameter]] = []
        for group, parameters in zip(self.param_groups, parts, strict=True):
            group["params"] = [self._stand_in(p, stand_ins) for p in parameters]
        try:
            self.optimizer.step()
        finally:
            for weight, stand_in in stand_ins:
                self.state[weight] = self.state.pop(stand_in, {})
        for weight, stand_in in stand_ins:
            self._narrow_(weight, stand_in.detach(), self.state[weight])

    def _stand_in(self, weight: nn.Parameter, made: list[tuple[nn.Parameter, nn.Parameter]]) -> nn.Parameter:
        if weight.dtype is not torch.bfloat16:
            return weight
        assert weight.grad is not None
        state = self.state.pop(weight, {})
        stand_in = nn.Parameter(self._widen(weight, state))
        stand_in.grad = weight.grad.float()
        if state:
            self.state[stand_in] = {k: _widened(v) for k, v in state.items()}
        made.append((weight, stand_in))
        return stand_in

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, but the state keeps its dtype: torch would round float32 state to the weights' bf16."""
        self.optimizer.load_state_dict({**state_dict, "state": {}})
        saved = [i for group in state_dict["param_groups"] for i in group["params"]]
        mine = [p for group in self.param_groups for p in group["params"]]
        for index, weight in zip(saved, mine, strict=True):
            if index in state_dict["state"]:
                self.state[weight] = {k: _copied(v, weight) for k, v in state_dict["state"][index].items()}


class KahanSum(LowBit):
    """bf16 weights with a 16-bit compensation each: Kahan's idea, and nothing is lost.

        optimizer = KahanSum(torch.optim.AdamW(model.bfloat16().parameters(), lr=1e-3))

    A bf16 is the upper half of a float32. The compensation is the signed lower half, what rounding to the weight lost
    counted in units of the last place of float32, so the two are a float32 value and training is bit for bit that with
    float32 masters, at half their memory. The weight is the value rounded to nearest, ties away from zero.

    A compensation belongs to the weight that it was made with: where weights are loaded, load the optimizer's state.

    **Cost** beside `LowBit`'s: 2 bytes per parameter kept, R 2 W 2.
    """

    def _widen(self, weight: Tensor, state: Mapping[str, Any]) -> Tensor:
        full = weight.detach().float()
        if _COMPENSATION in state:
            full.view(torch.int32).add_(state[_COMPENSATION])
        return full

    def _narrow_(self, weight: Tensor, value: Tensor, state: dict[str, Any]) -> None:
        bits = value.contiguous().view(torch.int32)
        upper = (bits + 32768) & -65536
        state[_COMPENSATION] = (bits - upper).to(torch.int16)
        weight.copy_(torch.where(value.isnan(), value, upper.view(torch.float32)))


class StochasticRounding(LowBit):
    """bf16 weights that are rounded up or down at random, so that the expected value is the exact one.

        optimizer = StochasticRounding(torch.optim.AdamW(model.bfloat16().parameters(), lr=1e-3), seed=0)

    Nothing is kept beside the weights, and updates of any size count on average; each step adds noise of up to one
    spacing. The same seed gives the same run. Ranks that hold copies of one weight must have the same seed.

    Args:
        seed: of the generator of each device, whose state is in the state dict.

    **Cost** beside `LowBit`'s: one random 32-bit integer per parameter.
    """

    def __init__(self, optimizer: Optimizer, seed: int = 0, *, chunk: int = CHUNK) -> None:
        super().__init__(optimizer, chunk=chunk)
        self.seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}

    def _widen(self, weight: Tensor, state: Mapping[str, Any]) -> Tensor:
        return weight.detach().float()

    def _narrow_(self, weight: Tensor, value: Tensor, state: dict[str, Any]) -> None:
        weight.copy_(round_stochastically(value, self._generator(weight.device)))

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self.seed)
        return self._generators[device]

    def state_dict(self) -> dict[str, Any]:
        """As torch's, and the generators' states."""
        states = {str(device): generator.get_state() for device, generator in self._generators.items()}
        return {**super().state_dict(), _GENERATORS: states}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's, and the generators' states. Raises: CheckpointError where they are missing."""
        if _GENERATORS not in state_dict:
            message = "The optimizer state has no generators: it was not saved from StochasticRounding."
            raise CheckpointError(_GENERATORS, message)
        super().load_state_dict({k: v for k, v in state_dict.items() if k != _GENERATORS})
        for name, state in state_dict[_GENERATORS].items():
            self._generator(torch.device(name)).set_state(state.cpu())


def round_stochastically(value: Tensor, generator: torch.Generator) -> Tensor:
    """float32 `value` as bf16, up or down with the probability that makes the mean exact; any shape.

    A bf16 is the upper half of a float32, so a random number below 2^16 is added to the bits and the lower half
    dropped. Infinities and NaN stay, exact values stay, and a value above the largest bf16 may become infinite.

    **Cost**: one random integer per element, and 8 bytes per element of memory while it runs.
    """
    noise = torch.randint(0, 1 << 16, value.shape, generator=generator, device=value.device, dtype=torch.int32)
    bits = (value.contiguous().view(torch.int32) + noise) & -65536
    return torch.where(value.isfinite(), bits.view(torch.float32), value).to(torch.bfloat16)


def _chunks(groups: list[list[nn.Parameter]], size: int) -> Iterator[list[list[nn.Parameter]]]:
    """The parameters that have a gradient, in portions of at most `size` elements (or one parameter), per group."""
    parts: list[list[nn.Parameter]] = [[] for _ in groups]
    room = size
    for index, parameters in enumerate(groups):
        for parameter in parameters:
            if parameter.grad is None:
                continue
            if parameter.numel() > room and any(parts):
                yield parts
                parts, room = [[] for _ in groups], size
            parts[index].append(parameter)
            room -= parameter.numel()
    if any(parts):
        yield parts


def _refuse_half(parameter: Tensor) -> None:
    if parameter.dtype is torch.float16:
        advice = "In float16 the range is the problem: use Precision('fp16-master', optimizer, model=model)."
        raise InvalidValueError("a parameter's dtype", parameter.dtype, "torch.bfloat16 or torch.float32", advice)


def _widened(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype is torch.bfloat16 else value


def _copied(value: Any, weight: Tensor) -> Any:
    if not isinstance(value, Tensor):
        return value
    return value.detach().clone().to(weight.device if value.dim() else value.device)
