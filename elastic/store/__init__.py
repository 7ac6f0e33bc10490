"""Key/value stores: what agents and workers use to exchange small values.

`Store` is the interface, `EtcdStore` (:mod:`elastic.store.etcd`) the one that a rendezvous on etcd
hands out. This package loads no client: import the store you need from its module.
"""

from .api import Store, StoreError, StoreTimeoutError

__all__ = ["Store", "StoreError", "StoreTimeoutError"]
