"""What cannot work is refused before anything is made, with a sentence that says what to change."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support.chart import CHART, MAJORS, How, Refused, render

_HASH = "0" * 64
IMPOSSIBLE: dict[str, dict[str, Any]] = {
    "database.url is given beside": {"existingSecret": "s", "database": {"url": "mysql://u:p@h/n"}},
    "gitlab.token is given beside": {"gitlab": {"existingSecret": "s", "token": "t"}},
    "webhook.tokens is given beside": {"webhook": {"existingSecret": "s", "tokens": "t"}},
    "api.tokens is given beside": {"api": {"existingSecret": "s", "tokens": f"p:read:{_HASH}"}},
    "notifications.secret is given beside": {"notifications": {"existingSecret": "s", "secret": "whsec_"}},
    "partitions and existingPartitionsConfigMap": {
        "partitions": {"p": {"project": 1, "target_branch": "main"}},
        "existingPartitionsConfigMap": "c",
    },
    "gitlab.ca names": {"gitlab": {"ca": {"existingSecret": "s", "existingConfigMap": "c"}}},
    "webhook.tokensKey and webhook.signingKeysKey": {"webhook": {"tokensKey": ""}},
    "image.tag and image.digest": {"image": {"tag": "0.1.0", "digest": f"sha256:{_HASH}"}},
    "cronJobs.suspend stops": {
        "roles": ["http", "rounds", "outbox", "janitor"],
        "cronJobs": {"reconcile": {"enabled": True}, "suspend": True},
    },
    "roles lacks http": {"roles": ["rounds", "poller"]},
    "roles lacks rounds": {"roles": ["http", "poller"]},
    "roles lacks poller": {"roles": ["http", "rounds"]},
    "topology split needs": {
        "topology": "split",
        "roles": ["http"],
        "cronJobs": {"rounds": {"enabled": True, "partitions": ["p"]}, "reconcile": {"enabled": True}},
    },
    "cronJobs.rounds knows no partition": {"cronJobs": {"rounds": {"enabled": True}}},
    "cronJobs.rounds.partitions names q": {
        "partitions": {"p": {"project": 1, "target_branch": "main"}},
        "cronJobs": {"rounds": {"enabled": True, "partitions": ["q"]}},
    },
    "http.autoscaling.minReplicas": {"http": {"autoscaling": {"enabled": True, "minReplicas": 9}}},
    "worker.autoscaling has no target": {
        "worker": {"autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": 0}}
    },
    "http.verticalAutoscaling and http.autoscaling would": {
        "http": {
            "autoscaling": {"enabled": True},
            "verticalAutoscaling": {"enabled": True, "updateMode": "Initial"},
        }
    },
    "http.podDisruptionBudget has": {
        "http": {"podDisruptionBudget": {"minAvailable": 1, "maxUnavailable": 1}}
    },
    "terminationGracePeriodSeconds is shorter": {"terminationGracePeriodSeconds": 49},
    "metrics.serviceMonitor and metrics.podMonitor": {
        "metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}
    },
    "webhookIngress needs a host": {"webhookIngress": {"enabled": True}},
    "ingress needs hosts": {"ingress": {"enabled": True}},
    "httpRoute needs parentRefs": {"httpRoute": {"enabled": True}},
    "webhookHttpRoute needs parentRefs": {"webhookHttpRoute": {"enabled": True}},
    "service.nodePort goes with": {"service": {"nodePort": 30080}},
    "service.externalTrafficPolicy goes with": {"service": {"externalTrafficPolicy": "Local"}},
    "service.ipFamilies names two": {"service": {"ipFamilies": ["IPv4", "IPv6"]}},
    "service.loadBalancerClass and": {"service": {"type": "NodePort", "loadBalancerClass": "c"}},
}


@pytest.mark.parametrize("sentence", IMPOSSIBLE)
def test_values_that_contradict_each_other_are_refused(sentence: str) -> None:
    """Each rule by itself, with its own sentence."""
    with pytest.raises(Refused, match=re.escape(sentence)) as refusal:
        render(IMPOSSIBLE[sentence])
    assert str(refusal.value).count("\n  - ") == 1


def test_all_problems_are_told_at_once() -> None:
    """Nobody mends one value only to hear of the next."""
    with pytest.raises(Refused) as refusal:
        render({"service": {"nodePort": 30080}, "terminationGracePeriodSeconds": 1})
    assert str(refusal.value).count("\n  - ") == 2


def test_every_rule_is_tried_here() -> None:
    """A rule that is added to the chart comes with its case."""
    text = (CHART / "templates/_refuse.tpl").read_text(encoding="utf-8")
    rules = re.findall(r"append \$problems (?:\(printf )?\"([^\"]+)\"", text)
    forms = [re.compile(re.escape(rule).replace("%s", r"[\w.]+")) for rule in rules]
    untried = [form.pattern for form in forms if not any(_begins(form, case) for case in IMPOSSIBLE)]
    assert untried == []


def test_every_refusal_says_what_to_change() -> None:
    """What is wrong, a semicolon, and what to do about it."""
    text = (CHART / "templates/_refuse.tpl").read_text(encoding="utf-8")
    rules = re.findall(r"append \$problems (?:\(printf )?\"([^\"]+)\"", text)
    remedies = ("leave", "name", "add", "choose", "set", "raise", "lower", "switch")
    assert [rule for rule in rules if not rule.partition("; ")[2].startswith(remedies)] == []


@pytest.mark.parametrize("major", MAJORS)
@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 3},
        {"http": {"replicaCount": "two"}},
        {"settings": {"pollInterval": 1}},
        {"partitions": {"p": {"project": 1}}},
        {"partitions": {"Upper": {"project": 1, "target_branch": "main"}}},
        {"migrations": {"mode": "sometimes"}},
        {"image": {"digest": "latest"}},
        {"gitlab": {"url": "gitlab.example.org"}},
    ],
    ids=str,
)
def test_a_slip_of_the_pen_is_refused_by_the_schema(values: dict[str, Any], major: int) -> None:
    """Both Helms hold values against values.schema.json: unknown names, wrong types, wrong forms."""
    with pytest.raises(Refused, match="values don't meet the specifications"):
        render(values, How(major=major))


def _begins(rule: re.Pattern[str], case: str) -> bool:
    """True if `case` is how a text of this rule begins."""
    shortened = rule.pattern
    while shortened:
        try:
            if re.fullmatch(shortened, case):
                return True
        except re.error:
            pass
        shortened = shortened[:-1]
    return False
