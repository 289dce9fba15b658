"""The variants of Kamino: each a sequencer, a trainer and a weigher, under a name of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cloister.constraints import DenialConstraint
from models.discretization.attribute_order import schema_sequence
from models.kamino.paper.ablations import Unweighed, random_sequence
from models.kamino.trainers import Joint, OneByOne, Trainer
from models.kamino.weighers import MatrixAscent, PairCounts, Weigher

Sequencer = Callable[[Mapping[str, int], Sequence[DenialConstraint]], tuple[str, ...]]


@dataclass(frozen=True)
class Recipe:
    """What a method called ``name`` is made of."""

    name: str
    summary: str
    trainer: Trainer
    weigher: Weigher
    sequencer: Sequencer = schema_sequence


JOINT = Recipe(
    "kamino",
    "tuple network trained by DP-SGD, rows drawn inside the supports of the hard constraints",
    Joint(),
    PairCounts(),
)

RECIPES = (
    JOINT,
    Recipe(
        "kamino-sequential",
        "kamino with one sub-model after another that hand embeddings on, softmax attention, and hyper-attributes",
        OneByOne(units="hyper-attributes"),
        PairCounts(),
    ),
    Recipe(
        "kamino-parallel",
        "kamino with one sub-model an attribute, each from its own start",
        OneByOne(inheritance="nothing"),
        PairCounts(),
    ),
    Recipe(
        "kamino-paper",
        "kamino as published: sub-models in sequence, normal heads for numbers, weights from a violation matrix",
        OneByOne(units="hyper-attributes", heads="normal"),
        MatrixAscent(),
    ),
    Recipe(
        "kamino-unsequenced",
        "kamino with an arbitrary sequence of attributes, to see what the schema sequence is worth",
        Joint(),
        PairCounts(),
        random_sequence,
    ),
    Recipe(
        "kamino-unweighed",
        "kamino with soft constraints left to the model, to see what their weights are worth",
        Joint(),
        Unweighed(),
    ),
)
