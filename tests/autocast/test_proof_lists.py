"""A policy interpreted in Python passes PyTorch's own autocast tests: their lists of ops, their harness.

The harness says `with torch.amp.autocast(device_type=..., dtype=...)`, checks the dtype of each result and compares
its value, bit for bit, with the op run without autocast on inputs cast by hand. Here that name is ours, with
`Policy.torch("cpu")` for the CPU lists and `Policy.torch("cuda")`, on CPU tensors, for the CUDA lists.

Source: https://github.com/pytorch/pytorch/blob/v2.13.0/torch/testing/_internal/autocast_test_lists.py
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from mixprec import Policy, autocast, errors
from mixprec._autocast import interpret

lists = pytest.importorskip("torch.testing._internal.autocast_test_lists", reason="needs expecttest")

pytestmark = [  # deprecations of the ops that the lists still name
    pytest.mark.filterwarnings("ignore:Using torch.cross without specifying the dim"),
    pytest.mark.filterwarnings("ignore:torch.chain_matmul is deprecated"),
]

CPU, CUDA = Policy.torch("cpu"), Policy.torch("cuda")


@dataclass(frozen=True)
class Entry:
    """One op of the lists, with its arguments, the dtype that it has to run in and that of its result."""

    group: str
    op: str
    args: Any
    kwargs: dict[str, Any]
    run_as: torch.dtype
    out: torch.dtype | None
    module: Any
    amp: torch.dtype

    def __str__(self) -> str:
        return f"{self.group}-{self.op}-{str(self.amp)[6:]}"


def _entry(group: str, row: Any, amp: torch.dtype, args: Any = None) -> Entry:
    """`row` is (op, args), with keyword arguments or a result's dtype behind."""
    rest = [v for v in row[2:] if isinstance(v, (dict, torch.dtype))]
    kwargs = next((v for v in rest if isinstance(v, dict)), {})
    out = next((v for v in rest if isinstance(v, torch.dtype)), None)
    low = group.endswith(("_16", "_fp16"))
    home = {"nn": torch._C._nn, "linalg": torch._C._linalg, "methods": None}.get(group.split("_")[0], torch)
    return Entry(group, row[0], row[1] if args is None else args, kwargs, amp if low else torch.float32, out, home, amp)


def _cpu_entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    groups = lists.AutocastCPUTestLists("cpu")
    for group in ("torch_16", "torch_fp32", "nn_16", "nn_fp32"):
        for row in getattr(groups, group):
            yield from (_entry(group, row, amp) for amp in (torch.bfloat16, torch.float16))
    for group in ("torch_need_autocast_promote", "torch_expect_builtin_promote", "methods_expect_builtin_promote"):
        for row in getattr(groups, group):
            yield _entry(group, row, torch.bfloat16, row[1])
            yield _entry(group, row, torch.float16, row[2])


def _cuda_entries() -> Iterator[Entry]:
    torch.manual_seed(0)
    groups = lists.AutocastTestLists("cpu")
    names = [n for n in vars(groups) if n != "banned"]
    for group in names:
        for row in getattr(groups, group):
            if row[0] != "einsum":  # its arguments are no arguments; PyTorch's own test skips it too
                yield _entry(group, row, torch.float16)


CPU_ENTRIES, CUDA_ENTRIES = list(_cpu_entries()), list(_cuda_entries())

NO_CPU_KERNEL = {
    "cudnn_convolution",
    "cudnn_convolution_transpose",
}
"""Ops of the CUDA lists that a CPU build cannot run with the inputs that they are to be given."""


def _by_hand(entry: Entry) -> Any:
    """The op without autocast, its floating inputs cast to the dtype that it has to run in."""

    def cast(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.to(entry.run_as) if value.is_floating_point() else value
        return tuple(map(cast, value)) if isinstance(value, (tuple, list)) else value

    args = cast(entry.args)
    if entry.module is not None and hasattr(entry.module, entry.op):
        return getattr(entry.module, entry.op)(*args, **entry.kwargs)
    return getattr(args[0], entry.op)(*args[1:], **entry.kwargs)


def _runs_on_cpu(entry: Entry) -> bool:
    try:
        _by_hand(entry)
    except (RuntimeError, NotImplementedError):
        return False
    return True


def _harness(entry: Entry, kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(torch.amp, "autocast", kind)
        case = lists.TestAutocast("_run_autocast_outofplace")
        case._run_autocast_outofplace(
            entry.op,
            entry.args,
            entry.run_as,
            "cpu",
            out_type=entry.out,
            module=entry.module,
            add_kwargs=entry.kwargs,
            amp_dtype=entry.amp,
        )


@pytest.mark.parametrize("entry", CPU_ENTRIES, ids=str)
def test_the_cpu_lists_hold_for_the_cpu_policy(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's CPU policy, interpreted whole in Python with PyTorch's casts kept out, passes PyTorch's harness."""
    _harness(entry, functools.partial(interpret, policy=CPU), monkeypatch)


@pytest.mark.parametrize("entry", CPU_ENTRIES, ids=str)
def test_the_interpreter_equals_torchs_autocast(entry: Entry) -> None:
    """Result for result, dtype and bits are those of `torch.autocast("cpu")`."""
    results = []
    for region in (torch.autocast("cpu", entry.amp), interpret("cpu", entry.amp, policy=CPU)):
        with region:
            home = entry.module if entry.module is not None else torch.Tensor
            results.append(getattr(home, entry.op)(*entry.args, **entry.kwargs))
    _assert_same(*results)


def _assert_same(a: Any, b: Any) -> None:
    if isinstance(a, torch.Tensor):
        assert a.dtype is b.dtype
        assert torch.equal(a, b)
    elif isinstance(a, (tuple, list)):
        for x, y in zip(a, b, strict=True):
            _assert_same(x, y)
    else:
        assert a == b


@pytest.mark.parametrize("kind", [interpret, autocast], ids=["whole", "difference"])
@pytest.mark.parametrize("entry", [e for e in CUDA_ENTRIES if e.op not in NO_CPU_KERNEL], ids=str)
def test_the_cuda_lists_hold_on_cpu_for_the_cuda_policy(
    entry: Entry, kind: type[autocast], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A CUDA policy on CPU tensors gives what CUDA's lists demand: interpreted whole, and as a difference."""
    _harness(entry, functools.partial(kind, policy=CUDA), monkeypatch)


def test_what_has_no_cpu_kernel_is_known_by_name() -> None:
    """The ops left out above cannot run on a CPU even by hand, and all others can."""
    assert {e.op for e in CUDA_ENTRIES if not _runs_on_cpu(e)} == NO_CPU_KERNEL


@pytest.mark.parametrize("kind", [interpret, autocast], ids=["whole", "difference"])
def test_the_cuda_bans_hold_on_cpu(kind: type[autocast]) -> None:
    """Every banned entry raises in a region with the CUDA policy, and runs outside of one."""
    for op, args, module in lists.AutocastTestLists("cpu").banned:
        with kind("cpu", torch.float16, policy=CUDA), pytest.raises(errors.BannedOpError):
            getattr(module, op)(*args)
        getattr(module, op)(*args)


@pytest.mark.parametrize("entry", [e for e in CUDA_ENTRIES if e.group == "torch_fp32"][:3], ids=str)
def test_the_harness_can_fail(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another policy the same harness refuses the same entries."""
    with pytest.raises(AssertionError):
        _harness(entry, functools.partial(interpret, policy=CPU), monkeypatch)
