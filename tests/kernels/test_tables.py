"""Tables cover every element once, and what lies on the device already is not sent again."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec._kernels._dense import alike, dense

pytest.importorskip("triton", reason="Triton is published for Linux only")

from mixprec._kernels._triton import _tables  # only where there is one
from mixprec._kernels._triton._tables import batch, chunk_table  # as above


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 70), max_size=6), st.integers(1, 32))
def test_chunks_cover_every_element_once(sizes, chunk):
    """In order, none longer than a chunk, none empty."""
    table = chunk_table(sizes, chunk)

    covered = [(place, start + i) for place, start, count in table.T.tolist() for i in range(count)]
    assert covered == [(place, i) for place, size in enumerate(sizes) for i in range(size)]
    assert all(1 <= count <= chunk for count in table[2].tolist())
    assert table.dtype is torch.int64


def test_a_table_of_the_same_content_is_the_same_table():
    """Sent once for equal addresses and sizes, sent anew where a tensor moved or has another size."""
    tensors = [torch.ones(5), torch.ones(7)]
    first = batch(tensors)

    assert batch(tensors).addresses is first.addresses
    assert batch(tensors).chunks is first.chunks
    moved = batch([torch.ones(5), tensors[1]])
    assert moved.chunks is first.chunks
    assert moved.addresses is not first.addresses
    assert batch([tensors[0]]).chunks is not first.chunks


def test_addresses_are_list_after_list():
    """The second list's begin where the first one's end."""
    lists = [[torch.ones(2), torch.ones(3)], [torch.ones(2), torch.ones(3)]]

    made = batch(*lists)

    assert made.addresses.tolist() == [tensor.data_ptr() for each in lists for tensor in each]
    assert made.tensors == 2


def test_one_tensor_that_begins_elsewhere_is_noticed():
    """Aligned only if all are."""
    base = torch.ones(9)

    assert batch([base, base]).aligned
    assert not batch([base, base[1:]]).aligned


def test_a_graph_that_is_being_captured_gets_no_table(monkeypatch):
    """Nothing is sent in a capture, where it would arrive only when the graph is run."""
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)

    with pytest.raises(ValueError, match="'foreach' while a CUDA graph is captured"):
        _tables._send(torch.ones(1), torch.device("cuda", 0))


LAYOUTS = {
    "contiguous": (torch.ones(2, 3), True),
    "transposed": (torch.ones(2, 3).t(), True),
    "channels last": (torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), True),
    "of one element": (torch.ones(4)[2], True),
    "without elements": (torch.ones(0, 3).t(), True),
    "with gaps": (torch.ones(4, 6)[:, ::2], False),
    "expanded": (torch.ones(1, 3).expand(2, 3), False),
    "overlapping": (torch.ones(9).as_strided((2, 3), (1, 1)), False),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_dense_is_what_fills_its_memory(name):
    """As PyTorch says: a copy that preserves the format has the same strides exactly if there are no gaps."""
    tensor, expected = LAYOUTS[name]

    assert dense(tensor) is expected
    if tensor.numel() > 1:
        assert (torch.empty_like(tensor).stride() == tensor.stride()) is expected


def test_alike_is_same_shape_in_same_order():
    """Equal places are equal elements."""
    plain, turned = torch.ones(3, 3), torch.ones(3, 3).t()

    assert alike(plain, torch.zeros(3, 3))
    assert alike(turned, torch.zeros(3, 3).t())
    assert not alike(plain, turned)
    assert not alike(plain, torch.ones(9))
    assert not alike(torch.ones(3, 6)[:, ::2], torch.ones(3, 6)[:, ::2])
