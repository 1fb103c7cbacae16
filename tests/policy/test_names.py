"""Every spelling of an op leads to its one name, and every name is an op that exists."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import get_overridable_functions, resolve_name

from mixprec._policy import known_op, op_of
from mixprec._policy.names import KNOWN, takes_dtype
from mixprec._policy.spellings import ALIASES, TAKES_DTYPE, UNLISTED
from mixprec._policy.tables import DEVICES, release
from mixprec.errors import InvalidValueError, UnknownNameError

LISTED = {op for groups in DEVICES.values() for group in groups for op in group.ops.split()}

_BELOW_PYTHON = """
    _addmm_activation _convolution _convolution.deprecated _cudnn_rnn _grid_sampler_2d_cpu_fallback _lu_with_info
    _mps_convolution _native_multi_head_attention _scaled_dot_product_flash_attention _thnn_fused_gru_cell
    _thnn_fused_lstm_cell cudnn_convolution cudnn_convolution_transpose mkldnn_rnn_layer multilabel_margin_loss_forward
    nll_loss2d reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d replication_pad3d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d upsample_trilinear3d
    upsample_bicubic2d _upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_nearest_exact1d
    _upsample_nearest_exact2d _upsample_nearest_exact3d
"""
BELOW_PYTHON = frozenset(_BELOW_PYTHON.split())
"""Listed ops that no overridable Python function is; Python functions reach them from inside."""


def _overridable():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about deprecated names while it lists them
        functions = [f for fs in get_overridable_functions().values() for f in fs]
        return {name for f in functions if (name := resolve_name(f)) is not None}


def test_every_listed_op_is_reached_by_a_python_spelling():
    """What PyTorch lists can be intercepted: some function that Python code calls has that name."""
    reached = {op_of(name) for name in _overridable()}
    present = {op for op in LISTED if hasattr(torch.ops.aten, op.partition(".")[0])}
    assert present - reached == BELOW_PYTHON & present
    assert not {"softmax", "linear"} & BELOW_PYTHON


def test_every_known_name_exists():
    """A known op is an aten op or a function of torch.nn.functional."""
    gone = {"cholesky", "qr"} if release(torch.__version__) >= (2, 14) else set()
    new = {"linalg_matrix_sqrth", "linear_cross_entropy"}
    missing = {op for op in KNOWN if not hasattr(torch.ops.aten, op.partition(".")[0]) and not hasattr(F, op)}
    assert missing - new <= gone


def test_aliases_are_no_ops_of_their_own_and_lead_to_one():
    """An alias is not a known op, and what it stands for is."""
    assert not set(ALIASES) & KNOWN
    assert set(ALIASES.values()) <= KNOWN
    assert not UNLISTED & {op for op in LISTED if op not in _through_parts()}


def _through_parts():
    return {op for groups in DEVICES.values() for group in groups if group.parts for op in group.ops.split()}


def test_ops_that_take_a_dtype_are_exactly_those_whose_schema_says_so():
    """FP32_OUT is allowed where the op's schema has an optional dtype for its result."""
    assert {op for op in KNOWN if _has_dtype(op)} | {"norm", "softmin"} == TAKES_DTYPE
    assert takes_dtype("softmax")
    assert not takes_dtype("linear")


def _has_dtype(op):
    packet = getattr(torch.ops.aten, op.partition(".")[0], None)
    schemas = [getattr(packet, name)._schema for name in packet.overloads()] if packet else []
    computing = [s for s in schemas if str(s.arguments[0].type) == "Tensor" and not any(a.is_out for a in s.arguments)]
    return any(a.name == "dtype" and str(a.type) == "Optional[int]" for s in computing for a in s.arguments)


@pytest.mark.parametrize(
    ("spelling", "op"),
    [
        ("softmax", "softmax"),
        ("F.softmax", "softmax"),
        ("nn.functional.softmax", "softmax"),
        ("torch.nn.functional.softmax", "softmax"),
        ("torch.Tensor.softmax", "softmax"),
        ("torch.special.softmax", "softmax"),
        ("aten::softmax.int", "softmax"),
        ("torch.ops.aten.softmax.int", "softmax"),
        ("__matmul__", "matmul"),
        ("torch.Tensor.__rmatmul__", "matmul"),
        ("__pow__", "pow"),
        ("torch.Tensor.__rtruediv__", "reciprocal"),
        ("conv2d", "conv2d"),
        ("conv2d.padding", "conv2d"),
        ("_convolution.deprecated", "_convolution.deprecated"),
        ("F.cross_entropy", "cross_entropy_loss"),
        ("F.grid_sample", "grid_sampler"),
        ("torch.linalg.vector_norm", "linalg_vector_norm"),
        ("torch.fft.rfft", "fft_rfft"),
        ("torch._C._nn.upsample_bilinear2d", "upsample_bilinear2d"),
        ("F.unfold", "im2col"),
        ("torch.Tensor.unfold", None),
        ("torch.Tensor.exp_", None),
        ("torch.reshape", None),
        ("mylib::fused_norm", "mylib::fused_norm"),
        ("mylib::", None),
    ],
)
def test_a_spelling_leads_to_its_op(spelling, op):
    """Function, method, operator, dispatcher and package spellings are one op; views and in-place forms are none."""
    assert op_of(spelling) == op


def test_an_unknown_name_is_refused_with_the_close_ones():
    """A typo names what was meant; the right spelling beside it is accepted."""
    with pytest.raises(
        UnknownNameError, match=r"op is 'sofmax'; accepted is a known name; did you mean 'softmax'"
    ) as e:
        known_op("sofmax")
    assert e.value.suggestions[0] == "softmax"
    assert known_op("softmax") == "softmax"


def test_an_in_place_form_is_refused_and_its_op_named():
    """In-place forms are never cast, and the error says which op can have a rule."""
    with pytest.raises(UnknownNameError, match="In-place forms are never cast; a rule can be given for 'exp'"):
        known_op("exp_")
    assert known_op("torch.Tensor.exp") == "exp"


@pytest.mark.parametrize("name", [None, 3, torch.exp])
def test_a_name_is_a_string(name):
    """Anything but a string is refused with what is accepted."""
    with pytest.raises(InvalidValueError, match="the name of an op, such as 'softmax'"):
        known_op(name)


def test_a_name_that_could_not_be_written_down_is_refused():
    """A namespaced op may be any word, but the text form must be able to hold it."""
    with pytest.raises(InvalidValueError, match="without spaces and '#'"):
        known_op("my lib::op")
    assert known_op("my_lib::op.out2") == "my_lib::op.out2"
