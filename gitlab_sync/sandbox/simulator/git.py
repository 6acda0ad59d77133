"""A bare repository driven by git plumbing: SHAs, merges and conflicts are git's own.

Never a work tree, never the user's git configuration. Refs move by compare-and-swap, so a lost race is
seen. The caller holds the simulator's lock; nothing here locks.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ZERO_SHA = "0" * 40
FILE_MODE = "100644"
EXECUTABLE_MODE = "100755"
SUBMODULE_MODE = "160000"
_LISTINGS_KEPT = 64
_LOG_FORMAT = "%H%x01%T%x01%P%x01%an%x01%ae%x01%at%x01%cn%x01%ce%x01%ct%x01%B"


class GitFailed(Exception):
    """A plumbing command said no; its standard error is the text."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One file of a tree."""

    mode: str
    sha: str


@dataclass(frozen=True, slots=True)
class TreeItem:
    """One row of a tree listing, sub-trees included."""

    mode: str
    kind: str
    sha: str
    path: str


@dataclass(frozen=True, slots=True)
class Person:
    """Author or committer."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit object says."""

    sha: str
    tree: str
    parents: tuple[str, ...]
    author: Person
    authored_at: int
    committer: Person
    committed_at: int
    message: str

    @property
    def title(self) -> str:
        return self.message.split("\n", 1)[0]


class Repository:
    """One bare repository on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._commits: dict[str, Commit] = {}
        self._listings: dict[str, dict[str, Entry]] = {}
        home = path.parent
        self._env = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(home),
            "GIT_DIR": str(path),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "LC_ALL": "C",
        }

    def create(self, default_branch: str) -> None:
        """Make an empty repository whose HEAD names `default_branch`."""
        self.path.mkdir(parents=True)
        self.run(
            "init", "--quiet", "--bare", f"--initial-branch={default_branch}", "--template=", str(self.path)
        )
        self.run("config", "gc.auto", "0")
        self.run("config", "core.fsync", "none")

    # -- refs --------------------------------------------------------------------------------------

    def branches(self) -> dict[str, str]:
        """Return every branch with its head."""
        out = self.run("for-each-ref", "--format=%(refname)%00%(objectname)", "refs/heads/").decode()
        rows = (line.split("\0") for line in out.splitlines())
        return {name.removeprefix("refs/heads/"): sha for name, sha in rows}

    def branch(self, name: str) -> str | None:
        """Return the head of a branch; None: there is no such branch."""
        return self._verify(f"refs/heads/{name}")

    def resolve(self, revision: str) -> str | None:
        """Return the commit a branch name, a full ref or a SHA stands for; None: nothing of that name."""
        return self.branch(revision) or self._verify(revision)

    def valid_branch_name(self, name: str) -> bool:
        done = self.attempt("check-ref-format", "--branch", name)
        return done.returncode == 0 and not name.startswith("-")

    def move_branch(self, name: str, new: str, old: str | None) -> None:
        """Point a branch at `new` if it still is at `old`; raises GitFailed if somebody else moved it."""
        self.run("update-ref", f"refs/heads/{name}", new, old or ZERO_SHA)

    def delete_branch(self, name: str, old: str) -> None:
        self.run("update-ref", "-d", f"refs/heads/{name}", old)

    def keep(self, ref: str, sha: str) -> None:
        """Hold a commit alive under a ref of the house (a merge request's head)."""
        self.run("update-ref", ref, sha)

    # -- writing -----------------------------------------------------------------------------------

    def write_blobs(self, contents: Sequence[bytes]) -> list[str]:
        """Store contents as blobs, in one call of git."""
        if not contents:
            return []
        with tempfile.TemporaryDirectory(dir=self.path) as folder:
            names = [Path(folder, str(number)) for number in range(len(contents))]
            for name, content in zip(names, contents, strict=True):
                name.write_bytes(content)
            paths = "".join(f"{name}\n" for name in names).encode()
            return self.run("hash-object", "-w", "--no-filters", "--stdin-paths", data=paths).decode().split()

    def write_tree(self, files: Mapping[str, Entry]) -> str:
        """Store a whole tree from its flat listing."""
        rows = b"".join(f"{entry.mode} {entry.sha}\t{path}\0".encode() for path, entry in files.items())
        with tempfile.TemporaryDirectory(dir=self.path) as folder:
            env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            self.run("update-index", "-z", "--index-info", data=rows, env=env)
            return self.run("write-tree", env=env).decode().strip()

    def write_commit(
        self, tree: str, parents: Sequence[str], message: str, *, author: Person, committer: Person, at: float
    ) -> str:
        """Store a commit object; no ref moves."""
        stamp = f"@{int(at)} +0000"
        env = {
            "GIT_AUTHOR_NAME": author.name,
            "GIT_AUTHOR_EMAIL": author.email,
            "GIT_AUTHOR_DATE": stamp,
            "GIT_COMMITTER_NAME": committer.name,
            "GIT_COMMITTER_EMAIL": committer.email,
            "GIT_COMMITTER_DATE": stamp,
        }
        flags = [flag for parent in parents for flag in ("-p", parent)]
        return self.run("commit-tree", tree, *flags, data=message.encode(), env=env).decode().strip()

    # -- merging -----------------------------------------------------------------------------------

    def merged_tree(self, ours: str, theirs: str) -> str | None:
        """Return the tree of a clean merge; None: the two conflict."""
        done = self.attempt("merge-tree", "--write-tree", "--name-only", "--no-messages", ours, theirs)
        if done.returncode == 1:
            return None
        if done.returncode != 0:
            raise GitFailed(done.stderr.decode())
        return done.stdout.decode().split("\n", 1)[0]

    def merge_base(self, one: str, other: str) -> str | None:
        done = self.attempt("merge-base", one, other)
        return done.stdout.decode().strip() or None

    def is_ancestor(self, old: str, new: str) -> bool:
        """Say whether `new` contains `old`."""
        return self.attempt("merge-base", "--is-ancestor", old, new).returncode == 0

    def landing_commit(self, head: str, tip: str) -> str:
        """Return the first commit on the tip's main line that contains `head`."""
        line = self.run("rev-list", "--first-parent", "--ancestry-path", f"{head}..{tip}").decode().split()
        return line[-1] if line else head

    # -- reading -----------------------------------------------------------------------------------

    def commit(self, sha: str) -> Commit:
        """Read one commit."""
        if sha not in self._commits:
            self._commits[sha] = self.log(sha, limit=1)[0]
        return self._commits[sha]

    def log(self, *revisions: str, limit: int, skip: int = 0, path: str | None = None) -> list[Commit]:
        """Return commits, newest first; a revision may be a range."""
        scope = ["--", path] if path else ["--"]
        options = ["-z", f"--format={_LOG_FORMAT}", f"--max-count={limit}", f"--skip={skip}"]
        out = self.run("log", *options, *revisions, *scope).decode("utf-8", "replace")
        return [_parse_commit(row) for row in out.split("\0") if row]

    def count(self, revisions: str) -> int:
        return int(self.run("rev-list", "--count", revisions))

    def last_change(self, revision: str, path: str) -> str | None:
        """Return the last commit that touched `path`; None: nothing did, or the revision is unknown."""
        done = self.attempt("log", "-1", "--format=%H", revision, "--", f":(literal){path}")
        return done.stdout.decode().strip() or None

    def files(self, sha: str) -> dict[str, Entry]:
        """Return the flat listing of a commit's tree; the caller may change the copy."""
        if sha not in self._listings:
            if len(self._listings) >= _LISTINGS_KEPT:
                self._listings.clear()
            self._listings[sha] = {item.path: Entry(item.mode, item.sha) for item in self.tree(sha, "", "-r")}
        return dict(self._listings[sha])

    def tree(self, sha: str, path: str, *flags: str) -> list[TreeItem]:
        """List a folder (`-r`, `-t` as in git); empty: no such folder."""
        scope = [f"{path.strip('/')}/"] if path.strip("/") else []
        out = self.run("ls-tree", "-z", "--full-tree", *flags, sha, *scope).decode("utf-8", "surrogateescape")
        items = [_parse_item(row) for row in out.split("\0") if row]
        return [item for item in items if item.path.startswith(scope[0])] if scope else items

    def blob(self, sha: str) -> bytes:
        return self.run("cat-file", "blob", sha)

    def changes(self, old: str | None, new: str) -> list[tuple[list[str], str]]:
        """Return (raw fields, patch text) for each file that differs."""
        ends = [old, new] if old else ["--root", new]
        raw = self.run("diff-tree", "-r", "--no-commit-id", "--raw", "-z", *ends).decode("utf-8", "replace")
        patch = self.run("diff-tree", "-r", "--no-commit-id", "-p", *ends).decode("utf-8", "replace")
        cells = raw.split("\0")[:-1]
        heads = [[*cells[i].lstrip(":").split(), cells[i + 1]] for i in range(0, len(cells), 2)]
        bodies = ("\n" + patch).split("\ndiff --git ")[1:]
        return [(head, _hunks(body)) for head, body in zip(heads, bodies, strict=True)]

    def refs_containing(self, sha: str) -> list[str]:
        out = self.run("for-each-ref", "--contains", sha, "--format=%(refname:short)", "refs/heads/").decode()
        return out.split()

    def fsck(self) -> str:
        """Return git's complaints about the repository; empty: it is sound."""
        done = self.attempt("fsck", "--full", "--strict", "--no-dangling", "--no-progress")
        return (done.stdout + done.stderr).decode().strip() if done.returncode else ""

    # -- running git -------------------------------------------------------------------------------

    def _verify(self, revision: str) -> str | None:
        done = self.attempt("rev-parse", "--quiet", "--verify", "--end-of-options", f"{revision}^{{commit}}")
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def run(self, *args: str, data: bytes = b"", env: Mapping[str, str] | None = None) -> bytes:
        done = self.attempt(*args, data=data, env=env)
        if done.returncode != 0:
            raise GitFailed(f"git {args[0]}: {done.stderr.decode('utf-8', 'replace').strip()}")
        return done.stdout

    def attempt(
        self, *args: str, data: bytes = b"", env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        full = {**self._env, **(env or {})}
        return subprocess.run(["git", *args], input=data, env=full, capture_output=True, check=False)


def _parse_commit(row: str) -> Commit:
    sha, tree, parents, an, ae, at, cn, ce, ct, message = row.split("\x01", 9)
    return Commit(
        sha,
        tree,
        tuple(parents.split()),
        Person(an, ae),
        int(at),
        Person(cn, ce),
        int(ct),
        message.rstrip("\n"),
    )


def _parse_item(row: str) -> TreeItem:
    head, path = row.split("\t", 1)
    mode, kind, sha = head.split()
    return TreeItem(mode, kind, sha, path)


def _hunks(body: str) -> str:
    start = body.find("\n@@ ")
    return body[start + 1 :].rstrip("\n") + "\n" if start >= 0 else ""
