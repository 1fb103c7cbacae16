"""What the walk says of a tensor's dtype and bounds is what PyTorch does, op by op and in random programs."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.lint import FileView
from mixprec.lint.dtypes import Tensor
from mixprec.lint.dtypes._values import Items
from mixprec.lint.dtypes._walker import Walker

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
"""
DTYPES = ("float16", "bfloat16", "float32")
REGIONS = ("", "float16", "bfloat16")
EXPRESSIONS = """
x + 1
x + 1.5
1 - x
x * 2
x / 3
x // 2
x % 2
x ** 2
x ** 0.5
2.0 ** x
-x
x + w
x * w[0, 0]
x * i
x > 0
x @ x.t()
x @ w
w @ w
torch.mm(w, x)
torch.einsum("ij,jk->ik", x, w)
torch.bmm(x[None], w[None])
F.linear(x, w)
torch.addmm(x, w, w)
torch.outer(x[0], w[0])
torch.cat([x, w])
torch.stack([x, w])
torch.where(x > 0, x, w)
torch.where(x > 0, x, 0.0)
torch.maximum(x, w)
torch.lerp(x, x, 0.5)
x.masked_fill(x > 0, 1.0)
x.exp()
x.abs().log()
x.abs().sqrt()
x.abs().add(1).rsqrt()
x.reciprocal()
x.sigmoid()
torch.tanh(x)
F.relu(x)
F.gelu(x)
F.silu(x)
F.softplus(x)
F.softmax(x, dim=-1)
F.log_softmax(x, -1)
x.softmax(-1, dtype=torch.float32)
x.sum()
x.sum(0)
x.sum(dtype=torch.float32)
x.mean()
x.mean(-1, keepdim=True)
x.prod()
x.cumsum(0)
x.var()
x.std(-1)
x.norm()
x.norm(dim=-1, keepdim=True)
x.max()
x.max(dim=1).values
x.max(dim=1)[1]
x.amax(-1)
x.min(dim=0)[0]
x.argmax(-1)
x.topk(2)[0]
x.sort()[1]
x.clamp(-1, 1)
x.clamp(min=1e-8)
x.float()
x.half()
x.bfloat16()
x.double()
x.to(torch.float16)
x.to(w.dtype)
x.type_as(w)
x.long()
x.to("cpu")
x.to(x.device, torch.bfloat16)
x.t().contiguous().view(-1)
x.reshape(2, 8)[0]
x.unsqueeze(0).expand(2, 4, 4)
x.chunk(2)[0]
x.split(2, dim=1)[1]
x.unbind(0)[0]
x.tril()
x.flatten().repeat(2)
x[x > 0]
x[:, 1:3]
x.detach().clone()
F.pad(x, (1, 1))
F.dropout(x, 0.5)
F.layer_norm(x, (4,))
F.group_norm(x, 2)
F.rms_norm(x, (4,))
F.normalize(x, dim=-1)
F.cosine_similarity(x, x)
F.mse_loss(x, w)
F.l1_loss(x, x)
F.smooth_l1_loss(x, w)
F.cross_entropy(x, i)
F.nll_loss(F.log_softmax(x, -1), i)
F.binary_cross_entropy_with_logits(x, x.sigmoid())
F.kl_div(F.log_softmax(x, -1), x.softmax(-1), reduction="batchmean")
F.mse_loss(x, w, reduction="none")
F.embedding(i, x)
F.interpolate(x[None, None], scale_factor=2)
F.avg_pool2d(x[None], 2)
F.max_pool2d(x[None], 2)
F.conv2d(x[None, None], w[None, None])
F.scaled_dot_product_attention(x[None], x[None], x[None])
torch.zeros(2, 3)
torch.zeros_like(x)
torch.ones_like(x, dtype=torch.float32)
x.new_zeros(3)
torch.full((2,), 1)
torch.full((2,), 1.0)
torch.full_like(x, 2)
torch.arange(4)
torch.arange(4.0)
torch.arange(0, 4, dtype=x.dtype)
torch.linspace(0, 1, 3)
torch.tensor(1.0)
torch.tensor([1, 2])
torch.tensor([1, 2.5])
torch.tensor(1.0, dtype=x.dtype)
torch.randn(2, 2)
torch.randn_like(x)
torch.randint(0, 3, (2,))
torch.eye(3)
x * torch.tensor(2.0)
x + torch.ones(4)
torch.tensor(1.0, dtype=x.dtype) * w
x.mean() * w.sum()
x.index_add(0, i, x)
x.scatter_add(0, i[:, None].expand(4, 4), x)
x.isnan()
(x > 0).sum()
(x > 0).float().mean()
x.square()
torch.rsqrt(x.abs() + 1)
x.logsumexp(-1)
F.one_hot(i, 5)
nn.Linear(4, 3)(w)
nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.LayerNorm(4))(w)
nn.Linear(4, 3).to(x.dtype)(x)
nn.Embedding(5, 3).to(x.dtype)(i)
nn.LayerNorm(4).to(x.dtype)(x)
nn.MultiheadAttention(4, 2)(w, w, w)[0]
nn.CrossEntropyLoss()(x, i)
nn.Conv1d(4, 2, 1)(w)
"""
CASES = [line for line in EXPRESSIONS.strip().splitlines() if line]


def program(expression: str, dtype: str, region: str) -> str:
    inputs = f"x = torch.randn(4, 4).to(torch.{dtype})\nw = torch.randn(4, 4)\ni = torch.tensor([0, 1, 2, 3])\n"
    if not region:
        return f"{HEAD}{inputs}r = {expression}\n"
    return f'{HEAD}{inputs}with torch.autocast("cpu", dtype=torch.{region}):\n    r = {expression}\n'


def said(source: str, device: str = "cpu") -> Any:
    """What the walk says of `r`."""
    view = FileView("program.py", source)
    value = Walker(view, device).module_frame(view).find("r")
    return value.items[0] if isinstance(value, Items) and value.items else value


def happens(source: str) -> torch.Tensor | None:
    """`r`, or None where the program raises."""
    names: dict[str, Any] = {}
    try:
        exec(source, names)
    except (RuntimeError, NotImplementedError, ValueError):
        return None
    result = names["r"]
    return result if isinstance(result, torch.Tensor) else None


def fits(value: Tensor, real: torch.Tensor) -> bool:
    """Whether the sizes that the walk knows, and whether there are any, are those of the real tensor."""
    if value.rank0 is not None and value.rank0 != (real.dim() == 0):
        return False
    if value.shape is None:
        return True
    pairs = zip(value.shape, real.shape, strict=True) if len(value.shape) == real.dim() else [(0, 1)]
    return all(said_size in (None, size) for said_size, size in pairs)


@pytest.mark.parametrize("region", REGIONS, ids=["off", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_op_has_the_dtype_bounds_and_shape_that_torch_gives_it(dtype, region):
    """Where a program runs, its dtype is among those held possible, its values within bounds, its sizes as known."""
    wrong = []
    known = 0
    for expression in CASES:
        source = program(expression, dtype, region)
        real, value = happens(source), said(source)
        if real is None or not isinstance(value, Tensor) or value.dtypes is None:
            continue
        known += 1
        name = str(real.dtype).removeprefix("torch.")
        finite = real.double()[torch.isfinite(real)]
        inside = finite.numel() == 0 or (
            finite.min() >= value.bounds.low - 1e-2 and finite.max() <= value.bounds.high + 1e-2
        )
        if name not in value.dtypes or not inside or not fits(value, real):
            wrong.append((expression, name, value.dtypes, value.bounds, value.shape, tuple(real.shape)))
    assert wrong == []
    assert known > 0.85 * len(CASES)


@pytest.mark.parametrize("region", REGIONS, ids=["off", "float16", "bfloat16"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_walk_knows_one_dtype_for_nearly_every_op(dtype, region):
    """Holding everything possible would be right and useless: where PyTorch gives a dtype, the walk names it alone."""
    vague = []
    for expression in CASES:
        source = program(expression, dtype, region)
        value = said(source)
        if happens(source) is not None and not (isinstance(value, Tensor) and value.dtypes and len(value.dtypes) == 1):
            vague.append(expression)
    assert len(vague) <= 0.06 * len(CASES), vague


@pytest.mark.parametrize("region", REGIONS[1:])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_list_for_cuda_is_followed_as_well(dtype, region):
    """With CUDA's list applied on the CPU, every op gives a dtype that the walk holds possible on CUDA."""
    here = f'torch.autocast("cpu", dtype=torch.{region})'
    applied = f'mixprec.autocast("cpu", torch.{region}, policy=mixprec.Policy.torch("cuda", version="2.13"))'
    wrong = []
    for expression in CASES:
        source = program(expression, dtype, region)
        real = happens("import mixprec\n" + source.replace(here, applied))
        value = said(source.replace(here, here.replace("cpu", "cuda")), "cuda")
        if real is None or not isinstance(value, Tensor) or value.dtypes is None:
            continue
        name = str(real.dtype).removeprefix("torch.")
        if name not in value.dtypes:
            wrong.append((expression, name, value.dtypes))
    assert wrong == []


STEPS = (
    "{a} + {b}",
    "{a} * {b}",
    "{a} - 1.0",
    "{a} @ {b}",
    "torch.where({a} > 0, {a}, {b})",
    "{a}.softmax(-1)",
    "{a}.float()",
    "{a}.half()",
    "{a}.to({b}.dtype)",
    "F.relu({a})",
    "F.linear({a}, {b})",
    "torch.cat([{a}, {b}])[:4]",
    "{a} / ({b}.abs() + 1)",
    "{a}.sum(-1, keepdim=True) * {b}",
    "{a}.mean() + {b}",
    "{a}.exp().clamp(max=10.0)",
    "torch.maximum({a}, {b})",
    "{a}.masked_fill({a} > 1, 0.0)",
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8),
    st.sampled_from(DTYPES),
    st.sampled_from(REGIONS),
)
def test_random_programs_keep_the_promise(steps, dtype, region):
    """After any sequence of ops the real dtype is among those that the walk holds possible."""
    names = ["x", "w"]
    lines = []
    for number, (step, first, second) in enumerate(steps):
        lines.append(f"v{number} = {step.format(a=names[first % len(names)], b=names[second % len(names)])}")
        names.append(f"v{number}")
    body = "\n    ".join([*lines, f"r = {names[-1]}"])
    context = f'with torch.autocast("cpu", dtype=torch.{region}):' if region else "if True:"
    source = f"{HEAD}x = torch.randn(4, 4).to(torch.{dtype})\nw = torch.randn(4, 4)\n{context}\n    {body}\n"
    real, value = happens(source), said(source)
    if real is not None and isinstance(value, Tensor) and value.dtypes is not None:
        assert str(real.dtype).removeprefix("torch.") in value.dtypes
        if math.isfinite(value.bounds.low) and torch.isfinite(real).all():
            assert real.min() >= value.bounds.low - 0.1
