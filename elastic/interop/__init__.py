"""This package's rendezvous inside launchers that are not ours: torchrun, and tensorplay's.

:mod:`.torchrun` and :mod:`.tensorplay` each put a thin skin over the same two parts: :mod:`.participant`,
which speaks to the rendezvous for an agent that only knows the field's common interface, and
:mod:`.round_store`, whose waits end with the round. Each skin imports its framework at the top, so import
the one you need. Nothing else of this package imports these modules.
"""
