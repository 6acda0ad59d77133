"""Settings that name a file which must be usable: looked at once, when the settings are built.

A value may stand in a file of its own. What is named besides is read again by whoever uses it; here only a
mistake is told while somebody is there to read it. Raises BadValue as `setting_values` does; no sentence
repeats what is in a file, nor a name that may be a secret in the wrong place.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from gitlab_sync.setting_secrets import LARGEST_FILE_BYTES, named_file
from gitlab_sync.setting_values import BadValue


def read_value(path: str, variable: str) -> str:
    """Read the text of a setting from the file that `variable` names."""
    file_name = named_file(path)
    remedy = f"point {variable} to a readable text file that holds the value"
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST_FILE_BYTES + 1).decode()
    except OSError as error:
        raise BadValue(f"{file_name} cannot be read ({error.strerror}); {remedy}") from None
    except UnicodeDecodeError:
        raise BadValue(f"{file_name} is not UTF-8 text; {remedy}") from None
    if not text.strip() or len(text) > LARGEST_FILE_BYTES:
        raise BadValue(f"{file_name} is empty or larger than {LARGEST_FILE_BYTES} bytes; {remedy}")
    return text.strip()


def parse_ca_file(text: str) -> Path:
    """Read the path of a PEM file with certificates of authorities to trust."""
    remedy = "name a readable PEM file with the certificate of the authority that signed GitLab's"
    path = Path(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise BadValue(f"{named_file(text)} holds no certificate in PEM form; {remedy}") from None
    except OSError as error:
        raise BadValue(f"{named_file(text)} cannot be read ({error.strerror}); {remedy}") from None
    if not context.get_ca_certs():
        raise BadValue(f"no certificate in {named_file(text)} is one of an authority; {remedy}")
    return path
