"""What a training loop iterates over when the world changes size. Needs no framework, and imports none."""

from elastic.utils.data.cycling_iterator import CyclingIterator
from elastic.utils.data.sampler import ElasticDistributedSampler

__all__ = ["CyclingIterator", "ElasticDistributedSampler"]
