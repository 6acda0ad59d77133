"""Files and trees at a ref."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Any

from gitlab_sync.sandbox.simulator.api_commits import author_of
from gitlab_sync.sandbox.simulator.commit_actions import FileAction, decode_content
from gitlab_sync.sandbox.simulator.errors import forbidden, not_found
from gitlab_sync.sandbox.simulator.git import EXECUTABLE_MODE, SUBMODULE_MODE, TreeItem
from gitlab_sync.sandbox.simulator.http_edge import Answer, Call, page_of
from gitlab_sync.sandbox.simulator.rights import may_push
from gitlab_sync.sandbox.simulator.state import Project
from gitlab_sync.sandbox.simulator.writing import CommitWish, make_commit


@dataclass(frozen=True, slots=True)
class FileAt:
    """One file as a commit has it."""

    path: str
    ref: str
    commit_id: str
    blob_id: str
    executable: bool
    content: bytes
    last_commit_id: str

    def facts(self) -> dict[str, Any]:
        return {
            "file_name": self.path.rsplit("/", 1)[-1],
            "file_path": self.path,
            "size": len(self.content),
            "encoding": "base64",
            "content_sha256": hashlib.sha256(self.content).hexdigest(),
            "ref": self.ref,
            "blob_id": self.blob_id,
            "commit_id": self.commit_id,
            "last_commit_id": self.last_commit_id,
            "execute_filemode": self.executable,
        }


def get_file(call: Call) -> Answer:
    """Answer GET with the content and HEAD with the same facts as headers."""
    found = _find(call, call.project(), call.params.required("ref"))
    if call.method == "HEAD":
        return Answer(200, None, _headers(found))
    content = base64.b64encode(found.content).decode()
    return Answer(200, {**found.facts(), "content": content}, _headers(found))


def raw_file(call: Call) -> Answer:
    project = call.project()
    found = _find(call, project, call.params.text("ref") or project.default_branch)
    return Answer(200, found.content, {**_headers(found), "Content-Type": "text/plain; charset=utf-8"})


def create_file(call: Call) -> Answer:
    return Answer(201, _write(call, "create"))


def update_file(call: Call) -> Answer:
    return Answer(200, _write(call, "update"))


def delete_file(call: Call) -> Answer:
    _write(call, "delete")
    return Answer(204)


def list_tree(call: Call) -> Answer:
    """List a folder, by page number or, if asked for, by the keyset of the last row seen."""
    project, params = call.project(), call.params
    sha = project.repo.resolve(params.text("ref") or project.default_branch)
    path = params.text("path").strip("/")
    flags = ("-r", "-t") if params.flag("recursive") else ()
    rows = project.repo.tree(sha, path, *flags) if sha else []
    if not rows:
        raise not_found("Tree Not Found")
    rows.sort(key=lambda row: row.kind != "tree")
    if params.text("pagination") == "keyset":
        return _keyset_page(call, rows)
    return page_of(call, rows, _item)


def _keyset_page(call: Call, rows: list[TreeItem]) -> Answer:
    token = call.params.text("page_token")
    known = [row.path for row in rows]
    after = known.index(token) + 1 if token in known else 0
    size = min(100, max(1, call.params.number("per_page", 20)))
    shown = rows[after : after + size]
    headers = {}
    if after + size < len(rows):
        names = ("path", "ref", "recursive", "per_page")
        kept = "&".join(f"{name}={call.params.text(name)}" for name in names if name in call.params)
        url = f"{call.sim.base_url}{call.path}?pagination=keyset&{kept}&page_token={shown[-1].path}"
        headers["Link"] = f'<{url}>; rel="next"'
    return Answer(200, [_item(row) for row in shown], headers)


def _item(row: TreeItem) -> dict[str, Any]:
    name = row.path.rsplit("/", 1)[-1]
    return {"id": row.sha, "name": name, "type": row.kind, "path": row.path, "mode": row.mode}


def _find(call: Call, project: Project, ref: str) -> FileAt:
    path, repo = call.segments["file_path"], project.repo
    commit = repo.resolve(project.default_branch if ref == "HEAD" else ref)
    if commit is None:
        raise not_found("Commit Not Found")
    entry = repo.files(commit).get(path)
    if entry is None or entry.mode == SUBMODULE_MODE:
        raise not_found("File Not Found")
    last = repo.last_change(commit, path) or commit
    return FileAt(path, ref, commit, entry.sha, entry.mode == EXECUTABLE_MODE, repo.blob(entry.sha), last)


def _headers(found: FileAt) -> dict[str, str]:
    names = {name: "X-Gitlab-" + "-".join(part.title() for part in name.split("_")) for name in found.facts()}
    # UTF-8 on the wire, as Rails sends it: Starlette would refuse what is not Latin-1.
    return {names[name]: str(value).encode().decode("latin-1") for name, value in found.facts().items()}


def _write(call: Call, kind: str) -> dict[str, Any]:
    project, params = call.project(), call.params
    branch, message = params.required("branch"), params.required("commit_message")
    if not may_push(call.user, project, branch):
        raise forbidden("You are not allowed to push into this branch")
    content = None
    if kind != "delete":
        content = decode_content(params.required("content"), params.text("encoding") or "text")
    path = call.segments["file_path"]
    action = FileAction(kind, path, None, content, params.optional_text("last_commit_id"), executable=False)
    start = params.optional_text("start_branch")
    author = author_of(params, call.user)
    wish = CommitWish(branch, message, [action], start_branch=start, author=author)
    make_commit(call.sim, project, call.user, wish)
    return {"file_path": path, "branch": branch}
