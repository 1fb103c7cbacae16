"""Who owns the step: where a framework scales, unscales and steps, the order of those calls is not the script's."""

from __future__ import annotations

import ast
import enum
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mixprec.lint._view import FileView

__all__ = ["Owner", "find_owners"]


class Owner(str, enum.Enum):
    """A library that takes the backward pass or the optimizer step out of the script's hands."""

    ACCELERATE = "Accelerate"
    APEX = "Apex"
    COMPOSER = "Composer"
    DEEPSPEED = "DeepSpeed"
    FABRIC = "Lightning Fabric"
    LIGHTNING = "Lightning"
    MIXPREC = "mixprec.Precision"
    TRANSFORMERS = "Hugging Face Trainer"


_MADE = {
    "accelerate.Accelerator": Owner.ACCELERATE,
    "composer.Trainer": Owner.COMPOSER,
    "composer.trainer.Trainer": Owner.COMPOSER,
    "deepspeed.initialize": Owner.DEEPSPEED,
    "lightning.Fabric": Owner.FABRIC,
    "lightning.Trainer": Owner.LIGHTNING,
    "lightning.fabric.Fabric": Owner.FABRIC,
    "lightning.pytorch.Trainer": Owner.LIGHTNING,
    "lightning_fabric.Fabric": Owner.FABRIC,
    "mixprec.Precision": Owner.MIXPREC,
    "pytorch_lightning.Trainer": Owner.LIGHTNING,
    "transformers.Seq2SeqTrainer": Owner.TRANSFORMERS,
    "transformers.Trainer": Owner.TRANSFORMERS,
}
_INHERITED = {
    "Callback": Owner.LIGHTNING,
    "ComposerModel": Owner.COMPOSER,
    "LightningLite": Owner.FABRIC,
    "LightningModule": Owner.LIGHTNING,
    "Seq2SeqTrainer": Owner.TRANSFORMERS,
    "Trainer": Owner.TRANSFORMERS,
}
_LIBRARIES = {
    Owner.COMPOSER: ("composer",),
    Owner.FABRIC: ("lightning", "pytorch_lightning"),
    Owner.LIGHTNING: ("lightning", "pytorch_lightning"),
    Owner.TRANSFORMERS: ("transformers",),
}
_BACKWARD = re.compile(r"(?:^|\.)_?(?P<who>accelerator|fabric|model_engine|engine|ds_engine)$")
_BY_NAME = {
    "accelerator": Owner.ACCELERATE,
    "ds_engine": Owner.DEEPSPEED,
    "engine": Owner.DEEPSPEED,
    "fabric": Owner.FABRIC,
    "model_engine": Owner.DEEPSPEED,
}


def find_owners(view: FileView) -> frozenset[Owner]:
    """The owners whose step this file uses. A mere import of a framework is not enough."""
    return frozenset(_owners(view))


def _owners(view: FileView) -> Iterator[Owner]:
    for call in view.nodes(ast.Call):
        name = view.dotted(call.func)
        if name in _MADE:
            yield _MADE[name]
        elif name in ("apex.amp.initialize", "apex.amp.scale_loss"):
            yield Owner.APEX
        if isinstance(call.func, ast.Attribute):
            yield from _called(view, call, call.func)
    for node in view.nodes(ast.ClassDef):
        for base in node.bases:
            yield from _inherited(view.dotted(base) or "")


def _called(view: FileView, call: ast.Call, func: ast.Attribute) -> Iterator[Owner]:
    if func.attr == "manual_backward":
        yield Owner.LIGHTNING
    if func.attr == "backward" and call.args:
        found = _BACKWARD.search(ast.unparse(func.value))
        if found:
            yield _BY_NAME[found["who"]]


def _inherited(base: str) -> Iterator[Owner]:
    owner = _INHERITED.get(base.rpartition(".")[2])
    if owner is not None and base.startswith(_LIBRARIES[owner]):
        yield owner
