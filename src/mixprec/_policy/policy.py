"""A policy is a value: a base list of op rules, and the rules that change it, in order. Nothing in it can be mutated.

```
policy = Policy.torch("cuda").with_op("softmax", "fp32", module="encoder.*").with_module(torch.nn.LayerNorm, "keep")
print(policy)                                    # the text form; Policy.parse reads it back
policy.explain("softmax", module="encoder.attn") # -> Decision: the rule, the reason, the source
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mixprec._policy.rule import CastRule
from mixprec._policy.selector import Selector
from mixprec._policy.sharing import Sharing

__all__ = ["Base", "Policy", "Rule"]


@dataclass(frozen=True)
class Base:
    """The list that a policy starts from: `torch` (with a device, and a version or the installed one) or a named one."""

    name: str
    device: str | None = None
    version: str | None = None


@dataclass(frozen=True)
class Rule:
    """One line of a policy. `op` None: the rule is for a whole module; `where` None: for the op anywhere."""

    op: str | None
    where: Selector | None
    rule: CastRule
    reason: str = ""


@dataclass(frozen=True)
class Policy:
    """Which dtype each op runs in, as data.

    `base` is the list to start from, `rules` what changes it in the order given, `sharing` which casts are shared.
    """

    base: Base
    rules: tuple[Rule, ...] = ()
    sharing: Sharing = Sharing.WEIGHTS

    @classmethod
    def torch(cls, device_type: str, *, version: str | None = None) -> Policy:
        """PyTorch's own list for `"cpu"`, `"cuda"`, `"mps"` or `"xpu"`, of the installed version unless one is given."""
        raise NotImplementedError

    @classmethod
    def uniform(cls) -> Policy:
        """One list for CPU, CUDA, MPS and XPU, so that a CPU run rehearses a GPU run."""
        raise NotImplementedError

    @classmethod
    def lean(cls) -> Policy:
        """`uniform` with less memory: norms and softmax in 16-bit storage, activation casts shared."""
        raise NotImplementedError

    @classmethod
    def careful(cls) -> Policy:
        """`uniform` with more in float32."""
        raise NotImplementedError

    @classmethod
    def named(cls, name: str, device: str | None = None) -> Policy:
        """The policy of that name: `torch` (needs `device`), `uniform`, `lean`, `careful`."""
        raise NotImplementedError

    @classmethod
    def parse(cls, text: str) -> Policy:
        """The policy that `text` writes down; `Policy.parse(str(policy)) == policy`. Raises `PolicySyntaxError`."""
        raise NotImplementedError

    def with_op(
        self, op: str, rule: CastRule | str, module: Selector | type | str | None = None, *, reason: str = ""
    ) -> Policy:
        """This policy with `rule` for `op`, everywhere or only inside `module`."""
        raise NotImplementedError

    def with_module(self, module: Any, rule: CastRule | str, *, within: Any = None, reason: str = "") -> Policy:
        """This policy with `rule` for all ops inside `module`: a path glob, a class name, a class, or an instance
        whose path is looked up in `within` (the model) now.
        """
        raise NotImplementedError

    def with_sharing(self, sharing: Sharing | str) -> Policy:
        """This policy with other casts shared."""
        raise NotImplementedError

    @property
    def ops(self) -> Mapping[str, CastRule]:
        """Rule of each op that has one outside any module rule, sorted by name; an op that is absent is `KEEP`."""
        raise NotImplementedError

    @property
    def module_rules(self) -> tuple[Rule, ...]:
        """The rules that speak of modules. Empty: nobody has to know which module an op runs in."""
        return tuple(r for r in self.rules if r.where is not None)

    def explain(self, op: str, module: str | None = None, module_classes: Any = ()) -> Any:
        """What happens to `op` there, and why: a `Decision`."""
        raise NotImplementedError
