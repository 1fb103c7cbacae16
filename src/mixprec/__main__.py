"""`python -m mixprec` is the `mixprec` command."""

from __future__ import annotations

from mixprec.cli import main

if __name__ == "__main__":
    main(prog_name="mixprec")
