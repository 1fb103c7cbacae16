"""A configuration file as its rules see it: settings with their places, in either syntax, and the files beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath

from mixprec.lint._decode import UnreadableError, decode
from mixprec.lint._json_spans import JsonError, Node, parse
from mixprec.lint._lines import Lines
from mixprec.lint.configs._yaml_subset import parse_yaml
from mixprec.records import Location

__all__ = ["ConfigFile"]

DEEPSPEED_KEYS = frozenset(
    {
        "gradient_accumulation_steps",
        "train_batch_size",
        "train_micro_batch_size_per_gpu",
        "zero_optimization",
        "zero_allow_untested_optimizer",
    }
)
ACCELERATE_KEYS = frozenset({"compute_environment", "distributed_type", "num_processes", "machine_rank"})
TRAINER_KEYS = frozenset(
    {
        "output_dir",
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "num_train_epochs",
        "learning_rate",
        "lr_scheduler_type",
    }
)


@dataclass(frozen=True)
class ConfigFile:
    """The settings in one file. `beside` holds texts of other files by path and stands in for the disk."""

    path: str
    text: str
    beside: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def root(self) -> Node:
        """The outermost value; an empty mapping where the text is neither JSON nor YAML of the kind that is read."""
        if PurePath(self.path).suffix.lower() != ".json":
            return parse_yaml(self.text)
        try:
            return parse(self.text)
        except JsonError:
            return Node({}, 0, 0)

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(self.root.value) if isinstance(self.root.value, dict) else frozenset()

    @property
    def is_deepspeed(self) -> bool:
        """Whether DeepSpeed would read this file: a precision section, and another of its own keys."""
        sections = any(isinstance(self._section(name), dict) for name in ("fp16", "bf16", "bfloat16", "torch_autocast"))
        return sections and (bool(self._keys & DEEPSPEED_KEYS) or self._keys <= {"fp16", "bf16", "bfloat16", "amp"})

    @property
    def is_accelerate(self) -> bool:
        """Whether `accelerate launch` would read this file."""
        return len(self._keys & ACCELERATE_KEYS) >= 2

    @property
    def is_trainer(self) -> bool:
        """Whether this file holds arguments of Hugging Face's Trainer."""
        return len(self._keys & TRAINER_KEYS) >= 2

    def _section(self, name: str) -> object:
        node = self.root.get(name)
        return None if node is None else node.value

    def on(self, *keys: str) -> Node | None:
        """The setting under `keys` where it is literally true."""
        node = self.root.get(*keys)
        return node if node is not None and node.value is True else None

    def text_of(self, *keys: str) -> Node | None:
        """The setting under `keys` where it is a string."""
        node = self.root.get(*keys)
        return node if node is not None and isinstance(node.value, str) else None

    def number(self, *keys: str) -> tuple[Node, float] | None:
        """The setting under `keys` where it is a number."""
        node = self.root.get(*keys)
        if node is None or isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
            return None
        return node, float(node.value)

    def other(self, name: str) -> ConfigFile | None:
        """The file that a setting names, relative to this one; None where it is not there."""
        path = (Path(self.path).parent / name).as_posix()
        if path in self.beside:
            return ConfigFile(path, self.beside[path], self.beside)
        try:
            return ConfigFile(path, decode(Path(path).read_bytes()).text)
        except (OSError, UnreadableError):
            return None

    def scripts(self) -> Iterator[tuple[str, str]]:
        """Name and text of the scripts in the same folder, by name; those that cannot be read are left out."""
        if self.beside:
            yield from ((name, text) for name, text in sorted(self.beside.items()) if name.endswith(".py"))
            return
        for file in sorted(Path(self.path).parent.glob("*.py")):
            try:
                yield file.name, decode(file.read_bytes()).text
            except (OSError, UnreadableError):
                continue

    def location(self, node: Node) -> Location:
        """Where a value stands."""
        lines = Lines(self.text)
        line, column = lines.place(node.start)
        end_line, end_column = lines.place(node.end)
        return Location(self.path, line, column, end_line, end_column)
