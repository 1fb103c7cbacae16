"""The command line: one file per command, found by listing this folder, loaded when it is run.

To add a command, add a file `cli/NAME.py` (an underscore in the name becomes a dash on the command line):

```python
\"\"\"Check training scripts for misuse of mixed precision.      <- first sentence: the line in `mixprec --help`

Anything after it is for readers of the code.
\"\"\"

import click

from mixprec.cli._options import format_option

__all__ = ["command"]


@click.command()                     # click's own help text comes from the function's docstring
@click.argument("paths", nargs=-1)
@format_option("sarif", "github")    # --format text|json|sarif|github, passed as `output: str`
@click.pass_context
def command(context: click.Context, paths: tuple[str, ...], output: str) -> None:
    ...
    context.exit(1 if findings else 0)
```

- The file must define `command`, a `click.Command`. Files that start with an underscore are not commands.
- `mixprec --help` reads docstrings without importing, so a command may import torch at its top and costs nothing to
  the others. `mixprec lint` and whatever else is worth having without torch must not import it, directly or not.
- Exit codes: 0 nothing found, 1 findings, 2 could not run. A `MixprecError` that leaves a command is printed as one
  message on stderr and exits 2; so does click's own usage error. Do not catch them.
- Text goes through `mixprec.report.text.console()`, which colours only a terminal and respects NO_COLOR; JSON through
  `mixprec.report.json.document(...)` and `click.echo`, one object with `"schema": 1`.
"""

from __future__ import annotations

import click

from mixprec._version import __version__
from mixprec.cli._commands import CommandFolder

__all__ = ["main"]


HELP = """Mixed-precision training in PyTorch that explains itself.

\b
before a run         mixprec lint .
it does not train    mixprec doctor train.py --its --own --arguments
while it trains      mixprec run train.py
memory, speed        mixprec audit train.py
a code or an op      mixprec explain MP002

Options of a command stand before the script; what follows it is the script's own.

Exit codes: 0 nothing found, 1 findings, 2 could not run.
"""


@click.group(cls=CommandFolder, folder=__name__, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="mixprec", message="%(prog)s %(version)s")
def main() -> None:
    """Mixed-precision training in PyTorch that explains itself."""
