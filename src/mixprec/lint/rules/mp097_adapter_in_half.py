"""Adapters that take over the dtype of a float16 base model have float16 gradients, which a GradScaler refuses."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import SCALERS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.records import Finding, Severity


class AdapterInHalf(Rule):
    """`get_peft_model(model, config, autocast_adapter_dtype=False)` on a float16 model that AMP trains."""

    code = "MP097"
    name = "adapter-in-half"
    severity = Severity.WARNING
    title = "Adapters keep the float16 of their base model, and float16 AMP trains them."
    why = "PEFT makes adapters float32 unless it is told not to. Float16 gradients cannot be unscaled."
    bad = """\
import torch
from peft import get_peft_model
from transformers import AutoModelForCausalLM, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("model", torch_dtype=torch.float16)
model = get_peft_model(model, None, autocast_adapter_dtype=False)
arguments = TrainingArguments("out", fp16=True)
"""
    good = """\
import torch
from peft import get_peft_model
from transformers import AutoModelForCausalLM, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("model", torch_dtype=torch.float16)
model = get_peft_model(model, None)
arguments = TrainingArguments("out", fp16=True)
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://huggingface.co/docs/peft/developer_guides/troubleshooting",
        "https://github.com/huggingface/peft/issues/341",
    )
    words = ("autocast_adapter_dtype",)

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per call, where the file loads float16 weights and scales a loss."""
        if not _loads_half(view) or not _scales(view):
            return
        for call in view.nodes(ast.Call):
            node = view.argument(call, None, "autocast_adapter_dtype")
            if node is not None and view.constant(node) is False:
                message = "The adapters become float16, and float16 gradients cannot be unscaled."
                yield self.finding(view, node, message, fix=self.fix("Leave autocast_adapter_dtype out."))


def _loads_half(view: FileView) -> bool:
    loads = [call for call in view.nodes(ast.Call) if ast.unparse(call.func).endswith("from_pretrained")]
    return any(
        view.dtype(view.argument(call, None, name)) == "float16" for call in loads for name in ("torch_dtype", "dtype")
    )


def _scales(view: FileView) -> bool:
    if any(True for _ in view.calls(*SCALERS)):
        return True
    return any(view.constant(view.argument(call, None, "fp16")) is True for call in view.nodes(ast.Call))
