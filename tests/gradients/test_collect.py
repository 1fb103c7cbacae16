"""Whatever a gradient is, its values are collected as plain tensors that share its memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mixprec._gradients import (
    Plans,
    collect,
    make_plan,
    multiply_,
    parameter_name,
    parameters,
    refuse_half,
    square_sum,
)
from mixprec.errors import HalfGradientsError

CPU = torch.device("cpu")


def test_parameters_without_gradients_are_passed_over() -> None:
    """Only what there is to read is collected, in order."""
    params = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    params[1].grad = torch.ones(2)
    assert [t.data_ptr() for t in collect(params).tensors] == [params[1].grad.data_ptr()]
    assert collect([]).tensors == []


def test_complex_gradients_are_read_and_multiplied_as_real_ones() -> None:
    """torch's scaler raises on them."""
    param = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    param.grad = torch.tensor([3 + 4j, 0j])
    gradients = collect([param])
    assert square_sum(gradients, CPU).item() == pytest.approx(25.0)
    multiply_(gradients, torch.tensor(0.5), torch.zeros(()))
    assert param.grad.tolist() == [1.5 + 2j, 0j]


@pytest.mark.parametrize("coalesce", [False, True])
def test_duplicates_of_a_sparse_gradient_are_added_up_for_a_norm(coalesce: bool) -> None:
    """3 and 1 at one place are 4, not the norm of (3, 1); without a norm they stay apart, as torch leaves them."""
    param = nn.Parameter(torch.zeros(2, 2))
    values = torch.tensor([3.0, 1.0])
    param.grad = torch.sparse_coo_tensor(torch.tensor([[0, 0], [1, 1]]), values, (2, 2), check_invariants=True)
    gradients = collect([param], coalesce=coalesce)
    assert square_sum(gradients, CPU).item() == pytest.approx(16.0 if coalesce else 10.0)
    multiply_(gradients, torch.tensor(0.5), torch.zeros(()))
    assert param.grad.to_dense().tolist() == [[0.0, 2.0], [0.0, 0.0]]


def test_shares_weigh_the_square_sum() -> None:
    """A gradient that two ranks hold counts half on each."""
    params = [nn.Parameter(torch.zeros(2)) for _ in range(3)]
    for param in params:
        param.grad = torch.ones(2)
    gradients = collect(params, share=lambda param, grad: 0.5 if param is params[0] else 1.0)
    assert square_sum(gradients, CPU).item() == pytest.approx(5.0)


def test_a_plan_holds_until_a_parameter_is_another() -> None:
    """It is made once, again for other parameters, and not used for a gradient that does not fit it."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    plans = Plans()
    params, plan = plans.of(optimizer)
    assert params == parameters(optimizer)
    assert plan is not None
    assert plans.of(optimizer)[1] is plan
    for param in model.parameters():
        param.grad = torch.ones_like(param)
    assert collect(params, plan=plan).plan is plan
    model[0].weight.grad = torch.ones(3, 3).to_sparse()
    gradients = collect(params, plan=plan)
    assert gradients.plan is None
    assert square_sum(gradients, CPU).item() == pytest.approx(24.0)
    model[0].weight.grad = torch.ones(3, 3, requires_grad=True)
    gradients = collect(params, plan=plan)
    assert gradients.plan is None
    assert not any(tensor.requires_grad for tensor in gradients.tensors)
    model[0].weight.grad = None
    assert collect(params, plan=plan).plan is None
    model[0].weight.data = torch.zeros(1, 3)
    model[0].weight.grad = torch.ones(1, 3)
    assert collect(params, plan=plan).plan is None
    optimizer.param_groups[0]["params"][0] = nn.Parameter(torch.zeros(5, 5))
    assert plans.of(optimizer)[1] is not plan
    optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2, dtype=torch.float64))]})
    assert plans.of(optimizer)[1] is None


def test_there_is_no_plan_for_mixed_parameters() -> None:
    """Several dtypes, complex numbers or subclasses are read one by one."""
    assert make_plan([torch.zeros(2), torch.zeros(2, dtype=torch.bfloat16)]) is None
    assert make_plan([torch.zeros(2, dtype=torch.complex64)]) is None
    assert make_plan([torch.zeros(2), torch.zeros(3)]) is not None


def test_parameters_are_named_by_name_or_by_place() -> None:
    """As the optimizer knows them."""
    model = nn.Linear(3, 2)
    named, unnamed = torch.optim.SGD(model.named_parameters(), lr=0.1), torch.optim.SGD(model.parameters(), lr=0.1)
    assert parameter_name(named, model.bias) == "bias (2,)"
    assert parameter_name(unnamed, model.bias) == "param_groups[0]['params'][1] (2,)"
    assert parameter_name(unnamed, nn.Parameter(torch.zeros(7))) == "a parameter of shape (7,)"


def test_half_gradients_are_refused_by_name() -> None:
    """Five names and the number of the rest; float32 gradients pass."""
    params = [nn.Parameter(torch.zeros(2, dtype=torch.float16)) for _ in range(7)]
    optimizer = torch.optim.SGD(params, lr=0.1)
    refuse_half(optimizer)
    for param in params:
        param.grad = torch.zeros_like(param)
    with pytest.raises(HalfGradientsError, match="and 2 more") as caught:
        refuse_half(optimizer)
    assert len(caught.value.parameters) == 7
