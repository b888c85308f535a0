"""Every attempt."""

from .files import FILES
from .kernel import KERNEL
from .processes import PROCESSES
from .reach import REACH

ATTEMPTS = [*FILES, *PROCESSES, *REACH, *KERNEL]
