"""The edits of a request: what they may look like. Checked once, at admission; pure.

check_edits(edits, allowed=, protected=, pointer=) -> problems     the whole check, see checks
Op, WHOLE_FILE_OPS, put_content(edit), folded_path(path)           what composing needs to know of an edit
inverse(edits) -> edits                                            what takes them back at the relation's end
"""

from gitlab_sync.edits.checks import MAX_CONTENT_BYTES, MAX_EDITS, check_edits
from gitlab_sync.edits.inverse import CannotInvert, inverse
from gitlab_sync.edits.ops import WHOLE_FILE_OPS, Op, is_lfs_pointer, put_content
from gitlab_sync.edits.paths import BUILT_IN_PROTECTED, folded_parents, folded_path, is_hidden, path_problem

__all__ = [
    "BUILT_IN_PROTECTED",
    "MAX_CONTENT_BYTES",
    "MAX_EDITS",
    "WHOLE_FILE_OPS",
    "CannotInvert",
    "Op",
    "check_edits",
    "folded_parents",
    "folded_path",
    "inverse",
    "is_hidden",
    "is_lfs_pointer",
    "path_problem",
    "put_content",
]
