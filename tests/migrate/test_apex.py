"""A file leaves Apex as a whole and then trains under a scaler, or stays as it was with every reason named."""

from __future__ import annotations

import textwrap

import pytest
import torch
from torch import nn

from mixprec.migrate import migrate

LOOP = textwrap.dedent(
    """\
    import torch
    from apex import amp

    # precision
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1", loss_scale="dynamic")
    for x, y in loader:
        optimizer.zero_grad()
        output = model(x)
        # the loss
        loss = loss_fn(output, y)
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
        optimizer.step()  # go
    state = amp.state_dict()
    """
)

MOVED = textwrap.dedent(
    """\
    import torch

    # precision
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            output = model(x)
            # the loss
            loss = loss_fn(output, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_((p for group in optimizer.param_groups for p in group["params"]), 1.0)
        scaler.step(optimizer)
        scaler.update()  # go
    state = scaler.state_dict()
    """
)


def test_a_training_loop_moves_whole():
    """Initialisation, forward, scaled backward, clipping, step and state each become what torch.amp has for them."""
    result = migrate(LOOP)
    assert result.after == MOVED
    assert result.refusals == ()


def test_to_mixprec_the_names_are_ours():
    """The same with mixprec's scaler and region."""
    expected = MOVED.replace("torch.amp.GradScaler", "mixprec.GradScaler").replace("torch.autocast", "mixprec.autocast")
    assert migrate(LOOP, to="mixprec").after == expected.replace("import torch\n", "import torch\nimport mixprec\n")


@pytest.mark.parametrize("to", ["torch", "mixprec"])
def test_what_was_moved_trains_and_skips(to):
    """Run on a CPU, the moved loop lowers the loss, survives an overflow, and ends with a finite scale."""
    torch.manual_seed(0)
    model = nn.Linear(8, 1)
    x = torch.randn(32, 8)
    y = x.sum(1, keepdim=True)
    batches = [(x, y)] * 30
    batches[3] = (x, y * float("inf"))
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    names = {"model": model, "optimizer": optimizer, "loader": batches, "loss_fn": nn.functional.mse_loss}
    first = nn.functional.mse_loss(model(x), y).item()

    exec(migrate(LOOP, to=to).after.replace('"cuda"', '"cpu"'), names)

    assert nn.functional.mse_loss(model(x), y).item() < 0.5 * first
    assert 1.0 <= names["state"]["scale"] <= 2.0**15


def test_a_condition_becomes_enabled():
    """`if args.fp16:` around Apex's calls: the scaler is made either way, and switched by the same condition."""
    source = textwrap.dedent(
        """\
        from apex import amp
        import torch
        def main(args):
            if args.fp16:
                model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
            loss = model(x)[0]
            if args.fp16:
                with amp.scale_loss(loss, optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            optimizer.step()
        """
    )
    assert migrate(source).after == textwrap.dedent(
        """\
        import torch
        def main(args):
            scaler = torch.amp.GradScaler("cuda", enabled=bool(args.fp16))
            with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
                loss = model(x)[0]
            if args.fp16:
                scaler.scale(loss).backward()
            else:
                loss.backward()
            scaler.step(optimizer)
            scaler.update()
        """
    )


def test_functions_apart_share_a_scaler_of_the_module():
    """Where `main` initialises and `train` scales, the scaler stands after the imports, where both see it."""
    source = textwrap.dedent(
        """\
        import torch
        try:
            from apex import amp
        except ImportError:
            raise ImportError("install apex")

        def train(model, optimizer):
            loss = model(x).mean()
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward(retain_graph=True)
            optimizer.step()

        def main(args):
            model, optimizer = amp.initialize(model, optimizer, opt_level=args.opt_level)
            train(model, optimizer)
        """
    )
    assert [refusal.line for refusal in migrate(source).refusals] == [14]
    after = migrate(source, opt_level="O1").after
    assert after.startswith('import torch\n\nscaler = torch.amp.GradScaler("cuda")\n\ndef train')
    assert "scaler.scale(loss).backward(retain_graph=True)" in after
    assert "apex" not in after


def test_an_objects_optimizer_has_an_objects_scaler():
    """Where the optimizer is `self.optimizer` the scaler is `self.scaler`."""
    source = textwrap.dedent(
        """\
        import torch
        from apex import amp
        class Trainer:
            def __init__(self):
                self.model, self.optimizer = amp.initialize(self.model, self.optimizer)
            def train(self, batch):
                loss = self.model(batch).mean()
                with amp.scale_loss(loss, self.optimizer) as scaled:
                    scaled.backward()
                self.optimizer.step()
        """
    )
    after = migrate(source).after
    assert 'self.scaler = torch.amp.GradScaler("cuda")' in after
    assert "self.scaler.scale(loss).backward()" in after
    assert "self.scaler.step(self.optimizer)\n        self.scaler.update()" in after


REFUSED = {
    "half weights": ('opt_level="O1"', 'opt_level="O2"', 5, "O2 and O3 store the weights in float16"),
    "a variable level": ('opt_level="O1"', "opt_level=level", 5, "--opt-level O1"),
    "a fixed scale": ('loss_scale="dynamic"', "loss_scale=128.0", 5, "loss_scale=128.0 has no counterpart"),
    "a registration": ("# precision", "amp.register_half_function(m, 'f')", 4, "register_half_function"),
    "more in the block": ("scaled_loss.backward()", "scaled_loss.backward(); other()", 11, "more is done"),
    "a closure": ("optimizer.step()", "optimizer.step(closure)", 14, "closure"),
    "the step elsewhere": ("    optimizer.step()  # go\n", "", 11, "is not in the same function"),
    "two optimizers at once": ("scale_loss(loss, optimizer)", "scale_loss(loss, [a, b])", 11, "one loss, one optim"),
    "a look at the gradients": ("# the loss", "log(model.weight.grad)", 9, "carry the loss scale"),
    "amp as a value": ("# precision", "restore(file, amp=amp)", 4, "it is used as a value"),
    "a number as gradient": ("# the loss", "model.weight.grad = 0 * g", 9, "carry the loss scale"),
    "a forward elsewhere": (
        "    output = model(x)\n    # the loss\n    loss = loss_fn(output, y)\n",
        "    pass\n",
        9,
        "not in the same function",
    ),
    "a guarded import": (
        "from apex import amp",
        "try:\n    from apex import amp\nexcept ImportError:\n    amp = None",
        3,
        "goes on without Apex",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_one_thing_not_understood_leaves_the_file(name):
    """Beside the accepted loop, each variation is refused whole, with its line and reason."""
    old, new, line, why = REFUSED[name]
    assert old in LOOP
    result = migrate(LOOP.replace(old, new))
    assert not result.changed
    assert [refusal.line for refusal in result.refusals if why in refusal.why] == [line], result.refusals


IMPORTS = {
    "import apex": "apex.amp.",
    "import apex.amp": "apex.amp.",
    "import apex.amp as half": "half.",
}


@pytest.mark.parametrize("line", IMPORTS)
def test_an_import_that_served_amp_alone_goes_with_it(line):
    """However Apex was imported, the moved file runs where it is not installed."""
    assert migrate(LOOP.replace("from apex import amp", line).replace("amp.", IMPORTS[line])).after == MOVED


def test_an_import_that_serves_something_else_stays():
    """Beside `apex.parallel` only the calls of amp move."""
    source = LOOP.replace("from apex import amp", "import apex").replace("amp.", "apex.amp.")
    after = migrate(source.replace("# precision", "model = apex.parallel.convert_syncbn_model(model)")).after
    assert "import apex\n" in after
    assert "apex.amp" not in after


def test_comments_above_what_goes_stay():
    """They stand above the next statement, in their order."""
    lines = "# half precision\n# needs a build of Apex\nfrom apex import amp\n# then data\nimport data"
    after = migrate(LOOP.replace("from apex import amp", lines)).after
    assert "import torch\n# half precision\n# needs a build of Apex\n# then data\nimport data\n" in after


def test_a_gradient_that_is_taken_away_has_no_scale():
    """Setting it to None, or asking whether it is, is the same with and without Apex."""
    between = (
        "    for p in frozen:\n        if p.grad is not None:\n            p.grad = None\n    optimizer.step()  # go"
    )
    result = migrate(LOOP.replace("    optimizer.step()  # go", between))
    assert result.refusals == ()
    assert "            p.grad = None\n    scaler.step(optimizer)\n" in result.after


def test_a_backward_in_another_file_keeps_this_one():
    """What is initialised here and scaled elsewhere has to move together."""
    source = LOOP[: LOOP.index("for x, y")] + "train(model, optimizer)\n"
    result = migrate(source)
    assert not result.changed
    assert "amp.scale_loss is in another file" in result.refusals[0].why


def test_what_differs_is_noted():
    """Evaluation no longer runs in float16, and a saved state has another layout: both are said, with the line."""
    notes = migrate(LOOP.replace("state = amp.state_dict()", "amp.load_state_dict(state)")).notes
    assert [note.line for note in notes] == [5, 15]
    assert "convert-scaler" in notes[1].text
