"""A real Alertmanager for one test module, and the pager that it calls: what a person on call would get.

It sends each alert by itself and at once; how alerts are grouped is a matter of each installation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.prometheus import started, until
from tests.support.prometheus_programs import program
from tests.support.sink import SinkServer


@dataclass(frozen=True, slots=True)
class Page:
    """One call of the pager: `status` is firing or resolved."""

    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Pager:
    """What Alertmanager has sent so far."""

    def __init__(self, sink: SinkServer) -> None:
        self._sink = sink

    def pages(self, alert: str, **labels: str) -> list[Page]:
        """Every page about an alert with these labels, in the order of their coming."""
        wanted = {"alertname": alert, **labels}.items()
        return [page for page in self._all() if wanted <= page.labels.items()]

    def wait_for(self, status: str, alert: str, **labels: str) -> Page:
        """Wait until the last word about an alert is this one."""

        def last() -> Page | None:
            found = self.pages(alert, **labels)
            return found[-1] if found and found[-1].status == status else None

        try:
            return until(last, f"{alert} {labels} is {status}")
        except AssertionError as error:
            error.add_note(f"pages so far: {[(page.status, page.labels) for page in self._all()]}")
            raise

    def _all(self) -> list[Page]:
        return [
            Page(one["status"], one["labels"], one["annotations"])
            for call in self._sink.received
            for one in json.loads(call.body)["alerts"]
        ]


@contextmanager
def running_alertmanager(folder: Path, sink: SinkServer) -> Iterator[str]:
    """An Alertmanager that sends everything to `sink`, resolutions too; its address."""
    folder.mkdir(parents=True)
    settings = {
        "route": {
            "receiver": "pager",
            "group_by": ["..."],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": "4h",
        },
        "receivers": [
            {"name": "pager", "webhook_configs": [{"url": sink.url, "send_resolved": True, "max_alerts": 0}]}
        ],
    }
    (folder / "alertmanager.json").write_text(json.dumps(settings), encoding="utf-8")
    command = [
        program("alertmanager"),
        f"--config.file={folder / 'alertmanager.json'}",
        f"--storage.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--cluster.listen-address=",
        "--log.format=json",
    ]
    with started("alertmanager", command, folder) as url:
        yield url
