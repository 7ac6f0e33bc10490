from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Node(_message.Message):
    __slots__ = ("schema", "node_id", "want", "round", "rank", "name", "address", "hostname", "pid", "local_world_size", "role", "master_port", "labels", "cause", "failure", "written_at", "draining")
    class Want(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Node.Want]
        JOINING: _ClassVar[Node.Want]
        ACTIVE: _ClassVar[Node.Want]
        STOPPING: _ClassVar[Node.Want]
        DONE: _ClassVar[Node.Want]
        WAITING: _ClassVar[Node.Want]
        SPARE: _ClassVar[Node.Want]
        LEAVING: _ClassVar[Node.Want]
    UNKNOWN: Node.Want
    JOINING: Node.Want
    ACTIVE: Node.Want
    STOPPING: Node.Want
    DONE: Node.Want
    WAITING: Node.Want
    SPARE: Node.Want
    LEAVING: Node.Want
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WANT_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    LOCAL_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    schema: int
    node_id: str
    want: Node.Want
    round: int
    rank: int
    name: str
    address: str
    hostname: str
    pid: int
    local_world_size: int
    role: str
    master_port: int
    labels: _containers.ScalarMap[str, str]
    cause: str
    failure: Failure
    written_at: str
    draining: bool
    def __init__(self, schema: _Optional[int] = ..., node_id: _Optional[str] = ..., want: _Optional[_Union[Node.Want, str]] = ..., round: _Optional[int] = ..., rank: _Optional[int] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., hostname: _Optional[str] = ..., pid: _Optional[int] = ..., local_world_size: _Optional[int] = ..., role: _Optional[str] = ..., master_port: _Optional[int] = ..., labels: _Optional[_Mapping[str, str]] = ..., cause: _Optional[str] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., written_at: _Optional[str] = ..., draining: bool = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("round", "rank", "local_rank", "exit_code", "message", "final", "hostname", "pid", "signal", "error", "traceback", "stderr", "hint", "log", "error_file", "time")
    ROUND_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TRACEBACK_FIELD_NUMBER: _ClassVar[int]
    STDERR_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    ERROR_FILE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    round: int
    rank: int
    local_rank: int
    exit_code: int
    message: str
    final: bool
    hostname: str
    pid: int
    signal: int
    error: str
    traceback: str
    stderr: str
    hint: str
    log: str
    error_file: str
    time: int
    def __init__(self, round: _Optional[int] = ..., rank: _Optional[int] = ..., local_rank: _Optional[int] = ..., exit_code: _Optional[int] = ..., message: _Optional[str] = ..., final: bool = ..., hostname: _Optional[str] = ..., pid: _Optional[int] = ..., signal: _Optional[int] = ..., error: _Optional[str] = ..., traceback: _Optional[str] = ..., stderr: _Optional[str] = ..., hint: _Optional[str] = ..., log: _Optional[str] = ..., error_file: _Optional[str] = ..., time: _Optional[int] = ...) -> None: ...

class Round(_message.Message):
    __slots__ = ("schema", "incarnation", "round", "phase", "world", "master_addr", "master_port", "nodes_waiting", "departed", "failures", "cause", "min_nodes", "max_nodes", "written_at", "nodes_leaving", "trigger", "finished")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Round.Phase]
        OPEN: _ClassVar[Round.Phase]
        FORMED: _ClassVar[Round.Phase]
    UNKNOWN: Round.Phase
    OPEN: Round.Phase
    FORMED: Round.Phase
    class Trigger(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNTOLD: _ClassVar[Round.Trigger]
        START: _ClassVar[Round.Trigger]
        FAILURE: _ClassVar[Round.Trigger]
        LOST: _ClassVar[Round.Trigger]
        LEFT: _ClassVar[Round.Trigger]
        REPLACED: _ClassVar[Round.Trigger]
        ARRIVAL: _ClassVar[Round.Trigger]
        REQUEST: _ClassVar[Round.Trigger]
        RECOVERY: _ClassVar[Round.Trigger]
    UNTOLD: Round.Trigger
    START: Round.Trigger
    FAILURE: Round.Trigger
    LOST: Round.Trigger
    LEFT: Round.Trigger
    REPLACED: Round.Trigger
    ARRIVAL: Round.Trigger
    REQUEST: Round.Trigger
    RECOVERY: Round.Trigger
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    WORLD_FIELD_NUMBER: _ClassVar[int]
    MASTER_ADDR_FIELD_NUMBER: _ClassVar[int]
    MASTER_PORT_FIELD_NUMBER: _ClassVar[int]
    NODES_WAITING_FIELD_NUMBER: _ClassVar[int]
    DEPARTED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    MIN_NODES_FIELD_NUMBER: _ClassVar[int]
    MAX_NODES_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_FIELD_NUMBER: _ClassVar[int]
    NODES_LEAVING_FIELD_NUMBER: _ClassVar[int]
    TRIGGER_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    schema: int
    incarnation: int
    round: int
    phase: Round.Phase
    world: _containers.RepeatedCompositeFieldContainer[Member]
    master_addr: str
    master_port: int
    nodes_waiting: int
    departed: int
    failures: int
    cause: str
    min_nodes: int
    max_nodes: int
    written_at: str
    nodes_leaving: int
    trigger: Round.Trigger
    finished: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, schema: _Optional[int] = ..., incarnation: _Optional[int] = ..., round: _Optional[int] = ..., phase: _Optional[_Union[Round.Phase, str]] = ..., world: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., master_addr: _Optional[str] = ..., master_port: _Optional[int] = ..., nodes_waiting: _Optional[int] = ..., departed: _Optional[int] = ..., failures: _Optional[int] = ..., cause: _Optional[str] = ..., min_nodes: _Optional[int] = ..., max_nodes: _Optional[int] = ..., written_at: _Optional[str] = ..., nodes_leaving: _Optional[int] = ..., trigger: _Optional[_Union[Round.Trigger, str]] = ..., finished: _Optional[_Iterable[int]] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("node_id", "name", "address", "hostname", "local_world_size", "role")
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    LOCAL_WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    node_id: str
    name: str
    address: str
    hostname: str
    local_world_size: int
    role: str
    def __init__(self, node_id: _Optional[str] = ..., name: _Optional[str] = ..., address: _Optional[str] = ..., hostname: _Optional[str] = ..., local_world_size: _Optional[int] = ..., role: _Optional[str] = ...) -> None: ...

class Terminal(_message.Message):
    __slots__ = ("schema", "outcome", "reason", "exit_code", "incarnation", "round", "node_id", "job_token", "failure", "written_at")
    class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        UNKNOWN: _ClassVar[Terminal.Outcome]
        SUCCEEDED: _ClassVar[Terminal.Outcome]
        FAILED: _ClassVar[Terminal.Outcome]
        CLOSED: _ClassVar[Terminal.Outcome]
    UNKNOWN: Terminal.Outcome
    SUCCEEDED: Terminal.Outcome
    FAILED: Terminal.Outcome
    CLOSED: Terminal.Outcome
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_FIELD_NUMBER: _ClassVar[int]
    schema: int
    outcome: Terminal.Outcome
    reason: str
    exit_code: int
    incarnation: int
    round: int
    node_id: str
    job_token: str
    failure: Failure
    written_at: str
    def __init__(self, schema: _Optional[int] = ..., outcome: _Optional[_Union[Terminal.Outcome, str]] = ..., reason: _Optional[str] = ..., exit_code: _Optional[int] = ..., incarnation: _Optional[int] = ..., round: _Optional[int] = ..., node_id: _Optional[str] = ..., job_token: _Optional[str] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., written_at: _Optional[str] = ...) -> None: ...

class Leader(_message.Message):
    __slots__ = ("schema", "node_id", "written_at")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_FIELD_NUMBER: _ClassVar[int]
    schema: int
    node_id: str
    written_at: str
    def __init__(self, schema: _Optional[int] = ..., node_id: _Optional[str] = ..., written_at: _Optional[str] = ...) -> None: ...

class Control(_message.Message):
    __slots__ = ("schema", "find_stragglers", "written_at")
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    FIND_STRAGGLERS_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_AT_FIELD_NUMBER: _ClassVar[int]
    schema: int
    find_stragglers: bool
    written_at: str
    def __init__(self, schema: _Optional[int] = ..., find_stragglers: bool = ..., written_at: _Optional[str] = ...) -> None: ...
