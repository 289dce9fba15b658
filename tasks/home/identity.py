"""Who acts: a user of the system, or whom CLOISTER_TOKEN names.

CLOISTER_TOKEN          a token of cloister people token, or an identity provider's (OIDC, a JWT),
                        as a proxy hands it over
CLOISTER_OIDC_ISSUER    the identity provider whose tokens count
CLOISTER_OIDC_AUDIENCE  the audience of its tokens
CLOISTER_OIDC_KEYS      the file of its public keys (JWKS); no network is used

An identity says how it was established: ``anna`` is a user of the system, ``anna (token DIGEST
until DAY)`` holds a token, ``SUBJECT (oidc ISSUER)`` was authenticated by a provider. The ledger
decides which person it is, and what they may do.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cloister.errors import InputError
from cloister.identities import BEHALF, token_identity

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures of tokens that count: by public keys alone, since a shared secret proves nothing."""

_LEEWAY = 30
"""Seconds by which clocks of this machine and a provider may differ."""

_SETTINGS = ("CLOISTER_OIDC_ISSUER", "CLOISTER_OIDC_AUDIENCE", "CLOISTER_OIDC_KEYS")


def identity(environment: Mapping[str, str] = os.environ) -> str:
    """Who acts in this process. No other variable of the environment changes it.

    Errors: ``InputError`` for a token that identifies nobody.
    """
    token = environment.get("CLOISTER_TOKEN", "").strip()
    if not token:
        return _user()
    of_provider = token.count(".") == 2 and ":" not in token
    shown = _claimed(token, environment) if of_provider else token_identity(token)
    if BEHALF in shown or not shown.isprintable():  # it would be read as somebody else's
        raise InputError(
            f"CLOISTER_TOKEN names somebody with '{BEHALF}' in the name; ask for another"
        )
    return shown


def acting(on_behalf_of: str) -> str:
    """Who acts, and on whose behalf, as they claim."""
    me = identity()
    return me if on_behalf_of in ("", me) else f"{me}{BEHALF}{on_behalf_of}"


def _user() -> str:
    """The name of the account that the operating system runs this process under."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"


def _claimed(token: str, environment: Mapping[str, str]) -> str:
    """The subject of a provider's token, once its signature and claims are checked."""
    issuer, audience, keys = (environment.get(name, "") for name in _SETTINGS)
    if not (issuer and audience and keys):
        raise InputError(
            f"CLOISTER_TOKEN is of an identity provider: set {', '.join(_SETTINGS)} too. Nothing "
            "was charged."
        )
    try:
        import jwt
    except ImportError:
        raise InputError(
            "tokens of an identity provider need a library that is not installed; run pip install "
            "'cloister[oidc]'"
        ) from None
    try:
        claims = jwt.decode(
            token,
            _key_of(token, Path(keys)),
            algorithms=list(_ALGORITHMS),
            audience=audience,
            issuer=issuer,
            leeway=_LEEWAY,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
    except jwt.PyJWTError as error:
        raise InputError(
            f"CLOISTER_TOKEN shows nobody ({type(error).__name__}): ask {issuer} for another. "
            "Nothing was charged."
        ) from None
    return f"{claims['sub']} (oidc {issuer})"


def _key_of(token: str, path: Path) -> Any:
    """The provider's key that a token names."""
    import jwt

    try:
        known = jwt.PyJWKSet.from_dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, jwt.PyJWTError):
        raise InputError(
            f"CLOISTER_OIDC_KEYS names {path}, which holds no keys (JWKS): get it from the "
            "provider. Nothing was charged."
        ) from None
    named = jwt.get_unverified_header(token).get("kid")
    keys = [key for key in known.keys if named in (None, key.key_id)]
    if len(keys) != 1:
        raise InputError(
            f"CLOISTER_TOKEN was signed by a key that {path} does not hold: get the file from the "
            "provider again. Nothing was charged."
        )
    return keys[0]
