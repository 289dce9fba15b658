"""Tables with references of every kind: some missing, two to one table, one to the table itself."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from clinic import names
from shape import DatabaseShape, DatabaseTrial
from specs import listed, spec_of_tables, whole

from cloister.evaluation.relations import compare_relation

MOST = 6
AGES = {"age": whole(18, 79), "region": listed(*"news")}
ORDERED = {"channel": listed("web", "shop"), "amount": whole(0, 49)}


def coupons(customers: int = 4_000, number: int = 60, seed: int = 1) -> DatabaseShape:
    """Customers and their orders; the young use coupons, of a catalogue, mostly of one kind.

    Those of kind d are for shops alone.
    """
    rng = np.random.default_rng(seed)
    age, region = _customers(customers, rng)
    owner = np.repeat(np.arange(customers), rng.integers(0, MOST + 1, customers))
    kind, usual = rng.integers(0, 4, number), rng.integers(0, 4, customers)
    wanted = np.where(rng.random(len(owner)) < 0.8, usual[owner], rng.integers(0, 4, len(owner)))
    coupon = np.array([rng.choice(np.flatnonzero(kind == each)) for each in wanted])
    orders = _orders(region, owner, rng)
    used = rng.random(len(owner)) < np.clip((80 - age[owner]) / 60, 0.1, 0.9)
    used &= (kind[coupon] != 3) | (orders["channel"] == "shop")
    frames = {
        "coupons": {"id": names("C", np.arange(number)), "kind": np.array(list("abcd"))[kind]},
        "customers": {"id": names("P", np.arange(customers)), "age": age, "region": region},
        "orders": {
            "customer": names("P", owner),
            "coupon": np.where(used, names("C", coupon), None),
            **orders,
        },
    }
    references = {
        "customer": {"table": "customers", "max_rows": MOST},
        "coupon": {"table": "coupons", "max_rows": 1_000},
    }
    tables = {
        "coupons": ({"kind": listed(*"abcd")}, {}),
        "customers": (AGES, {}),
        "orders": (ORDERED, references),
    }
    return _database("coupons", "customers", frames, tables)


def guests(customers: int = 4_000, seed: int = 1) -> DatabaseShape:
    """Customers and orders, a third of which have none; the unit is a row of either table."""
    rng = np.random.default_rng(seed)
    age, region = _customers(customers, rng)
    owner = np.repeat(np.arange(customers), rng.integers(0, MOST + 1, customers))
    orders, strangers = _orders(region, owner, rng), len(owner) // 2
    alone = {"channel": ["web"] * strangers, "amount": rng.integers(0, 10, strangers)}
    keys = [*names("P", owner), *[None] * strangers]
    frames = {
        "customers": {"id": names("P", np.arange(customers)), "age": age, "region": region},
        "orders": {
            "customer": keys,
            **{name: [*orders[name], *alone[name]] for name in orders},
        },
    }
    references = {"customer": {"table": "customers", "max_rows": MOST}}
    tables = {"customers": (AGES, {}), "orders": (ORDERED, references)}
    return of_rows(_database("guests", "customers", frames, tables))


def transfers(accounts: int = 4_000, seed: int = 1) -> DatabaseShape:
    """Transfers from one account to another, mostly of one region; amounts go with both kinds."""
    rng = np.random.default_rng(seed)
    kind, region = rng.integers(0, 3, accounts), rng.integers(0, 4, accounts)
    sender = np.repeat(np.arange(accounts), rng.integers(0, 4, accounts))
    places = rng.permutation(np.repeat(np.arange(accounts), 3))
    free = {each: list(places[region[places] == each]) for each in range(4)}
    receiver = []
    for one in sender:
        wanted = region[one] if rng.random() < 0.7 else rng.integers(0, 4)
        receiver.append((free[wanted] or max(free.values(), key=len)).pop())
    receiver = np.array(receiver)
    amount = 5 * kind[sender] + 5 * kind[receiver] + rng.integers(0, 5, len(sender))
    frames = {
        "accounts": {
            "id": names("A", np.arange(accounts)),
            "kind": np.array(list("psb"))[kind],
            "region": np.array(list("news"))[region],
        },
        "transfers": {
            "sender": names("A", sender),
            "receiver": names("A", receiver),
            "amount": amount,
        },
    }
    references = {name: {"table": "accounts", "max_rows": 3} for name in ("sender", "receiver")}
    tables = {
        "accounts": ({"kind": listed(*"psb"), "region": listed(*"news")}, {}),
        "transfers": ({"amount": whole(0, 24)}, references),
    }
    return _database("transfers", "accounts", frames, tables)


def staff(number: int = 8_000, seed: int = 1) -> DatabaseShape:
    """Employees of four levels, each with a boss of the next one, nine of ten in one department."""
    rng = np.random.default_rng(seed)
    level = np.searchsorted(np.cumsum([0.6, 0.25, 0.1]), rng.random(number))
    department, boss = rng.integers(0, 6, number), np.full(number, -1)
    for each in range(3):
        below, above = np.flatnonzero(level == each), np.flatnonzero(level == each + 1)
        room = rng.permutation(np.repeat(above, MOST))
        free = {part: list(room[department[room] == part]) for part in range(6)}
        for one in below:
            part = department[one] if rng.random() < 0.9 else rng.integers(0, 6)
            boss[one] = free[part].pop() if free[part] else -1
    frames = {
        "staff": {
            "id": names("S", np.arange(number)),
            "boss": np.where(boss >= 0, names("S", boss), None),
            "department": np.array(list("abcdef"))[department],
            "level": level,
        }
    }
    attributes = {"department": listed(*"abcdef"), "level": whole(0, 3)}
    references = {"boss": {"table": "staff", "max_rows": MOST}}
    return _database("employees", "staff", frames, {"staff": (attributes, references)})


def of_rows(shape: DatabaseShape) -> DatabaseShape:
    """The same tables where the unit is a row of any of them."""
    privacy, tables = dict(shape.spec["privacy"]), dict(shape.spec["tables"])
    first = next(iter(tables))
    rows = {name: {"public": len(frame)} for name, frame in shape.frames.items()}
    tables = {name: {**table, "rows": rows[name]} for name, table in tables.items()}
    privacy |= {"unit": "row", "rows": tables[first].pop("rows")}
    return DatabaseShape(shape.frames, {**shape.spec, "privacy": privacy, "tables": tables})


def ruled(shape: DatabaseShape, text: str) -> DatabaseShape:
    """The same tables with a rule across a reference."""
    return DatabaseShape(shape.frames, {**shape.spec, "constraints": [{"name": "r", "deny": text}]})


def depending(shape: DatabaseShape, table: str, rule: Mapping[str, Any]) -> DatabaseShape:
    """The same tables with a rule of one of them."""
    ruled_table = {**shape.spec["tables"][table], "constraints": [rule]}
    tables = {**shape.spec["tables"], table: ruled_table}
    return DatabaseShape(shape.frames, {**shape.spec, "tables": tables})


def sold_in_one_way(customers: int) -> DatabaseShape:
    """Coupons, each of which is for shops alone or for the web."""
    shape, rng = coupons(customers), np.random.default_rng(3)
    orders = shape.frames["orders"].copy()
    of = {coupon: rng.choice(["web", "shop"]) for coupon in shape.frames["coupons"]["id"]}
    orders["channel"] = orders["coupon"].map(of).fillna(orders["channel"])
    frames = {**shape.frames, "orders": orders}
    return depending(DatabaseShape(frames, shape.spec), "orders", {"fd": "coupon -> channel"})


def of_one_price(customers: int) -> DatabaseShape:
    """Orders, also of guests, whose amount says where they were placed."""
    shape = guests(customers)
    orders = shape.frames["orders"].copy()
    orders["channel"] = np.where(orders["amount"] % 3 == 0, "web", "shop")
    frames = {**shape.frames, "orders": orders}
    return depending(DatabaseShape(frames, shape.spec), "orders", {"fd": "amount -> channel"})


def figures(trial: DatabaseTrial) -> dict[str, float]:
    """How far rows of a release, their references and those of one parent are from the data."""
    real, drawn = trial.real, trial.synthetic
    measured: dict[str, float] = {}
    for name, domain in trial.task.schema.tables.items():
        distances = [
            _half_l1(real.tables[name].codes[column], drawn.tables[name].codes[column])
            for column in domain.modelled
        ]
        measured[f"{name} 1-way"] = float(np.mean(distances))
    for key in trial.task.schema.keys:
        metrics = compare_relation(real, drawn, key).metrics()
        for name in ("sizes", "siblings", "across"):
            if f"{name}.half_l1" in metrics:
                measured[f"{key.column} {name}"] = metrics[f"{name}.half_l1"]
        if key.optional:
            shares = [float((each.references(key) == -1).mean()) for each in (real, drawn)]
            measured[f"{key.column} missing"] = abs(shares[0] - shares[1])
    return measured


def _half_l1(one: np.ndarray, two: np.ndarray) -> float:
    size = int(max(one.max(), two.max())) + 1
    shares = [np.bincount(each, minlength=size) / len(each) for each in (one, two)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def _customers(number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    return rng.integers(18, 80, number), np.array(list("news"))[rng.integers(0, 4, number)]


def _orders(
    region: np.ndarray, owner: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Nine of ten of a customer come from one channel, in the north mostly shops, and cost more."""
    usual = rng.random(len(region)) < np.where(region == "n", 0.8, 0.2)
    shop = (rng.random(len(owner)) < 0.9) == usual[owner]
    amount = rng.integers(0, 30, len(owner)) + 20 * shop
    return {"channel": np.where(shop, "shop", "web"), "amount": amount}


def _database(
    name: str,
    unit: str,
    frames: Mapping[str, Mapping[str, Any]],
    tables: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]],
) -> DatabaseShape:
    """Tables, by their attributes beside keys and their references."""
    rows = {table: pd.DataFrame(columns) for table, columns in frames.items()}
    key = {letter: {"type": "text", "pattern": f"{letter}{{000000..999999}}"} for letter in "ACPS"}
    declared = {}
    for table, (attributes, references) in tables.items():
        keys = {}
        for column in rows[table].columns.intersection(["id", *references]):
            texts = rows[table][column].dropna()
            missing = {"nullable": True} if len(texts) < len(rows[table]) else {}
            keys[column] = {**key[texts.iloc[0][0]], **missing}
        declared[table] = {"attributes": keys | dict(attributes), "rows": len(rows[table])}
        declared[table] |= {"references": dict(references)} if references else {}
        declared[table] |= {"key": "id"} if "id" in keys else {}
    return DatabaseShape(rows, spec_of_tables(name, unit, declared))
