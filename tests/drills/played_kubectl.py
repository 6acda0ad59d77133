"""A `kubectl` for drills: finds by labels in a rendered chart, notes how it was called, changes nothing.

It reads the file `documents` of the current folder and writes a line to `calls`. Pods are named by what makes
them. `exec` runs what stands behind `--` right here. Nothing else is answered: an unknown verb fails.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

_KINDS: Final = {"deploy": "Deployment", "cronjob": "CronJob", "hpa": "HorizontalPodAutoscaler", "pod": "Pod"}
Document = dict[str, Any]


def main(arguments: list[str]) -> int:
    """Do what one call asks for."""
    if "--" in arguments:
        return subprocess.run(arguments[arguments.index("--") + 1 :], check=False).returncode
    verb, words = arguments[0], [word for word in arguments[1:] if not word.startswith("-")]
    selector = arguments[arguments.index("-l") + 1] if "-l" in arguments else ""
    documents = json.loads(Path("documents").read_text(encoding="utf-8"))
    kinds = {_KINDS[kind] for kind in words[0].split(",") if kind in _KINDS} if words else set()
    found = _found(documents, kinds, selector) if selector else []
    names = [each["metadata"]["name"] for each in found]
    if verb == "patch":
        names = [word for word in words if "/" in word]
        _ = [json.loads(arguments[arguments.index("-p") + 1])]
    fed = sys.stdin.read() if verb == "apply" else ""
    with Path("calls").open("a", encoding="utf-8") as calls:
        calls.write(json.dumps({"verb": verb, "found": names, "fed": fed}) + "\n")
    if verb == "get":
        _show(arguments, words, documents, names)
    return 0 if verb in {"get", "scale", "patch", "wait", "delete", "apply"} else 2


def _show(arguments: list[str], words: list[str], documents: list[Document], names: list[str]) -> None:
    if "name" in arguments:
        print("\n".join(f"cronjob.batch/{name}" for name in names))
    elif "json" in arguments:
        (one,) = _found(documents, {_KINDS[words[0]]}, "", name=words[1])
        print(json.dumps(one))


def _found(documents: list[Document], kinds: set[str], selector: str, name: str = "") -> list[Document]:
    wanted = dict(pair.split("=") for pair in selector.split(",") if pair)
    if kinds == {"Pod"}:
        return [each for each in documents if wanted.items() <= _pod_labels(each).items()]
    return [
        each
        for each in documents
        if each["kind"] in kinds
        and wanted.items() <= each["metadata"].get("labels", {}).items()
        and name in ("", each["metadata"]["name"])
    ]


def _pod_labels(document: Document) -> dict[str, str]:
    """The labels of the pods that this makes."""
    spec = document.get("spec", {})
    template = spec.get("jobTemplate", {}).get("spec", spec).get("template", {})
    labels: dict[str, str] = template.get("metadata", {}).get("labels", {})
    return labels


sys.exit(main(sys.argv[1:]))
