"""The place of random sources in version 0.1: the programs of models that MLflow kept import one from here."""

from cloister.privacy.mechanisms.randomness import SamplingSource

__all__ = ["SamplingSource"]
