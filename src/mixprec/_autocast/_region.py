"""A region always enters PyTorch's own autocast state, because that is what the rest of the ecosystem looks at.

Where a policy says something else than PyTorch's list for the device, an interceptor for that difference is put on
the stack of function modes as well. Where it does not, nothing is.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn
from torch.amp import autocast_mode
from typing_extensions import Self

from mixprec._autocast._cache import CastCache, CastStatistics
from mixprec._autocast._dynamo import plain_backward, teach_dynamo
from mixprec._autocast._interceptor import Exchange, Interceptor, active_interceptors, exchange, undo
from mixprec._autocast._modules import follow_modules, refuse_unmatched, unfollow_modules
from mixprec._autocast._plan import Plan, plan_key, plan_named, plan_of
from mixprec._autocast._recompute import install
from mixprec._autocast._stale import own_cache, watch_steps, watched
from mixprec._policy import Policy
from mixprec.errors import InvalidValueError

__all__ = ["autocast", "interpret"]

F = TypeVar("F", bound=Callable[..., Any])


class autocast(torch.autocast):  # noqa: N801 - a drop-in keeps the name that it replaces
    """`torch.autocast` with a policy: same arguments, errors, warnings and uses, as context manager and decorator.

    `policy` is a `Policy`, the name of one (`"lean"`) or the text of one. None, the default, is PyTorch's own list
    for the device, and so is a policy that equals it: then nothing is intercepted. A region inside another has its
    own policy; `enabled=False`, here or in a `torch.autocast`, switches everything off; a `torch.autocast` inside
    keeps the policy and brings its dtype.

    `cache_enabled` may be a `CastCache`, which then serves every region that it is handed to: a weight is cast once
    per optimizer step instead of once per region. A bool means what it means to PyTorch.

    `device_type`, `dtype` and `enabled` are those of `torch.autocast`. Raises what that raises, and
    `UnknownNameError`, `PolicySyntaxError` or `InvalidValueError` for a policy that does not exist.

    **Cost**: that of `torch.autocast` and 3 to 6 us for entering and leaving. With a policy that differs, 2 to 4 us per
    call of a PyTorch function, and for the ops that it speaks of 5 to 10 us more and the casts (torch 2.13, CPU). No
    kernel, no sync.

    Source of the semantics: https://docs.pytorch.org/docs/stable/amp.html#torch.autocast
    """

    _whole = False

    _gives_way = False
    """Whether a policy that is in force already stays in force inside, as it does inside a `torch.autocast`."""

    def __init__(
        self,
        device_type: str,
        dtype: torch.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | CastCache | None = None,
        *,
        policy: Policy | str | None = None,
    ) -> None:
        shared = cache_enabled if isinstance(cache_enabled, CastCache) else None
        flag = True if isinstance(cache_enabled, CastCache) else cache_enabled
        super().__init__(device_type, dtype, enabled, flag)
        self.policy = policy
        self._shared = shared
        self._root: nn.Module | None = None
        self._interceptor: Interceptor | None = None
        self._exchange: Exchange | None = None
        self._plan = _plan(policy, self.device, self._whole, shared is not None)
        if self._plan is not None and not torch.compiler.is_compiling():
            _be_no_plain_autocast(self)

    def rooted(self, model: nn.Module) -> Self:
        """The same region, with module paths that start at `model` whichever module is called first.

        Without module rules it changes nothing. Raises `UnknownNameError` for a path without wildcards in the policy
        that no module of `model` has.
        """
        if self._plan is not None and self._plan.per_module:
            refuse_unmatched(self._plan, model)
        self._root = model
        return self

    @property
    def statistics(self) -> CastStatistics:
        """Casts by the policy since this region was last entered; of its whole life, for a `CastCache` of yours."""
        return CastStatistics() if self._interceptor is None else self._interceptor.cache.statistics

    def __enter__(self) -> Self:
        if torch.compiler.is_compiling():
            self._traced = _traced_region(self.device, self.fast_dtype, self._enabled, self._cache_enabled)
            self._traced.__enter__()
        else:
            super().__enter__()  # type: ignore[no-untyped-call]  # torch does not annotate it
            install()
            watch_steps(+1)
            self._drop_casts_of_another_dtype()
        if self._enabled and (self._plan is not None or torch._C._len_torch_function_stack()):
            self._intercept()
        return self

    def __exit__(self, exc_type: Any, exc_val: Any, exc_tb: Any) -> Any:
        if self._exchange is not None:
            self._intercept_no_more()
        if torch.compiler.is_compiling():
            return self._traced.__exit__(exc_type, exc_val, exc_tb)
        watch_steps(-1)
        self._drop_casts_of_another_dtype()
        return super().__exit__(exc_type, exc_val, exc_tb)

    def __call__(self, func: F) -> F:
        if self._plan is None or not callable(func):
            return super().__call__(func)  # type: ignore[no-any-return, no-untyped-call]  # torch does not annotate it
        return _in_fresh_region(self, func)

    def _drop_casts_of_another_dtype(self) -> None:
        """PyTorch's cache does not know dtypes: where the dtype changes, on the way in or out, it has to be empty."""
        if self.fast_dtype is not self.prev_fastdtype:
            torch.clear_autocast_cache()

    def _intercept(self) -> None:
        if self._gives_way and active_interceptors(self.device):
            return
        if self._plan is None:  # PyTorch's own list, inside a region with a policy
            self._exchange = exchange([], self.device)
            return
        teach_dynamo()
        if not torch.compiler.is_compiling():
            plain_backward(+1)
        self._interceptor = Interceptor(self._plan, self._cache())
        self._exchange = exchange([self._interceptor], self.device)
        if self._plan.per_module:
            follow_modules(self._interceptor, self._root)

    def _cache(self) -> CastCache:
        if torch.compiler.is_compiling():
            return _UNUSED
        return own_cache() if self._shared is None else watched(self._shared)

    def _intercept_no_more(self) -> None:
        if self._exchange is not None:
            undo(self._exchange)
            self._exchange = None
        if self._plan is None or self._interceptor is None or torch.compiler.is_compiling():
            return
        plain_backward(-1)
        if self._interceptor.plan.per_module:
            unfollow_modules(self._interceptor)
        if self._shared is None:
            self._interceptor.cache.clear()


class interpret(autocast):  # noqa: N801 - used like autocast
    """A region in which the policy is applied whole, in Python: PyTorch's own casts are kept out of everything.

    For explaining, tracing and proving a policy. `policy=None` is PyTorch's own list for the device. Under it, and
    under `Policy.torch` of a device that is not there, it gives what PyTorch's autocast gives. Slower than `autocast`.
    """

    _whole = True


_Unmanaged: Any = getattr(autocast_mode, "_UnmanagedAutocast", torch.autocast)


class _Intercepting(autocast, _Unmanaged):  # type: ignore[misc]  # a class of torch's that may be missing
    """What a region with a policy of its own becomes: Dynamo takes any other `torch.autocast` made outside of a
    compiled function and entered inside for a plain one, and would lose the policy without a word. This one it
    refuses (`Unsupported context manager`) or runs eagerly.
    """


class _Interpreting(interpret, _Unmanaged):  # type: ignore[misc]  # a class of torch's that may be missing
    """The same for `interpret`."""


_UNUSED = CastCache()
"""The cache of regions that are being compiled: equal casts are merged by the compiler."""


def _be_no_plain_autocast(region: autocast) -> None:
    replacement = {autocast: _Intercepting, interpret: _Interpreting}.get(type(region))
    if replacement is not None:
        region.__class__ = replacement


def _plan(policy: Policy | str | None, device_type: str, whole: bool, share: bool) -> Plan | None:
    if policy is None and not share and not whole:
        return None
    if not isinstance(policy, (Policy, str, type(None))):
        raise InvalidValueError("policy", policy, "a Policy, the name of one, or the text of one", "See Policy.named.")
    if torch.compiler.is_compiling():
        return plan_named(plan_key(policy, device_type, whole, share))
    return plan_of(policy, device_type, whole, share)


def _in_fresh_region(region: autocast, func: F) -> F:
    """`func` in a region like `region`, a new one per call: calls may nest, and torch.compile can trace it."""
    kind, device, dtype, policy, root = (
        autocast if not region._whole else interpret,
        region.device,
        region.fast_dtype,
        region.policy,
        region._root,
    )
    enabled, cache = region._enabled, region._cache_enabled if region._shared is None else region._shared

    @functools.wraps(func)
    def in_region(*args: Any, **kwargs: Any) -> Any:
        fresh = kind(device, dtype, enabled, cache, policy=policy)
        fresh._root, fresh._gives_way = root, region._gives_way
        with fresh:
            return func(*args, **kwargs)

    return in_region  # type: ignore[return-value]  # the same signature, by construction


@contextlib.contextmanager
def _traced_region(*arguments: Any) -> Iterator[None]:
    """PyTorch's own region in the form that Dynamo puts into a graph, where `torch.export` keeps it."""
    with autocast_mode.autocast(*arguments):  # not torch.autocast, in whose place a region of ours may stand
        yield
