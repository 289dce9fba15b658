"""Who acts is the user of the system, or whom a token shows, whatever else the environment says."""

import json
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from cloister.errors import InputError
from cloister.identities import new_token, token_identity
from cloister.tasks.home.identity import acting, identity

ISSUER = "https://login.example.org"


def test_no_other_variable_changes_who_acts_and_a_token_names_its_person(monkeypatch) -> None:
    me = identity({})
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "ceo")
    assert identity() == me
    assert acting("ceo") == f"{me} on behalf of ceo"
    assert acting(me) == acting("") == me
    token = new_token("A. Officer", date(2030, 1, 31))
    named = identity({"CLOISTER_TOKEN": token})
    assert named == token_identity(token)
    assert named.startswith("A. Officer (token ")
    assert token.rpartition(":")[2] not in named


KEYS = {name: generate_private_key(SECP256R1()) for name in ("one", "two", "forger")}


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """A provider with two keys."""
    public = [
        json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEYS[name].public_key()))
        | {"kid": name, "alg": "ES256"}
        for name in ("one", "two")
    ]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": public}))
    return {
        "CLOISTER_OIDC_ISSUER": ISSUER,
        "CLOISTER_OIDC_AUDIENCE": "cloister",
        "CLOISTER_OIDC_KEYS": str(tmp_path / "keys.json"),
    }


def signed(key: str = "two", kid: str = "two", **claims: object) -> str:
    said = {
        "iss": ISSUER,
        "aud": "cloister",
        "sub": "anna",
        "exp": datetime.now(UTC) + timedelta(minutes=5),
    }
    said = {name: value for name, value in (said | claims).items() if value is not None}
    return jwt.encode(said, KEYS[key], algorithm="ES256", headers={"kid": kid})


@pytest.mark.parametrize(
    "token",
    [
        signed(key="forger"),
        signed(kid="forger"),
        signed(iss="https://elsewhere.example.org"),
        signed(aud="payroll"),
        signed(exp=datetime.now(UTC) - timedelta(hours=1)),
        signed(exp=None),
        signed(sub=None),
        jwt.encode({"sub": "anna"}, "", algorithm="none"),
        jwt.encode({"iss": ISSUER, "aud": "cloister", "sub": "anna", "exp": 2**40}, "s" * 64),
        "no.such.token",
    ],
    ids="forged renamed issuer audience old undated nameless unsigned shared text".split(),
)
def test_other_claims_show_nobody(settings: dict[str, str], token: str) -> None:
    with pytest.raises(InputError, match=r"CLOISTER_TOKEN .*Nothing was charged"):
        identity(settings | {"CLOISTER_TOKEN": token})


def test_no_name_is_read_as_somebody_else(settings: dict[str, str]) -> None:
    name = "root on behalf of anna"
    for token in (new_token(name, date(2030, 1, 1)), signed(sub=name), signed(sub="a\nb")):
        with pytest.raises(InputError, match="ask for another"):
            identity(settings | {"CLOISTER_TOKEN": token})


def test_claims_of_the_provider_name_their_subject_and_need_its_settings(settings, tmp_path):
    settings |= {"CLOISTER_TOKEN": signed()}
    assert identity(settings) == f"anna (oidc {ISSUER})"
    for missing in ("ISSUER", "AUDIENCE", "KEYS"):
        with pytest.raises(InputError, match="of an identity provider: set"):
            identity(settings | {f"CLOISTER_OIDC_{missing}": ""})
    (tmp_path / "keys.json").write_text("{}")
    with pytest.raises(InputError, match=r"keys\.json, which holds no keys"):
        identity(settings)
