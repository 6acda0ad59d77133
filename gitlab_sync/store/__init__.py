"""One typed function for each named statement: the way from a verb to its SQL is this package and one grep.

The only importer of `sql` besides the migration runner. Never decides anything: a count is handed back, the
rooms above say what zero means. Bytes and numbers of the database become the types of `model` here and
nowhere else.
"""
