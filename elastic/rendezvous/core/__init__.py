"""The membership protocol, as pure decisions over values.

How nodes agree on who is in the world, in five sentences. Every node keeps one record of its own,
under a lease, that says what it wants. One node leads: it alone moves the ``round`` record forward,
in transactions guarded by its leadership and by the round it last saw. A round is *open* while
nodes gather and *formed* once its world (members, ranks, master address) is committed. A member
that is lost, leaves or must restart makes the leader open the next round; its members see that,
stop their workers and join. A ``closed`` record ends it all.

Nothing here does IO, reads a clock, starts a thread or logs: time comes in as a number of seconds
on some monotonic clock, knowledge comes in as records with the revision that wrote them, and what
should happen goes out as values (:mod:`.actions`). So the whole protocol runs in a simulator.

=================  =========================================================================
module             what it holds
=================  =========================================================================
:mod:`.records`    the records, as values
:mod:`.view`       what one node knows of the shared state, each part with its revision
:mod:`.rules`      the numbers that the decisions depend on
:mod:`.actions`    what a decision can ask for
:mod:`.formation`  who is in the next world, and in which order
:mod:`.member`     what a node's own record should say, and what that means for its workers
:mod:`.memory`     what the leader remembers between decisions
:mod:`.leader`     what the leader does next
:mod:`.protocol`   one node's whole half of the protocol: the three above, put together
:mod:`.invariants` what must hold of every history, for the tests
=================  =========================================================================
"""
