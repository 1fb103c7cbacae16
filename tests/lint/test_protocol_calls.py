"""The walk goes into helpers, methods, callables and other modules, and stops where it cannot see."""

from __future__ import annotations

import pytest

from mixprec.lint import FileView, Project, lint_source
from mixprec.lint.protocol import trace
from mixprec.records import Severity


def said(source: str, name: str = "main.py", project: Project | None = None) -> list[tuple[str, int]]:
    """(code, line) of every warning and error."""
    found = lint_source(source, name, project=project)
    return [(f.code, f.location.line) for f in found if f.severity is not Severity.INFO]


SPLIT = """\
import torch


def compute_loss(model, batch):
    with torch.autocast("cuda", dtype=torch.float16):
        return model(batch).mean()


def backward(scaler, loss):
    scaler.scale(loss).backward()


def step(scaler, optimizer, model, max_norm):
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    scaler.step(optimizer)
    scaler.update()


def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for batch in loader:
        optimizer.zero_grad()
        backward(scaler, compute_loss(model, batch))
        step(scaler, optimizer, model, 1.0)
"""


def test_helpers_of_the_file_are_walked_into():
    """What four functions do together is one protocol; the fault stands where the call is."""
    assert said(SPLIT) == [("MP002", 14)]
    assert (
        said(SPLIT.replace("    torch.nn.utils.clip", "    scaler.unscale_(optimizer)\n    torch.nn.utils.clip")) == []
    )


def test_a_returned_loss_keeps_its_scale():
    """A helper that returns the scaled loss is followed through its return."""
    source = SPLIT.replace(
        "def backward(scaler, loss):\n    scaler.scale(loss).backward()",
        "def scaled(scaler, loss):\n    return scaler.scale(loss)",
    ).replace("backward(scaler, compute_loss(model, batch))", "scaled(scaler, compute_loss(model, batch)).backward()")

    assert said(source) == [("MP002", 14)]
    assert said(source.replace("scaled(scaler, compute_loss(model, batch))", "compute_loss(model, batch)")) == [
        ("MP004", 24)
    ]


METHODS = """\
import torch


class Base:
    def optimizer_step(self):
        self.scaler.step(self.optimizer)
        self.scaler.update()


class Trainer(Base):
    def __init__(self, model, amp):
        self.model = model
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda", enabled=amp)

    def run(self, loader):
        for batch in loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                self.loss = self.model(batch).mean()
            self.do_backward()
            self.optimizer_step()

    def do_backward(self):
        self.scaler.scale(self.loss).backward()
"""


def test_methods_and_inherited_methods_are_walked_into():
    """`self.scaler` and `self.loss` are the same in every method, also in those of a base class."""
    assert said(METHODS) == []
    assert said(METHODS.replace("self.scaler.scale(self.loss)", "self.loss")) == [("MP004", 25)]
    assert said(METHODS.replace("        self.scaler.update()\n", "")) == [("MP005", 6)]


def test_the_message_names_the_constructors_argument():
    """A switch that the constructor was given is named as the script calls it."""
    clipped = METHODS.replace(
        "            self.optimizer_step()",
        "            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)\n            self.optimizer_step()",
    )
    (finding,) = [f for f in lint_source(clipped, "main.py") if f.severity is not Severity.INFO]

    assert finding.message.endswith("when `amp` is true.")


def test_an_object_outside_its_class():
    """`trainer.scaler` is the scaler that the class made."""
    source = (
        METHODS.replace("            self.optimizer_step()\n", "")
        + """

trainer = Trainer(model, True)
for batch in loader:
    trainer.optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = trainer.model(batch).mean()
    trainer.scaler.scale(loss).backward()
    trainer.optimizer.step()
    trainer.scaler.update()
"""
    )
    assert ("MP003", 33) in said(source)


CALLABLE = """\
import torch


class NativeScaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss, optimizer, clip_grad=None, parameters=None, create_graph=False, need_update=True):
        self._scaler.scale(loss).backward(create_graph=create_graph)
        if need_update:
            if clip_grad is not None:
                self._scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(parameters, clip_grad)
            self._scaler.step(optimizer)
            self._scaler.update()


loss_scaler = NativeScaler()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i, x in enumerate(loader):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean() / 4
    update = (i + 1) % 4 == 0
    loss_scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters(), need_update=update)
    if update:
        optimizer.zero_grad()
"""


def test_a_callable_scaler_is_walked_into():
    """A class that scales, clips and steps when it is called is no closed box."""
    assert said(CALLABLE) == []
    assert said(CALLABLE.replace("                self._scaler.unscale_(optimizer)\n", "")) == [("MP002", 12)]
    assert said(CALLABLE.replace("    if update:\n        optimizer.zero_grad()\n", "")) == [("MP146", 9)]
    assert said(CALLABLE.replace("    if update:\n        optimizer.zero_grad()", "    optimizer.zero_grad()")) == [
        ("MP146", 25)
    ]


LIBRARY = """\
import torch


def clip_gradient(optimizer, limit):
    for group in optimizer.param_groups:
        for param in group["params"]:
            param.grad.data.clamp_(-limit, limit)


class Stepper:
    def __init__(self):
        self.scaler = torch.amp.GradScaler("cuda")

    def __call__(self, loss, optimizer):
        self.scaler.scale(loss).backward()
        self.scaler.step(optimizer)
"""

USER = """\
import torch
from lib import Stepper, clip_gradient

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    scaler.scale(loss).backward()
    clip_gradient(optimizer, 0.5)
    scaler.step(optimizer)
    scaler.update()
"""


def test_a_helper_of_another_module_is_walked_into():
    """The fault in a helper of the project is said where this file calls it."""
    project = Project(sources={"lib.py": LIBRARY})

    assert said(USER, "main.py", project) == [("MP002", 11)]
    assert said(USER, "main.py", Project()) == []


def test_relative_imports_find_the_package(tmp_path):
    """`from .lib import …` is read from the file beside this one, without importing anything."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    (package / "lib.py").write_text(LIBRARY, encoding="utf-8")
    main = package / "main.py"
    main.write_text(USER.replace("from lib", "from .lib"), encoding="utf-8")

    assert said(main.read_text(encoding="utf-8"), str(main), Project(tmp_path)) == [("MP002", 11)]


def test_a_broken_neighbour_is_no_obstacle(tmp_path):
    """A module that does not parse is as if it were not there."""
    (tmp_path / "lib.py").write_text("def clip_gradient(:\n", encoding="utf-8")

    assert said(USER, str(tmp_path / "main.py"), Project(tmp_path)) == []


def test_recursion_ends():
    """Functions that call each other are walked once."""
    source = SPLIT + "\n\ndef a(scaler):\n    b(scaler)\n    scaler.update()\n\n\ndef b(scaler):\n    a(scaler)\n"

    assert said(source) == [("MP002", 14)]


OUT_OF_SIGHT = [
    "engine_step(loss, optimizer)",
    "self_made.optimizer_step(optimizer)",
    "runner.call_hook('after_train_iter', optimizer)",
    "train_utils.backward_and_step(loss, optimizer, scaler)",
    "loss_scaler(loss, optimizer)",
]


@pytest.mark.parametrize("call", OUT_OF_SIGHT)
def test_what_was_handed_to_unseen_code_is_not_judged(call):
    """Code that is not here may have stepped, cleared or unscaled: nothing is said about what follows."""
    source = f"""
import torch

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x in loader:
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).mean()
    scaler.scale(loss).backward()
    {call}
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""
    assert said(source) == []
    assert ("MP002", 11) in said(source.replace(call, "print(loss)"))


def test_a_function_that_is_called_from_elsewhere_is_called_again_and_again():
    """A step without update shows in the second call, but only where nobody else could have updated."""
    source = """\
import torch


class Model:
    def __init__(self, net):
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler("cuda")

    def optimize(self, x):
        self.optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = self.net(x).mean()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
"""
    assert said(source) == [("MP005", 14)]
    assert said(source + "\n    def end(self):\n        self.scaler.update()\n") == []


OWNED = {
    "Accelerate": """
from accelerate import Accelerator
accelerator = Accelerator()
""",
    "Lightning": """
import lightning as L
class Module(L.LightningModule):
    pass
""",
    "Fabric": """
from lightning.fabric import Fabric
fabric = Fabric(precision="16-mixed")
""",
    "DeepSpeed": """
import deepspeed
engine, *_ = deepspeed.initialize(model=model)
""",
    "Composer": """
from composer import Trainer
trainer = Trainer(model=model)
""",
    "Hugging Face": """
from transformers import Trainer
class Mine(Trainer):
    pass
""",
    "mixprec": """
from mixprec import Precision
precision = Precision("fp16-mixed", optimizer)
""",
}


@pytest.mark.parametrize("owner", OWNED)
def test_order_rules_rest_where_a_framework_owns_the_step(owner):
    """The same loop is wrong on its own and not judged beside a framework that takes the step."""
    broken = USER.replace("from lib import Stepper, clip_gradient\n", "").replace(
        "    clip_gradient(optimizer, 0.5)\n    scaler.step(optimizer)", "    optimizer.step()"
    )
    assert ("MP003", 10) in said(broken)
    assert said(OWNED[owner] + broken) == []


def test_an_import_of_a_framework_is_not_its_use():
    """`accelerate` imported for something else leaves the step with the script."""
    broken = USER.replace(
        "from lib import Stepper, clip_gradient", "from accelerate import init_empty_weights"
    ).replace("    clip_gradient(optimizer, 0.5)\n    scaler.step(optimizer)", "    optimizer.step()")
    assert ("MP003", 11) in said(broken)


def test_a_file_without_the_protocol_is_not_walked():
    """No backward and no scaler: the walk has nothing to do."""
    view = FileView("a.py", 'import torch\nwith torch.autocast("cuda"):\n    y = model(x)\n')

    assert view.memo(trace).reached == frozenset()
