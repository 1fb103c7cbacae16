"""A default dtype of 16 bits, or a checkpoint's own dtype, makes parameters that training needs in float32."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from mixprec.lint._names import AUTOCASTS
from mixprec.lint._rule import FixSafety, Rule
from mixprec.lint._view import FileView
from mixprec.lint.dtypes import CHANGES, LOW
from mixprec.lint.protocol import facts, last_name
from mixprec.lint.rules.mp061_updates_round_away import OWNERS, freezes
from mixprec.records import Finding, Severity

SETTERS = ("torch.set_default_dtype", "torch.set_default_tensor_type")
TENSOR_TYPES = {"BFloat16Tensor": "bfloat16", "HalfTensor": "float16"}
TRAINERS = ("Trainer", "Seq2SeqTrainer", "SFTTrainer", "DPOTrainer", "GRPOTrainer")


class DtypeSetGlobally(Rule):
    """`torch.set_default_dtype(torch.bfloat16)` or `from_pretrained(..., torch_dtype="auto")` in a training script."""

    code = "MP098"
    name = "dtype-set-globally"
    severity = Severity.WARNING
    title = "A training script makes its parameters in 16 bits by a global setting."
    why = (
        "The parameters that the optimizer updates have 16 bits then, and small updates round away. Autocast gives the "
        "speed of 16 bits with float32 parameters."
    )
    bad = """\
import torch

torch.set_default_dtype(torch.bfloat16)
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
"""
    good = """\
import torch

model = torch.nn.Linear(8, 8)
optimizer = torch.optim.AdamW(model.parameters())
"""
    fix_safety = FixSafety.NONE
    sources = (
        "https://docs.pytorch.org/docs/stable/generated/torch.set_default_dtype.html",
        "https://huggingface.co/docs/transformers/main/en/models#model-data-type",
    )
    words = ("set_default_dtype", "set_default_tensor_type", "torch_dtype", "from_pretrained")

    def check(self, view: FileView) -> Iterator[Finding]:
        """One finding per setting, in a file that trains."""
        if not _trains(view):
            return
        for call in view.calls(*SETTERS):
            dtype = _named(view, call.args[0]) if call.args else None
            if dtype in LOW and not _is_set_back(view, call):
                message = f"Every parameter made from here on is {dtype}."
                yield self.finding(view, call, message, fix=self.fix("Remove it, and use torch.autocast."))
        yield from self._pretrained(view)

    def _pretrained(self, view: FileView) -> Iterator[Finding]:
        """Models loaded in the dtype of their file, for a Trainer that is told to use AMP or a loop with autocast."""
        asks = any(_asks_for_amp(call, view) for call in view.nodes(ast.Call))
        for call in view.nodes(ast.Call):
            if isinstance(call.func, ast.Attribute) and call.func.attr == "from_pretrained":
                asked = view.argument(call, None, "torch_dtype") or view.argument(call, None, "dtype")
                if asked is not None and view.constant(asked) == "auto" and (asks or _is_trained_whole(view, call)):
                    message = "The weights keep the dtype of their file, which may have 16 bits, and AMP trains them."
                    yield self.finding(view, asked, message, fix=self.fix("Load with torch_dtype=torch.float32."))


def _named(view: FileView, node: ast.expr) -> str | None:
    """The dtype that `torch.float16`, `torch.HalfTensor` or `"torch.cuda.HalfTensor"` names."""
    value = view.constant(node)
    name = value if isinstance(value, str) else view.dotted(node) or ""
    return view.dtype(node) or TENSOR_TYPES.get(name.rpartition(".")[2])


def _trains(view: FileView) -> bool:
    """Whether the file makes an optimizer or a Trainer."""
    names = [view.dotted(call.func) or "" for call in view.nodes(ast.Call)]
    return any(
        (name.startswith("torch.optim.") and "lr_scheduler" not in name) or name.rpartition(".")[2] in TRAINERS
        for name in names
    )


def _is_trained_whole(view: FileView, loaded: ast.Call) -> bool:
    """Whether all weights of a model go to an optimizer of torch, as they are, in a file with an autocast region."""
    if OWNERS & view.owners or freezes(view) or not any(view.calls(*AUTOCASTS)):
        return False
    assign = view.statement(loaded)
    made = assign.value if isinstance(assign, ast.Assign) and len(assign.targets) == 1 else None
    while isinstance(made, ast.Call) and made is not loaded and isinstance(made.func, ast.Attribute):
        if made.func.attr not in _KEEPS or (made.func.attr == "to" and not _moves(view, made)):
            return False
        made = made.func.value
    if made is not loaded or not isinstance(assign, ast.Assign):
        return False
    name = ast.unparse(assign.targets[0])
    others = [call for call in view.nodes(ast.Call) if call is not loaded and _may_change(view, call, name)]
    again = [stmt for stmt in view.nodes(ast.Assign) if name in map(ast.unparse, stmt.targets)]
    if others or len(again) > 1:
        return False
    return any(
        (view.dotted(call.func) or "").startswith("torch.optim.")
        and (given := view.argument(call, 0, "params")) is not None
        and ast.unparse(given) == f"{name}.parameters()"
        for call in view.nodes(ast.Call)
    )


_KEEPS = frozenset({"cpu", "cuda", "eval", "to", "train"})


def _moves(view: FileView, call: ast.Call) -> bool:
    """Whether `.to(...)` names a device and no dtype."""
    return not any(keyword.arg == "dtype" for keyword in call.keywords) and all(
        view.dtype(arg) is None and "dtype" not in ast.unparse(arg) for arg in call.args
    )


_CASTS = frozenset({"apply", "bfloat16", "double", "float", "half", "load_adapter", "add_adapter", "type"})


def _may_change(view: FileView, call: ast.Call, name: str) -> bool:
    """Whether a call may give the model other weights or another dtype: a cast, or a function that adapts it."""
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == name:
        return call.func.attr in _CASTS or (call.func.attr == "to" and not _moves(view, call))
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    called = last_name(call.func)
    harmless = called in view.memo(facts).functions and not CHANGES.search(called.lower())
    return not harmless and any(ast.unparse(arg) == name for arg in given)


def _is_set_back(view: FileView, call: ast.Call) -> bool:
    """Whether another call sets the default again: then it holds only in between."""
    return sum(1 for _ in view.calls(*SETTERS)) > 1


def _asks_for_amp(call: ast.Call, view: FileView) -> bool:
    name = view.dotted(call.func) or ""
    if not name.endswith(("TrainingArguments", "SFTConfig", "DPOConfig", "GRPOConfig")):
        return False
    return any(view.constant(view.argument(call, None, flag)) is True for flag in ("fp16", "bf16"))
