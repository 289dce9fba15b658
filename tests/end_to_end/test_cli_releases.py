"""What the command line shows of a release, and how it is reviewed and verified."""

import pandas as pd

from cloister.flows.cli.app import run
from cloister.privacy.ledger import Ledger


def test_ledger_and_budget_are_shown_and_a_grant_replaces_the_budget(
    released, own, cloister, capsys, monkeypatch
):
    assert [release["release"] for release in cloister("ledger", "list", "clubs")] == [released.id]
    shown = cloister("ledger", "show", released.id)
    assert [step["state"] for step in shown["steps"]] == ["reserved", "spent", "candidate"]
    assert shown["epsilon"] == "1/1"
    (budget,) = cloister("budget", "show", "clubs")
    assert (budget["granted"], budget["spent"], budget["left"]) == ("4", "1", "3")
    assert budget["together"] == budget["composed"]  # its earlier name
    assert run(["budget", "show", "clubs"]) == 0
    shown = capsys.readouterr().out
    assert "composed" in shown and "together" not in shown
    monkeypatch.setattr("cloister.tasks.ledger.budgets.composed_spend", lambda status: None)
    assert run(["budget", "show", "clubs"]) == 0
    assert "None" not in capsys.readouterr().out
    assert cloister("budget", "show", "clubs")[0]["composed"] is None
    words = ("--epsilon", "9/2", "--delta", "1e-5", "--per", "year", "--reason", "policy")
    granted = cloister("budget", "grant", "clubs", *words)
    assert (granted["granted"], granted["left"]) == ("4.5", "3.5")


def test_review_moves_a_release_and_rows_are_drawn_from_approved_ones_only(
    released, own, cloister, capsys
):
    more = own / "more.parquet"
    draw = ["sample", released.id, "--rows", "321", "--out", str(more), "--seed", "5"]
    assert run(draw) == 2
    assert "approved" in capsys.readouterr().err
    assert [waiting["release"] for waiting in cloister("review", "list")] == [released.id]
    words = (released.id, "--by", "A. Officer", "--reason", "read it")
    assert cloister("review", "approve", *words)["state"] == "approved"
    assert cloister(*draw)["rows"] == 321
    assert len(pd.read_parquet(more)) == 321
    assert run(draw) == 2  # never overwritten
    text = own / "more.csv"
    cloister("sample", released.id, "--rows", "321", "--out", text, "--seed", "5")
    pd.testing.assert_frame_equal(pd.read_csv(text), pd.read_parquet(more), check_dtype=False)
    assert float(cloister("budget", "show", "clubs")[0]["spent"]) == 1
    for move in ("publish", "withdraw"):
        cloister("review", move, *words)
    assert run(["review", "approve", released.id, "--reason", "again"]) == 2


def test_an_altered_folder_is_not_approved(released, own, capsys):
    page = own / "home" / "releases" / released.id / "public" / "certificate.html"
    page.write_text(page.read_text() + " ")
    assert run(["review", "approve", released.id, "--reason", "blind"]) == 1
    assert "certificate.html" in capsys.readouterr().err


def test_verify_finds_nothing_wrong(released, own, cloister, capsys):
    assert cloister("verify")["findings"] == []
    assert cloister("verify", released.id)["findings"] == []
    assert run(["verify", str(own / "out")]) == 4
    assert capsys.readouterr().out.startswith("0 problems")


def test_verify_names_altered_and_missing_files(released, own, capsys):
    for name in ("synthetic.parquet", "synthetic.csv", "certificate.yaml", "certificate.html"):
        path = own / "out" / name
        content = path.read_bytes()
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        assert run(["verify", str(own / "out")]) == 1
        assert name in capsys.readouterr().out
        path.write_bytes(content)
    path = own / "out" / "manifest.json"
    text = path.read_text().replace("kamino", "kamina")
    path.write_text(text.replace("synthetic.csv", "synthetic.cvs"))
    assert run(["verify", str(own / "out")]) == 1
    assert "manifest.json" in capsys.readouterr().out
    (own / "home" / "releases" / released.id / "public" / "synthetic.csv").unlink()
    assert run(["verify"]) == 1
    assert "synthetic.csv" in capsys.readouterr().out


def test_a_ledger_without_its_tail_is_found_out(released, own, cloister, capsys):
    copy = own / "ledger.jsonl"
    anchor = cloister("ledger", "export", copy)["anchor"]
    assert cloister("verify", copy, "--anchor", anchor)["findings"] == []
    copy.write_text("".join(copy.read_text().splitlines(keepends=True)[:-1]))
    assert run(["verify", str(copy)]) == 0
    assert run(["verify", str(copy), "--anchor", anchor]) == 1
    assert run(["verify", "--anchor", "last"]) == 2
    capsys.readouterr()
    for path in (own / "home").glob("ledger.db*"):
        path.unlink()
    amounts = ["--epsilon", "1", "--delta", "0", "--per", "ever", "--reason", "why"]
    assert run(["dataset", "add", "clubs", "--place", "x.csv", "--reason", "why"]) == 2
    assert "cloister ledger restore" in capsys.readouterr().err
    assert run(["budget", "grant", "clubs", *amounts]) == 2
    younger = Ledger.open(own / "home" / "ledger.db")  # by other means than the command's
    younger.grant("clubs", "row", 1, 0, "ever", "officer", "a younger ledger")
    capsys.readouterr()
    for what in ([], [str(own / "out")]):
        assert run(["verify", *what]) == 1
        assert "a certificate vouches for it" in capsys.readouterr().out


def test_report_shows_what_is_promised(released, own, cloister, capsys):
    shown = cloister("report", released.id)
    assert shown["guarantee"]["epsilon"] == "1"
    (started, *_) = cloister("ledger", "show", released.id)["steps"]
    runner = {"identity": started["by"], "person": None, "roles": [], "on_behalf_of": None}
    assert shown["ran_by"] == runner
    assert run(["report", released.id]) == 0
    assert "certificate.html" in capsys.readouterr().out


def test_report_tells_decisions_and_writes_the_entry_of_an_approved_release(
    released, own, cloister, capsys
):
    entry, show = own / "clubs.yaml", ["report", released.id]
    assert cloister(*show)["decisions"] == []
    assert run([*show, "--registry", str(entry)]) == 2
    assert "only an approved one has an entry" in capsys.readouterr().err
    cloister("review", "approve", released.id, "--by", "A. Officer", "--reason", "read it")
    (decision,) = cloister(*show)["decisions"]
    assert decision["by"].endswith("A. Officer") and decision["reason"] == "read it"
    assert decision["statement"] == "approved.dsse.json"
    assert run([*show, "--registry", str(own / "Clubs.yaml")]) == 2
    assert run([*show, "--registry", str(entry)]) == 2
    assert "does not state curator" in capsys.readouterr().err
    assert not entry.exists()
