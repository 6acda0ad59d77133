"""Settings that name a file which must be usable: looked at once, when the settings are built.

What stands in the file is read again by whoever uses it; here only a mistake is told while somebody is
there to read it. Raises BadValue as `setting_values` does; no sentence repeats what is in a file.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from gitlab_sync.setting_values import BadValue


def parse_ca_file(text: str) -> Path:
    """Read the path of a PEM file with certificates of authorities to trust."""
    remedy = "name a readable PEM file with the certificate of the authority that signed GitLab's"
    path = Path(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError:
        raise BadValue(f"the file {text} holds no certificate in PEM form; {remedy}") from None
    except OSError as error:
        raise BadValue(f"the file {text} cannot be read ({error.strerror}); {remedy}") from None
    if not context.get_ca_certs():
        raise BadValue(f"no certificate in the file {text} is one of an authority; {remedy}")
    return path
