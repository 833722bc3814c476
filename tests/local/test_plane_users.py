"""The users of a local control plane: each has a token of its own, which the API server knows."""

import csv

import yaml

from gangsched.local import pki


def test_each_kubeconfig_has_a_token_of_its_user(tmp_path):
    authority = pki.Authority(tmp_path / "pki")
    people = {"admin": ("root", "system:masters"), "other": ("eve", "none")}
    told = {}
    for name, (user, group) in people.items():
        path = tmp_path / f"{name}.kubeconfig"
        authority.kubeconfig(path, "https://127.0.0.1:1", user, group)
        assert path.stat().st_mode & 0o777 == 0o600
        (known,) = yaml.safe_load(path.read_text())["users"]
        told[known["user"]["token"]] = (user, group)
    assert authority.tokens.stat().st_mode & 0o777 == 0o600
    rows = list(csv.reader(authority.tokens.read_text().splitlines()))
    assert {token: (user, group) for token, user, _, group in rows} == told
    assert len(told) == 2
    assert all(len(token) >= 43 for token in told), "256 bits"
