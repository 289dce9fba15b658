"""Two kinds of randomness that cannot be confused: secret noise, and sampling.

`NoiseSource` is for privacy: its key comes from the operating system, its stream is AES-256 in
counter mode, it cannot be copied, pickled or shared with a forked process, and nothing outlives the
run. `SamplingSource` draws synthetic rows, which is post-processing: it may be seeded, repeated and
published. They share no base class and no method name, so that neither can be used in place of the
other.

An insecure `NoiseSource` is for tests, and nothing drawn from it is private. OpenDP's samplers take
their randomness from the operating system and no seed: repeatable stand-ins draw the same
distributions to floating-point accuracy from an insecure source, and refuse a secure one, so that
no release can reach them.
"""

from __future__ import annotations

import hashlib
import math
import os
import threading
from fractions import Fraction
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from numpy.typing import NDArray

from cloister.arrays import Booleans, Floats, Integers
from cloister.errors import PrivacyError

_Words = NDArray[np.uint64]

WORD = 2**64
"""Number of values of a 64-bit word."""

_WORDS_AT_ONCE = 2**20
"""Words of the stream that are compared at once: 8 MiB."""

_CHUNK = 2**17
"""Normals computed at once: their random words take 4 MiB."""

_DRAWS = 4
"""Normals that are added up for one."""


_DENSE = 4
"""Numbers for each that is chosen, up to which all are put in order: about equally fast there."""


class NoiseSource:
    """Secret random numbers for privacy noise and for Poisson sampling.

    Privacy: computational differential privacy under AES-256 as a pseudo-random function. `secure`
    is False only for a source made by `insecure`; whatever such a source touched is not private.
    """

    def __init__(self) -> None:
        self._start(os.urandom(32), secure=True)

    @classmethod
    def insecure(cls, seed: int) -> NoiseSource:
        """A repeatable source for tests.

        Everything drawn from it is public, and what is made with it is not private.
        """
        source = cls.__new__(cls)
        source._start(hashlib.sha256(f"insecure {seed}".encode()).digest(), secure=False)
        return source

    @property
    def secure(self) -> bool:
        """Whether the key came from the operating system."""
        return self._secure

    def stream(self, count: int) -> bytes:
        """The next ``count`` bytes of the stream."""
        with self._lock:
            self._leave_parent_process()
            return self._cipher.update(bytes(count))

    def words(self, count: int) -> _Words:
        """Even 64-bit integers (count,)."""
        return np.frombuffer(self.stream(8 * count), dtype=np.uint64)

    def integers(self, bound: int, count: int) -> Integers:
        """Even integers (count,) in 0..bound-1, without modulo bias; bound at most 2^63."""
        if not 0 < bound <= WORD // 2:
            raise PrivacyError(f"Even integers need a bound between 1 and 2^63, not {bound}.")
        limit = WORD - WORD % bound
        drawn = self.words(count).copy()
        while limit < WORD and (late := np.flatnonzero(drawn >= np.uint64(limit))).size:
            drawn[late] = self.words(late.size)
        return (drawn % np.uint64(bound)).astype(np.int64)

    def normals(self, shape: int | tuple[int, ...]) -> Floats:
        """Standard normals of the given shape.

        Each is half the sum of four normals from different Box-Muller pairs. Source: Holohan and
        Braghin, "Secure random sampling in differential privacy" (ESORICS 2021), section 4: the sum
        hides the floating-point lattice of a single draw, so that the sampler cannot be inverted.
        """
        size = math.prod(shape) if isinstance(shape, tuple) else shape
        out = np.empty(size)
        for start in range(0, size, _CHUNK):
            part = out[start : start + _CHUNK]
            cosines, sines = _box_muller(self.words(2 * _DRAWS * (part.size // 2 + 1)))
            part[:] = ((cosines[0] + cosines[1] + np.roll(sines[0] + sines[1], 1)) / 2)[: part.size]
        return out.reshape(shape)

    def bernoulli(self, rate: Fraction, count: int) -> Booleans:
        """A mask (count,) of independent entries, each True with probability ``rate``.

        The probability is rounded down to a multiple of 2^-64.
        """
        if not 0 <= rate <= 1:
            raise PrivacyError(f"A sampling rate lies between 0 and 1, not at {rate}.")
        threshold = math.floor(rate * WORD)
        mask = np.ones(count, dtype=np.bool_)
        if threshold < WORD:
            for start in range(0, count, _WORDS_AT_ONCE):
                part = mask[start : start + _WORDS_AT_ONCE]
                np.less(self.words(part.size), np.uint64(threshold), out=part)
        return mask

    def permutation(self, count: int) -> Integers:
        """An even random order of 0..count-1: that of as many words, drawn anew if two are equal.

        Memory is 8 bytes a number, and 24 while they are put in order.
        """
        digits = np.uint64(max(count - 1, 0).bit_length())
        places = (np.uint64(1) << digits) - np.uint64(1)
        while True:
            keys = self.words(count)
            line = keys & ~places
            line |= np.arange(count, dtype=np.uint64)
            line.sort()  # by the first digits of a word; its place stands in the last ones
            alike = line[1:] ^ line[:-1] <= places
            line &= places
            order = line.view(np.int64)
            tied = np.flatnonzero(np.append(alike, False) | np.append(False, alike))
            order[tied] = order[tied][np.argsort(keys[order[tied]])]
            if len(np.unique(keys[order[tied]])) == len(tied):
                return order

    def ordered_sample(self, count: int, size: int) -> Integers:
        """An even random choice of ``size`` of 0..count-1, in even random order.

        Of many more numbers than ``size`` memory is some 40 bytes for each that is chosen: even
        numbers in succession of which those drawn before are left out.
        """
        if count <= _DENSE * size:
            return self.permutation(count)[:size]
        chosen = np.empty(0, dtype=np.int64)
        while len(chosen) < size:
            drawn = np.concatenate([chosen, self.integers(count, size)])
            chosen = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
        return chosen[:size]

    def _start(self, key: bytes, *, secure: bool) -> None:
        self._secure = secure
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._cipher: CipherContext = Cipher(
            algorithms.AES256(key), modes.CTR(bytes(16))
        ).encryptor()

    def _leave_parent_process(self) -> None:
        if os.getpid() == self._process:
            return
        if not self._secure:
            raise PrivacyError(
                "An insecure noise source cannot be used in a forked process; make one there."
            )
        self._process = os.getpid()
        self._cipher = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16))).encryptor()

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise PrivacyError(
            "A noise source cannot be copied or pickled: the copy would draw the same noise again."
        )


class SamplingSource:
    """Seedable randomness for drawing synthetic rows, which is post-processing and free.

    Without a seed one is taken from the operating system; `seed` gives it, so that a draw can be
    repeated.
    """

    def __init__(self, seed: int | np.random.SeedSequence | None = None) -> None:
        self._sequence = (
            seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
        )
        self.generator = np.random.Generator(np.random.PCG64(self._sequence))

    @property
    def seed(self) -> int:
        """The number that repeats this source, and all spawned from it in the same order."""
        entropy = self._sequence.entropy
        if not isinstance(entropy, int):
            raise PrivacyError(
                "This sampling source was made from several numbers and has no single seed."
            )
        return entropy

    def spawn(self, count: int) -> list[SamplingSource]:
        """Independent sources (count) for parallel draws."""
        return [SamplingSource(child) for child in self._sequence.spawn(count)]


def _box_muller(words: _Words) -> tuple[Floats, Floats]:
    radii, angles = words.astype(np.float64).reshape(2, 2, -1)
    radii, angles = np.sqrt(-2.0 * np.log((radii + 1.0) / WORD)), angles * (2.0 * np.pi / WORD)
    return radii * np.cos(angles), radii * np.sin(angles)


def noise_source() -> NoiseSource:
    """The source of all noise of releases: fresh entropy of the operating system."""
    return NoiseSource()


_WIDTH = 12
"""Standard deviations that the table of a discrete Gaussian reaches on both sides."""

_LARGEST_TABLE_SCALE = 10_000.0
"""Largest scale, in rows, that is drawn from a table; beyond, normals are rounded."""


def insecure_gaussian(scale: float, count: int, source: NoiseSource) -> Integers:
    """Discrete Gaussian noise (count,) by inverting a table of its distribution.

    Rounded normals for large scales.
    """
    refuse_secure(source)
    if scale > _LARGEST_TABLE_SCALE:
        return np.rint(scale * source.normals(count)).astype(np.int64)
    edge = math.ceil(_WIDTH * scale) + 1
    support = np.arange(-edge, edge + 1)
    below = np.cumsum(np.exp(-(support**2) / (2 * scale**2)))
    places = np.searchsorted(below, _uniforms(count, source) * below[-1])
    return np.asarray(places - edge, dtype=np.int64)


def insecure_laplace(scale: float, count: int, source: NoiseSource) -> Integers:
    """Discrete Laplace noise (count,): the difference of two geometric draws."""
    refuse_secure(source)
    draws = np.floor(-scale * np.log(_uniforms(2 * count, source)))
    return (draws[:count] - draws[count:]).astype(np.int64)


def insecure_exponentials(count: int, source: NoiseSource) -> Floats:
    """Standard exponential noise (count,)."""
    refuse_secure(source)
    return -np.log(_uniforms(count, source))


def refuse_secure(source: NoiseSource) -> None:
    """Raise PrivacyError for a secure source: its noise must come from the exact samplers."""
    if source.secure:
        raise PrivacyError(
            "A secure noise source must not be used with the repeatable stand-ins for tests."
        )


def _uniforms(count: int, source: NoiseSource) -> Floats:
    return (source.words(count).astype(np.float64) + 1.0) / WORD
