"""What PyTorch really does with each op, watched from behind its autocast kernels; works without the device."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

KEYS = {
    "cpu": ("AutocastCPU", "AutogradCPU"),
    "cuda": ("AutocastCUDA", "AutogradCUDA"),
    "mps": ("AutocastMPS", "AutogradMPS"),
    "xpu": ("AutocastXPU", "AutogradXPU"),
}
LOW = torch.float16

SAMPLES: dict[str, Callable[[torch.Tensor], Any]] = {
    "Tensor": lambda t: t,
    "Optional[Tensor]": lambda t: t,
    "List[Tensor]": lambda t: [t, t],
    "List[Optional[Tensor]]": lambda t: [t],
    "int": lambda t: 1,
    "float": lambda t: 1.0,
    "number": lambda t: 1.0,
    "bool": lambda t: False,
    "str": lambda t: "",
    "List[int]": lambda t: [1],
    "List[float]": lambda t: [1.0],
    "List[bool]": lambda t: [False],
}


@dataclass(frozen=True)
class Seen:
    """What the kernel behind autocast got: the dtypes of its tensors, in order, and its dtype argument."""

    dtypes: tuple[torch.dtype, ...]
    asked: torch.dtype | None


class _Reached(Exception):
    """The kernel behind autocast was reached; nothing is computed."""


def registered(device: str) -> list[str]:
    """`name.overload` of every aten op that has a kernel for the device's autocast."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    names = torch._C._dispatch_get_all_op_names()
    return sorted(n[len("aten::") :] for n in names if n.startswith("aten::") and has(n, KEYS[device][0]))


def _overload(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


class Watch:
    """Calls an op under a device's autocast with tensors of given dtypes and tells what came through."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.names = registered(device)
        self._got: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self._library = torch.library.Library("aten", "IMPL")
        for name in self.names:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # overriding a kernel warns, and is the point
                self._library.impl(name, self._kernel, KEYS[device][1])

    def close(self) -> None:
        self._library._destroy()

    def __call__(self, name: str, dtypes: Sequence[torch.dtype], dtype: torch.dtype | None = None) -> Seen:
        """`dtypes` go to the tensors of the call in order, the last to all that remain."""
        op = _overload(name)
        with FakeTensorMode():
            args, kwargs = self._arguments(op._schema.arguments, list(dtypes), dtype)
            self._got.clear()
            with _forced(self.device), pytest.raises(_Reached):
                op(*args, **kwargs)
        return self._seen(op._schema.arguments)

    def _kernel(self, *args: Any, **kwargs: Any) -> None:
        self._got.append((args, kwargs))
        raise _Reached

    def _arguments(
        self, arguments: Any, dtypes: list[torch.dtype], dtype: torch.dtype | None
    ) -> tuple[list[Any], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in arguments:
            kind = str(argument.type)
            value = SAMPLES.get(kind, lambda t: None)(self._tensor(dtypes[0]))
            if "Tensor" in kind and len(dtypes) > 1:
                value = self._mixed(value, dtypes)
            if argument.name == "dtype" and dtype is not None:
                value = dtype
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _mixed(self, value: Any, dtypes: list[torch.dtype]) -> Any:
        if isinstance(value, list) and len(value) > 1:
            return [value[0], *(self._tensor(d) for d in dtypes[1:])]
        dtypes.pop(0)
        return value

    def _tensor(self, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(2, 2, device=self.device, dtype=dtype)

    def _seen(self, arguments: Any) -> Seen:
        args, kwargs = self._got[-1]
        named = dict(zip((a.name for a in arguments), args, strict=False)) | kwargs
        flat = [t for value in named.values() for t in (value if isinstance(value, (list, tuple)) else [value])]
        return Seen(tuple(t.dtype for t in flat if isinstance(t, torch.Tensor)), named.get("dtype"))


class _forced:
    """A device's autocast, also where the device is missing (`torch.autocast` would disable itself)."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __enter__(self) -> None:
        self.before = (torch.is_autocast_enabled(self.device), torch.get_autocast_dtype(self.device))
        torch.set_autocast_enabled(self.device, True)
        torch.set_autocast_dtype(self.device, LOW)

    def __exit__(self, *_: object) -> None:
        torch.set_autocast_enabled(self.device, self.before[0])
        torch.set_autocast_dtype(self.device, self.before[1])
        torch.clear_autocast_cache()


@pytest.fixture(params=list(KEYS))
def watch(request: pytest.FixtureRequest) -> Iterator[Watch]:
    """A `Watch` for each device in turn."""
    watching = Watch(request.param)
    yield watching
    watching.close()


@pytest.fixture
def region() -> Callable[[str], Any]:
    """A device's native autocast region, whether or not the device exists."""
    return _forced
