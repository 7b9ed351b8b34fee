"""The descriptions of both interfaces: ``/openapi.json``, ``/gateway.proto``."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from ckpttool.version import __version__

__all__ = ["OPENAPI", "proto"]

_ERRORS: dict[str, Any] = {
    "default": {
        "description": "An error, as --json prints it",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": "An ETag: 304 without a body where the snapshot is still that one",
}
_IF_MATCH = {
    "name": "If-Match",
    "in": "header",
    "schema": {"type": "string"},
    "description": "An ETag: the answer is of that very snapshot, or 412",
}
_PINS = [_IF_MATCH, _IF_NONE_MATCH]


def _json(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": {}}}}


def _get(summary: str, answer: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401
    return {"get": {"summary": summary, "responses": {"200": answer, **_ERRORS}, **more}}


def _post(summary: str, status: str, properties: dict[str, Any]) -> dict[str, Any]:
    body = {"schema": {"type": "object", "properties": properties, "additionalProperties": False}}
    return {
        "post": {
            "summary": summary,
            "requestBody": {"content": {"application/json": body}},
            "responses": {status: _json("What was made"), **_ERRORS},
        }
    }


_OPEN: dict[str, Any] = {"security": []}
_TEXT = {"type": "string"}
_FLAG = {"type": ["boolean", "null"]}

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "ckpttool gateway", "version": __version__},
    "security": [{"token": []}],
    "components": {
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        "schemas": {
            "Error": {
                "type": "object",
                "required": ["error"],
                "properties": {
                    "error": {
                        "type": "object",
                        "required": ["code", "id", "message"],
                        "properties": {
                            "code": {"type": "integer"},
                            "id": _TEXT,
                            "kind": _TEXT,
                            "message": _TEXT,
                            "why": _TEXT,
                            "hint": _TEXT,
                        },
                    }
                },
            }
        },
    },
    "paths": {
        "/v1/status": _get("What the training says of itself", _json("Step, rate, losses, …")),
        "/v1/variables": _get(
            "The variables of a snapshot", _json("The snapshot and its variables"), parameters=_PINS
        ),
        "/v1/values": _get(
            "Elements of a variable",
            {
                "description": "An array in C order. A dtype that NumPy does not have comes as "
                "|V…; the header Ckpttool-Dtype names it. Strings come each behind its length, "
                "eight bytes, little-endian.",
                "content": {"application/x-npy": {}, "application/x-ckpttool-strings": {}},
            },
            parameters=[
                {"name": "name", "in": "query", "required": True, "schema": _TEXT},
                {
                    "name": "index",
                    "in": "query",
                    "schema": _TEXT,
                    "description": "As in NumPy's brackets: 0:10, or 3,:,::2",
                },
                *_PINS,
            ],
        ),
        "/v1/snapshots": _post("Make a snapshot now", "201", {"consistent": _FLAG}),
        "/v1/exports": _post(
            "Make an export", "202", {"to": _TEXT, "name": _TEXT, "wait": {"type": "boolean"}}
        ),
        "/metrics": _get("Figures for Prometheus", {"description": "Text"}),
        "/healthz": _get("Whether the gateway runs", {"description": "It does"}, **_OPEN),
        "/readyz": _get("Whether the training answers", {"description": "It does"}, **_OPEN),
        "/gateway.proto": _get("What is answered over gRPC", {"description": "proto3"}, **_OPEN),
        "/openapi.json": _get("This description", {"description": "OpenAPI 3.1"}, **_OPEN),
    },
}


@cache
def proto() -> bytes:
    """The schema of the gRPC interface."""
    return Path(__file__).with_name("gateway.proto").read_bytes()
