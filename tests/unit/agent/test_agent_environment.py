"""The environment of a worker: exactly the names that workers of the field read, and ours."""

from __future__ import annotations

from dataclasses import replace

from elastic.agent.server.environment import JobFacts, worker_environment
from elastic.agent.server.ranks import WorkerRanks

FACTS = JobFacts(
    run_id="job-1",
    round=7,
    node_id="host-123-abc",
    node_rank=1,
    node_count=2,
    local_world_size=1,
    role="trainer",
    master_addr="10.0.0.1",
    master_port=29501,
    failures=2,
    max_restarts=3,
    uses_agent_store=False,
    shutdown_timeout=30.0,
    node_failures=1,
)
RANKS = WorkerRanks(local_rank=0, rank=3, world_size=4, role_rank=2, role_world_size=3)


def test_the_complete_set() -> None:
    assert worker_environment(FACTS, RANKS, {}) == {
        "LOCAL_RANK": "0",
        "RANK": "3",
        "GROUP_RANK": "1",
        "ROLE_RANK": "2",
        "ROLE_NAME": "trainer",
        "LOCAL_WORLD_SIZE": "1",
        "WORLD_SIZE": "4",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_WORLD_SIZE": "3",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29501",
        "TORCHELASTIC_RESTART_COUNT": "2",
        "TORCHELASTIC_MAX_RESTARTS": "3",
        "TORCHELASTIC_RUN_ID": "job-1",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "ELASTIC_RUN_ID": "job-1",
        "ELASTIC_ROUND": "7",
        "ELASTIC_NODE_ID": "host-123-abc",
        "ELASTIC_NODE_FAILURES": "1",
        "ELASTIC_SHUTDOWN_TIMEOUT": "30",
    }


def test_an_agents_own_choice_stays() -> None:
    inherited = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "OMP_NUM_THREADS": "8", "RANK": "99"}
    found = worker_environment(FACTS, RANKS, inherited)
    assert found["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert found["RANK"] == "3", "an outer job's rank is not the worker's"
    assert "OMP_NUM_THREADS" not in found, "what is only inherited is not said again"


def test_the_agents_store_is_named_as_the_frameworks_read_it() -> None:
    found = worker_environment(replace(FACTS, uses_agent_store=True), RANKS, {})
    assert found["TORCHELASTIC_USE_AGENT_STORE"] == "True"


def test_a_fraction_of_a_second_is_kept() -> None:
    found = worker_environment(replace(FACTS, shutdown_timeout=0.5), RANKS, {})
    assert found["ELASTIC_SHUTDOWN_TIMEOUT"] == "0.5"


def test_everything_is_text_that_an_environment_can_hold() -> None:
    for name, value in worker_environment(FACTS, RANKS, {}).items():
        assert "=" not in name
        assert "\0" not in name + value


def test_a_password_of_etcd_is_kept_from_workers() -> None:
    assert (
        worker_environment(FACTS, RANKS, {"ELASTIC_ETCD_PASSWORD": "secret"})["ELASTIC_ETCD_PASSWORD"] == ""
    )
