"""The requests of the demo: what a platform team's portal would ask for, and how to see that it landed.

Three kinds in turn, so that a merge request mixes them: a file of one's own, an entry in a shared YAML
document, an item in a shared list. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

ACCESS: Final = "access-prod"
DNS: Final = "dns-internal"

Files = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Project:
    """A project of the simulated GitLab, and the partition that lands requests in it."""

    partition: str
    path: str
    allowed: str
    files: Mapping[str, str]


PIPELINE_FILE: Final = """\
# Read by nobody here: the simulator only pretends to run it, for as long as it is told.
check:
  rules:
    - if: $CI_PIPELINE_SOURCE == "merge_request_event"
  script:
    - ./check-everything
"""

PROJECTS: Final = (
    Project(
        ACCESS,
        "platform/access",
        "access/**",
        {
            ".gitlab-ci.yml": PIPELINE_FILE,
            "access/db-orders.yaml": "# Who may read the orders. Kept by requests.\nmembers: {}\n",
            "access/on-call.yaml": "rotation:\n  - founder\n",
        },
    ),
    Project(
        DNS,
        "platform/dns",
        "zones/**",
        {
            ".gitlab-ci.yml": PIPELINE_FILE,
            "zones/internal.yaml": "# Names of the internal zone. Kept by requests.\nrecords: {}\n",
            "zones/monitored.yaml": "names:\n  - ns1\n",
        },
    ),
)


@dataclass(frozen=True, slots=True)
class Wish:
    """One request as the API takes it, and a look into the target branch that tells whether it is there."""

    body: dict[str, Any]
    is_in: Callable[[Files], bool]

    @property
    def partition(self) -> str:
        return str(self.body["partition"])


def wish(number: int) -> Wish:
    """The request with this number: partitions alternate, kinds go round."""
    makers = (_own_access_file, _dns_record, _on_call, _own_dns_file, _db_access, _monitored_name)
    return makers[number % len(makers)](number)


def _own_access_file(number: int) -> Wish:
    path, content = f"access/vpn/user-{number}.txt", f"user-{number} may use the VPN\n"
    edit = {"op": "put", "path": path, "content": content}
    return _wish(
        ACCESS, f"user-{number}", "vpn", "use the VPN", edit, lambda files: files.get(path) == content
    )


def _db_access(number: int) -> Wish:
    path, user, grant = "access/db-orders.yaml", f"user-{number}", {"role": "reader"}
    edit = {"op": "merge", "path": path, "patch": {"members": {user: grant}}}
    return _wish(
        ACCESS,
        user,
        "db-orders",
        "read db-orders",
        edit,
        lambda files: _at(files, path, "members", user) == grant,
    )


def _on_call(number: int) -> Wish:
    path, user = "access/on-call.yaml", f"user-{number}"
    edit = {"op": "ensure_item", "path": path, "pointer": "/rotation", "item": user}
    return _wish(
        ACCESS,
        user,
        "on-call",
        "join the rotation",
        edit,
        lambda files: user in (_at(files, path, "rotation") or ()),
    )


def _own_dns_file(number: int) -> Wish:
    path, content = f"zones/delegated/team-{number}.txt", f"team-{number} NS ns.team-{number}\n"
    edit = {"op": "put", "path": path, "content": content}
    return _wish(DNS, f"team-{number}", "zone", "get a zone", edit, lambda files: files.get(path) == content)


def _dns_record(number: int) -> Wish:
    path, name = "zones/internal.yaml", f"app-{number}"
    record = {"type": "A", "value": f"10.0.{number // 250}.{number % 250 + 1}"}
    edit = {"op": "merge", "path": path, "patch": {"records": {name: record}}}
    return _wish(
        DNS, name, "a-record", "get a name", edit, lambda files: _at(files, path, "records", name) == record
    )


def _monitored_name(number: int) -> Wish:
    path, name = "zones/monitored.yaml", f"app-{number}"
    edit = {"op": "ensure_item", "path": path, "pointer": "/names", "item": name}
    return _wish(
        DNS, name, "monitoring", "be monitored", edit, lambda files: name in (_at(files, path, "names") or ())
    )


def _wish(
    partition: str, who: str, target: str, what: str, edit: dict[str, Any], is_in: Callable[[Files], bool]
) -> Wish:
    body = {
        "partition": partition,
        "subject": f"demo:{who}",
        "target": target,
        "action": "apply",
        "edits": [edit],
        "title": f"{who} wants to {what}",
        "requested_by": who,
    }
    return Wish(body, is_in)


def _at(files: Files, path: str, *keys: str) -> Any:
    """What a YAML file holds below `keys`; None: nothing, or no such file."""
    try:
        value = YAML(typ="safe", pure=True).load(files.get(path, ""))
    except YAMLError:
        return None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
