"""Memory by cause: hand counts, PyTorch's profiler, and an independent count of what is saved."""

from __future__ import annotations

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

from mixprec.audit._log import Freed, Kind
from mixprec.audit._memory import memory_of, saved_bytes


def bytes_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def test_mlp_saves_what_a_hand_count_says(watched):
    """Data, three activations, the two statistics of the layer norm, log-softmax, targets, and two scalars."""
    rows, hidden, classes = 256, 512, 10
    expected = 4 * rows * 64 + 4 * 3 * rows * hidden + 2 * 4 * rows + 4 * rows * classes + 8 * rows + 4 + 4

    assert saved_bytes(watched("mlp", "fp32")) == expected


@pytest.mark.parametrize("name", ["mlp", "conv", "transformer", "lstm"])
@pytest.mark.parametrize("mode", ["fp32", "bf16-mixed"])
def test_saved_bytes_agree_with_a_count_of_their_own(watched, tasks, step_of, name, mode):
    """A second pair of hooks, which knows weights by their storage and nothing else, counts the same bytes."""
    task = tasks[name]()
    step = step_of(task, mode)
    step()
    weights = {p.untyped_storage().data_ptr() for p in task.model.parameters()}
    weights |= {b.untyped_storage().data_ptr() for b in task.model.buffers()}
    shapes = {tuple(p.shape) for p in task.model.parameters()} | {
        tuple(p.t().shape) for p in task.model.parameters() if p.dim() == 2
    }
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        cast = tensor.dtype in (torch.bfloat16, torch.float16) and tuple(tensor.shape) in shapes and not tensor.is_leaf
        if storage.data_ptr() not in weights and not cast:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda x: x):
        step()

    assert saved_bytes(watched(name, mode)) == sum(seen.values())


@pytest.mark.parametrize(("name", "within"), [("mlp", 0.01), ("transformer", 0.01)])
def test_peak_agrees_with_the_profiler(watched, tasks, step_of, name, within):
    """What a step adds at its peak is what PyTorch's profiler sees allocated, where kernels allocate nothing inside."""
    step = step_of(tasks[name](), "fp32")
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    now = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        now += event.nbytes()
        highest = max(highest, now)

    recorded = watched(name, "fp32")
    memory = memory_of(recorded)
    left = recorded.alive - {event.storage for event in recorded.events if isinstance(event, Freed)}
    before = sum(recorded.storages[n].bytes for n in left)

    assert memory.peak - before == pytest.approx(highest, rel=within)


def test_owners_are_counted_in_full(watched, tasks):
    """Weights, gradients and the two moments of AdamW have their bytes; step counters are small tensors."""
    parameters = bytes_of(tasks["mlp"]().model.parameters())
    memory = memory_of(watched("mlp", "bf16-mixed"))

    assert memory.total(Kind.WEIGHT) == parameters
    assert memory.total(Kind.GRADIENT) == parameters
    assert 2 * parameters <= memory.total(Kind.STATE) <= 2 * parameters + 64


def test_masters_are_told_from_weights(watched, tasks):
    """With float32 masters in the optimizer the model's weights are half as large and the masters stand beside them."""
    parameters = bytes_of(tasks["mlp"]().model.parameters())
    memory = memory_of(watched("mlp", "bf16-master"))

    assert memory.total(Kind.WEIGHT) == parameters // 2
    assert memory.total(Kind.MASTER) == parameters


def test_casts_of_weights_are_half_of_the_weights(watched, tasks):
    """A region casts each weight of a linear layer once; norms keep theirs."""
    model = tasks["mlp"]().model
    linear = [p for index in (0, 3) for p in model[index].parameters()]
    memory = memory_of(watched("mlp", "bf16-mixed"))

    assert memory.total(Kind.CAST) == bytes_of(linear) // 2


def test_causes_at_the_peak_add_up_to_it(watched):
    """No byte at the peak is without a cause, and none has two."""
    memory = memory_of(watched("transformer", "bf16-mixed"))

    assert sum(line.bytes for line in memory.at_peak) == memory.peak
