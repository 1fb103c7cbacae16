"""What a batch or a state is made of comes back as it was, and what cannot be saved is named and left out."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mixprec.monitor.incident._tree import LeftOut, Reader, Writer

Pair = namedtuple("Pair", "first second")


@dataclasses.dataclass
class Sample:
    image: torch.Tensor
    label: int
    extra: dict


def through(value):
    writer = Writer()
    node = json.loads(json.dumps(writer.write(value), allow_nan=False))
    return Reader({key: tensor.clone() for key, tensor in writer.tensors.items()}).read(node), writer.left_out


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.floats(allow_nan=False)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers() | st.tuples(st.integers()), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(PLAIN)
def test_plain_values_come_back(value):
    """Any nesting of plain values is equal after a round trip, types included."""
    again, left_out = through(value)

    assert again == value
    assert repr(again) == repr(value)
    assert left_out == []


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(6).reshape(2, 3).t(),
        torch.ones(3, dtype=torch.bool),
        torch.empty(0, 4),
        torch.tensor(2.5),
        torch.tensor([1 + 2j]),
        torch.tensor([math.nan, math.inf], dtype=torch.float16),
        torch.ones(2).requires_grad_(),
        torch.ones(1).expand(4),
    ],
    ids=["view", "bool", "empty", "scalar", "complex", "bad", "leaf", "expanded"],
)
def test_tensors_come_back_bit_for_bit(tensor):
    """Views, masks, empty, 0-dim, complex and non-finite tensors have the same bits, dtype, shape and leafness."""
    again, _ = through({"x": tensor})

    assert again["x"].dtype == tensor.dtype
    assert again["x"].requires_grad == tensor.requires_grad
    torch.testing.assert_close(again["x"], tensor, rtol=0, atol=0, equal_nan=True)


def test_containers_keep_their_types():
    """Dataclasses, named tuples, ordered dicts, sets, arrays, dtypes, devices and slices come back as themselves."""
    value = {
        "sample": Sample(torch.ones(2), 3, {"deep": (1, [2])}),
        "pair": Pair(1, torch.zeros(1)),
        "ordered": OrderedDict(b=1, a=2),
        "set": {1, 2},
        "array": np.arange(4, dtype=np.int16).reshape(2, 2),
        "number": np.float32(1.5),
        "dtype": torch.float16,
        "device": torch.device("cpu"),
        "size": torch.Size([2, 3]),
        "slice": slice(1, None, 2),
    }
    again, left_out = through(value)

    assert left_out == []
    for key in value:
        assert type(again[key]) is type(value[key]), key
    assert again["sample"].extra == {"deep": (1, [2])}
    assert torch.equal(again["sample"].image, torch.ones(2))
    assert again["array"].tolist() == [[0, 1], [2, 3]]
    assert list(again["ordered"].items()) == [("b", 1), ("a", 2)]
    assert (again["dtype"], again["size"], again["slice"]) == (torch.float16, torch.Size([2, 3]), slice(1, None, 2))


def test_one_tensor_in_two_places_stays_one():
    """Sharing inside a value survives, and the tensor is stored once."""
    x = torch.ones(2)
    writer = Writer()
    node = writer.write([x, {"again": x}])
    again = Reader(writer.tensors).read(node)

    assert len(writer.tensors) == 1
    assert again[0] is again[1]["again"]


def test_what_cannot_be_saved_is_named_and_the_rest_is_kept():
    """A generator and a sparse tensor are left out with their place; their neighbours come back."""
    value = {"ids": torch.arange(3), "source": (i for i in range(3)), "sparse": torch.eye(2).to_sparse()}
    again, left_out = through(value)

    assert torch.equal(again["ids"], torch.arange(3))
    assert isinstance(again["source"], LeftOut)
    assert [what.partition(":")[0] for what in left_out] == ["['source']", "['sparse']"]


def test_a_file_cannot_make_a_class_load():
    """A class of a module that the program has not imported stays a plain mapping."""
    again = Reader({}).read(["dataclass", "antigravity:Thing", [["a", 1]]])

    assert again == {"a": 1}
