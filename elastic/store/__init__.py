"""Key/value stores: what agents and workers use to exchange small values.

`Store` is the interface. `TCPStore` lives in the memory of one of its users and `FileStore` in a file that
they share; `PrefixStore` is a part of another store; `as_store` takes those of torch and tensorplay.
`EtcdStore` (:mod:`elastic.store.etcd`) is the one that a rendezvous on etcd hands out, and the only one to
import from its module: this package loads no client.
"""

from .api import Store, StoreDeniedError, StoreError, StoreTimeoutError
from .file import FileStore
from .foreign import as_store
from .limits import Limits
from .prefix import PrefixStore
from .server import TCPStoreServer
from .tcp import TCPStore

__all__ = [
    "FileStore",
    "Limits",
    "PrefixStore",
    "Store",
    "StoreDeniedError",
    "StoreError",
    "StoreTimeoutError",
    "TCPStore",
    "TCPStoreServer",
    "as_store",
]
