"""Each cause is found on its line in a small step that has it, and not in the neighbour that has been mended."""

from __future__ import annotations

import dataclasses
import inspect

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mixprec.audit import audit
from mixprec.audit._clocks import clocks_of
from mixprec.audit._counters import with_counters
from mixprec.audit._log import Mark, Op, Phase, Ref, Step, Storage, Sync
from mixprec.audit._report import StepTime, Timing
from mixprec.audit.advice import advise
from mixprec.records import Location, Severity


def found(report, code, least=Severity.WARNING):
    """The findings of that code, at warning unless `least` is information."""
    wanted = (Severity.WARNING, Severity.ERROR) if least is Severity.WARNING else tuple(Severity)
    return [f for f in report.findings if f.code == code and f.severity in wanted]


def line_of(function, text):
    """The number of the line with `text` in `function`."""
    lines, start = inspect.getsourcelines(function)
    return start + next(i for i, line in enumerate(lines) if text in line)


def trained(model, batch, loss, dtype=torch.bfloat16, **options):
    """The audit of a plain training step under one region."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        with torch.autocast("cpu", dtype):
            value = loss(model, batch)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    return audit(model, step, warmup=1, timed=0, **options)


def square(model, x):
    return model(x).float().square().mean()


# ── MP086 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Gated(nn.Module):
    """Multiplies 16-bit activations with a buffer, in float32 or in their own dtype."""

    def __init__(self, cast):
        super().__init__()
        self.inner, self.outer = nn.Linear(64, 256), nn.Linear(256, 64)
        self.register_buffer("gate", torch.rand(256))
        self.cast = cast

    def forward(self, x):
        h = self.inner(x)
        if self.cast:
            return self.outer(torch.tanh(h * self.gate.to(h.dtype)))
        return self.outer(torch.tanh(h * self.gate))  # promotes


class Masked(nn.Module):
    """Adds a float32 mask that is made in forward to 16-bit scores."""

    def __init__(self, dtype):
        super().__init__()
        self.qk = nn.Linear(32, 64)
        self.dtype = dtype

    def forward(self, x):
        q, k = self.qk(x).chunk(2, -1)
        scores = q @ k.transpose(-1, -2)
        mask = torch.zeros(scores.shape[-2:], dtype=self.dtype)
        scores = scores + mask  # adds
        return scores.softmax(-1) @ k


def test_a_float32_buffer_that_promotes_is_found():
    """The line of the product and the name of the buffer are given."""
    (finding,) = found(trained(Gated(False), torch.randn(32, 64), square), "MP086")

    assert finding.location.line == line_of(Gated, "# promotes")
    assert "'gate'" in finding.message


def test_a_float32_mask_made_on_the_spot_is_found():
    """A mask from a factory inside forward counts as much as a buffer."""
    (finding,) = found(trained(Masked(torch.float32), torch.randn(8, 40, 32), square), "MP086")

    assert finding.location.line == line_of(Masked, "# adds")


@pytest.mark.parametrize(
    ("model", "shape"), [(Gated(True), (32, 64)), (Masked(torch.bfloat16), (8, 40, 32))], ids=["gated", "masked"]
)
def test_constants_in_the_compute_dtype_are_no_promotion(model, shape):
    """The mended neighbours give nothing."""
    assert found(trained(model, torch.randn(*shape), square), "MP086", Severity.INFO) == []


def test_a_residual_stream_in_float32_is_no_promotion_by_a_constant(tasks):
    """A transformer that adds 16-bit branches to float32 activations does so on purpose."""
    task = tasks["transformer"]()
    optimizer = torch.optim.SGD(task.model.parameters(), lr=0.01)

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            loss = task.loss(task.model, task.batch())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    assert found(audit(task.model, step, warmup=1, timed=0), "MP086", Severity.INFO) == []


# ── MP101 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("width", "expected"), [(301, 1), (304, 0), (302, 1), (320, 0)])
def test_unaligned_widths_are_found(width, expected):
    """Sizes that are no multiple of 8 and could be are found, with the size to use; the next multiple is fine."""
    model = nn.Sequential(nn.Linear(128, width), nn.GELU(), nn.Linear(width, 128))
    findings = found(trained(model, torch.randn(64, 128), square), "MP101")

    assert len(findings) == expected
    if findings:
        assert f"{width} to 304" in findings[0].message


def test_small_sizes_that_belong_to_the_problem_are_left_alone():
    """Three colours, five classes: padding them costs more work than it saves."""
    model = nn.Sequential(nn.Linear(3, 256), nn.GELU(), nn.Linear(256, 5))

    assert found(trained(model, torch.randn(4096, 3), square), "MP101", Severity.INFO) == []


# ── MP104 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Asking(nn.Module):
    """Decides on the host, or on the device."""

    def __init__(self, ask):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.ask = ask

    def forward(self, x):
        h = self.linear(x)
        if self.ask:
            return h / h.abs().max().item()  # asks
        return h / h.abs().max()


def test_a_read_inside_forward_is_found():
    """The line inside the model's forward is given."""
    (finding,) = found(trained(Asking(True), torch.randn(8, 32), square), "MP104")

    assert finding.location.line == line_of(Asking, "# asks")


def test_the_same_on_the_device_is_no_read():
    """Dividing by a tensor waits for nothing."""
    assert found(trained(Asking(False), torch.randn(8, 32), square), "MP104", Severity.INFO) == []


def logging_step(model, reads):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            loss = square(model, torch.randn(8, 32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for _ in range(reads):
            loss.item()

    return step


@pytest.mark.parametrize(("reads", "warned"), [(1, False), (2, False), (12, True)])
def test_a_loss_read_once_is_information_and_a_dozen_reads_are_not(reads, warned):
    """How often a value is read decides."""
    model = nn.Linear(32, 32)
    report = audit(model, logging_step(model, reads), warmup=1, timed=0)

    assert bool(found(report, "MP104")) is warned
    assert len(found(report, "MP104", Severity.INFO)) == 1


def test_reads_of_data_that_the_script_prepares_do_not_count():
    """Lengths of sequences that no weight has touched may be read as often as one likes."""
    model = nn.Linear(32, 32)
    train = logging_step(model, 0)

    def step():
        lengths = torch.randint(1, 9, (16,))
        for length in lengths:
            int(length)
        train()

    assert found(audit(model, step, warmup=1, timed=0), "MP104") == []


# ── MP105 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def recurrent_step(model, inside, cache=None):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(12, 16, 64)

    def step():
        state = torch.zeros(16, 64)
        if inside:
            for x in data:
                with torch.autocast("cpu", torch.bfloat16):  # entered again and again
                    state = torch.tanh(model(x + state))
        else:
            with torch.autocast("cpu", torch.bfloat16, cache_enabled=cache):
                for x in data:
                    state = torch.tanh(model(x + state))
        loss = state.float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def test_a_region_inside_a_loop_casts_the_weights_every_time():
    """The line of the region is given, and how often it is entered."""
    model = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64))
    (finding,) = found(audit(model, recurrent_step(model, True), warmup=1, timed=0), "MP105")

    assert finding.location.line == line_of(recurrent_step, "# entered again and again")


def test_a_region_without_its_cache_casts_the_weights_every_time():
    """cache_enabled=False has the same price."""
    model = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64))
    report = audit(model, recurrent_step(model, False, cache=False), warmup=1, timed=0)

    assert "cache of the region is off" in found(report, "MP105")[0].message


def test_a_region_around_the_loop_casts_each_weight_once():
    """The mended neighbour."""
    model = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64))

    assert found(audit(model, recurrent_step(model, False), warmup=1, timed=0), "MP105") == []


def test_accumulation_casts_once_per_micro_batch_and_that_is_right():
    """Every backward pass needs a region of its own."""
    model = nn.Sequential(nn.Linear(64, 256), nn.Linear(256, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        for _ in range(4):
            with torch.autocast("cpu", torch.bfloat16):
                loss = square(model, torch.randn(16, 64))
            loss.backward()
        optimizer.step()

    assert found(audit(model, step, warmup=1, timed=0), "MP105", Severity.INFO) == []


# ── MP109 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_anomaly_detection_is_found_where_it_is_on_for_the_step_only():
    """The switch is read while the step runs."""
    model = nn.Linear(32, 32)
    train = logging_step(model, 0)

    def step():
        with torch.autograd.set_detect_anomaly(True):
            train()

    assert len(found(audit(model, step, warmup=0, timed=0), "MP109")) == 1
    assert found(audit(model, train, warmup=0, timed=0), "MP109", Severity.INFO) == []


# ── MP120, MP121, MP122, MP123, MP173 ───────────────────────────────────────────────────────────────────────────────


def test_weights_that_dominate_are_found_with_the_row_that_helps():
    """Few activations beside many weights; many activations beside few weights are another matter."""
    large = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024))
    small = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64))

    (finding,) = found(adam(large, torch.randn(8, 1024)), "MP120")
    assert "optimizer" in finding.fix.text
    assert found(adam(small, torch.randn(32768, 64)), "MP120", Severity.INFO) == []


def adam(model, batch):
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            loss = square(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return audit(model, step, warmup=1, timed=0)


@pytest.mark.parametrize("autocast", [True, False])
def test_copies_of_weights_in_inference_are_found(autocast):
    """float32 weights and their 16-bit copies side by side; a converted model has none."""
    model = nn.Sequential(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 2048))
    model = model if autocast else model.bfloat16()
    batch = torch.randn(4, 2048, dtype=torch.float32 if autocast else torch.bfloat16)

    def step():
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            model(batch)

    findings = found(audit(model, step, warmup=0, timed=0), "MP121", Severity.INFO)
    assert [f.severity for f in findings] == ([Severity.WARNING] if autocast else [])


def language_loss(model, ids):
    return F.cross_entropy(model(ids).float().flatten(0, 1), ids.flatten())  # whole


def chunked_loss(model, ids):
    hidden, head = model[0](ids), model[1]
    parts = [
        torch.utils.checkpoint.checkpoint(
            lambda h, i: F.cross_entropy(head(h), i, reduction="sum"), h, i, use_reentrant=False
        )
        for h, i in zip(hidden.flatten(0, 1).split(64), ids.flatten().split(64), strict=True)
    ]
    return torch.stack(parts).sum() / ids.numel()


def test_logits_in_float32_are_found_and_a_chunked_loss_is_not():
    """Vocabulary times tokens in float32, at the line of the loss."""
    model = nn.Sequential(nn.Embedding(4000, 32), nn.Linear(32, 4000))
    ids = torch.randint(0, 4000, (8, 64))

    (finding,) = found(trained(model, ids, language_loss), "MP122")
    assert finding.location.line == line_of(language_loss, "# whole")
    assert found(trained(model, ids, chunked_loss), "MP122") == []


class Island(nn.Module):
    """Keeps a softmax in float32 for backward, and its 16-bit copy for the product behind it."""

    def __init__(self, island):
        super().__init__()
        self.qkv = nn.Linear(64, 192)
        self.island = island

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(-1, -2)
        weights = scores.float().softmax(-1) if self.island else scores.softmax(-1)  # island
        return weights @ v


def test_activations_kept_in_both_dtypes_are_found():
    """The line of the float32 op is given; without the island nothing is kept twice."""
    batch = torch.randn(8, 256, 64)

    (finding,) = found(trained(Island(True), batch, square), "MP123")
    assert finding.location.line == line_of(Island, "# island")
    assert found(trained(Island(False), batch, square), "MP123", Severity.INFO) == []


class Book(nn.Module):
    """Multiplies every sample with one matrix, expanded before the cast or after it."""

    def __init__(self, early):
        super().__init__()
        self.register_buffer("book", torch.randn(500, 64))
        self.proj = nn.Linear(64, 64)
        self.early = early

    def forward(self, x):
        q = self.proj(x).unsqueeze(-1)
        book = self.book.to(q.dtype) if self.early else self.book
        return book.expand(x.size(0), -1, -1).bmm(q)  # expands


def test_a_cast_of_an_expanded_view_is_found():
    """One copy per sample is written at that line; cast before expand, none is."""
    (finding,) = found(trained(Book(False), torch.randn(64, 64), square), "MP173")

    assert finding.location.line == line_of(Book, "# expands")
    assert found(trained(Book(True), torch.randn(64, 64), square), "MP173", Severity.INFO) == []


# ── MP111 ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def timed_step(*what):
    """Events of a step on a GPU: `c<line>` reads the clock, `p` asks for a product, `s` waits."""
    storages = {0: Storage(64, "cuda", "float32", (4, 4))}
    product = Op("mm", "mm", Phase.FORWARD, "", "", Location(), (), (Ref(0, "float32", (4, 4), 64),), (0,), flops=128)
    made = {"p": product, "s": Mark("synchronize"), "i": Sync("item", Location(), Phase.FORWARD, "", True)}
    events = [made[w] if w in made else Mark("clock", Location("train.py", int(w[1:]))) for w in what]
    return Step(tuple(events), storages)


@pytest.mark.parametrize(
    ("what", "lines"),
    [
        (("c1", "p", "c2"), [2]),  # before and after, and nothing waits
        (("c1", "p", "s", "c2"), []),  # synchronised
        (("c1", "p", "i", "c2"), []),  # the loss is read in between
        (("c1", "i", "p", "c2"), [2]),  # read too early
        (("c2", "c1", "p"), [2]),  # cut by the optimizer's step: the second reading is in the next step
        (("p", "c1"), []),  # one line in each step measures the gap between steps
        (("c1", "c2", "p", "s"), []),  # data is timed, the step is not
    ],
)
def test_a_clock_read_before_the_device_is_done_is_found(what, lines):
    """At the second reading, and only where products were asked for and nothing waited for them."""
    assert [row.end.line for row in clocks_of(timed_step(*what), "cuda")] == lines
    assert clocks_of(timed_step(*what), "cpu") == ()


def test_an_early_clock_is_information_at_its_line():
    """The finding says from which line on the time was taken."""
    report = trained(nn.Linear(32, 32), torch.randn(8, 32), square)
    clocks = clocks_of(timed_step("c1", "p", "c2"), "cuda")
    (finding,) = found(with_findings(report, clocks=clocks), "MP111", Severity.INFO)

    assert (finding.severity, finding.location.line) == (Severity.INFO, 2)
    assert "since line 1" in finding.message
    assert found(report, "MP111", Severity.INFO) == []


# ── MP124, MP126 ────────────────────────────────────────────────────────────────────────────────────────────────────


def with_findings(report, **changes):
    report = dataclasses.replace(report, **changes)
    return dataclasses.replace(report, findings=advise(report))


def with_counters_of(report, **counters):
    return with_findings(report, memory=dataclasses.replace(report.memory, **counters))


def test_expandable_segments_are_advised_only_where_fragmentation_was_measured():
    """A gap between reserved and allocated is the allocator's cache; free pieces in split blocks are fragmentation."""
    report = trained(nn.Linear(32, 32), torch.randn(8, 32), square)
    gap = {"allocated": 100 * 2**20, "reserved": 200 * 2**20}

    (whole,) = found(with_counters_of(report, **gap, fragmented=0), "MP124", Severity.INFO)
    (split,) = found(with_counters_of(report, **gap, fragmented=90 * 2**20), "MP124", Severity.INFO)
    assert "expandable_segments" not in whole.fix.text
    assert "expandable_segments" in split.fix.text
    assert found(with_counters_of(report, allocated=100, reserved=110, fragmented=50), "MP124", Severity.INFO) == []


@pytest.fixture
def convolutions(monkeypatch):
    """`convolutions(batch)`: the audit of a step whose convolutions allocate work space inside, profiled, not timed."""
    monkeypatch.setattr("mixprec.audit._audit.measured", lambda *_: [])
    return convolutional


def convolutional(batch):
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1, stride=2))
    return audit(model, lambda: model(torch.randn(batch, 3, 64, 64)).sum().backward(), warmup=1, timed=0, measure=True)


def test_work_space_of_convolutions_is_found_where_it_is_large(convolutions):
    """Measured by the profiler; the same step with a small batch, and linear layers, have none worth a word."""
    (finding,) = found(convolutions(64), "MP126", Severity.INFO)

    assert finding.severity is Severity.INFO
    assert "conv2d" in finding.message
    assert found(convolutions(1), "MP126", Severity.INFO) == []


def test_work_space_on_cuda_names_the_switches_that_are_on(convolutions):
    """What CUDA's counter has beyond the tensors; cuDNN's search is blamed only where it is on."""
    report = dataclasses.replace(convolutions(1), device_type="cuda")
    counters = {"allocated": 2**30, "reserved": 2**30, "inside": 2**29}
    searching = dataclasses.replace(report, flags=dataclasses.replace(report.flags, cudnn_benchmark=True))

    (plain,) = found(with_counters_of(report, **counters), "MP126", Severity.INFO)
    (search,) = found(with_counters_of(searching, **counters), "MP126", Severity.INFO)
    assert "benchmark off" in search.fix.text
    assert "benchmark off" not in plain.fix.text
    assert "CUBLAS_WORKSPACE_CONFIG" in plain.fix.text


def test_counters_of_cuda_are_read_as_they_stand(monkeypatch):
    """Peaks of the allocator, what is free in split blocks, and the rest beyond the tensors that were seen."""
    memory = trained(nn.Linear(32, 32), torch.randn(8, 32), square).memory
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: memory.peak + 5000)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: memory.peak + 9000)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {"inactive_split_bytes.all.current": 700})

    counted = with_counters(memory, torch.device("cuda"))
    assert (counted.inside, counted.fragmented) == (5000, 700)
    assert (counted.allocated, counted.reserved) == (memory.peak + 5000, memory.peak + 9000)
    assert with_counters(memory, torch.device("cpu")) is memory


# ── what needs a measurement ────────────────────────────────────────────────────────────────────────────────────────


def with_times(report, low, wide):
    times = (StepTime("bfloat16", low, 10), StepTime("float32", wide, 10))
    report = dataclasses.replace(report, timing=Timing(times))
    return dataclasses.replace(report, findings=advise(report))


def test_tiny_layers_are_a_warning_only_where_float32_was_faster():
    """A forecast is information; a measured control decides."""
    report = trained(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4)), torch.randn(8, 16), square)

    assert [f.severity for f in found(report, "MP167", Severity.INFO)] == [Severity.INFO]
    assert len(found(with_times(report, 2e-3, 1e-3), "MP167")) == 1
    assert found(with_times(report, 1e-3, 2e-3), "MP167") == []


def test_large_layers_that_are_slower_are_another_cause():
    """Where products are large, the device is at fault and not the size."""
    model = nn.Sequential(nn.Linear(512, 1024), nn.Linear(1024, 512))
    report = trained(model, torch.randn(128, 512), square)

    assert [f.code for f in with_times(report, 2e-2, 1e-2).at_fault] == ["MP108"]
    assert with_times(report, 1e-2, 1e-2).at_fault == ()


def test_the_largest_gain_is_read_first():
    """Warnings before information, and within each the larger gain first."""
    report = trained(Book(False), torch.randn(64, 64), square)
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]

    severities = [order.index(f.severity) for f in report.findings]
    assert severities == sorted(severities)
    assert report.findings[0].code == "MP173"


def test_plain_float32_training_has_nothing_to_say():
    """No region, no finding."""
    model = nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        square(model, torch.randn(8, 32)).backward()
        optimizer.step()

    assert audit(model, step, warmup=1, timed=0).findings == ()


@pytest.mark.parametrize(("inside", "expected"), [(False, ["MP080"]), (True, [])])
def test_a_region_that_begins_after_the_model_is_found(inside, expected):
    """Nothing is cast in a region that holds the loss alone."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    data = torch.randn(16, 64)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            outputs = model(data)
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.mse_loss(outputs, data)
        loss.backward()

    report = audit(model, step, warmup=0, timed=0)
    assert [f.code for f in report.at_fault] == expected


def test_an_island_made_on_purpose_is_information():
    """Nearly all products in a disabled region inside an enabled one: said at the island, with what it means."""

    class Island(nn.Module):
        def __init__(self):
            super().__init__()
            self.wide, self.out = nn.Linear(64, 512), nn.Linear(512, 4)

        def forward(self, x):
            with torch.autocast("cpu", enabled=False):  # island
                x = self.wide(x)
            return self.out(x)

    report = trained(Island(), torch.randn(32, 64), square)
    (finding,) = found(report, "MP080", Severity.INFO)

    assert finding.severity is Severity.INFO
    assert finding.location.line == line_of(Island, "# island")
    assert "smaller" in finding.fix.text


def test_small_weights_may_be_cast_often():
    """A policy of a few hundred weights that acts twenty times per step loses nothing that anybody would notice."""
    model = nn.Sequential(nn.Linear(64, 4), nn.Linear(4, 64))

    (finding,) = found(audit(model, recurrent_step(model, True), warmup=1, timed=0), "MP105", Severity.INFO)
    assert finding.severity is Severity.INFO


@pytest.mark.parametrize(("seconds", "warned"), [(0.2, True), (0.004, False)])
def test_a_wait_for_data_counts_from_some_milliseconds_on(seconds, warned):
    """Half of a step of 4 ms is nothing to start workers for."""
    report = trained(nn.Linear(32, 32), torch.randn(8, 32), square)
    timing = Timing((StepTime("bfloat16", seconds, 10),), data_share=0.5)

    assert bool(found(with_findings(report, timing=timing), "MP102")) is warned
