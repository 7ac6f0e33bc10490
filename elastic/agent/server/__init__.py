"""The agent of a node: it joins the rendezvous, runs the workers of each world, and reacts to both.

`LocalElasticAgent` is the one to use. `WorkerSpec` says what to run, `RunResult` how it ended.
"""

from .api import ElasticAgent, SimpleElasticAgent
from .finish import Finish
from .instruments import Instrument
from .local_elastic_agent import LocalElasticAgent
from .restarts import RestartPolicy
from .spec import RunResult, Worker, WorkerGroup, WorkerSpec, WorkerState

__all__ = [
    "ElasticAgent",
    "Finish",
    "Instrument",
    "LocalElasticAgent",
    "RestartPolicy",
    "RunResult",
    "SimpleElasticAgent",
    "Worker",
    "WorkerGroup",
    "WorkerSpec",
    "WorkerState",
]
