"""Small parts that know nothing of the rest of the project, and the documented names among them."""

from elastic.utils.environment import get_env_variable_or_raise
from elastic.utils.sockets import get_socket_with_port
from elastic.utils.substitution import macros

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]
