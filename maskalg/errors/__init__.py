"""Every message a user can meet, a module for each occasion.

Each says what was typed, what was found, and what to write instead.
"""

from .algebra import *
from .arguments import *
from .calls import *
from .catalogue import *
from .commands import *
from .elsewhere import *
from .exploring import *
from .exports import *
from .float8 import *
from .integrations import *
from .kinds import BackendError as BackendError
from .kinds import MaskalgError as MaskalgError
from .kinds import MaskAttributeError as MaskAttributeError
from .kinds import MaskTypeError as MaskTypeError
from .kinds import MaskValueError as MaskValueError
from .kinds import MissingPackageError as MissingPackageError
from .kinds import RecompilationWarning as RecompilationWarning
from .parsing import *
from .pictures import *
from .questions import *
from .strangers import *
from .tables import *
from .testing import *
from .tracing import *
from .tuning import *
from .weights import *
