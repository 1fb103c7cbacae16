"""A sink takes what a monitor records, each in a file of its own; one that fails is dropped, and training goes on.

```python
class MySink(Sink):
    def step(self, record): ...          # each closed step, one step late
    def finding(self, finding, step): ... # each alert, once
```
"""

from __future__ import annotations

from mixprec.monitor.sinks._sink import RunFacts, Sink

__all__ = ["RunFacts", "Sink"]
