"""The callback watches any Trainer and adds to its log; the mixin brings scaler and policy into any Trainer class."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="extra: transformers")

from accelerate.state import AcceleratorState, PartialState
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainingArguments

from mixprec.errors import InvalidValueError
from mixprec.integrations.transformers import MixprecCallback, MixprecTrainerMixin
from mixprec.monitor import read_run
from mixprec.monitor.incident import load_incidents
from mixprec.monitor.replay import replay

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 1)
        self.dtypes: set[torch.dtype] = set()

    def forward(self, x: torch.Tensor, factor: torch.Tensor) -> dict[str, torch.Tensor]:
        inside = self.linear(x)
        self.dtypes.add(torch.softmax(inside, -1).dtype)
        return {"loss": 0.01 * inside.float().square().mean() * factor[0]}


class Mine(MixprecTrainerMixin, Trainer):
    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


class Plain(Trainer):
    def _get_train_sampler(self, *_):
        return SequentialSampler(self.train_dataset)


@pytest.fixture
def trainer(tmp_path):
    """`trainer(callback, **more)`: four steps of two samples, the second of which overflows."""

    def make(*callbacks, scaler=None, policy=None, kind=Mine, **more):
        AcceleratorState._reset_state()
        PartialState._reset_state()
        generator = torch.Generator().manual_seed(0)
        factors = [1.0, 1.0, float("inf"), float("inf"), 1.0, 1.0, 1.0, 1.0]
        data = [{"x": torch.randn(4, generator=generator), "factor": torch.tensor(f)} for f in factors]
        arguments = TrainingArguments(
            str(tmp_path / "out"),
            use_cpu=True,
            per_device_train_batch_size=2,
            num_train_epochs=1,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            optim="adamw_torch_fused",
            **more,
        )
        ours = {"scaler": scaler, "policy": policy} if kind is Mine else {}
        return kind(Net(), arguments, train_dataset=data, callbacks=list(callbacks), **ours)

    return make


def test_the_callback_adds_the_scale_and_the_skips_to_the_log(trainer, tmp_path):
    """Each line of the Trainer's log has the scale of its step and the skips so far; the folder has every step."""
    callback = MixprecCallback(tmp_path / "run")
    made = trainer(callback, fp16=True)
    made.train()
    lines = [entry for entry in made.state.log_history if "loss" in entry]
    assert [line["loss_scale"] for line in lines] == [65536.0, 65536.0, 32768.0, 32768.0]
    assert [line["skipped_steps"] for line in lines] == [0, 1, 1, 1]
    assert made.report.step == 3
    assert made.report.applied
    rank = read_run(tmp_path / "run").ranks[0]
    assert [record.reason for record in rank.steps] == ["applied", "found_inf", "applied", "applied"]


def test_a_failing_step_is_kept_and_runs_again_bit_for_bit(trainer, tmp_path):
    """The second step is in the folder with the model's call, the batch and the weights; in Python it replays."""
    made = trainer(MixprecCallback(tmp_path / "run"), fp16=True)
    made.train()

    [incident] = load_incidents(tmp_path / "run")
    assert (incident.kind, incident.step, incident.scale) == ("skipped", 1, 65536.0)
    [(_, _, named)] = incident.calls()
    [loaded] = incident.loaded()
    assert {name: torch.equal(value, loaded[name]) for name, value in named.items()} == {"x": True, "factor": True}
    assert named["factor"].isinf().all()

    model, scaler = Net(), torch.amp.GradScaler("cpu")

    def step(micro):
        with torch.autocast("cpu", torch.float16):
            loss = model(**micro.kwargs)["loss"]
        scaler.scale(loss).backward()
        return loss

    found = replay(incident, model, step, scaler=scaler)
    assert (found.repeats, found.exact) == (True, True)
    assert found.traced.origin.first is found.traced.origin.given  # the factor came with the batch
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert f"mixprec replay {incident.folder}" in page


def test_a_trainer_that_is_not_ours_keeps_the_step_as_well(trainer, tmp_path):
    """Without the mixin the model's call is kept, with both micro-batches of the window, and no loaded batch."""
    callback = MixprecCallback(tmp_path / "run", page=False)
    made = trainer(callback, kind=Plain, fp16=True, gradient_accumulation_steps=2)
    made.train()

    incident = load_incidents(tmp_path / "run")[0]
    assert (incident.kind, incident.step, len(incident.losses)) == ("loss", 0, 2)  # on a CPU it has no scaler
    assert [float(named["factor"][0]) for _, _, named in incident.calls()] == [1.0, math.inf]
    assert incident.loaded() == []
    assert not (tmp_path / "run" / "report.html").exists()


def test_nothing_is_kept_that_was_not_asked_for(trainer, tmp_path):
    """Without a folder, or with `incidents=False`, no step is written."""
    trainer(MixprecCallback(), fp16=True).train()
    trainer(MixprecCallback(tmp_path / "run", incidents=False, page=False), fp16=True).train()

    assert load_incidents(tmp_path) == []


def test_the_schedule_stands_still_on_a_skip_of_a_fused_optimizer(trainer):
    """The learning rate of the third step is that of the second, which was skipped; all others differ."""
    made = trainer(fp16=True, lr_scheduler_type="linear", warmup_steps=0)
    made.train()
    rates = [entry["learning_rate"] for entry in made.state.log_history if "loss" in entry]
    assert rates[2] == rates[1]
    assert len(set(rates)) == 3


def test_the_policy_reaches_the_model(trainer):
    """Under `uniform` softmax runs in float32 in a bf16 training."""
    made = trainer(bf16=True, policy="uniform")
    made.train()
    assert made.model.dtypes == {torch.float32}
    plain = trainer(bf16=True)
    plain.train()
    assert plain.model.dtypes == {torch.bfloat16}


def test_a_scaler_that_no_mode_needs_is_refused(trainer):
    """bf16 with a scaler is refused when the Trainer is made; the report of a bf16 training says why there is none."""
    from mixprec import GradScaler

    with pytest.raises(InvalidValueError, match="fp16 alone needs a loss scale"):
        trainer(bf16=True, scaler=GradScaler("cpu"))
    with pytest.raises(InvalidValueError, match="only fp16 has reports"):
        _ = trainer(bf16=True).report
    own = GradScaler("cpu", init_scale=64.0)
    assert trainer(fp16=True, scaler=own).accelerator.scaler is own
