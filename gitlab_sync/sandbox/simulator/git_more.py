"""Further plumbing on a repository: patches moved from one place to another, blame, archives."""

from __future__ import annotations

import bz2
from dataclasses import dataclass

from gitlab_sync.sandbox.simulator.git import Commit, Person, Repository

NOBODY = Person("simulator", "simulator@example.com")
ARCHIVES = {
    "tar": ("tar", ""),
    "tar.gz": ("tar.gz", ""),
    "zip": ("zip", ""),
    **dict.fromkeys(("tbz", "tbz2", "tb2", "bz2", "tar.bz2"), ("tar", "bz2")),
}


@dataclass(frozen=True, slots=True)
class BlameRange:
    """Lines that follow one another and come from one commit."""

    sha: str
    lines: list[str]


def patched_tree(repo: Repository, onto: str, *, old: str | None, new: str) -> str | None:
    """Return the tree of `onto` with the change from `old` to `new` (commits); None: it conflicts."""

    def bare(tree: str, parents: list[str]) -> str:
        return repo.write_commit(tree, parents, "scratch", author=NOBODY, committer=NOBODY, at=0)

    # A history of three commits made for the purpose gives the merge the base it is to use.
    base = bare(repo.commit(old).tree if old else repo.write_tree({}), [])
    ours, theirs = bare(repo.commit(onto).tree, [base]), bare(repo.commit(new).tree, [base])
    return repo.merged_tree(ours, theirs)


def archive(repo: Repository, sha: str, kind: str, prefix: str) -> bytes:
    """Return the files of a commit as an archive of one of the kinds in `ARCHIVES`."""
    form, packed = ARCHIVES[kind]
    plain = repo.run("archive", f"--format={form}", f"--prefix={prefix}/", sha)
    return bz2.compress(plain) if packed else plain


def blame(repo: Repository, sha: str, path: str) -> list[BlameRange]:
    """Return which commit each line of a file comes from."""
    ranges: list[BlameRange] = []
    seen = ""
    for line in repo.run("blame", "--porcelain", sha, "--", path).decode("utf-8", "replace").splitlines():
        if line.startswith("\t"):
            if not ranges or ranges[-1].sha != seen:
                ranges.append(BlameRange(seen, []))
            ranges[-1].lines.append(line[1:])
        elif len(word := line.split(" ", 1)[0]) == 40:
            seen = word
    return ranges


def message_of_pick(commit: Commit) -> str:
    return f"{commit.message}\n\n(cherry picked from commit {commit.sha})"


def message_of_revert(commit: Commit) -> str:
    return f'Revert "{commit.title}"\n\nThis reverts commit {commit.sha}'
