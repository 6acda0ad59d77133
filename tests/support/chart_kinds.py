"""The custom kinds that the chart makes, as far as it uses them: every other field is a mistake.

Written after the definitions of Prometheus Operator 0.8x (monitoring.coreos.com/v1) and Gateway API 1.x
(gateway.networking.k8s.io/v1) and the Vertical Pod Autoscaler (autoscaling.k8s.io/v1), which a cluster would
check by; they know more than stands here.
"""

from __future__ import annotations

from typing import Any, Final

from jsonschema import Draft202012Validator

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_TEXT_MAP: Final[Schema] = {"type": "object", "additionalProperties": _TEXT}
_DURATION: Final[Schema] = {
    "type": "string",
    "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
_PORT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": 65535}


def check_custom(document: dict[str, Any]) -> bool:
    """Validate a document of a custom kind; False if it is none of ours. Raises jsonschema's error."""
    schema = _KINDS.get((document["apiVersion"], document["kind"]))
    if schema is None:
        return False
    Draft202012Validator(schema).validate(document)
    return True


def _map(*needed: str, **known: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": list(needed), "properties": known}


def _list(items: Schema, most: int = 1000) -> Schema:
    return {"type": "array", "items": items, "maxItems": most}


def _kind(api: str, kind: str, spec: Schema) -> Schema:
    metadata = _map("name", "namespace", name=_TEXT, namespace=_TEXT, labels=_TEXT_MAP, annotations=_TEXT_MAP)
    return _map(
        "apiVersion", "kind", "metadata", "spec",
        apiVersion={"const": api}, kind={"const": kind}, metadata=metadata, spec=spec,
    )  # fmt: skip


_ACTIONS: Final = (
    "replace", "keep", "drop", "hashmod", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase",
    "keepequal", "dropequal",
)  # fmt: skip
_RELABELINGS: Final = _list(
    _map(
        sourceLabels=_TEXTS,
        separator=_TEXT,
        targetLabel=_TEXT,
        regex=_TEXT,
        modulus={"type": "integer"},
        replacement=_TEXT,
        action={"enum": [form for word in _ACTIONS for form in (word, word.title())]},
    )
)
_SELECTOR: Final = _map(matchLabels=_TEXT_MAP)
_WHERE: Final = _map(matchNames=_TEXTS)
_SCRAPE: Final[dict[str, Schema]] = {
    "port": _TEXT,
    "path": _TEXT,
    "interval": _DURATION,
    "scrapeTimeout": _DURATION,
    "honorLabels": {"type": "boolean"},
    "relabelings": _RELABELINGS,
    "metricRelabelings": _RELABELINGS,
}
_SERVICE_MONITOR: Final = _map(
    "endpoints", "selector", namespaceSelector=_WHERE, selector=_SELECTOR, endpoints=_list(_map(**_SCRAPE))
)
_POD_MONITOR: Final = _map(
    "podMetricsEndpoints", "selector",
    namespaceSelector=_WHERE, selector=_SELECTOR, podMetricsEndpoints=_list(_map(**_SCRAPE)),
)  # fmt: skip
_RULE: Final = _map(
    "expr",
    alert=_TEXT, record=_TEXT, expr={"type": ["string", "integer"]}, labels=_TEXT_MAP, annotations=_TEXT_MAP,
    **{"for": _DURATION, "keep_firing_for": _DURATION},
)  # fmt: skip
_RULES: Final = _map(groups=_list(_map("name", name=_TEXT, interval=_DURATION, rules=_list(_RULE))))
_PARENT: Final = _map(
    "name", group=_TEXT, kind=_TEXT, namespace=_TEXT, name=_TEXT, sectionName=_TEXT, port=_PORT
)
_PATH: Final = _map(
    type={"enum": ["Exact", "PathPrefix", "RegularExpression"]}, value={"type": "string", "maxLength": 1024}
)
_METHOD: Final[Schema] = {"enum": ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]}
_FILTER: Final[Schema] = {
    "enum": [
        "RequestHeaderModifier",
        "ResponseHeaderModifier",
        "RequestMirror",
        "RequestRedirect",
        "URLRewrite",
        "ExtensionRef",
        "CORS",
    ]
}
_ROUTE_DURATION: Final[Schema] = {"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
_HTTP_ROUTE: Final = _map(
    parentRefs=_list(_PARENT, 32),
    hostnames=_list(_TEXT, 16),
    rules=_list(
        _map(
            matches=_list(_map(path=_PATH, method=_METHOD), 64),
            filters=_list({"type": "object", "required": ["type"], "properties": {"type": _FILTER}}, 16),
            timeouts=_map(request=_ROUTE_DURATION, backendRequest=_ROUTE_DURATION),
            backendRefs=_list(_map("name", name=_TEXT, port=_PORT), 16),
        ),
        16,
    ),
)
_AMOUNTS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": ["integer", "string"], "pattern": "^[0-9]+(\\.[0-9]+)?[A-Za-z]*$"},
}
_VERTICAL: Final = _map(
    "targetRef",
    targetRef=_map("apiVersion", "kind", "name", apiVersion=_TEXT, kind=_TEXT, name=_TEXT),
    updatePolicy=_map(updateMode={"enum": ["Off", "Initial", "Recreate", "Auto", "InPlaceOrRecreate"]}),
    resourcePolicy=_map(
        containerPolicies=_list(_map(containerName=_TEXT, minAllowed=_AMOUNTS, maxAllowed=_AMOUNTS))
    ),
)
_KINDS: Final = {
    (api, kind): _kind(api, kind, spec)
    for api, kind, spec in (
        ("monitoring.coreos.com/v1", "ServiceMonitor", _SERVICE_MONITOR),
        ("monitoring.coreos.com/v1", "PodMonitor", _POD_MONITOR),
        ("monitoring.coreos.com/v1", "PrometheusRule", _RULES),
        ("gateway.networking.k8s.io/v1", "HTTPRoute", _HTTP_ROUTE),
        ("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", _VERTICAL),
    )
}
