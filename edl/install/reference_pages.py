"""The pages docs/reference/conditions.md and docs/reference/http.md, from the declarations that edl itself uses.

`python -m edl.install.reference` writes them, and a test compares them with the declarations.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from edl.install.reasons import CONDITIONS, COUNT, DEGRADED, FAILED, INTENTS
from edl.master.openapi import openapi
from edl.model.status import JobPhase

CONDITIONS_PAGE, HTTP_PAGE = "docs/reference/conditions.md", "docs/reference/http.md"
_REASON = ("reason", "meaning", "what to do")
_WHOLE = 2**63 - 1
_NOTE = "<!-- Written by `make generate` from {source}; changes here are lost. -->"

_CONDITIONS = """# Conditions and reasons

{note}

A reason is one word. It is in the column `REASON` of `kubectl get tj`, in `status.reason`, in events, in the
log, and in the label `reason` of the metrics. The line beside it (`status.explanation`) is the short form.
The conditions and `edl explain` have the full account.

The phases are {phases}. `kubectl describe tj JOB` prints the conditions: `Admitted`, `Running`, `Resizing`,
`Degraded`, `Complete` and `Failed`.

## Why a job has this count

{count}

## Condition `Degraded`: what keeps a job from its full count

{degraded}

Any other word here is the `reason` of the API server.

## Why a job failed

{failed}

## Other conditions

{conditions}

## Events

- `Admitted`; `ScaledUp` and `ScaledDown` (`4 -> 8` and why).
- `Moved`: trainers or pservers start again on another node. `Preempted`: kube-scheduler took capacity for serving.
- `PodFailed`: exit codes, and how many failures are tolerated.
- `NodeRequested`, `NodeCame`, `NodeDidNotCome` (a warning), `NodeRequestWithdrawn`: [nodes on
  demand](../how-to/nodes-on-demand.md).
- `Restarting`, `Suspended`, `Succeeded`, `Failed`.
- The reason itself, when a job begins to wait or becomes `Degraded`.

An event that repeats is counted in place.

## Why a pod is deleted

edl sets the annotation `paddlepaddle.org/intent` before it deletes a pod. Its value is a reason from above,
or:

{intents}

A trainer that is deleted with `ServingNeedsRoom` may have no annotation: then its
`metadata.deletionGracePeriodSeconds` is one less than its `terminationGracePeriodSeconds`. If a pod is deleted
without either, something else deleted the pod.
"""

_HTTP = """# HTTP

{note}

## The master of a job

Port 8080 of the pod `JOB-master-0`. Calls need `Authorization: Bearer TOKEN`, with the token of the job,
unless the table says otherwise. [The data master](../master.md#http) explains the protocol. `GET
/openapi.json` has the same as this page for programs.

{routes}

### Answers that are no success

{errors}

### Bodies

Unknown fields are refused.

{bodies}
## The controller

Port 8080 of each replica. The first three need no token.

| call | what it does |
|---|---|
| `GET /healthz` | 200 while the controller takes turns or its writes end |
| `GET /readyz` | 200 while the caches are complete, on leader and followers alike |
| `GET /metrics` | metrics for Prometheus, [listed here](../operations.md#metrics) |
| `GET /page/` | [the page](../dashboard.md); its routes serve the page only and may change with it |
"""


def conditions_page() -> str:
    """The text of the page of conditions and reasons."""
    return _CONDITIONS.format(
        note=_NOTE.format(source="edl/install/reasons.py"),
        phases=", ".join(f"`{phase.value}`" for phase in JobPhase),
        count=_table(_REASON, COUNT),
        degraded=_table(_REASON, DEGRADED),
        failed=_table(_REASON, FAILED),
        conditions=_table(("condition", "reason", "meaning"), CONDITIONS),
        intents=_table(("value", "meaning"), INTENTS),
    )


def http_page() -> str:
    """The text of the page of HTTP calls; everything about the master is from its OpenAPI document."""
    document = openapi()
    calls = [(method, path, call) for path, calls in document["paths"].items() for method, call in calls.items()]
    errors: dict[str, str] = {}
    for _, _, call in calls:
        errors |= {code: answer["description"] for code, answer in call["responses"].items() if code != "200"}
    schemas = document["components"]["schemas"]
    return _HTTP.format(
        note=_NOTE.format(source="edl/master/openapi.py and edl/master/bodies.py"),
        routes=_table(("call", "what it does", "body", "answer"), map(_route, calls)),
        errors=_table(("code", "meaning"), sorted(errors.items())),
        bodies="\n".join(part for name in sorted(schemas) for part in _body(name, schemas[name])),
    )


def _route(call: tuple[str, str, Mapping[str, Any]]) -> tuple[str, ...]:
    method, path, operation = call
    queries = "".join(f"?{parameter['name']}=" for parameter in operation.get("parameters", ()))
    token = "; no token" if operation.get("security") == [] else ""
    content = operation["responses"]["200"]["content"]
    answer = "; ".join(_kind(body["schema"]) if "schema" in body else kind for kind, body in content.items())
    body = operation.get("requestBody", {"content": {}})["content"]
    wanted = "; ".join(_kind(one["schema"]) for one in body.values())
    return f"`{method.upper()} {path}{queries}`", f"{operation['summary']}{token}", wanted, answer


def _body(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield f"#### {name}\n"
    if text := schema.get("description"):
        yield f"{_sentence(text)}\n"
    required = schema.get("required", ())
    rows = [
        (f"`{field}`", _kind(part), "required" if field in required else _default(part), part.get("description", ""))
        for field, part in schema.get("properties", {}).items()
    ]
    yield f"{_table(('field', 'type', 'default', 'meaning'), rows)}\n"


def _sentence(text: str) -> str:
    """The first paragraph of a docstring on one line."""
    return " ".join(text.partition("\n\n")[0].split())


def _default(schema: Mapping[str, Any]) -> str:
    return f"`{json.dumps(schema['default'])}`" if "default" in schema else ""


def _kind(schema: Mapping[str, Any]) -> str:
    """The type that a schema describes, with a link if it is a body of its own."""
    if reference := schema.get("$ref", ""):
        name = reference.rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if several := schema.get("anyOf"):
        return " or ".join(dict.fromkeys(map(_kind, several)))
    kind = str(schema.get("type", "any value"))
    if kind == "array":
        inner = schema.get("items") or {}
        return f"list of {_kind(inner)}" if inner else "list"
    low, high = schema.get("minimum"), schema.get("maximum", _WHOLE)
    if "maxLength" in schema:
        return f"{kind}, {schema.get('minLength', 0):,} to {schema['maxLength']:,} characters"
    least_value = f", at least {low:,}" if low is not None else ""
    return f"{kind}{least_value}" + (f", at most {high:,}" if high < _WHOLE else "")


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
