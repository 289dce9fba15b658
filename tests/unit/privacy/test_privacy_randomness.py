"""The two kinds of randomness: what they draw, and that neither can replace the other."""

import copy
import os
import pickle
from fractions import Fraction

import numpy as np
import pytest

from cloister.errors import PrivacyError
from cloister.privacy.mechanisms.randomness import NoiseSource, SamplingSource


def test_a_new_source_is_secure_and_never_repeats_and_a_seeded_one_says_that_it_is_not() -> None:
    first, second = NoiseSource(), NoiseSource()
    assert first.secure
    assert first.stream(32) != second.stream(32)
    assert first.stream(32) != first.stream(32)
    first, second, different = (NoiseSource.insecure(seed) for seed in (7, 7, 8))
    assert not first.secure
    drawn = first.normals((3, 5))
    assert (drawn == second.normals((3, 5))).all()
    assert not (drawn == different.normals((3, 5))).any()
    with pytest.raises(TypeError):
        NoiseSource(7)  # type: ignore[call-arg]


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_source_cannot_be_duplicated(duplicate: object) -> None:
    with pytest.raises(PrivacyError, match="copied or pickled"):
        duplicate(NoiseSource())  # type: ignore[operator]


def test_a_forked_process_draws_other_noise() -> None:
    source = NoiseSource()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, source.stream(32))
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 32) != source.stream(32)


def test_the_kinds_share_no_method() -> None:
    noise = {name for name in dir(NoiseSource) if not name.startswith("_")}
    sampling = {name for name in dir(SamplingSource(1)) if not name.startswith("_")}
    assert not noise & sampling
    assert not issubclass(SamplingSource, NoiseSource)
    assert not issubclass(NoiseSource, SamplingSource)


@pytest.mark.parametrize("shape", [0, 1, 7, (2, 3), (0, 4), 300_001])
def test_normals_have_the_given_shape(shape: int | tuple[int, ...]) -> None:
    drawn = NoiseSource().normals(shape)
    assert drawn.shape == ((shape,) if isinstance(shape, int) else shape)
    assert drawn.dtype == np.float64
    assert np.isfinite(drawn).all()


def test_a_mask_has_its_extremes_exactly_and_a_rate_between_them() -> None:
    source = NoiseSource()
    assert source.bernoulli(Fraction(1), 10_000).all()
    assert not source.bernoulli(Fraction(0), 10_000).any()
    assert not source.bernoulli(Fraction(1, 2**65), 10_000).any()
    for rate in (Fraction(-1, 10), Fraction(11, 10)):
        with pytest.raises(PrivacyError, match="between 0 and 1"):
            source.bernoulli(rate, 3)


def test_integers_lie_below_their_bound_and_permutations_hold_every_number_once() -> None:
    source = NoiseSource()
    for bound in (1, 2, 3, 1000, 2**62 + 1, 2**63):
        drawn = source.integers(bound, 1000)
        assert drawn.min() >= 0
        assert int(drawn.max()) < bound
    for bound in (0, -1, 2**63 + 1):
        with pytest.raises(PrivacyError, match="bound"):
            source.integers(bound, 1)
    for count in (0, 1, 2, 1000):
        assert (np.sort(source.permutation(count)) == np.arange(count)).all()


@pytest.mark.parametrize("digits", [0, 54, 63])
def test_a_permutation_is_the_order_of_its_words_also_where_they_begin_alike(digits: int) -> None:
    source = NoiseSource.insecure(3)
    words = NoiseSource.insecure(3).words(1_000) >> np.uint64(digits)
    later = np.random.default_rng(0).permutation(1_000).astype(np.uint64)
    drawn = [words, later]
    source.words = lambda count: drawn.pop(0)  # type: ignore[method-assign]
    distinct = len(np.unique(words)) == len(words)
    assert distinct == (digits == 0)
    assert (source.permutation(1_000) == np.argsort(words if distinct else later)).all()


def test_sampling_repeats_from_its_seed_and_spawns_apart() -> None:
    source = SamplingSource(5)
    again = SamplingSource(source.seed)
    assert source.generator.random() == again.generator.random()
    draws = [child.generator.random() for child in source.spawn(3)]
    assert draws == [child.generator.random() for child in again.spawn(3)]
    assert len(set(draws)) == 3
    assert SamplingSource().seed != SamplingSource().seed
