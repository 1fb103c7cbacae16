"""An editor gets findings at the right places, and quick fixes that do what `--fix` does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

import pytest

from mixprec.lint._document import splice
from mixprec.records import Edit, Finding, Fix, Location, Severity
from mixprec.report.lsp import diagnostic, quick_fix, silence

SOURCE = "x = '\U0001f525'; clip()\nstep()\n"
FINDING = Finding(
    "MP002",
    "clip-before-unscale",
    Severity.ERROR,
    "too early",
    Location("a.py", 1, 10, 1, 16),
    fix=Fix("Unscale.", safe=True, edits=(Edit(2, 1, 2, 1, "unscale()\n"),)),
)


def test_places_count_from_zero_in_utf16_units() -> None:
    """A character outside the basic plane counts twice."""
    made = diagnostic(FINDING, SOURCE)
    assert made["range"] == {"start": {"line": 0, "character": 10}, "end": {"line": 0, "character": 16}}
    assert (made["code"], made["severity"], made["source"]) == ("MP002", 1, "mixprec")
    assert made["codeDescription"]["href"].startswith("https://")


def test_a_fix_becomes_a_text_edit() -> None:
    """The quick fix has the finding's edits, and a fix without edits is not offered."""
    action = quick_fix(FINDING, SOURCE, "file:///a.py")
    assert action is not None
    (edit,) = action["edit"]["changes"]["file:///a.py"]
    assert edit["newText"] == "unscale()\n"
    assert edit["range"]["start"] == edit["range"]["end"] == {"line": 1, "character": 0}
    assert action["isPreferred"]
    bare = Finding("MP002", "n", Severity.ERROR, "m", Location("a.py", 1, 1), fix=Fix("Think."))
    assert quick_fix(bare, SOURCE, "file:///a.py") is None


def test_silencing_puts_a_comment_at_the_end_of_the_line() -> None:
    """The comment that the action writes silences the finding."""
    (edit,) = silence(FINDING, SOURCE, "u")["edit"]["changes"]["u"]
    end = edit["range"]["start"]
    assert end == {"line": 0, "character": 16}
    assert edit["newText"] == "  # mixprec: ignore[MP002]"


def _send(pipe: IO[bytes], **message: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    pipe.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    pipe.flush()


def _receive(pipe: IO[bytes]) -> dict[str, Any]:
    length = 0
    while (header := pipe.readline().strip()) != b"":
        name, _, value = header.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return dict(json.loads(pipe.read(length)))


def _until(pipe: IO[bytes], **wanted: Any) -> dict[str, Any]:
    while True:
        message = _receive(pipe)
        if all(message.get(key) == value for key, value in wanted.items()):
            return message


@pytest.mark.timeout(60)
def test_a_session_with_an_editor(tmp_path: Path) -> None:
    """Open, see the finding, ask for actions, apply the fix, see it gone, hang up."""
    pytest.importorskip("pygls", reason="the language server is an extra")
    text = "x = 1  # mixprec: ignore[MP002] why\n"
    (tmp_path / "pyproject.toml").write_text("[tool.mixprec.lint]\nlevel = 'info'\n")
    uri = (tmp_path / "a.py").as_uri()
    command = [sys.executable, "-m", "mixprec", "lint", "--language-server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        to, back = server.stdin, server.stdout
        _send(to, id=1, method="initialize", params={"processId": None, "rootUri": None, "capabilities": {}})
        assert _until(back, id=1)["result"]["capabilities"]["codeActionProvider"]
        _send(to, method="initialized", params={})
        document = {"uri": uri, "languageId": "python", "version": 1, "text": text}
        _send(to, method="textDocument/didOpen", params={"textDocument": document})
        (found,) = _until(back, method="textDocument/publishDiagnostics")["params"]["diagnostics"]
        assert (found["code"], found["range"]["start"]) == ("MP290", {"line": 0, "character": 7})
        asked = {"textDocument": {"uri": uri}, "range": found["range"], "context": {"diagnostics": [found]}}
        _send(to, id=2, method="textDocument/codeAction", params=asked)
        fix, ignore = _until(back, id=2)["result"]
        assert [fix["title"], ignore["title"]] == ["mixprec: Remove the comment.", "mixprec: Ignore MP290 here"]
        (edit,) = fix["edit"]["changes"][uri]
        start, end = edit["range"]["start"], edit["range"]["end"]
        places = (start["line"] + 1, start["character"] + 1, end["line"] + 1, end["character"] + 1)
        fixed = splice(text, [Edit(*places, edit["newText"])])
        assert fixed == "x = 1\n"
        change = {"textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": fixed}]}
        _send(to, method="textDocument/didChange", params=change)
        assert _until(back, method="textDocument/publishDiagnostics")["params"]["diagnostics"] == []
        _send(to, id=3, method="shutdown")
        _until(back, id=3)
        _send(to, method="exit")
        assert server.wait(timeout=20) == 0
