"""The variants of Kamino that reproduce its paper, or switch parts of it off."""

from __future__ import annotations

from cloister.models.kamino.paper.ablations import Unweighed, random_sequence
from cloister.models.kamino.paper.training.matrix_ascent import MatrixAscent
from cloister.models.kamino.paper.training.one_by_one import OneByOne, SideBySide
from cloister.models.kamino.recipe import KaminoRecipe
from cloister.models.kamino.trainers import Joint
from cloister.models.kamino.weighing import ByRates
from cloister.models.planning import printed_sequence

PRINTED = "kamino-paper"
"""The method that is as printed."""

PAPER_RECIPES = (
    KaminoRecipe(
        "kamino-sequential",
        "kamino with one sub-model after another, each from the embeddings of the last, softmax "
        "attention, and hyper-attributes",
        OneByOne(units="hyper-attributes"),
        ByRates(),
    ),
    KaminoRecipe(
        "kamino-parallel",
        "kamino with one sub-model an attribute, each from its own start, all trained at once",
        SideBySide(),
        ByRates(),
    ),
    KaminoRecipe(
        PRINTED,
        "kamino as its paper prints it: sub-models in sequence by plain gradient descent, weights "
        "from a violation matrix, rows one after the other",
        OneByOne(units="hyper-attributes", heads="normal"),
        MatrixAscent(),
        printed_sequence,
    ),
    KaminoRecipe(
        "kamino-unsequenced",
        "kamino with an arbitrary sequence of attributes, to see what the schema sequence is worth",
        Joint(),
        ByRates(),
        random_sequence,
    ),
    KaminoRecipe(
        "kamino-unweighed",
        "kamino with soft constraints left to the model, to see what their weights are worth",
        Joint(),
        Unweighed(),
    ),
)
