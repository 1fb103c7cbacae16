"""A converted model goes through torch.export, jit.trace, torch.compile and ONNX with its casts in the graph."""

from __future__ import annotations

import collections
import warnings

import pytest
import torch
from torch import nn

import mixprec


class Net(nn.Module):
    """Two units of each precision under `uniform`."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.last(self.norm(self.first(x).relu())), -1)


@pytest.fixture
def small():
    torch.manual_seed(0)
    return mixprec.convert(Net().eval(), "fp16", policy="uniform", sample=torch.randn(3, 8))


X = torch.linspace(-2, 2, 24).reshape(3, 8)


def casts(graph) -> list[torch.dtype]:
    """The dtypes that an exported graph casts to, in order."""
    named = [n for n in graph.nodes if n.op == "call_function" and "to" in str(n.target).split(".")[1:2]]
    named += [n for n in graph.nodes if "_to_copy" in str(n.target)]
    return [next(a for a in [*n.args, *n.kwargs.values()] if isinstance(a, torch.dtype)) for n in named]


def test_export_keeps_the_casts(small):
    """torch.export: door, into the norm, out of it, and the exit; the exported program gives the same bits."""
    exported = torch.export.export(small, (X,))
    assert casts(exported.graph) == [torch.float16, torch.float32, torch.float16, torch.float32]
    assert torch.equal(exported.module()(X), small(X))


def test_trace_gives_the_same(small):
    """torch.jit.trace, while PyTorch has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(small, (X,))
        assert torch.equal(traced(X), small(X))


def test_compile_takes_it_as_one_graph(small):
    """fullgraph=True holds, and the results are eager's."""
    torch._dynamo.reset()
    assert torch.equal(torch.compile(small, fullgraph=True, backend="eager")(X), small(X))


def test_onnx_is_strongly_typed_and_runs(small, tmp_path):
    """The ONNX graph has float16 weights, float32 ones for the norm, four casts; onnxruntime gives what we give."""
    onnx = pytest.importorskip("onnx", reason="extra: onnx")
    runtime = pytest.importorskip("onnxruntime", reason="extra: onnx")
    pytest.importorskip("onnxscript", reason="extra: onnx")
    path = str(tmp_path / "small.onnx")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.onnx 2.13 uses what pytree deprecates
        torch.onnx.export(small, (X,), path, dynamo=True, verbose=False)
    graph = onnx.load(path).graph
    targets = [a.i for node in graph.node if node.op_type == "Cast" for a in node.attribute if a.name == "to"]
    half, full = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    assert targets == [half, full, half, full]
    stored = collections.Counter(each.data_type for each in graph.initializer)
    assert stored[half] == 4
    assert stored[full] == 2

    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {session.get_inputs()[0].name: X.numpy()})
    assert torch.allclose(torch.from_numpy(result), small(X), atol=2e-3)
