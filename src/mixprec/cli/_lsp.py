"""Serve lint findings and quick fixes to an editor over standard input and output.

Needs the extra `lsp`. The editor starts `mixprec lint --language-server`; documents are linted as they are typed,
saved or not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse

from mixprec._version import __version__
from mixprec.errors import MissingExtraError, MixprecError
from mixprec.lint._config import LintConfig, find_config
from mixprec.lint._lint_file import lint_bytes
from mixprec.records import Finding
from mixprec.report import lsp

try:
    from lsprotocol import converters, types
    from pygls.lsp.server import LanguageServer
except ImportError as error:
    raise MissingExtraError("pygls", "lsp", "mixprec lint --language-server") from error

__all__ = ["server"]

T = TypeVar("T")
CONVERTER = converters.get_converter()


def server() -> LanguageServer:
    """A server that lints every open document on opening, on each change and on saving."""
    made = LanguageServer("mixprec", __version__)

    def publish(uri: str) -> None:
        document = made.workspace.get_text_document(uri)
        found = [_typed(lsp.diagnostic(finding, document.source), types.Diagnostic) for finding in _findings(made, uri)]
        made.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri, found, document.version))

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    def opened(parameters: types.DidOpenTextDocumentParams) -> None:
        publish(parameters.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def changed(parameters: types.DidChangeTextDocumentParams) -> None:
        publish(parameters.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_SAVE)
    def saved(parameters: types.DidSaveTextDocumentParams) -> None:
        publish(parameters.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def closed(parameters: types.DidCloseTextDocumentParams) -> None:
        made.text_document_publish_diagnostics(types.PublishDiagnosticsParams(parameters.text_document.uri, []))

    @made.feature(types.TEXT_DOCUMENT_CODE_ACTION, types.CodeActionOptions([types.CodeActionKind.QuickFix]))
    def actions(parameters: types.CodeActionParams) -> list[types.CodeAction]:
        uri = parameters.text_document.uri
        source = made.workspace.get_text_document(uri).source
        asked = range(parameters.range.start.line + 1, parameters.range.end.line + 2)
        found = [finding for finding in _findings(made, uri) if finding.location.line in asked]
        offered = [action for f in found for action in (lsp.quick_fix(f, source, uri), lsp.silence(f, source, uri))]
        return [_typed(action, types.CodeAction) for action in offered if action is not None]

    return made


def _typed(value: dict[str, Any], kind: type[T]) -> T:
    made: T = CONVERTER.structure(value, kind)
    return made


def _findings(server: LanguageServer, uri: str) -> tuple[Finding, ...]:
    """What is found in an open document. A configuration that is wrong finds nothing: the command line tells why."""
    path = unquote(urlparse(uri).path) or "untitled.py"
    try:
        config = find_config(Path(path))
    except MixprecError:
        config = LintConfig(Path(path).parent)
    source = server.workspace.get_text_document(uri).source
    result, _ = lint_bytes(source.encode("utf-8", "replace"), path, config)
    return tuple(finding for finding in result.findings if finding.location.cell is None)
